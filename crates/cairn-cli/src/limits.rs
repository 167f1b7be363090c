//! Inherited limits (`ulimit`) that the system enforces otherwise than by an error of a call.
//!
//! - A write beyond the largest size of a file (`ulimit -f`) causes SIGXFSZ, which kills a process
//!   without a handler. With a handler the write fails with EFBIG, and is treated like one on a
//!   full disk.
//! - With limited address space (`ulimit -v`) the allocator would take most of it at once, and
//!   leave no room for the stacks of threads. The program starts again with an allocator that takes
//!   what it needs.
//! - With a small stack (`ulimit -s`) the first thread overflows. With limited address space its
//!   stack may not grow any more, which kills the process. The command runs in a thread with a
//!   stack of its own size, which is mapped at once.

use std::env;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cairn_base::memory;
use cairn_base::system_error::with_remedy;
use cairn_base::thread::spawn_with_stack;
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGXFSZ;

use crate::failure::{Failure, Status};
use crate::output;

/// The stack of a command, in bytes. If the first thread has it, it runs the command itself.
const STACK: usize = 4 << 20;
/// The allocator's variable for the address space that it takes at a time, in KiB. With 0 it takes
/// each page of blocks from the system. By default it takes 1 GiB, and if it cannot have that, 128
/// MiB.
const ARENA: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "0");
/// From this limit on, what the allocator takes by default leaves enough. With many more pages of
/// blocks, each a mapping, the system's limit of mappings (`vm.max_map_count`) would be near.
const ENOUGH_ADDRESSES: u64 = 8 << 30;

/// Starts the program again if its address space is limited: the allocator reads its variables
/// before `main`. If it cannot be started again, it goes on as it is.
pub fn restart_with_small_pieces() {
    let limited = memory::address_limit().is_some_and(|limit| limit < ENOUGH_ADDRESSES);
    if !limited || env::var_os(ARENA.0).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut words = env::args_os();
    let name = words.next().unwrap_or_else(|| "cairn".into());
    let _ = Command::new(program).arg0(name).args(words).env(ARENA.0, ARENA.1).exec();
}

/// Makes a write beyond the limit fail with EFBIG.
pub fn let_large_writes_fail() {
    // The flag is never read; only the handler matters. If the handler cannot be set, the signal
    // kills the process.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Runs the program with enough stack.
pub fn with_stack(program: fn() -> ExitCode) -> ExitCode {
    let most = getrlimit(Resource::Stack).current;
    if most.is_none_or(|most| most >= STACK as u64) && memory::address_limit().is_none() {
        return program();
    }
    match spawn_with_stack("cairn", STACK, program) {
        Ok(running) => running.join().unwrap_or_else(|panic| resume_unwind(panic)),
        Err(error) => {
            let advice = with_remedy(&error, "raise `ulimit -s`");
            output::report(&Failure::new(Status::Failed, format!("no stack to run on: {advice}")));
            Status::Failed.into()
        }
    }
}
