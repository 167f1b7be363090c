//! File block → place, in the largest runs the node tree gives.

use cairn_base::FileBlock;
use cairn_cache::mapper::{FileMapper, MapError, Mapping, Place, Placement, Run};

use super::Inode;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::inode::Inode as Record;
use crate::format::units::BlockAddr;
use crate::node::tree::{self, Leaf};
use crate::volume::Volume;

/// Maps one file.
pub struct InodeMapper<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
    record: Record,
}

impl<'a> InodeMapper<'a> {
    /// The map as the record is now.
    #[must_use]
    pub fn new(volume: &'a Volume, inode: &'a Inode) -> Self {
        Self { volume, inode, record: inode.record() }
    }

    /// What is at `run.start`, and for how many blocks (at most `run.len`, unless a whole subtree is missing).
    ///
    /// # Errors
    /// The node tree is damaged, or the device failed.
    pub fn find(&self, run: Run) -> Result<Mapping> {
        let start = run.start.get();
        let (first, mut len) = self.find_in_leaf(start, run.len.max(1))?;
        // A run goes on in the next node where that continues it.
        while let Place::Mapped(pba) = &first {
            if len >= run.len {
                break;
            }
            let next = start + len;
            match self.find_in_leaf(next, run.len - len)? {
                (Place::Mapped(more), count) if more.get() == pba.get() + len => len += count,
                _ => break,
            }
        }
        Ok(Mapping { run: Run { start: run.start, len }, place: first })
    }

    /// The same within one node.
    fn find_in_leaf(&self, block: u64, want: u64) -> Result<(Place, u64)> {
        let pointers = match tree::find(&self.volume.nodes, self.inode.nid, &self.record, block)? {
            Leaf::Hole(len) => return Ok((Place::Hole, len)),
            Leaf::Node(pointers) => pointers,
        };
        let most = u32::try_from(want).unwrap_or(u32::MAX).min(pointers.len());
        let first = pointers.get(&self.record, 0);
        self.check(first, block)?;
        let goes_on = |index: u32| {
            let addr = pointers.get(&self.record, index);
            if !first.is_address() {
                return is_hole(addr);
            }
            // Beyond the main area is found out when that block is asked for.
            first.get().checked_add(index) == Some(addr.get()) && self.volume.layout.in_main(addr)
        };
        let len = (1..most).find(|index| !goes_on(*index)).unwrap_or(most);
        let place = if first.is_address() { Place::Mapped(first.pba()) } else { Place::Hole };
        Ok((place, len.into()))
    }

    fn check(&self, addr: BlockAddr, block: u64) -> Result<(), Corrupt> {
        tree::check_pointer(addr, self.inode.nid, block, &self.volume.layout)?;
        if addr == BlockAddr::COMPRESS && self.record.cluster_blocks().is_none() {
            let what = "a compressed cluster in a file that is not compressed";
            return Err(Corrupt::Mapping { ino: self.inode.nid, block, what, value: addr.get().into() });
        }
        Ok(())
    }
}

/// Reserved slots read as zeros, like holes.
fn is_hole(addr: BlockAddr) -> bool {
    matches!(addr, BlockAddr::NULL | BlockAddr::NEW)
}

impl FileMapper for InodeMapper<'_> {
    fn lookup(&self, run: Run) -> Result<Mapping, MapError> {
        Ok(self.find(run)?)
    }

    fn reserve(&self, _run: Run) -> Result<Mapping, MapError> {
        Err(self.volume.refuse_write().into())
    }

    fn release(&self, _run: Run) {}

    fn place(&self, _run: Run) -> Result<Placement, MapError> {
        Err(self.volume.refuse_write().into())
    }
}

/// The address of one block; `None` in a hole.
///
/// # Errors
/// As [`InodeMapper::find`].
pub fn block_address(volume: &Volume, inode: &Inode, block: u64) -> Result<Option<cairn_base::Pba>> {
    let mapping = InodeMapper::new(volume, inode).find(Run { start: FileBlock(block), len: 1 })?;
    Ok(match mapping.place {
        Place::Mapped(pba) => Some(pba),
        _ => None,
    })
}
