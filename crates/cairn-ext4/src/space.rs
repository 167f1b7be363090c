//! [`BlockSource`]: how the structures of a file allocate and free metadata blocks.

use cairn_base::Pba;

use crate::error::Result;
use crate::txn::Handle;

/// The kind of freed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// File contents that were never journalled.
    Data,
    /// Blocks that may be in the journal. They are revoked before they can be allocated again.
    Metadata,
}

/// Allocates blocks for the maps, directories and attributes of one volume.
pub(crate) trait BlockSource {
    /// Allocates a block near `goal` and marks it in use in `handle`.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NoSpace`]; a bitmap is damaged, or the journal was aborted.
    fn allocate_block(&self, handle: &Handle, goal: Pba) -> Result<Pba>;

    /// Frees `count` blocks from `start` on in `handle`. They can be allocated again after its
    /// commit.
    ///
    /// # Errors
    /// A block is free already or belongs to the structures of the volume; a bitmap cannot be read,
    /// or the journal was aborted.
    fn free(&self, handle: &Handle, start: Pba, count: u64, kind: Freed) -> Result<()>;
}
