//! Transfers by system calls of the calling thread, until all bytes are read or written.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};

use crate::IoBuf;
use crate::bounds::total_len;
use crate::error::{Error, ErrorKind, Operation, Result};

/// Buffers that one system call takes (`UIO_MAXIOV`).
pub(super) const MAX_BUFFERS: usize = 1024;

/// How forced unit access of a batch is done.
pub(super) struct Fua {
    pub(super) wanted: bool,
    /// A single change: the write itself can be synchronous, instead of a flush after all of them.
    pub(super) alone: bool,
    /// Something was changed that only a flush makes durable.
    pub(super) owed: bool,
}

impl Fua {
    pub(super) fn owe(&mut self) {
        self.owed |= self.wanted;
    }
}

/// Fills the buffers one after the other from `offset` on. What ends off a multiple of `unit` ends
/// the file.
pub(super) fn read_all(file: &File, offset: u64, bufs: &mut [IoBuf], unit: u64) -> Result<()> {
    let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
    let mut done = 0;
    for group in bufs.chunks_mut(MAX_BUFFERS) {
        let mut slices: Vec<IoSliceMut<'_>> =
            group.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
        let mut left = &mut slices[..];
        IoSliceMut::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let read = retry(|| rustix::io::preadv(file, left, offset + done))
                .map_err(|error| failed(Operation::Read, error, offset, len))?;
            done += read as u64;
            if read == 0 || done < len && !done.is_multiple_of(unit) {
                return Err(truncated(offset, len));
            }
            IoSliceMut::advance_slices(&mut left, read);
        }
    }
    Ok(())
}

/// Writes the buffers one after the other from `offset` on.
pub(super) fn write_all(file: &File, offset: u64, bufs: &[Bytes], fua: &mut Fua) -> Result<()> {
    let mut position = offset;
    for group in bufs.chunks(MAX_BUFFERS) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|buf| IoSlice::new(buf)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let written = write_some(file, position, left, fua)
                .map_err(|error| failed(Operation::Write, error, offset, total_len(bufs)))?;
            if written == 0 {
                return Err(refused(position).at(offset, total_len(bufs)));
            }
            position += written as u64;
            IoSlice::advance_slices(&mut left, written);
        }
    }
    Ok(())
}

/// One system call, synchronous by itself if that saves the flush afterwards.
fn write_some(
    file: &File,
    offset: u64,
    slices: &[IoSlice<'_>],
    fua: &mut Fua,
) -> rustix::io::Result<usize> {
    if fua.wanted && fua.alone && !fua.owed {
        let written = retry(|| rustix::io::pwritev2(file, slices, offset, ReadWriteFlags::DSYNC));
        if !matches!(written, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) {
            return written;
        }
    }
    fua.owe();
    retry(|| rustix::io::pwritev(file, slices, offset))
}

/// The system's error, with the place of the whole request.
pub(super) fn failed(operation: Operation, error: Errno, offset: u64, len: u64) -> Error {
    Error::from_io(operation, error.into()).at(offset, len)
}

/// A read reached the end of the file.
pub(super) fn truncated(offset: u64, len: u64) -> Error {
    let detail = "the image ends before that: it has been truncated since it was opened";
    Error::new(ErrorKind::OutOfRange, Operation::Read, detail).at(offset, len)
}

/// A write wrote nothing.
pub(super) fn refused(position: u64) -> Error {
    let detail = format!("the system took no more bytes at offset {position}");
    Error::new(ErrorKind::Io, Operation::Write, detail)
}

/// Repeats a call that a signal has interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
