//! [`ReadaheadQueue`]: the readahead windows of a volume that wait for the daemon.
//!
//! Locking: the queue has rank Cache. It is held for a push or a pop only.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Event;

use crate::writeback::Flushable;

/// Most windows that wait; further ones are dropped.
const MAX_WINDOWS: usize = 64;

/// One window: an inode and the blocks to read.
type Window = (Weak<dyn Flushable>, Range<u64>);

/// Windows that the daemon has not begun to read.
pub(crate) struct ReadaheadQueue {
    windows: Mutex<VecDeque<Window>>,
    wake: Arc<Event>,
    /// The daemon runs.
    served: AtomicBool,
}

impl ReadaheadQueue {
    pub(crate) fn new() -> Self {
        let windows = Mutex::new(Rank::Cache, VecDeque::new());
        Self { windows, wake: Arc::new(Event::new()), served: AtomicBool::new(false) }
    }

    /// The event that wakes the daemon.
    pub(crate) fn wake(&self) -> Arc<Event> {
        self.wake.clone()
    }

    /// The daemon runs from now on.
    pub(crate) fn set_served(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    /// True if a daemon takes windows from the queue.
    pub(crate) fn is_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// Adds a window and wakes the daemon. A full queue drops the window.
    pub(crate) fn push(&self, owner: Weak<dyn Flushable>, blocks: Range<u64>) {
        let mut windows = self.windows.lock();
        if windows.len() < MAX_WINDOWS {
            windows.push_back((owner, blocks));
            drop(windows);
            self.wake.notify();
        }
    }

    /// Takes the oldest window.
    pub(crate) fn pop(&self) -> Option<Window> {
        self.windows.lock().pop_front()
    }
}
