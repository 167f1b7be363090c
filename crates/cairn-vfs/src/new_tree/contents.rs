//! Which blocks of a file hold data, and their contents. Holes and the rest of the last block are
//! zeros.

use std::iter::Peekable;
use std::ops::Range;
use std::slice::Iter;

use super::error::TreeError;
use super::source::{Kind, Source};

/// Checks that ranges with data are sorted, apart, and within a file of `size` bytes.
///
/// # Errors
/// One of them is not.
pub fn check_ranges(size: u64, data: &[Range<u64>]) -> Result<(), String> {
    let mut end = 0;
    for range in data {
        if range.start < end || range.start >= range.end || range.end > size {
            let Range { start, end } = range;
            return Err(format!("the data range {start}..{end} is out of order or beyond the end"));
        }
        end = range.end;
    }
    Ok(())
}

/// Runs of file blocks that hold data, apart: see [`segments`].
pub struct Segments<'a> {
    ranges: Peekable<Iter<'a, Range<u64>>>,
    block_size: u64,
}

/// Runs of file blocks that hold data, apart.
#[must_use]
pub fn segments(data: &[Range<u64>], block_size: u64) -> Segments<'_> {
    Segments { ranges: data.iter().peekable(), block_size }
}

impl Iterator for Segments<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let first = self.ranges.next()?;
        let mut run = first.start / self.block_size..first.end.div_ceil(self.block_size);
        let (end, block_size) = (&mut run.end, self.block_size);
        while let Some(next) = self.ranges.next_if(|next| next.start / block_size <= *end) {
            *end = next.end.div_ceil(block_size);
        }
        Some(run)
    }
}

/// Fills `out` with the bytes of a file from `offset` on.
///
/// # Errors
/// They cannot be read.
pub fn read_part(
    source: &dyn Source,
    id: u32,
    offset: u64,
    out: &mut [u8],
) -> Result<(), TreeError> {
    let Kind::Regular { data, .. } = source.node(id).kind else {
        out.fill(0);
        return Ok(());
    };
    let end = offset + out.len() as u64;
    let mut done = offset;
    let first = data.partition_point(|range| range.end <= offset);
    for range in data[first..].iter().take_while(|range| range.start < end) {
        let (from, to) = (range.start.max(offset), range.end.min(end));
        let at = |place: u64| (place - offset) as usize;
        out[at(done)..at(from)].fill(0);
        source
            .read(id, from, &mut out[at(from)..at(to)])
            .map_err(|cause| TreeError::Read { path: source.path(id), source: cause })?;
        done = to;
    }
    out[(done - offset) as usize..].fill(0);
    Ok(())
}

/// Fills `out` with the blocks of a file that hold data, from the `skip`th of them on.
///
/// # Errors
/// They cannot be read.
pub fn read_blocks(
    source: &dyn Source,
    id: u32,
    block_size: u64,
    skip: u64,
    out: &mut [u8],
) -> Result<(), TreeError> {
    let Kind::Regular { data, .. } = source.node(id).kind else { return Ok(()) };
    let (mut skip, mut rest) = (skip, out);
    for segment in segments(data, block_size) {
        let len = segment.end - segment.start;
        if skip >= len {
            skip -= len;
            continue;
        }
        let start = segment.start + skip;
        let bytes = ((segment.end - start) * block_size).min(rest.len() as u64);
        let (now, later) = rest.split_at_mut(bytes as usize);
        read_part(source, id, start * block_size, now)?;
        (rest, skip) = (later, 0);
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_share_a_block_are_one_segment() {
        let data = [10..20, 4000..4097, 8191..8192, 20_000..20_001];
        let runs: Vec<_> = segments(&data, 4096).collect();
        assert_eq!(runs, [0..2, 4..5]);
        assert_eq!(segments(&[], 4096).count(), 0);
    }

    #[test]
    fn ranges_are_sorted_and_within_the_file() {
        assert_eq!(check_ranges(20, &[0..3, 3..20]), Ok(()));
        for bad in [[0..3, 2..5], [3..3, 4..5], [0..3, 4..21]] {
            assert!(check_ranges(20, &bad).is_err(), "{bad:?}");
        }
    }
}
