//! The one device control that has no safe binding.

use std::fs::File;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `BLKDISCARD` of `linux/fs.h`: `_IO(0x12, 119)`.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Discards a byte range of a block device.
pub(crate) fn discard(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, offset and length, through its pointer argument and writes no memory; `Setter`
    // passes a pointer to an array of exactly these, alive during the call. On a file that is no block device the
    // kernel answers ENOTTY.
    unsafe { ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}
