//! [`DirectFile`]: an image file or block device past the host's page cache (`O_DIRECT`).
//!
//! Aligned transfers are direct. Others (a superblock of 1 KiB) use a second, buffered descriptor
//! of the same file. Linux keeps the two coherent: a direct write drops the cached pages that it
//! covers, and a direct read writes dirty pages first. All requests are complete when `submit`
//! returns. A flush is `fdatasync`.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bytes::Bytes;
use cairn_base::names::Escaped;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{FileDevice, MAX_BUFFERS, OpenOptions, retry};
use crate::bounds::{self, total_len};
use crate::device::{Batch, BlockDevice, Completion, Durability, Geometry, Growable, Request};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::{IoBuf, buffer};

/// Offsets, lengths and addresses that every host accepts for direct transfers.
const ALIGNMENT: u64 = buffer::ALIGNMENT as u64;

/// A file that bypasses the host's page cache.
#[derive(Debug)]
pub struct DirectFile {
    /// Locks, geometry, flushes and unaligned transfers.
    buffered: FileDevice,
    direct: File,
}

impl DirectFile {
    /// Opens an existing file or block device for reading and writing, locked against all others.
    ///
    /// # Errors
    /// As [`FileDevice::open`]; [`ErrorKind::Io`] if the host's filesystem has no direct I/O.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let buffered = FileDevice::open(path, OpenOptions::write())?;
        let flags = OFlags::DIRECT.bits().cast_signed();
        // The same file, even if its name leads to another one now.
        let same = format!("/proc/self/fd/{}", buffered.descriptor().as_raw_fd());
        let direct =
            std::fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(same);
        let direct = direct
            .map_err(|error| Error::from_io(format!("open {} directly", path.escaped()), error))?;
        Ok(Self { buffered, direct })
    }

    /// For device controls.
    pub(crate) fn descriptor(&self) -> &File {
        &self.direct
    }

    fn run(&self, batch: Batch) -> Result<Vec<IoBuf>> {
        let geometry = self.buffered.geometry();
        batch.requests.iter().try_for_each(|request| bounds::check(&geometry, request))?;
        if batch.durability.preflush {
            self.buffered.flush()?;
        }
        let changes = batch.requests.iter().any(|request| !matches!(request, Request::Read { .. }));
        let mut read = Vec::new();
        for request in batch.requests {
            match request {
                Request::Read { offset, mut buf } if is_aligned(offset, buf.len() as u64) => {
                    self.read(offset, &mut buf)?;
                    read.push(buf);
                }
                Request::Write { offset, bufs }
                    if bufs.iter().all(is_aligned_buffer) && is_aligned(offset, 0) =>
                {
                    self.write(offset, &bufs)?;
                }
                other => {
                    let batch = Batch { requests: vec![other], durability: Durability::default() };
                    read.extend(self.buffered.submit(batch).wait()?);
                }
            }
        }
        if batch.durability.fua && changes {
            self.buffered.flush()?;
        }
        Ok(read)
    }

    fn read(&self, offset: u64, buf: &mut IoBuf) -> Result<()> {
        let len = buf.len() as u64;
        let failed = |error: Errno| Error::from_io(Operation::Read, error.into()).at(offset, len);
        let mut done = 0;
        while done < buf.len() {
            let position = offset + done as u64;
            let mut slices = [IoSliceMut::new(&mut buf[done..])];
            match retry(|| rustix::io::preadv(&self.direct, &mut slices, position))
                .map_err(failed)?
            {
                0 => {
                    let detail =
                        "the image ends before that: it has been truncated since it was opened";
                    return Err(
                        Error::new(ErrorKind::OutOfRange, Operation::Read, detail).at(offset, len)
                    );
                }
                some => done += some,
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, bufs: &[Bytes]) -> Result<()> {
        let failed = |error: Error| error.at(offset, total_len(bufs));
        let mut position = offset;
        for group in bufs.chunks(MAX_BUFFERS) {
            let mut slices: Vec<IoSlice<'_>> = group.iter().map(|buf| IoSlice::new(buf)).collect();
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                let written = retry(|| rustix::io::pwritev(&self.direct, left, position));
                let written = written
                    .map_err(|error| failed(Error::from_io(Operation::Write, error.into())))?;
                if written == 0 {
                    let detail = format!("the system took no more bytes at offset {position}");
                    return Err(failed(Error::new(ErrorKind::Io, Operation::Write, detail)));
                }
                position += written as u64;
                IoSlice::advance_slices(&mut left, written);
            }
        }
        Ok(())
    }
}

fn is_aligned(offset: u64, len: u64) -> bool {
    offset.is_multiple_of(ALIGNMENT) && len.is_multiple_of(ALIGNMENT)
}

fn is_aligned_buffer(buf: &Bytes) -> bool {
    is_aligned(buf.as_ptr().addr() as u64, buf.len() as u64)
}

impl BlockDevice for DirectFile {
    fn geometry(&self) -> Geometry {
        self.buffered.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        Completion::ready(self.run(batch))
    }

    fn flush(&self) -> Result<()> {
        self.buffered.flush()
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        self.buffered.as_growable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockDeviceExt;

    /// In the crate's directory: the temporary one may be a tmpfs, which has direct I/O only on new
    /// kernels.
    fn opened() -> (tempfile::TempDir, DirectFile) {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, vec![0; 1 << 16]).unwrap();
        let device = DirectFile::open(&path).unwrap();
        (dir, device)
    }

    #[test]
    fn direct_and_buffered_transfers_see_each_other() {
        let (_dir, device) = opened();
        device.write_at(4096, IoBuf::copy_from(&[1; 8192]).into_bytes()).unwrap();
        assert_eq!(device.read_at(4100, 3).unwrap()[..], [1, 1, 1]);
        device.write_at(5000, vec![2; 100]).unwrap();
        let read = device.read_at(4096, 4096).unwrap();
        assert_eq!((read[903], read[904], read[1003], read[1004]), (1, 2, 2, 1));
        device.flush().unwrap();
    }

    #[test]
    fn many_buffers_in_one_request() {
        let (_dir, device) = opened();
        let bufs = (0..4_u8).map(|byte| IoBuf::copy_from(&[byte; 4096]).into_bytes()).collect();
        let durability = Durability { preflush: true, fua: true };
        device
            .submit(Batch { requests: vec![Request::Write { offset: 8192, bufs }], durability })
            .wait()
            .unwrap();
        let read = device.read_at(8192, 16384).unwrap();
        assert!((0..4_u8).all(|byte| {
            read[usize::from(byte) * 4096..][..4096].iter().all(|found| *found == byte)
        }));
    }

    #[test]
    fn the_end_is_the_end() {
        let (_dir, device) = opened();
        assert_eq!(device.read_at(1 << 16, 4096).unwrap_err().kind, ErrorKind::OutOfRange);
    }
}
