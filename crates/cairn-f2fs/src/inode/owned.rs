//! Whose a block is: what its summary says, and whether the block to which a pointer leads is
//! another's. Then its summary names a pointer, and that one leads to it; or it is a node, to which
//! the NAT leads. A summary alone proves nothing: it may be what is damaged. But if it names an
//! empty pointer of the same node, between the blocks of whose neighbours the block lies, that one
//! was moved.
//!
//! Asked for each run of blocks when it is first mapped, for the blocks that a pointer does not
//! lead to any more, and for those that are overwritten where they are.
//!
//! Cost: the summary of each segment, which the cache keeps; of a block that is a file's own, one
//! entry of it.

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

use cairn_base::units::as_u64;

use crate::checkpoint::summaries;
use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::units::{BlockAddr, Nid, SegNo};
use crate::format::{Features, Log, NodeFooter, Summary, named};
use crate::segment::SegmentOwners;
use crate::store::live;

/// What is wrong with a pointer to a block of another.
pub(crate) const OF_ANOTHER: &str = "the pointer leads to a block of another owner";
/// What is wrong with an empty one.
const LOST: &str = "the pointer is empty, and a block in use is that of this pointer";
/// Pointers from which on the summaries of several segments are read at once.
const MANY: usize = 128;
/// Summaries that are read together.
const TOGETHER: u32 = 16;

/// Data pointers of a file that follow each other in a node.
#[derive(Clone, Copy)]
pub(crate) struct Pointers<'a> {
    /// The inode or direct node with the pointers.
    pub(crate) holder: Nid,
    /// The number of the first one in the holder.
    pub(crate) first: u16,
    /// Where they lead.
    pub(crate) addrs: &'a [BlockAddr],
}

/// The error for a pointer to a block of another.
pub(crate) fn error(ino: Nid, block: u64, addr: BlockAddr) -> Error {
    Corrupt::Mapping { ino, block, what: OF_ANOTHER, value: addr.get().into() }.into()
}

/// The error for an empty pointer that has lost its block.
pub(crate) fn lost(ino: Nid, block: u64) -> Error {
    Corrupt::Mapping { ino, block, what: LOST, value: 0 }.into()
}

/// Is it one of these two?
pub(crate) fn is_refusal(error: &Error) -> bool {
    let is_one = |what: &str| what == OF_ANOTHER || what == LOST;
    matches!(error, Error::Corrupt(Corrupt::Mapping { what, .. }) if is_one(what))
}

/// The number of pointers before the first one that leads to a block of another.
///
/// # Errors
/// The device failed.
pub(crate) fn own(disk: &Disk, ino: Nid, pointers: Pointers<'_>) -> Result<u64> {
    let mut judge = Judge::new(disk, pointers);
    let all = as_u64(pointers.addrs.len());
    // What is newer than the checkpoint has no summaries on a volume that is only read.
    if [ino, pointers.holder].iter().any(|nid| disk.nodes.overlay().changes(*nid)) {
        return Ok(all);
    }
    for index in 0..u16::try_from(all).unwrap_or(u16::MAX) {
        if judge.is_anothers(index)? {
            return Ok(index.into());
        }
    }
    Ok(all)
}

/// Has an empty pointer lost its block? `addr` lies beside the block of the pointer before it or
/// after it. If it is in use, and its summary names the empty one, that one led there.
///
/// # Errors
/// The device failed.
pub(crate) fn has_lost(
    disk: &Disk,
    ino: Nid,
    (holder, slot): (Nid, u16),
    addr: BlockAddr,
) -> Result<bool> {
    let is_newer = [ino, holder].iter().any(|nid| disk.nodes.overlay().changes(*nid));
    if is_newer || !disk.layout.in_main(addr) || !is_used(disk, addr) {
        return Ok(false);
    }
    let Some(Some((false, owner))) = unless_damaged(owner(disk, addr))? else { return Ok(false) };
    if (owner.nid, owner.ofs_in_node) != (holder, slot) {
        return Ok(false);
    }
    let version = match &disk.store {
        Some(store) => store.nat.version(holder),
        None => disk.nat.lookup(holder).map(|entry| entry.version),
    };
    Ok(unless_damaged(version)? == Some(owner.version))
}

/// Does the SIT call a block used?
fn is_used(disk: &Disk, addr: BlockAddr) -> bool {
    match &disk.store {
        Some(store) => store.segments.is_valid(addr),
        None => disk.nodes.calls_used(addr),
    }
}

/// Tells whose the blocks are to which pointers lead, or led.
pub(crate) struct Judge<'a> {
    disk: &'a Disk,
    pointers: Pointers<'a>,
    /// The owners in the segment that was asked last; none if they cannot be read.
    known: Option<(SegNo, Option<SegmentOwners>)>,
}

impl<'a> Judge<'a> {
    pub(crate) const fn new(disk: &'a Disk, pointers: Pointers<'a>) -> Self {
        Self { disk, pointers, known: None }
    }

