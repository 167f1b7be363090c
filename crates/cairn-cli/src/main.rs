//! The `cairn` command; everything is in the library of the same crate, so that tests can call it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use cairn_block::reserve::{self, Reserving};
use mimalloc::MiMalloc;

/// Blocks are 4096 bytes and aligned to 4096. Glibc's allocator cuts each from a piece of twice the
/// size and puts the rest on its lists: with a million blocks in memory that takes a third of the
/// time of cleaning. If the system refuses memory, the reserve provides it.
#[global_allocator]
static ALLOCATOR: Reserving<MiMalloc> = Reserving(MiMalloc);

fn main() -> ExitCode {
    cairn_cli::limits::restart_with_small_pieces();
    // Without memory for the reserve, a mount is refused. The other commands are short and run
    // without it.
    let _ = reserve::set_aside();
    cairn_cli::main()
}
