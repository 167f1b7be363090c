//! How the structures of a file ask for metadata blocks and give blocks back.

use cairn_base::Pba;

use crate::error::Result;
use crate::txn::Handle;

/// What kind of blocks are being freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// File contents that never went through the journal.
    Data,
    /// Blocks that may be in the journal: each is forgotten (revoked) before it can be reused.
    Metadata,
}

/// Source of blocks for the mapping trees, directories and attributes of one volume.
pub trait BlockSource {
    /// Takes one block near `goal` and marks it in use as part of `handle`.
    fn allocate_block(&self, handle: &Handle, goal: Pba) -> Result<Pba>;

    /// Frees `count` blocks from `start` on as part of `handle`; they can be allocated again only after its commit.
    fn free(&self, handle: &Handle, start: Pba, count: u64, kind: Freed) -> Result<()>;
}
