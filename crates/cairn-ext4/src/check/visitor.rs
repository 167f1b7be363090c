//! [`Visitor`]: who looks at the block map of an inode.

use cairn_base::Pba;
use cairn_check::Kind;

use crate::corrupt::Corrupt;

/// Blocks of a file that are contiguous on the volume. They lie inside the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) pba: Pba,
    pub(super) len: u64,
    pub(super) unwritten: bool,
}

impl Run {
    /// The file block behind it.
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// A defect of a map.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: &'static Kind,
    /// The file block.
    pub(super) at: u64,
    /// The block with the defect; 0 is the inode.
    pub(super) pba: Pba,
    pub(super) why: Why,
}

/// What is wrong.
#[derive(Debug)]
pub(super) enum Why {
    /// What the decoder says.
    Decoder(Corrupt),
    /// An impossible number.
    Number(u64),
}

/// Who looks at a map.
pub(super) trait Visitor {
    /// Blocks of the file.
    fn data(&mut self, run: Run);

    /// A block of the map, inside the volume. False: the walk does not descend.
    fn node(&mut self, at: u64, pba: Pba) -> bool;

    /// A defect. The walk goes on.
    fn fault(&mut self, fault: Fault);
}

/// The runs of a file that belongs to the volume.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) runs: Vec<Run>,
    /// Part of the map is damaged, or it has too many blocks.
    pub(super) is_damaged: bool,
    /// Blocks of the map that the walk may descend from.
    nodes: u32,
}

impl Runs {
    /// An empty list for a map of so many blocks at most.
    pub(super) const fn new(nodes: u32) -> Self {
        Self { runs: Vec::new(), is_damaged: false, nodes }
    }
}

impl Visitor for Runs {
    fn data(&mut self, run: Run) {
        self.runs.push(run);
    }

    fn node(&mut self, _: u64, _: Pba) -> bool {
        let left = self.nodes.checked_sub(1);
        self.is_damaged |= left.is_none();
        self.nodes = left.unwrap_or(0);
        left.is_some()
    }

    fn fault(&mut self, _: Fault) {
        self.is_damaged = true;
    }
}
