//! Starting threads where memory may be refused (`ulimit -v`, strict overcommitment).
//!
//! A new thread needs memory before its body runs: Rust's runtime maps a stack for signals and
//! copies the name, the allocator makes lists for the thread. If one of these is refused, the whole
//! process aborts. [`spawn`] therefore checks that there is room, and returns an error otherwise.
//! With limited address space it returns when the thread runs, so that the caller does not use the
//! room meanwhile.

use std::io;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use memmap2::MmapMut;

use crate::memory::address_limit;

/// Bytes of a thread's stack.
const STACK: usize = 2 << 20;
/// Bytes that a thread needs besides its stack before its body runs. The allocator takes memory
/// from the system in pieces of up to 512 KiB.
const ROOM: usize = 1 << 20;

/// Starts a thread.
///
/// # Errors
/// The system refuses a thread, or memory for one.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    spawn_with_stack(name, STACK, body)
}

/// Starts a thread with a stack of this many bytes.
///
/// # Errors
/// The system refuses a thread, or memory for one.
#[expect(clippy::disallowed_methods, reason = "the only place that starts threads")]
pub fn spawn_with_stack<T: Send + 'static>(
    name: &str,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    drop(MmapMut::map_anon(stack.saturating_add(ROOM))?);
    let (starting, started) = mpsc::channel::<()>();
    let thread = Builder::new().name(name.to_owned()).stack_size(stack).spawn(move || {
        drop(starting);
        body()
    })?;
    if address_limit().is_some() {
        // Returns an error when the thread has dropped its end.
        let _ = started.recv();
    }
    Ok(thread)
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[test]
    fn a_thread_has_a_name_and_a_result() {
        let name = spawn("jbd2", || current().name().map(str::to_owned)).unwrap();
        assert_eq!(name.join().unwrap().unwrap(), "jbd2");
    }
}
