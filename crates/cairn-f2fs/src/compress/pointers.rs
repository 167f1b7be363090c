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
use crate::format::units::{BlockAddr, Nid};
use crate::inode::Inode;
use crate::inode::owned::{self, Pointers};
use crate::node::tree::{self, Leaf};

/// The pointers of the cluster that starts at a block; all holes if there is no node.
///
/// # Errors
/// One of them is impossible, or leads to a block of another; a node is damaged, or the device
/// failed.
pub(super) fn pointers(
    disk: &Disk,
    inode: &Inode,
    record: &Record,
    start: u64,
) -> Result<Vec<BlockAddr>> {
    let mut before = None;
    loop {
        let Some((holder, first, list)) = read(disk, inode, record, start)? else {
            return Ok(vec![BlockAddr::NULL; as_index(record.cluster_blocks().unwrap_or(1))]);
        };
        let own = owned::own(disk, inode.nid, Pointers { holder, first, addrs: &list })?;
        let Some(addr) = usize::try_from(own).ok().and_then(|own| list.get(own)) else {
            return Ok(list);
        };
        // Cleaning may have moved the block meanwhile, and its old place may be another's now.
        if before.as_ref() == Some(&list) {
            return Err(owned::error(inode.nid, start.saturating_add(own), *addr));
        }
        before = Some(list);
    }
}

/// The pointers of a cluster, and where they begin. Clusters do not cross nodes.
fn read(
    disk: &Disk,
    inode: &Inode,
    record: &Record,
    start: u64,
) -> Result<Option<(Nid, u16, Vec<BlockAddr>)>> {
    let pointers = match tree::find(&disk.nodes, inode.nid, record, start)? {
        Leaf::Hole(_) => return Ok(None),
        Leaf::Node(pointers) => pointers,
    };
    let blocks = record.cluster_blocks().unwrap_or(1).min(pointers.len());
    let list: Vec<BlockAddr> = (0..blocks).map(|index| pointers.get(record, index)).collect();
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
    let (holder, first) = pointers.place();
    Ok(Some((holder, first, list)))
}
