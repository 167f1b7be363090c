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
