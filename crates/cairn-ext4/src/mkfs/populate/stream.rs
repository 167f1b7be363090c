//! [`Stream`]: the free blocks of a planned volume, numbered without gaps in their order.
//!
//! What follows in the stream follows on the volume, except where metadata lies in between.

use cairn_base::Pba;

struct Gap {
    /// The number of its first block in the stream.
    number: u64,
    start: u64,
    blocks: u64,
}

/// The free blocks of a volume.
pub(super) struct Stream {
    gaps: Vec<Gap>,
    blocks: u64,
}

impl Stream {
    /// From ranges of free blocks (first, and behind the last), in order.
    pub(super) fn new(free: Vec<(u64, u64)>) -> Self {
        let mut blocks = 0;
        let gap = |(start, end): (u64, u64)| {
            let gap = Gap { number: blocks, start, blocks: end - start };
            blocks += gap.blocks;
            gap
        };
        let gaps = free.into_iter().map(gap).collect();
        Self { gaps, blocks }
    }

    /// All blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The longest run from block `number` on, of at most `most` blocks.
    ///
    /// # Panics
    /// The stream has no such block.
    pub(super) fn run(&self, number: u64, most: u64) -> (Pba, u64) {
        let behind = self.gaps.partition_point(|gap| gap.number <= number);
        let gap = &self.gaps[behind - 1];
        let into = number - gap.number;
        assert!(into < gap.blocks, "block {number} of {}", self.blocks);
        (Pba(gap.start + into), most.min(gap.blocks - into))
    }

    /// The runs of `count` blocks from block `number` on.
    pub(super) fn runs(&self, number: u64, count: u64) -> impl Iterator<Item = (Pba, u64)> + '_ {
        let (mut at, end) = (number, number + count);
        std::iter::from_fn(move || {
            let (pba, len) = (at < end).then(|| self.run(at, end - at))?;
            at += len;
            Some((pba, len))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_metadata() {
        let stream = Stream::new(vec![(10, 20), (30, 31), (40, 100)]);
        assert_eq!(stream.blocks(), 71);
        assert_eq!(stream.run(9, 5), (Pba(19), 1));
        let runs: Vec<_> = stream.runs(8, 10).collect();
        assert_eq!(runs, [(Pba(18), 2), (Pba(30), 1), (Pba(40), 7)]);
        assert_eq!(stream.runs(70, 1).collect::<Vec<_>>(), [(Pba(99), 1)]);
        assert_eq!(stream.runs(5, 0).count(), 0);
    }
}
