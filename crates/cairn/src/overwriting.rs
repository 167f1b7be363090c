//! [`Overwriting`]: a disk that keeps its size, open to get other contents as a whole.

use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::contents::contents;
use crate::device::open_or_raw;
use crate::error::{Cause, Error, Result};
use crate::image::{ImageSpec, Location, Part};
use crate::interrupted::refuse_interrupted;
use crate::transfer::copy;

/// What is emptied first: every format that a disk can hold begins in it.
const BEGINNING: u64 = 1 << 20;
/// What is written last. The first superblocks of ext4 and F2FS are in it.
const FIRST: u64 = 8192;
/// Ranges begin and end at multiples of this.
const BLOCK: u64 = 4096;

/// True if an image has a size of its own, in which new contents must fit: a block device, an
/// export, a part of a disk, an encrypted disk. A whole file, or a volume in an object store, is
/// made anew.
#[must_use]
pub fn keeps_size(image: &ImageSpec) -> bool {
    let is_device = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    };
    let is_part = image.part != Part::Whole || image.key.is_some();
    is_part || matches!(image.location, Location::Nbd(_)) || image.file().is_some_and(is_device)
}

/// An image that nobody else may use until it has its new contents.
pub struct Overwriting {
    image: ImageSpec,
    device: Arc<dyn BlockDevice>,
}

impl Overwriting {
    /// Opens an image, and writes nothing.
    ///
    /// # Errors
    /// It is not empty and `overwrite` is not set, or a repair of it was interrupted; it cannot be
    /// opened for writing, is in use, or has zones.
    pub fn open(image: &ImageSpec, overwrite: bool) -> Result<Self> {
        if !overwrite && let Some(found) = contents(image)? {
            return Err(Error::new(image, Cause::WouldOverwrite { found }));
        }
        refuse_interrupted(image)?;
        let device = open_or_raw(image, true)?;
        if device.as_zoned().is_some() {
            let why = "its zones are written in order only: make a filesystem in it, and copy \
                       files into it";
            return Err(Error::new(image, Cause::Refused(why.into())));
        }
        Ok(Self { image: image.clone(), device })
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.device.geometry().size
    }

    /// Writes `size` bytes of a file: `data` has its data, and all else is zeros. What the ranges
    /// `free` hold does not matter. The first MiB is emptied first, and its first 8 KiB are written
    /// when all else is on the medium: until then there is no first superblock, neither an old nor
    /// a new one. What is behind `size` stays.
    ///
    /// # Errors
    /// The file cannot be read, or the image not written.
    pub fn write(
        self,
        (file, size): (&Path, u64),
        data: &[Range<u64>],
        free: &[Range<u64>],
    ) -> Result<()> {
        let write = || {
            let from = FileDevice::open(file, OpenOptions::read())?;
            let to = &*self.device;
            let beginning = BEGINNING.min(size);
            to.write_zeroes(0, beginning)?;
            to.flush()?;
            let data = whole_blocks(data, size);
            let mut at = beginning;
            for range in data.iter().filter(|range| range.end > beginning) {
                let start = range.start.max(beginning);
                blank(to, at..start, free)?;
                copy(to, &from, start..range.end)?;
                at = range.end;
            }
            blank(to, at..size, free)?;
            let first = FIRST.min(size);
            for part in [first..beginning, 0..first] {
                for range in data.iter().filter(|range| range.start < part.end) {
                    copy(to, &from, range.start.max(part.start)..range.end.min(part.end))?;
                }
                to.flush()?;
            }
            Ok(())
        };
        write().map_err(|error| Error::new(&self.image, Cause::Device(error)))
    }
}

/// The blocks of ranges, which ascend, each block once.
fn whole_blocks(ranges: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let mut blocks: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let end = range.end.next_multiple_of(BLOCK).min(size);
        let start = range.start / BLOCK * BLOCK;
        match blocks.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => blocks.push(start..end),
        }
    }
    blocks
}

