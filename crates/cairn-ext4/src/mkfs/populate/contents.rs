//! Reads a part of a file from the source. Holes and the rest of the last block are zeros.

use super::error::{PopulateError, PopulateResult};
use super::regular::segments;
use super::source::Kind;
use super::survey::Survey;

impl Survey {
    /// Fills `out` with the bytes of a file from `offset` on.
    pub(super) fn read(&self, id: u32, offset: u64, out: &mut [u8]) -> PopulateResult<()> {
        let Kind::Regular { data, .. } = self.source.node(id).kind else {
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
            self.source
                .read(id, from, &mut out[at(from)..at(to)])
                .map_err(|source| PopulateError::Read { path: self.source.path(id), source })?;
            done = to;
        }
        out[(done - offset) as usize..].fill(0);
        Ok(())
    }

    /// Fills `out` with data blocks of a file, from its `skip`th block with data on.
    pub(super) fn data(&self, id: u32, skip: u64, out: &mut [u8]) -> PopulateResult<()> {
        let Kind::Regular { data, .. } = self.source.node(id).kind else { return Ok(()) };
        let block_size = self.settings.block_size as u64;
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
            self.read(id, start * block_size, now)?;
            (rest, skip) = (later, 0);
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }
}
