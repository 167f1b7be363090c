//! [`Overlay`]: keeps all writes in memory.
//!
//! Memory holds chunks: the first write to one reads the rest of it from the device below. Locking:
//! all chunks are under one leaf lock, which a write holds while it reads below. A request that
//! spans chunks is not atomic, as on a real device. There is no volatile cache. Any byte can be
//! written and read: of the device below, whole blocks are read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::bounds;
use crate::buffer::IoBuf;
use crate::device::{Batch, BlockDevice, BlockDeviceExt, Completion, Geometry, Request};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a chunk.
const CHUNK: u64 = 16 * 1024;

/// A chunk that was written.
enum Chunk {
    /// Nothing but zeros.
    Zeros,
    /// These bytes.
    Bytes(IoBuf),
}

/// A device that is written in memory. What lies below is only read, and shows again when this is
/// dropped.
pub struct Overlay {
    below: Arc<dyn BlockDevice>,
    geometry: Geometry,
    chunks: RwLock<BTreeMap<u64, Chunk>>,
}

impl Overlay {
    /// Over a device.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has zones, which are not kept in memory.
    pub fn new(below: Arc<dyn BlockDevice>) -> Result<Self> {
        if below.as_zoned().is_some() {
            let why = "changes of a zoned device cannot be kept in memory";
            return Err(Error::new(ErrorKind::Unsupported, "open", why));
        }
        let geometry =
            Geometry { read_only: false, discard: true, logical_block: 1, ..below.geometry() };
        Ok(Self { below, geometry, chunks: RwLock::new(BTreeMap::new()) })
    }

    /// The device, if a volume with blocks of so many bytes can be read from it; else an overlay:
    /// the device's blocks are larger.
    ///
    /// # Errors
    /// As [`Overlay::new`].
    pub fn if_smaller(
        device: Arc<dyn BlockDevice>,
        block_size: u32,
    ) -> Result<Arc<dyn BlockDevice>> {
        match block_size.is_multiple_of(device.geometry().logical_block.max(1)) {
            true => Ok(device),
            false => Ok(Arc::new(Self::new(device)?)),
        }
    }

    /// Bytes of memory that hold contents.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        let chunks = self.chunks.read();
        chunks.values().filter(|chunk| matches!(chunk, Chunk::Bytes(_))).count() as u64 * CHUNK
    }

    /// The byte ranges that were written or discarded, in order. What lies there may be equal to
    /// what lies below.
    #[must_use]
    pub fn touched(&self) -> Vec<Range<u64>> {
        self.chunks.read().keys().map(|chunk| self.range(*chunk)).collect()
    }

    /// The bytes of a chunk; the last one of the device may be shorter.
    fn range(&self, chunk: u64) -> Range<u64> {
        let start = chunk * CHUNK;
        start..(start + CHUNK).min(self.geometry.size)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let chunks = self.chunks.read();
        let mut at = offset;
        while at < end {
            let chunk = at / CHUNK;
            let stop = self.range(chunk).end.min(end);
            match chunks.get(&chunk) {
                Some(Chunk::Zeros) => part(buf, at - offset..stop - offset).fill(0),
                Some(Chunk::Bytes(bytes)) => {
                    let from = at - chunk * CHUNK;
                    let from = &bytes[index(from)..index(from + stop - at)];
                    part(buf, at - offset..stop - offset).copy_from_slice(from);
                }
                None => {
                    // All chunks up to the next one in memory, at once.
                    let next = chunks.range(chunk..).next().map_or(end, |(next, _)| next * CHUNK);
                    let stop = next.min(end);
                    let to = part(buf, at - offset..stop - offset);
                    let read = self.below.read_bytes(at, to.len())?;
                    to.copy_from_slice(&read);
                    at = stop;
                    continue;
                }
            }
            at = stop;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        let mut chunks = self.chunks.write();
        let mut at = offset;
        while at < end {
            let number = at / CHUNK;
            let whole = self.range(number);
            let stop = whole.end.min(end);
            let from = &data[index(at - offset)..index(stop - offset)];
            if !matches!(chunks.get(&number), Some(Chunk::Bytes(_))) {
                let covered = at == whole.start && stop == whole.end;
                let len = index(whole.end - whole.start);
                let bytes = match chunks.get(&number) {
                    None if !covered => self.below.read_bytes(whole.start, len)?,
                    _ => IoBuf::try_zeroed(len)?,
                };
                chunks.insert(number, Chunk::Bytes(bytes));
            }
            if let Some(Chunk::Bytes(bytes)) = chunks.get_mut(&number) {
                bytes[index(at - whole.start)..index(stop - whole.start)].copy_from_slice(from);
            }
            at = stop;
        }
        Ok(())
    }

    /// Whole chunks take no memory; parts of chunks are written.
    fn clear(&self, offset: u64, len: u64) -> Result<()> {
        static ZEROS: [u8; CHUNK as usize] = [0; CHUNK as usize];
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let number = at / CHUNK;
            let whole = self.range(number);
            let stop = whole.end.min(end);
            if at == whole.start && stop == whole.end {
                self.chunks.write().insert(number, Chunk::Zeros);
            } else {
                self.write(at, &ZEROS[..index(stop - at)])?;
            }
            at = stop;
        }
        Ok(())
    }

    fn one(&self, request: Request, read: &mut Vec<IoBuf>) -> Result<()> {
        bounds::check(&self.geometry, &request)?;
        match request {
            Request::Read { offset, mut buf } => {
                self.read(offset, &mut buf)?;
                read.push(buf);
                Ok(())
            }
            Request::Write { offset, bufs } => {
                let mut at = offset;
                bufs.iter().try_for_each(|bytes: &Bytes| {
                    self.write(at, bytes)?;
                    at += bytes.len() as u64;
                    Ok(())
                })
            }
            Request::Discard { offset, len } | Request::WriteZeroes { offset, len } => {
                self.clear(offset, len)
            }
        }
    }
}