    /// Is the block of this pointer another's? What is damaged itself proves nothing.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn is_anothers(&mut self, index: u16) -> Result<bool> {
        let Pointers { holder, first, addrs } = self.pointers;
        let addr = addrs.get(usize::from(index)).copied().unwrap_or_default();
        if !addr.is_address() {
            return Ok(false);
        }
        let slot = first.saturating_add(index);
        let found = match self.owner(addr)? {
            None => return Ok(false),
            Some((true, owner)) => is_node(self.disk, addr, owner),
            Some((false, owner)) if (owner.nid, owner.ofs_in_node) == (holder, slot) => {
                return Ok(false);
            }
            Some((false, owner)) => self.is_of(owner, slot, addr),
        };
        unless_damaged(found).map(|found| found == Some(true))
    }

    /// Is the block of a pointer that of another one, which the summary names?
    fn is_of(&self, owner: Summary, slot: u16, addr: BlockAddr) -> Result<bool> {
        let here = self.given(owner);
        let found = match here {
            Some(given) => Some(given),
            None => pointer(self.disk, owner)?,
        };
        let is_moved = here.is_none()
            && owner.nid == self.pointers.holder
            && found == Some(BlockAddr::NULL)
            && self.is_between(owner, addr)?
            && !self.is_between(Summary { ofs_in_node: slot, ..owner }, addr)?;
        Ok(found == Some(addr) || is_moved)
    }

    /// Does the block lie beside that of the pointer before this one, or after it? Blocks that
    /// were written together do. If this one is empty then, the block was moved from it.
    fn is_between(&self, owner: Summary, addr: BlockAddr) -> Result<bool> {
        let slot = owner.ofs_in_node;
        let beside = [
            (slot.checked_sub(1), addr.get().checked_sub(1)),
            (slot.checked_add(1), addr.get().checked_add(1)),
        ];
        for (slot, beside) in beside {
            let Some((ofs_in_node, beside)) = slot.zip(beside) else { continue };
            let neighbour = Summary { ofs_in_node, ..owner };
            let found = match self.given(neighbour) {
                Some(given) => Some(given),
                None => pointer(self.disk, neighbour)?,
            };
            if found == Some(BlockAddr(beside)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where another one of the pointers leads.
    fn given(&self, owner: Summary) -> Option<BlockAddr> {
        let index = owner.ofs_in_node.checked_sub(self.pointers.first)?;
        let is_here = owner.nid == self.pointers.holder;
        self.pointers.addrs.get(usize::from(index)).copied().filter(|_| is_here)
    }

    /// What the summary says of a block: whether it is a node, and whose.
    fn owner(&mut self, addr: BlockAddr) -> Result<Option<(bool, Summary)>> {
        let Some((segno, offset)) = self.disk.layout.segment_of(addr) else { return Ok(None) };
        if self.known.as_ref().is_none_or(|(known, _)| *known != segno) {
            if self.pointers.addrs.len() >= MANY {
                expect(self.disk, segno);
            }
            self.known = Some((segno, unless_damaged(owners(self.disk, segno))?));
        }
        let owners = self.known.as_ref().and_then(|(_, owners)| owners.as_ref());
        Ok(owners.and_then(|owners| Some((owners.is_node, owners.get(offset)?))))
    }
}

fn unless_damaged<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the summary says of a block: whether it is a node, and whose.
///
/// # Errors
/// The summary is damaged, or the device failed.
pub(super) fn owner(disk: &Disk, addr: BlockAddr) -> Result<Option<(bool, Summary)>> {
    let Some((segno, offset)) = disk.layout.segment_of(addr) else { return Ok(None) };
    if let Some(store) = &disk.store {
        return store.segments.owner_of(addr).map(Some);
    }
    let owners = owners(disk, segno)?;
    Ok(owners.get(offset).map(|owner| (owners.is_node, owner)))
}

/// The owners in a segment. A volume that is never cleaned has none.
fn owners(disk: &Disk, segno: SegNo) -> Result<SegmentOwners> {
    if disk.layout.features.contains(Features::RO) {
        return Ok(SegmentOwners::decoded(false, Vec::new()));
    }
    if let Some(store) = &disk.store {
        return store.segments.owners(segno);
    }
    let (buffers, layout) = (&disk.buffers, &disk.layout);
    let checkpoint = &disk.checkpoint;
    match Log::ALL.into_iter().find(|log| checkpoint.checkpoint.log(*log).segno == segno) {
        // Which node is not asked.
        Some(log) if log.is_node() => Ok(SegmentOwners::nodes()),
        Some(log) => {
            let entries = summaries::of_data(checkpoint, buffers, layout, log)?;
            Ok(SegmentOwners::decoded(false, entries))
        }
        None => SegmentOwners::stored(buffers.get(layout.summary_address(segno))?.image()),
    }
}

/// Reads the summaries of a segment, and of those around it, that will be asked for soon.
fn expect(disk: &Disk, segno: SegNo) {
    let first = segno.get().saturating_sub(segno.get() % TOGETHER);
    let count = TOGETHER.min(disk.layout.main_segments.saturating_sub(first));
    disk.buffers.prefetch(disk.layout.summary_address(SegNo(first)), count.into());
}

/// Is the block a node that the NAT leads to? The owner is what the summary says, where it is
/// known.
fn is_node(disk: &Disk, addr: BlockAddr, owner: Summary) -> Result<bool> {
    if let Some(store) = &disk.store {
        return Ok(store.nat.address(owner.nid)? == Some(addr));
    }
    let footer = NodeFooter::read(&disk.buffers.get(addr.pba())?.image());
    Ok(footer.is_possible(&disk.layout) && disk.nat.lookup(footer.nid)?.block_addr == addr)
}

/// The pointer that a summary names, if there is one.
fn pointer(disk: &Disk, owner: Summary) -> Result<Option<BlockAddr>> {
    if let Some(store) = &disk.store {
        return live::address(store, owner);
    }
    let entry = disk.nat.lookup(owner.nid)?;
    let is_old = entry.is_free() || entry.version != owner.version;
    if is_old || disk.nodes.overlay().changes(entry.ino) {
        return Ok(None);
    }
    let image = disk.buffers.get(entry.block_addr.pba())?.image();
    let footer = NodeFooter::read(&image);
    footer.check(owner.nid, entry.ino, entry.block_addr)?;
    Ok(named::data_pointer(&image, &footer, owner.ofs_in_node, disk.layout.features)?)
}
