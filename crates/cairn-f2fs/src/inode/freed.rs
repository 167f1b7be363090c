//! Frees data blocks of a file on a volume that is written, but none that is another's: a damaged
//! pointer must not cost what other files have.
//!
//! A block is another's if its summary names a pointer, and that one leads to it; or if it is a
//! node to which the NAT leads. A summary alone proves nothing. Such a block stays in use, and so
//! does nothing of a pointer to a free block; the damage is noted, and the call goes on.
//!
//! A write finds the same of the block that it replaces: it is never overwritten where it is.
//!
//! Cost: the summary of each segment, once for the pointers of a node; many are read together.

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

use super::Inode;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::summary::SummaryBlock;
use crate::format::{BlockAddr, SegNo};
use crate::mount_state::MountState;
use crate::node::Node;
use crate::segment::Owner;
use crate::store::{Store, live};

/// Pointers from which on a file is taken for one whose blocks lie together.
const MANY: usize = 512;

/// Blocks to which pointers of one node led, and do not any more.
pub(super) struct GivenUp<'a> {
    /// The node.
    pub(super) node: &'a Node,
    /// The first pointer, as a summary names it.
    pub(super) first: Owner,
    /// Where the pointers from the first one on led.
    pub(super) old: &'a [BlockAddr],
}

/// Frees them. Returns the number of addresses whose blocks were not freed.
///
/// # Errors
/// The segment table is damaged.
pub(super) fn free(mount: &MountState, inode: &Inode, given_up: &GivenUp<'_>) -> Result<u64> {
    let store = mount.store()?;
    let mut owners = Owners { store, first: given_up.first, old: given_up.old, known: None };
    let mut own = Vec::with_capacity(given_up.old.len());
    let (mut kept, mut wrong) = (0_u64, None);
    for (index, addr) in (0_u16..).zip(given_up.old.iter().copied()) {
        if !addr.is_address() {
            continue;
        }
        match owners.fault(index, addr) {
            None => own.push(addr),
            Some(what) => {
                kept = kept.saturating_add(1);
                wrong = wrong.or(Some((index, addr, what)));
            }
        }
    }
    own.sort_unstable();
    let all = own.len();
    own.dedup();
    kept = kept.saturating_add(as_u64(all.saturating_sub(own.len())));
    store.segments.invalidate_all(&mut own)?;
    if let Some((index, addr, what)) = wrong {
        let block = block_of(inode, given_up, index);
        let found = Corrupt::Mapping { ino: inode.nid, block, what, value: addr.get().into() };
        let _ = mount.observe(Err::<(), _>(found.into()));
    }
    Ok(kept)
}

/// Is the block to which a pointer leads another's, or free?
pub(super) fn is_anothers(store: &Store, owner: Owner, addr: BlockAddr) -> bool {
    let mut owners = Owners { store, first: owner, old: &[], known: None };
    owners.fault(0, addr).is_some()
}

/// The file block of a pointer.
fn block_of(inode: &Inode, given_up: &GivenUp<'_>, index: u16) -> u64 {
    let slot = u64::from(given_up.first.ofs_in_node.saturating_add(index));
    let before = inode.shape().first_block(given_up.node.offset());
    before.unwrap_or_default().saturating_add(slot)
}

/// Whose blocks are.
struct Owners<'a> {
    store: &'a Store,
    /// The first pointer.
    first: Owner,
    /// Where the pointers from the first one on led.
    old: &'a [BlockAddr],
    /// The summaries of the segment that was asked last; none if they cannot be read.
    known: Option<(SegNo, Option<SummaryBlock>)>,
}

impl Owners<'_> {
    /// Why a block is not freed with the pointer of this number.
    fn fault(&mut self, index: u16, addr: BlockAddr) -> Option<&'static str> {
        if !self.store.segments.is_valid(addr) {
            return Some("the pointer leads to a block that is free");
        }
        let first = self.first;
        let slot = first.ofs_in_node.saturating_add(index);
        let (is_node, owner) = self.owner(addr)?;
        let is_other = match is_node {
            true => self.store.nat.address(owner.nid).is_ok_and(|at| at == Some(addr)),
            false if owner.nid == first.nid && owner.ofs_in_node == slot => false,
            false => {
                self.given_up_by(owner) == Some(addr)
                    || live::find(self.store, addr, owner).is_ok_and(|found| found.is_some())
            }
        };
        is_other.then_some("the pointer leads to a block of another owner")
    }

    /// Where another pointer of the same node led that is cleared, too.
    fn given_up_by(&self, owner: Owner) -> Option<BlockAddr> {
        let index = owner.ofs_in_node.checked_sub(self.first.ofs_in_node)?;
        let is_here = owner.nid == self.first.nid;
        self.old.get(usize::from(index)).copied().filter(|_| is_here)
    }

    /// What the summary says of a block: whether it is a node, and whose.
    fn owner(&mut self, addr: BlockAddr) -> Option<(bool, Owner)> {
        let (segno, offset) = self.store.layout.segment_of(addr)?;
        if self.known.as_ref().is_none_or(|(known, _)| *known != segno) {
            if self.old.len() >= MANY {
                self.store.segments.expect_owners(segno);
            }
            self.known = Some((segno, self.store.segments.owners(segno).ok()));
        }
        let (_, summary) = self.known.as_ref()?;
        let summary = summary.as_ref()?;
        Some((summary.is_node, *summary.entries.get(usize::from(offset))?))
    }
}
