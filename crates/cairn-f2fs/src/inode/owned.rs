//! Whose a block is: what its summary says, and whether the block to which a pointer leads is
//! another's. Then its summary names a pointer, and that one leads to it. A summary alone proves
//! nothing: it may be what is damaged.
//!
//! Asked on volumes that are only read, for the first block of each run: a wrong pointer begins
//! one.

use crate::checkpoint::summaries;
use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::summary::SummaryBlock;
use crate::format::units::{BlockAddr, Nid};
use crate::format::{Features, Inode as Record, Log, NodeFooter, Summary, node};

/// A data pointer of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    /// The file.
    pub(crate) ino: Nid,
    /// The block of the file.
    pub(crate) block: u64,
    /// The inode or direct node with the pointer, and its number there.
    pub(crate) holder: Nid,
    /// The pointer's number in the holder.
    pub(crate) slot: u16,
    /// Where it leads.
    pub(crate) addr: BlockAddr,
}

/// Checks that the block is not another's.
///
/// # Errors
/// It is; or the device failed.
pub(crate) fn check(disk: &Disk, pointer: Pointer) -> Result<()> {
    let Pointer { ino, block, holder, slot, addr } = pointer;
    // What is newer than the checkpoint has no summaries. A volume that is never cleaned has none.
    if disk.store.is_some()
        || disk.layout.features.contains(Features::RO)
        || [ino, holder].iter().any(|nid| disk.nodes.overlay().changes(*nid))
    {
        return Ok(());
    }
    let is_anothers = match owner(disk, addr) {
        Ok(Some((true, _))) => is_node(disk, addr),
        Ok(Some((false, owner))) if (owner.nid, owner.ofs_in_node) == (holder, slot) => Ok(false),
        Ok(Some((false, owner))) => leads_to(disk, owner, addr),
        Ok(None) => Ok(false),
        Err(error) => Err(error),
    };
    let what = "the pointer leads to a block of another owner";
    match is_anothers {
        // What is damaged itself proves nothing.
        Ok(false) | Err(Error::Corrupt(_)) => Ok(()),
        Ok(true) => Err(Corrupt::Mapping { ino, block, what, value: addr.get().into() }.into()),
        Err(error) => Err(error),
    }
}

/// What the summary says of a block: whether it is a node, and whose.
///
/// # Errors
/// The summary is damaged, or the device failed.
pub(super) fn owner(disk: &Disk, addr: BlockAddr) -> Result<Option<(bool, Summary)>> {
    let Some((segno, offset)) = disk.layout.segment_of(addr) else { return Ok(None) };
    let at = |is_node, entries: &[Summary]| {
        entries.get(usize::from(offset)).map(|entry| (is_node, *entry))
    };
    if let Some(store) = &disk.store {
        let found = store.segments.owners(segno)?;
        return Ok(at(found.is_node, &found.entries));
    }
    let checkpoint = &disk.checkpoint;
    match Log::ALL.into_iter().find(|log| checkpoint.checkpoint.log(*log).segno == segno) {
        // Which node is not asked.
        Some(log) if log.is_node() => Ok(Some((true, Summary::default()))),
        Some(log) => {
            let entries = summaries::of_data(checkpoint, &disk.buffers, &disk.layout, log)?;
            Ok(at(false, &entries))
        }
        None => {
            let image = disk.buffers.get(disk.layout.summary_address(segno))?.image();
            let found = SummaryBlock::decode(&image)?;
            Ok(at(found.is_node, &found.entries))
        }
    }
}

/// Is the block a node that the NAT leads to?
fn is_node(disk: &Disk, addr: BlockAddr) -> Result<bool> {
    let footer = NodeFooter::read(&disk.buffers.get(addr.pba())?.image());
    Ok(footer.is_possible(&disk.layout) && disk.nat.lookup(footer.nid)?.block_addr == addr)
}

/// Does the pointer that a summary names lead to the block?
fn leads_to(disk: &Disk, owner: Summary, addr: BlockAddr) -> Result<bool> {
    let entry = disk.nat.lookup(owner.nid)?;
    let is_old = entry.is_free() || entry.version != owner.version;
    if is_old || disk.nodes.overlay().changes(entry.ino) {
        return Ok(false);
    }
    let image = disk.buffers.get(entry.block_addr.pba())?.image();
    let footer = NodeFooter::read(&image);
    footer.check(owner.nid, entry.ino, entry.block_addr)?;
    let slot = owner.ofs_in_node;
    if !footer.is_inode() {
        let is_slot = usize::from(slot) < node::POINTERS;
        return Ok(is_slot && node::data_pointer(&image, slot.into()) == addr);
    }
    let record = Record::decode(&image, owner.nid, disk.layout.features)?;
    let has_none = record.inline.intersects(INLINE) || u32::from(slot) >= record.address_slots();
    Ok(!has_none && record.data_pointer(&image, slot.into()) == addr)
}

/// Flags of inodes without pointers.
const INLINE: crate::format::inode::InlineFlags =
    crate::format::inode::InlineFlags::DATA.union(crate::format::inode::InlineFlags::DENTRY);
