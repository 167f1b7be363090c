//! The contents of a file: its ranges of data, and their digest.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;

use cairn_base::Ino;
use cairn_vfs::{FileSystem, Seek};
use sha2::{Digest as _, Sha256};

/// Larger files are read only where they have data.
const READ_WHOLE_MAX: u64 = 64 << 20;

const BLOCK: u64 = 4096;

/// The ranges between holes, rounded to blocks of 4096 bytes, because implementations differ in the
/// start of a hole in the last block.
pub(super) fn data_of_file(file: &fs::File, size: u64) -> std::io::Result<Vec<Range<u64>>> {
    ranges(size, |at, data| {
        let position =
            if data { rustix::fs::SeekFrom::Data(at) } else { rustix::fs::SeekFrom::Hole(at) };
        match rustix::fs::seek(file, position) {
            Err(rustix::io::Errno::NXIO) => Ok(None),
            found => Ok(Some(found?)),
        }
    })
}

pub(super) fn data_of_inode(
    volume: &dyn FileSystem,
    ino: Ino,
    size: u64,
) -> cairn_vfs::Result<Vec<Range<u64>>> {
    ranges(size, |at, data| {
        match volume.seek(ino, at, if data { Seek::Data } else { Seek::Hole }) {
            Err(cairn_vfs::Error::NoData) => Ok(None),
            found => found.map(Some),
        }
    })
}

/// Calls `seek` for the next data (`true`) or hole from an offset on, up to the end of the file.
fn ranges<E>(
    size: u64,
    seek: impl Fn(u64, bool) -> Result<Option<u64>, E>,
) -> Result<Vec<Range<u64>>, E> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size {
        let Some(start) = seek(at, true)? else { break };
        at = seek(start, false)?.unwrap_or(size).max(start + 1);
        let (start, end) = (start / BLOCK * BLOCK, at.next_multiple_of(BLOCK));
        match ranges.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    Ok(ranges)
}

/// Digests a whole file, or only the ranges with data if it is very large.
pub(super) fn hash<E>(
    data: &[Range<u64>],
    size: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
) -> Result<String, E> {
    let large = size > READ_WHOLE_MAX;
    let ranges = if large { data.to_vec() } else { std::iter::once(0..size).collect() };
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let wanted = buffer.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            let count = read(at, &mut buffer[..wanted])?;
            if count == 0 {
                break;
            }
            if large {
                hash_blocks(&mut hash, at, &buffer[..count]);
            } else {
                hash.update(&buffer[..count]);
            }
            at += count as u64;
        }
    }
    Ok(hex(&hash.finalize()))
}

/// Blocks of zeros do not count: they may be holes.
fn hash_blocks(hash: &mut Sha256, at: u64, bytes: &[u8]) {
    for (number, block) in (at / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
        if block.iter().any(|byte| *byte != 0) {
            hash.update(number.to_le_bytes());
            hash.update(block);
        }
    }
}
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
