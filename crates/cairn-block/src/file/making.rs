//! A lock that says that a process is making a file. It keeps nobody away who uses the file as an
//! image.

use std::fs::File;
use std::io;

use super::ofd::{self, Kind};

/// No other lock of an image covers this byte.
const BYTE: u64 = 300;

/// Takes the lock, which is held until the file is closed. False if another open file has it.
///
/// # Errors
/// The filesystem has no such locks, or the file is not open for writing.
pub fn lock_making(file: &File) -> io::Result<bool> {
    ofd::lock(file, Kind::Exclusive, BYTE..BYTE + 1)
}