/// An offset in a buffer, which fits.
fn index(offset: u64) -> usize {
    offset as usize
}

fn part(buf: &mut [u8], range: Range<u64>) -> &mut [u8] {
    &mut buf[index(range.start)..index(range.end)]
}

impl BlockDevice for Overlay {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        let mut read = Vec::new();
        let mut requests = batch.requests.into_iter();
        let done = requests.try_for_each(|request| self.one(request, &mut read));
        Completion::ready(done.map(|()| read))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::MemoryDevice;

    /// Ends in the midst of a chunk.
    const SIZE: u64 = 5 * CHUNK + 4096;

    /// A device below with other bytes than zeros everywhere.
    fn below() -> (Arc<MemoryDevice>, Vec<u8>) {
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8 + 1).collect();
        (Arc::new(MemoryDevice::from_image(&bytes)), bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_writes_show_above_and_not_below(
            steps in prop::collection::vec((0..4_u8, 0..SIZE, 1..3 * CHUNK, any::<u8>()), 1..40),
        ) {
            let (device, original) = below();
            let overlay = Overlay::new(device.clone()).unwrap();
            let mut expected = original.clone();
            for (what, at, len, byte) in steps {
                let len = len.min(SIZE - at);
                let place = index(at)..index(at + len);
                match what {
                    0 | 1 => {
                        overlay.write_at(at, vec![byte; place.len()]).unwrap();
                        expected[place].fill(byte);
                    }
                    2 => {
                        overlay.write_zeroes(at, len).unwrap();
                        expected[place].fill(0);
                    }
                    _ => {
                        let read = overlay.read_at(at, place.len()).unwrap();
                        prop_assert!(*read == expected[place]);
                    }
                }
            }
            prop_assert!(*overlay.read_at(0, original.len()).unwrap() == *expected);
            prop_assert!(*device.read_at(0, original.len()).unwrap() == *original);
        }
    }

    /// A disk with blocks of 4,096 bytes reads no part of them.
    #[test]
    fn any_byte_of_a_device_with_large_blocks_can_be_read() {
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        let geometry = Geometry { logical_block: 4096, ..MemoryDevice::new(SIZE).geometry() };
        let device = Arc::new(MemoryDevice::with_geometry(geometry));
        device.load(0, &bytes);
        assert!(device.read_at(1024, 1024).is_err());
        let overlay = Overlay::if_smaller(device.clone(), 1024).unwrap();
        assert_eq!(Overlay::if_smaller(device.clone(), 8192).unwrap().geometry(), geometry);
        for (at, len) in [(0, 1), (1024, 1024), (4095, 2), (0, 5120), (SIZE - 3, 3), (CHUNK - 1, 9)]
        {
            let expected = &bytes[index(at)..][..len];
            assert_eq!(*device.read_bytes(at, len).unwrap(), *expected, "byte {at}");
            assert_eq!(*overlay.read_at(at, len).unwrap(), *expected, "byte {at}");
        }
        overlay.write_at(1024, vec![9; 1024]).unwrap();
        assert_eq!(*overlay.read_at(1023, 3).unwrap(), [bytes[1023], 9, 9]);
        for beyond in [SIZE - 2, SIZE, u64::MAX] {
            assert!(device.read_bytes(beyond, 3).is_err());
        }
    }

    #[test]
    fn a_device_that_is_only_read_can_be_changed_above() {
        let (device, _) = below();
        let overlay = Overlay::new(Arc::new(crate::wrap::ReadOnly::new(device))).unwrap();
        assert!(!overlay.geometry().read_only);
        overlay.write_at(3, vec![7_u8; 5]).unwrap();
        assert_eq!(*overlay.read_at(3, 5).unwrap(), [7; 5]);
        assert_eq!(overlay.allocated(), CHUNK);
        assert_eq!(overlay.touched().first(), Some(&(0..CHUNK)));
        overlay.discard(0, CHUNK).unwrap();
        assert_eq!((overlay.allocated(), overlay.read_at(0, 4).unwrap()[0]), (0, 0));
        assert!(overlay.write_at(overlay.geometry().size, vec![0_u8; 1]).is_err());
    }
}
