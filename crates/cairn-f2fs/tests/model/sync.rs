//! The checker's primitives with the interface of the crate's own. As with the real event, a thread
//! that has read the generation before its check misses no notification.

use loom::sync::{Condvar, MutexGuard};

/// A lock that is never poisoned.
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// A lock around `value`.
pub fn mutex<T>(value: T) -> Mutex<T> {
    Mutex(loom::sync::Mutex::new(value))
}

impl<T> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// See `cairn_base::runtime::Event`.
pub struct Event {
    generation: loom::sync::Mutex<u64>,
    changed: Condvar,
}

impl Event {
    pub fn new() -> Self {
        Self { generation: loom::sync::Mutex::new(0), changed: Condvar::new() }
    }

    pub fn notify(&self) {
        *self.generation.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    pub fn generation(&self) -> u64 {
        *self.generation.lock().unwrap()
    }

    pub fn wait_past(&self, seen: u64) {
        let mut generation = self.generation.lock().unwrap();
        while *generation == seen {
            generation = self.changed.wait(generation).unwrap();
        }
    }

    /// The loop in which a runtime waits.
    pub fn wait_until(&self, ready: &mut dyn FnMut() -> bool) {
        loop {
            let seen = self.generation();
            if ready() {
                return;
            }
            self.wait_past(seen);
        }
    }
}
