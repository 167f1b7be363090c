//! The `cairn` command; everything is in the library of the same crate, so that tests can call it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cairn_cli::main()
}
