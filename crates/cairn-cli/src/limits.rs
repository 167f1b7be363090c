//! The limits that a process inherits (`ulimit`), where the system's way to enforce them is not an
//! error of a call.
//!
//! - Behind the largest size of a file (`ulimit -f`) a write is answered with SIGXFSZ, which ends
//!   a process that does not know it, in the middle of whatever it does. Known, the write fails
//!   with EFBIG, as one fails on a full disk.
//! - Below a small stack (`ulimit -s`) the first thread overflows. Threads have stacks of their own
//!   size, so the command runs in one.

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

/// A first thread with as much needs no other.
const ENOUGH_STACK: u64 = 4 << 20;
/// The stack of the other.
const STACK: usize = 8 << 20;

/// Makes a write behind the limit fail.
pub fn let_large_writes_fail() {
    // Nobody looks at the flag. Where there is no handler to be had, the signal ends the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Runs the program where there is stack enough.
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
