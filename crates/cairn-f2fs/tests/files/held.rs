//! A device whose forced writes wait until they are released. A checkpoint thus stops before its
//! last block.

use std::sync::Arc;

use cairn_base::ranked_lock::{Condvar, Mutex, Rank};
use cairn_block::{Batch, BlockDevice, Completion, Geometry, Result};

pub struct Held {
    inner: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    holds: bool,
    /// Forced writes since [`Held::hold`], and how many of them are released.
    came: u64,
    released: u64,
}

impl Held {
    pub fn new(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        let state = Mutex::new(Rank::Leaf, State::default());
        Arc::new(Self { inner, state, changed: Condvar::new() })
    }

    /// From now on forced writes wait.
    pub fn hold(&self) {
        *self.state.lock() = State { holds: true, ..State::default() };
    }

    /// Releases the next one.
    pub fn release(&self) {
        self.state.lock().released += 1;
        self.changed.notify_all();
    }

    /// Releases all.
    pub fn open(&self) {
        self.state.lock().holds = false;
        self.changed.notify_all();
    }

    /// Waits until `count` writes wait.
    pub fn wait_for(&self, count: u64) {
        let mut state = self.state.lock();
        while state.came < count {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until this write is released.
    fn pass(&self) {
        let mut state = self.state.lock();
        state.came += 1;
        let mine = state.came;
        self.changed.notify_all();
        while state.holds && state.released < mine {
            self.changed.wait(&mut state);
        }
    }
}

impl BlockDevice for Held {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        if batch.durability.fua {
            self.pass();
        }
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
}
