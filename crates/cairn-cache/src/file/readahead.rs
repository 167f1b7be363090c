//! Readahead: who reads sequentially, and how much to read for it beyond what it asked.
//!
//! A stream is remembered by the block where its last device read ended. A miss exactly there continues it and doubles
//! its window; a miss elsewhere begins a new stream with no window, so that random reads cost what they ask. Four
//! streams of a file may be interleaved.

use std::ops::Range;

const STREAMS: usize = 4;
const FIRST_WINDOW: u64 = 128 << 10;

#[derive(Clone, Copy, Default)]
struct Stream {
    /// Block after the last one read for it.
    next: u64,
    /// Blocks to read ahead.
    window: u64,
    used: u64,
}

/// The sequential readers of a file.
#[derive(Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    now: u64,
}

impl Streams {
    /// `wanted` was asked for and is missing. Returns how many blocks to read beyond it; `most` bounds them.
    pub(crate) fn ahead(&mut self, wanted: &Range<u64>, shift: u32, most: u64) -> u64 {
        self.now += 1;
        let now = self.now;
        let first = (FIRST_WINDOW >> shift).min(most);
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.used > 0 && stream.next == wanted.start) else {
            // Whoever begins at the beginning is likely to go on.
            return if wanted.start == 0 { first } else { 0 };
        };
        stream.used = now;
        (stream.window * 2).clamp(first, most.max(first))
    }

    /// The device read for the miss at `start` ended at `end`, of which `ahead` blocks were read ahead.
    pub(crate) fn read(&mut self, start: u64, end: u64, ahead: u64) {
        let now = self.now;
        let known = self.streams.iter().position(|stream| stream.used > 0 && stream.next == start);
        let at =
            known.unwrap_or_else(|| (0..STREAMS).min_by_key(|at| self.streams[*at].used).expect("there are streams"));
        self.streams[at] = Stream { next: end, window: ahead, used: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one block at `block` and returns the end of the device read.
    fn miss(streams: &mut Streams, block: u64) -> u64 {
        let ahead = streams.ahead(&(block..block + 1), 12, 512);
        streams.read(block, block + 1 + ahead, ahead);
        block + 1 + ahead
    }

    #[test]
    fn windows_of_interleaved_streams_grow_to_the_bound() {
        let mut streams = Streams::default();
        let mut ends = [1000, 500_000, 9_000_000].map(|block| miss(&mut streams, block));
        assert_eq!(ends, [1001, 500_001, 9_000_001]);
        for ahead in [32, 64, 128, 256, 512, 512] {
            for end in &mut ends {
                let next = miss(&mut streams, *end);
                assert_eq!(next - *end, ahead + 1);
                *end = next;
            }
        }
    }

    #[test]
    fn random_reads_get_no_window() {
        let mut streams = Streams::default();
        for block in [77, 5, 1_000_000, 78_000, 12, 99] {
            assert_eq!(miss(&mut streams, block), block + 1);
        }
        assert_eq!(miss(&mut streams, 0), 33);
    }
}