/// Makes a range read as zeros, but for the parts of it in `free`, which are discarded where that
/// is possible.
fn blank(to: &dyn BlockDevice, range: Range<u64>, free: &[Range<u64>]) -> cairn_block::Result<()> {
    let zero = |from: u64, end: u64| match from < end {
        true => to.write_zeroes(from, end - from),
        false => Ok(()),
    };
    let mut at = range.start;
    for part in free.iter().filter(|part| part.start < range.end && part.end > range.start) {
        let (start, end) = (part.start.max(at), part.end.min(range.end));
        if start >= end {
            continue;
        }
        zero(at, start)?;
        if to.geometry().discard {
            // A device may refuse a hint.
            let _ = to.discard(start, end - start);
        }
        at = end;
    }
    zero(at, range.end)
}

#[cfg(test)]
mod tests {
    use cairn_block::memory::MemoryDevice;
    use cairn_block::wrap::Record;

    use super::*;

    #[test]
    fn ranges_become_blocks_that_do_not_overlap() {
        let blocks = whole_blocks(&[10..20, 4000..5000, 9000..9001, 12_288..20_000], 20_000);
        assert_eq!((blocks.len(), blocks.first()), (1, Some(&(0..20_000))));
        assert_eq!(whole_blocks(&[0..1, 8192..8193], 1 << 20), [0..4096, 8192..12_288]);
    }

    #[test]
    fn what_is_not_free_becomes_zeros() {
        let device = MemoryDevice::new(64 << 10);
        device.write_at(0, vec![7; 64 << 10]).unwrap();
        let free = [0..8192, 12_288..16_384, 40_960..1 << 20];
        blank(&device, 4096..49_152, &free).unwrap();
        let bytes = device.read_at(0, 64 << 10).unwrap();
        let is_zero = |at: usize| bytes[at..at + 4096].iter().all(|byte| *byte == 0);
        for at in [8192, 16_384, 36_864] {
            assert!(is_zero(at), "byte {at}");
        }
        assert!(!is_zero(0) && !is_zero(49_152));
    }

    #[test]
    fn until_all_is_on_the_medium_a_power_cut_leaves_no_beginning() {
        const SIZE: usize = 3 << 20;
        let new: Vec<u8> = (0..SIZE).map(|at| u8::try_from(at / 4096 % 250).unwrap() + 1).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &new).unwrap();
        let before = MemoryDevice::new(SIZE as u64);
        before.write_at(0, vec![255; SIZE]).unwrap();
        let recorded = Arc::new(Record::new(Arc::new(before.fork())));
        let image = ImageSpec::parse(std::ffi::OsStr::new("disk")).unwrap();
        let to = Overwriting { image, device: recorded.clone() };
        let (half, end) = (SIZE as u64 / 2, SIZE as u64);
        to.write((file.path(), end), &[0..half, half..end], &[]).unwrap();
        let log = recorded.log();
        let (mut old, mut none, mut whole) = (0, 0, 0);
        for moment in 0..=log.end {
            let point = log.crash_point(moment);
            let parts: [&dyn Fn(usize) -> bool; 4] =
                [&|_| false, &|_| true, &|number| number % 2 == 0, &|number| number % 2 == 1];
            for is_there in parts {
                let volatile = point.volatile.iter().enumerate();
                let there =
                    volatile.filter(|(number, _)| is_there(*number)).map(|(_, event)| event);
                let device = before.fork();
                log.apply(&device, point.durable.iter().chain(there).copied()).unwrap();
                let found = device.read_at(0, SIZE).unwrap();
                match found[..8192].iter().max() {
                    Some(255) => {
                        old += 1;
                        assert!(found.iter().all(|byte| *byte == 255), "moment {moment}");
                    }
                    Some(0) => none += 1,
                    _ => {
                        whole += 1;
                        assert!(*found == *new, "moment {moment}");
                    }
                }
            }
        }
        assert!(old > 0 && none > 0 && whole > 0, "{old} {none} {whole}");
    }
}
