//! [`Storage`]: a device of a program's own, in three calls.

use std::io;

use crate::bounds;
use crate::buffer::IoBuf;
use crate::device::{Batch, BlockDevice, Completion, Geometry, Request};
use crate::error::{Error, Operation, Result};

/// Zeros are written in pieces of this many bytes.
const ZEROS: usize = 1 << 20;

/// What holds bytes. [`StorageDevice`] makes a [`BlockDevice`] of it, for a volume.
///
/// Many threads call it at once. A write that has returned must be seen by every later read.
pub trait Storage: Send + Sync {
    /// Bytes, which do not change.
    fn size(&self) -> u64;

    /// Fills the whole buffer from a byte offset.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all bytes at a byte offset.
    ///
    /// # Errors
    /// The bytes cannot be written: the volume turns read-only if they are metadata.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes all writes durable that have returned. What a volume promises after a power cut rests
    /// on this.
    ///
    /// # Errors
    /// They may not be durable.
    fn flush(&self) -> io::Result<()>;

    /// True if nothing may be written.
    fn is_read_only(&self) -> bool {
        false
    }
}

/// A [`BlockDevice`] over a [`Storage`].
#[derive(Debug)]
pub struct StorageDevice<S>(S);

impl<S: Storage> StorageDevice<S> {
    /// Over this storage.
    pub fn new(storage: S) -> Self {
        Self(storage)
    }

    /// The storage.
    pub fn storage(&self) -> &S {
        &self.0
    }

    fn run(&self, batch: Batch) -> Result<Vec<IoBuf>> {
        let geometry = self.geometry();
        batch.requests.iter().try_for_each(|request| bounds::check(&geometry, request))?;
        if batch.durability.preflush {
            self.sync()?;
        }
        let mut read = Vec::new();
        let mut is_changed = false;
        for request in batch.requests {
            is_changed |= !matches!(request, Request::Read { .. });
            read.extend(self.one(request)?);
        }
        if batch.durability.fua && is_changed {
            self.sync()?;
        }
        Ok(read)
    }

    fn one(&self, request: Request) -> Result<Option<IoBuf>> {
        match request {
            Request::Read { offset, mut buf } => {
                let len = buf.len() as u64;
                let failed = |error| Error::from_io(Operation::Read, error).at(offset, len);
                self.0.read_at(offset, &mut buf).map_err(failed)?;
                return Ok(Some(buf));
            }
            Request::Write { mut offset, bufs } => {
                for buf in bufs {
                    let len = buf.len() as u64;
                    let failed = |error| Error::from_io(Operation::Write, error).at(offset, len);
                    self.0.write_at(offset, &buf).map_err(failed)?;
                    offset += len;
                }
            }
            // The old bytes may stay.
            Request::Discard { .. } => {}
            Request::WriteZeroes { offset, len } => {
                let zeros = IoBuf::try_zeroed(usize::try_from(len).unwrap_or(ZEROS).min(ZEROS))?;
                let mut done = 0;
                while done < len {
                    let piece = usize::try_from(len - done).unwrap_or(ZEROS).min(ZEROS);
                    let failed =
                        |error| Error::from_io(Operation::WriteZeroes, error).at(offset, len);
                    self.0.write_at(offset + done, &zeros[..piece]).map_err(failed)?;
                    done += piece as u64;
                }
            }
        }
        Ok(None)
    }

    fn sync(&self) -> Result<()> {
        self.0.flush().map_err(|error| Error::from_io(Operation::Flush, error))
    }
}

impl<S: Storage> BlockDevice for StorageDevice<S> {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.0.size(),
            logical_block: 1,
            physical_block: 4096,
            memory_alignment: 1,
            read_only: self.0.is_read_only(),
            discard: false,
        }
    }

    fn submit(&self, batch: Batch) -> Completion {
        Completion::ready(self.run(batch))
    }

    fn flush(&self) -> Result<()> {
        if self.0.is_read_only() { Ok(()) } else { self.sync() }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::ranked_lock::{Mutex, Rank};

    use super::*;
    use crate::device::{BlockDeviceExt, Durability};
    use crate::error::ErrorKind;

    /// Bytes in memory, and how often they were flushed.
    struct Memory(Mutex<(Vec<u8>, usize)>);

    impl Storage for Memory {
        fn size(&self) -> u64 {
            self.0.lock().0.len() as u64
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let offset = usize::try_from(offset).unwrap();
            buf.copy_from_slice(&self.0.lock().0[offset..][..buf.len()]);
            Ok(())
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let offset = usize::try_from(offset).unwrap();
            if data.contains(&0xee) {
                return Err(io::Error::from_raw_os_error(5));
            }
            self.0.lock().0[offset..][..data.len()].copy_from_slice(data);
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            self.0.lock().1 += 1;
            Ok(())
        }
    }

    #[test]
    fn it_is_a_device() {
        let device = StorageDevice::new(Memory(Mutex::new(Rank::Leaf, (vec![9; 3 << 20], 0))));
        device.write_at(5, vec![1; 10]).unwrap();
        device.write_zeroes(0, 5).unwrap();
        device.write_zeroes(1 << 20, (1 << 20) + 7).unwrap();
        assert_eq!(device.read_at(3, 4).unwrap()[..], [0, 0, 1, 1]);
        assert_eq!(device.read_at((2 << 20) + 6, 2).unwrap()[..], [0, 9]);
        let durability = Durability { preflush: true, fua: true };
        device.write_durable(0, vec![2], durability).unwrap();
        device.flush().unwrap();
        assert_eq!(device.storage().0.lock().1, 3);
        let failed = device.write_at(7, vec![0xee]).unwrap_err();
        assert_eq!((failed.kind, failed.range), (ErrorKind::Io, Some((7, 1))));
        assert_eq!(device.read_at(3 << 20, 1).unwrap_err().kind, ErrorKind::OutOfRange);
    }
}
