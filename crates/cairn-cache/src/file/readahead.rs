//! Readahead policy: it recognises sequential readers of a file and chooses the windows to read
//! before they ask.
//!
//! A stream is known by its last window. A miss at the window's start or inside it continues the
//! stream. A miss elsewhere begins a new stream without a window, so that random reads read nothing
//! more. The folio at the start of each window is *marked* (Linux: `PG_readahead`): its reader
//! starts the next window, twice as large, while it still has data to read. Eight streams of a file
//! may be interleaved.

use std::ops::Range;

/// Number of streams that are remembered for each file.
const STREAMS: usize = 8;
/// Bytes of a stream's first window.
const FIRST_WINDOW: u64 = 128 << 10;
/// Most bytes that one device batch of readahead reads, and that a small read reads along.
pub(super) const CHUNK: u64 = 1 << 20;

#[derive(Clone, Copy, Default)]
struct Stream {
    /// The last window. It is empty if there was none.
    from: u64,
    next: u64,
    /// Blocks of the last window.
    window: u64,
    used: u64,
}

/// What to read in addition to the asked blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Number of blocks to read together with the asked ones.
    pub(crate) along: u64,
    /// Blocks to read in the background.
    pub(crate) later: Option<Range<u64>>,
}

/// The sequential readers of a file.
#[derive(Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    now: u64,
}

impl Streams {
    /// Plans the read of `wanted`, which is not cached. Windows have at most `most` blocks.
    pub(crate) fn miss(&mut self, wanted: &Range<u64>, shift: u32, most: u64) -> Plan {
        self.now += 1;
        let first = (FIRST_WINDOW >> shift).max(1).min(most);
        let known = |stream: &Stream| {
            stream.used > 0 && (stream.from..=stream.next).contains(&wanted.start)
        };
        let Some(at) = self.streams.iter().position(known) else {
            // A reader that starts at the beginning of the file is likely to read sequentially.
            let along = if wanted.start == 0 { first } else { 0 };
            *self.oldest() = Stream {
                from: wanted.end,
                next: wanted.end + along,
                window: along,
                used: self.now,
            };
            return Plan { along, later: None };
        };
        let len = wanted.end - wanted.start;
        let window = self.streams[at].window;
        if len < first {
            // The reader is faster than its windows: it reads the window itself.
            let along = window.min(CHUNK >> shift).max(first);
            let next = wanted.end + along;
            self.streams[at] =
                Stream { from: wanted.end, next, window: window.max(first), used: self.now };
            return Plan { along, later: None };
        }
        self.streams[at] =
            Stream { from: wanted.end, next: wanted.end, window: window.max(len), used: self.now };
        Plan { along: 0, later: self.grow(at, most) }
    }

    /// The next window of a stream whose marked folio is being read.
    pub(crate) fn marked(&mut self, folio: &Range<u64>, most: u64) -> Option<Range<u64>> {
        let known = |stream: &Stream| stream.used > 0 && folio.contains(&stream.from);
        let at = self.streams.iter().position(known)?;
        self.now += 1;
        self.streams[at].used = self.now;
        self.grow(at, most)
    }

    /// Begins the window after the last one. It ends where an aligned folio of the window's size
    /// ends.
    fn grow(&mut self, at: usize, most: u64) -> Option<Range<u64>> {
        let stream = &mut self.streams[at];
        let window = (stream.window * 2).min(most);
        if window == 0 {
            return None;
        }
        let size = 1_u64 << window.ilog2();
        let end = stream.next.saturating_add(window);
        let aligned = end / size * size;
        let end = if aligned > stream.next { aligned } else { end };
        (stream.from, stream.next, stream.window) = (stream.next, end, window);
        Some(stream.from..stream.next)
    }

    fn oldest(&mut self) -> &mut Stream {
        self.streams.iter_mut().min_by_key(|stream| stream.used).expect("there are streams")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 512;

    #[test]
    fn windows_of_interleaved_streams_grow_to_the_bound() {
        let mut streams = Streams::default();
        let starts = [1000, 500_000, 9_000_000];
        for start in starts {
            assert_eq!(streams.miss(&(start..start + 1), 12, MOST), Plan::default());
        }
        for start in starts {
            assert_eq!(
                streams.miss(&(start + 1..start + 2), 12, MOST),
                Plan { along: 32, later: None }
            );
        }
        let mut marks = starts.map(|start| start + 2);
        let mut longest = 0;
        for _ in 0..8 {
            for mark in &mut marks {
                let window = streams.marked(&(*mark..*mark + 1), MOST).expect("a known stream");
                assert!(window.start > *mark);
                longest = longest.max(window.end - window.start);
                *mark = window.start;
            }
        }
        assert_eq!(longest, MOST);
        assert_eq!(streams.marked(&(77..78), MOST), None);
    }

    #[test]
    fn random_reads_get_no_window() {
        let mut streams = Streams::default();
        for block in [77, 5, 1_000_000, 78_000, 12, 99] {
            assert_eq!(streams.miss(&(block..block + 1), 12, MOST), Plan::default());
        }
        assert_eq!(streams.miss(&(0..1), 12, MOST).along, 32);
    }

    #[test]
    fn large_reads_go_on_in_the_background_at_once() {
        let mut streams = Streams::default();
        streams.miss(&(0..256), 12, MOST);
        let later = streams.miss(&(256..512), 12, MOST).later.expect("a window");
        assert_eq!(later, 512..1024);
        assert_eq!(streams.marked(&(512..768), MOST), Some(1024..1536));
        // A reader reads the missing part of a window itself, and the stream continues.
        assert_eq!(streams.miss(&(1100..1356), 12, MOST).later, Some(1356..1536));
    }

    #[test]
    fn a_reader_that_overtakes_its_window_keeps_the_size_of_the_next() {
        let mut streams = Streams::default();
        assert_eq!(streams.miss(&(0..1), 12, MOST).along, 32);
        assert_eq!(streams.marked(&(1..2), MOST), Some(33..64));
        assert_eq!(streams.marked(&(33..64), MOST), Some(64..128));
        assert_eq!(streams.miss(&(64..65), 12, MOST), Plan { along: 128, later: None });
        assert_eq!(streams.marked(&(65..66), MOST), Some(193..256));
        assert_eq!(streams.marked(&(193..194), MOST), Some(256..512));
        assert_eq!(streams.miss(&(256..257), 12, MOST), Plan { along: 256, later: None });
    }

    #[test]
    fn without_room_nothing_is_read_ahead() {
        let mut streams = Streams::default();
        assert_eq!(streams.miss(&(0..1), 12, 0), Plan::default());
        assert_eq!(streams.miss(&(1..2), 12, 0), Plan::default());
    }
}
