//! Where the blocks of a cluster are.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use cairn_base::units::{as_index, as_u64};

use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::inode::Inode as Record;
use crate::format::units::BlockAddr;
use crate::inode::Inode;
use crate::inode::owned::{self, Pointer};
use crate::node::tree::{self, Leaf};

/// The pointers of the cluster that starts at a block; all holes if there is no node.
pub(super) fn pointers(
    disk: &Disk,
    inode: &Inode,
    record: &Record,
    start: u64,
) -> Result<Vec<BlockAddr>> {
    let blocks = record.cluster_blocks().unwrap_or(1);
    let pointers = match tree::find(&disk.nodes, inode.nid, record, start)? {
        Leaf::Hole(_) => return Ok(vec![BlockAddr::NULL; as_index(blocks)]),
        Leaf::Node(pointers) => pointers,
    };
    let (holder, first) = pointers.place();
    // Clusters do not cross nodes.
    let list: Vec<BlockAddr> =
        (0..blocks.min(pointers.len())).map(|index| pointers.get(record, index)).collect();
    for (index, addr) in list.iter().enumerate() {
        tree::check_pointer(*addr, inode.nid, start.saturating_add(as_u64(index)), &disk.layout)?;
        if index > 0 && *addr == BlockAddr::COMPRESS {
            let what = "the mark of a compressed cluster is not at its start";
            let block = start.saturating_add(as_u64(index));
            return Err(
                Corrupt::Mapping { ino: inode.nid, block, what, value: addr.get().into() }.into()
            );
        }
    }
    // A wrong pointer begins a run.
    let mut before = BlockAddr::NULL;
    for (index, addr) in (0_u16..).zip(list.iter().copied()) {
        let goes_on = before.is_address() && before.get().checked_add(1) == Some(addr.get());
        if addr.is_address() && !goes_on {
            let block = start.saturating_add(index.into());
            let slot = first.saturating_add(index);
            owned::check(disk, Pointer { ino: inode.nid, block, holder, slot, addr })?;
        }
        before = addr;
    }
    Ok(list)
}
