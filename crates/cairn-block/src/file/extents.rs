//! The holes of an image file, as its filesystem tells them.

use std::fs::File;
use std::ops::Range;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::extent::{Extent, MAX_EXTENTS};

/// The extents of a range of a file. What a program changes meanwhile is told as data or as it was.
pub(super) fn of(file: &File, range: Range<u64>) -> Result<Vec<Extent>> {
    let end = range.end;
    let (mut extents, mut at) = (Vec::new(), range.start);
    while at < end && extents.len() < MAX_EXTENTS {
        let data = match next(file, SeekFrom::Data(at))? {
            Some(Found::At(data)) => data.clamp(at, end),
            Some(Found::Beyond) => end,
            None => at,
        };
        Extent::hole(at..data).push(&mut extents);
        at = data;
        if at < end {
            let hole = match next(file, SeekFrom::Hole(at))? {
                // It was there a moment ago.
                Some(Found::At(hole)) if hole > at => hole.min(end),
                _ => end,
            };
            Extent::data(at..hole).push(&mut extents);
            at = hole;
        }
    }
    Ok(extents)
}

enum Found {
    At(u64),
    Beyond,
}

/// `None` where the system does not tell.
fn next(file: &File, from: SeekFrom) -> Result<Option<Found>> {
    match seek(file, from) {
        Ok(at) => Ok(Some(Found::At(at))),
        Err(Errno::NXIO) => Ok(Some(Found::Beyond)),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => Ok(None),
        Err(error) => Err(Error::from_io("look for holes in the image", error.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::device::BlockDevice;
    use crate::file::{FileDevice, OpenOptions};
    use crate::wrap::Partition;

    const MIB: u64 = 1 << 20;

    #[test]
    fn holes_are_told_from_any_place_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 * MIB).unwrap();
        for at in [2, 3, 6] {
            file.as_file().write_all_at(&[1; MIB as usize], at * MIB).unwrap();
        }
        let device = FileDevice::open(file.path(), OpenOptions::read()).unwrap();
        let all = vec![
            Extent::hole(0..2 * MIB),
            Extent::data(2 * MIB..4 * MIB),
            Extent::hole(4 * MIB..6 * MIB),
            Extent::data(6 * MIB..7 * MIB),
            Extent::hole(7 * MIB..8 * MIB),
        ];
        assert_eq!(device.extents(0..8 * MIB).unwrap(), all);
        assert_eq!(device.extents(8 * MIB..8 * MIB).unwrap(), []);
        let inner = device.extents(2 * MIB + 4096..4 * MIB + 4096).unwrap();
        let cut = [Extent::data(2 * MIB + 4096..4 * MIB), Extent::hole(4 * MIB..4 * MIB + 4096)];
        assert_eq!(inner, cut);
        // A partition counts from its own start, and ends where it ends.
        let part = Partition::new(std::sync::Arc::new(device), 3 * MIB, 2 * MIB).unwrap();
        let own = [Extent::data(0..MIB), Extent::hole(MIB..2 * MIB)];
        assert_eq!(part.extents(0..5 * MIB).unwrap(), own);
    }
}
