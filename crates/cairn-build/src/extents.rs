//! Where a file of the host has data, asked with lseek(2).

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The first range with data from `at` on, below `size`. Where the system cannot tell, all is data.
///
/// # Errors
/// The system fails.
pub(crate) fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if at >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL) => at,
        Err(error) => return Err(error.into()),
    };
    let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
        Ok(end) => end.min(size),
        Err(Errno::INVAL) => size,
        Err(error) => return Err(error.into()),
    };
    Ok(Some(start..end).filter(|range| !range.is_empty()))
}
