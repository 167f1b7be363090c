//! Inherited limits (`ulimit`) that the system enforces otherwise than by an error of a call.
//!
//! - A write beyond the largest size of a file (`ulimit -f`) causes SIGXFSZ, which kills a process
//!   without a handler. With a handler the write fails with EFBIG, and is treated like one on a
//!   full disk.
//! - With a small stack (`ulimit -s`) the first thread overflows. The command runs in a thread with
//!   a stack of its own size.

use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use cairn_base::system_error::with_remedy;
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGXFSZ;

use crate::failure::{Failure, Status};
use crate::output;

/// With at least this stack, the first thread runs the command itself.
const ENOUGH_STACK: u64 = 4 << 20;
/// The stack of the command's thread.
const STACK: usize = 8 << 20;

/// Makes a write beyond the limit fail with EFBIG.
pub fn let_large_writes_fail() {
    // The flag is never read; only the handler matters. If the handler cannot be set, the signal
    // kills the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Runs the program with enough stack.
pub fn with_stack(program: fn() -> ExitCode) -> ExitCode {
    if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= ENOUGH_STACK) {
        return program();
    }
    match thread::Builder::new().name("cairn".into()).stack_size(STACK).spawn(program) {
        Ok(running) => running.join().unwrap_or_else(|panic| resume_unwind(panic)),
        Err(error) => {
            let advice = with_remedy(&error, "raise `ulimit -s`");
            output::report(&Failure::new(Status::Failed, format!("no stack to run on: {advice}")));
            Status::Failed.into()
        }
    }
}
