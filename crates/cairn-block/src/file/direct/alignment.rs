//! What direct transfers of a file must be multiples of.

use std::fs::File;

use bytes::Bytes;
use rustix::fs::{AtFlags, StatxFlags, statx};

use crate::IoBuf;
use crate::bounds::total_len;
use crate::buffer;
use crate::device::Geometry;
use crate::error::{Operation, Result};
use crate::file::transfer::{failed, retry, truncated};

/// What every host accepts.
pub(crate) const PAGE: u64 = buffer::ALIGNMENT as u64;
/// A sector. No block device takes less.
const SECTOR: u64 = 512;

/// What the offset and the length of a direct transfer, and the addresses of its memory, must be
/// multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    pub(super) offset: u64,
    pub(super) memory: u64,
}

impl Alignment {
    const SAFE: Self = Self { offset: PAGE, memory: PAGE };

    /// Of a file that is open for direct transfers. The first bytes are read to see whether it
    /// works; if less than a page is refused, it is pages. Of a block device it is its block.
    pub(super) fn of(file: &File, geometry: &Geometry, is_block_device: bool) -> Result<Self> {
        let told = told(file);
        let wanted = match (is_block_device, told) {
            (true, _) => {
                let offset = u64::from(geometry.logical_block).max(SECTOR);
                let memory = told.map_or(SECTOR, |told| told.memory.max(SECTOR));
                Self { offset, memory: memory.max(offset).min(PAGE) }
            }
            (false, Some(told)) => {
                let offset = told.offset.max(SECTOR);
                Self { offset, memory: told.memory.max(SECTOR) }
            }
            (false, None) => Self::SAFE,
        };
        if is_block_device {
            // Every request that the device takes is to fit: what is written directly must not be
            // read through the page cache.
            return wanted.try_read(file, geometry).map(|()| wanted);
        }
        if wanted.is_possible() && wanted.try_read(file, geometry).is_ok() {
            return Ok(wanted);
        }
        Self::SAFE.try_read(file, geometry).map(|()| Self::SAFE)
    }

    fn is_possible(self) -> bool {
        self.offset.is_power_of_two() && self.memory.is_power_of_two() && self.memory <= PAGE
    }

    /// Reads the first bytes into memory that is aligned to no more than this.
    fn try_read(self, file: &File, geometry: &Geometry) -> Result<()> {
        if geometry.size < self.offset {
            return Ok(());
        }
        let before = if self.memory < PAGE { self.memory as usize } else { 0 };
        let mut buf = IoBuf::try_zeroed(before + self.offset as usize)?;
        let read = retry(|| rustix::io::pread(file, &mut buf[before..], 0));
        match read.map_err(|error| failed(Operation::Read, error, 0, self.offset))? {
            read if read as u64 == self.offset => Ok(()),
            _ => Err(truncated(0, self.offset)),
        }
    }

    pub(super) fn fits(self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(self.offset) && len.is_multiple_of(self.offset)
    }

    /// Memory that can be written directly: copied unless it is already.
    pub(super) fn aligned(self, bufs: Vec<Bytes>) -> Result<Vec<Bytes>> {
        let fits = |buf: &Bytes| {
            (buf.as_ptr().addr() as u64).is_multiple_of(self.memory)
                && (buf.len() as u64).is_multiple_of(self.offset)
        };
        if bufs.iter().all(fits) {
            return Ok(bufs);
        }
        let len = usize::try_from(total_len(&bufs)).expect("the buffers are in memory");
        let mut all = IoBuf::try_zeroed(len)?;
        let mut at = 0;
        for buf in bufs {
            all[at..at + buf.len()].copy_from_slice(&buf);
            at += buf.len();
        }
        Ok(vec![all.into_bytes()])
    }
}

/// What the system says of the file (Linux 6.1 and newer). `None` if it does not.
fn told(file: &File) -> Option<Alignment> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let is_told = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let (offset, memory) =
        (u64::from(found.stx_dio_offset_align), u64::from(found.stx_dio_mem_align));
    (is_told && offset > 0 && memory > 0).then_some(Alignment { offset, memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_copied_where_it_must_be() {
        let odd = Bytes::from(vec![7; 8192]).slice(1..4097);
        let copied = Alignment::SAFE.aligned(vec![odd, Bytes::from(vec![8; 4096])]).unwrap();
        assert_eq!(
            (copied.len(), copied[0].len(), copied[0][4095], copied[0][4096]),
            (1, 8192, 7, 8)
        );
        let fits = IoBuf::zeroed(1024).into_bytes();
        let address = fits.as_ptr();
        let sectors = Alignment { offset: SECTOR, memory: SECTOR };
        assert_eq!(
            sectors.aligned(vec![fits.slice(512..)]).unwrap()[0].as_ptr(),
            &raw const fits[512]
        );
        assert_ne!(Alignment::SAFE.aligned(vec![fits]).unwrap()[0].as_ptr(), address);
    }

    #[test]
    fn offsets_and_lengths_are_multiples() {
        let sectors = Alignment { offset: SECTOR, memory: SECTOR };
        assert!(sectors.fits(1024, 1024) && !sectors.fits(1024, 100) && !sectors.fits(1000, 512));
        assert!(!Alignment::SAFE.fits(1024, 4096) && Alignment::SAFE.fits(8192, 0));
    }
}
