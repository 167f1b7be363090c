//! The `cairn` command; everything is in the library of the same crate, so that tests can call it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Blocks are 4096 bytes and aligned to as much. Glibc's allocator splits one off a piece of twice the size and puts the rest on its
/// lists: with a million blocks in memory that takes a third of the time of cleaning.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cairn_cli::main()
}
