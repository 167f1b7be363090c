//! Finds out that every thread that counts as working is blocked by a lock, and lets the clock jump
//! then.
//!
//! A thread's state and the number of times that it was blocked are read twice. If all threads were
//! blocked at both times and none was woken in between, all were blocked at the end of the first
//! reading. Only a thread that works, or the clock, could have unblocked one since.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::thread::Pid;

/// What is watched.
pub(super) trait Watched: Send + Sync {
    /// The threads that neither sleep nor have left, and the number of changes so far. `None` if no
    /// thread waits for a time.
    fn at_work(&self) -> Option<(Vec<Pid>, u64)>;

    /// Jumps although threads count as working, unless something has changed since.
    fn jump_past(&self, changes: u64);
}

/// How often it looks.
const PAUSE: Duration = Duration::from_micros(100);

/// Watches a model until it is gone.
pub(super) fn start(model: &Arc<dyn Watched>) {
    let model = Arc::downgrade(model);
    std::thread::spawn(move || watch(&model));
}

fn watch(model: &Weak<dyn Watched>) {
    let mut before = None;
    loop {
        std::thread::sleep(PAUSE);
        let Some(model) = model.upgrade() else { return };
        let Some((threads, changes)) = model.at_work() else { continue };
        // What changes all the time is not stuck.
        if before.replace(changes) == Some(changes) && are_blocked(&threads) {
            model.jump_past(changes);
        }
    }
}

fn are_blocked(threads: &[Pid]) -> bool {
    let read = || threads.iter().map(|thread| times_blocked(*thread)).collect::<Option<Vec<_>>>();
    read().is_some_and(|first| read() == Some(first))
}

/// How often the thread was blocked, if it is.
fn times_blocked(thread: Pid) -> Option<u64> {
    let path = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    let status = std::fs::read_to_string(path).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if !field("State:")?.starts_with('S') {
        return None;
    }
    field("voluntary_ctxt_switches:")?.parse().ok()
}
