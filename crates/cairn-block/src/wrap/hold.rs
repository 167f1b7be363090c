//! [`Hold`]: a device whose flushes wait until a test releases them.
//!
//! Flushes and preflushes are held before they reach the inner device; everything else passes.
//! Locking: a leaf, waited under by those who flush.

use std::sync::Arc;

use cairn_base::ranked_lock::{Condvar, Mutex, Rank};

use crate::device::{Batch, BlockDevice, Completion, Geometry, Growable};
use crate::error::{Error, ErrorKind, Result};
use crate::zoned::ZonedDevice;

/// What becomes of flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushing {
    /// They pass.
    Free,
    /// They wait.
    Held,
    /// They fail.
    Failing,
}

/// A device whose flushes wait until a test releases them.
pub struct Hold {
    inner: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    flushing: Flushing,
    waiting: usize,
}

impl Hold {
    /// Around `inner`; nothing is held yet.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        let state = Mutex::new(Rank::Leaf, State { flushing: Flushing::Free, waiting: 0 });
        Self { inner, state, changed: Condvar::new() }
    }

    /// Decides what happens to waiting and later flushes.
    pub fn set(&self, flushing: Flushing) {
        self.state.lock().flushing = flushing;
        self.changed.notify_all();
    }

    /// Flushes that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Returns when so many flushes wait.
    pub fn wait_for(&self, count: usize) {
        let mut state = self.state.lock();
        while state.waiting < count {
            self.changed.wait(&mut state);
        }
    }

    fn admit(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.flushing == Flushing::Held {
            state.waiting += 1;
            self.changed.notify_all();
            while state.flushing == Flushing::Held {
                self.changed.wait(&mut state);
            }
            state.waiting -= 1;
        }
        if state.flushing == Flushing::Failing {
            return Err(Error::new(ErrorKind::Io, "flush", "it was held, and then it failed"));
        }
        Ok(())
    }
}

impl BlockDevice for Hold {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        if batch.durability.preflush
            && let Err(error) = self.admit()
        {
            return Completion::ready(Err(error));
        }
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.admit()?;
        self.inner.flush()
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        self.inner.as_zoned()
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        self.inner.as_growable()
    }
}
