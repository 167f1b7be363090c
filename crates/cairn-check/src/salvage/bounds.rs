//! Bounds of what is read of a volume whose bytes may be anything.

use std::cell::Cell;

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
pub struct Faults(Vec<String>);

impl Faults {
    /// Adds one.
    pub fn add(&mut self, what: impl Into<String>) {
        if self.0.len() < MOST_FAULTS {
            self.0.push(what.into());
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that were added.
    #[must_use]
    pub fn into_list(self) -> Vec<String> {
        self.0
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
        assert_eq!(faults.into_list().len(), MOST_FAULTS);
    }
}
