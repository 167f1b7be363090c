//! The `cairn` command; everything is in the library of the same crate, so that tests can call it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use cairn_block::reserve::{self, Reserving};
use mimalloc::MiMalloc;

/// Blocks are 4096 bytes and aligned to as much. Glibc's allocator splits one off a piece of twice
/// the size and puts the rest on its lists: with a million blocks in memory that takes a third of
/// the time of cleaning. What the system refuses comes from the reserve.
#[global_allocator]
static ALLOCATOR: Reserving<MiMalloc> = Reserving(MiMalloc);

fn main() -> ExitCode {
    // Where there is not enough for that, a mount is refused; the other commands are done soon.
    let _ = reserve::set_aside();
    cairn_cli::main()
}
