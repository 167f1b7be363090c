//! Bounds of what is read of a volume whose bytes may be anything.

use std::cell::Cell;
use std::ops::Range;

/// A size that no volume's is larger than: what lies beyond the device cannot be read, and the rest
/// of a truncated volume can.
pub const ANY_SIZE: u64 = 1 << 60;
/// How often each block of a volume may be read, and a few more.
const READS: u64 = 8;
const LEAST: u64 = 1 << 16;
/// Most faults of one file or directory that are kept.
const MOST_FAULTS: usize = 1000;

/// How many blocks may still be read: all maps and directories together, and all contents. A
/// hostile volume names one block in every map.
#[derive(Debug)]
pub struct Allowance {
    structures: Cell<u64>,
    contents: Cell<u64>,
}

impl Allowance {
    /// That of a volume with so many blocks.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        let all = blocks.saturating_mul(READS).saturating_add(LEAST);
        Self { structures: Cell::new(all), contents: Cell::new(all) }
    }

    /// Takes a block of a map or a directory. False if there is none left.
    pub fn structure(&self) -> bool {
        take(&self.structures, 1)
    }

    /// Takes blocks with contents of a file. False if there are not so many left.
    pub fn contents(&self, blocks: u64) -> bool {
        take(&self.contents, blocks)
    }
}

fn take(left: &Cell<u64>, blocks: u64) -> bool {
    let rest = left.get().checked_sub(blocks);
    left.set(rest.unwrap_or(left.get()));
    rest.is_some()
}

/// What could not be read of a file or directory, as far as it is kept.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    kept: Vec<String>,
    /// Blocks that follow each other, the last ones that were added.
    blocks: Range<u64>,
}

impl Faults {
    /// Adds one.
    pub fn add(&mut self, what: impl Into<String>) {
        self.end_blocks();
        self.keep(what.into());
    }

    /// Adds a block of the file that cannot be read. Those that follow each other are one fault.
    pub fn add_block(&mut self, block: u64) {
        if self.blocks.is_empty() || self.blocks.end != block {
            self.end_blocks();
            self.blocks.start = block;
        }
        self.blocks.end = block.saturating_add(1);
    }

    fn end_blocks(&mut self) {
        let Range { start, end } = std::mem::take(&mut self.blocks);
        match end.saturating_sub(start) {
            0 => {}
            1 => self.keep(format!("block {start} of it cannot be read")),
            _ => self
                .keep(format!("blocks {start} to {} of it cannot be read", end.saturating_sub(1))),
        }
    }

    fn keep(&mut self, what: String) {
        match self.kept.len() {
            0..MOST_FAULTS => self.kept.push(what),
            MOST_FAULTS => self.kept.push("more of it is lost".to_owned()),
            _ => {}
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.blocks.is_empty()
    }

    /// Those that were added.
    #[must_use]
    pub fn into_list(mut self) -> Vec<String> {
        self.end_blocks();
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_faults_end() {
        let allowance = Allowance::new(1000);
        let reads = 8000 + LEAST;
        assert!(allowance.contents(reads - 1));
        assert!(!allowance.contents(2) && allowance.contents(1) && !allowance.contents(1));
        assert!((0..reads).all(|_| allowance.structure()) && !allowance.structure());
        let mut faults = Faults::default();
        (0..2 * MOST_FAULTS).for_each(|number| faults.add(number.to_string()));
        let kept = faults.into_list();
        assert_eq!(kept.len(), MOST_FAULTS + 1);
        assert_eq!(kept.last().unwrap(), "more of it is lost");
    }

    #[test]
    fn blocks_that_follow_each_other_are_one_fault() {
        let mut faults = Faults::default();
        assert!(faults.is_empty());
        [0, 1, 2, 7, 9, 10].into_iter().for_each(|block| faults.add_block(block));
        faults.add("its attributes");
        faults.add_block(11);
        let right = [
            "blocks 0 to 2 of it cannot be read",
            "block 7 of it cannot be read",
            "blocks 9 to 10 of it cannot be read",
            "its attributes",
            "block 11 of it cannot be read",
        ];
        assert!(!faults.is_empty());
        assert_eq!(faults.into_list(), right);
    }
}
