//! Frees data blocks of a file on a volume that is written, but none that is another's: a damaged
//! pointer must not cost what other files have.
//!
//! Such a block stays in use ([`super::owned`]), and a pointer to a free block changes nothing. The
//! damage is noted, and the call goes on. So it is wherever a pointer gives an address up: when
//! blocks are cut off or deleted, when they are written to other places, when a checkpoint moves
//! blocks of directories, and when roll-forward replaces pointers. (Cleaning moves a block only if
//! the pointer that its summary names leads to it, and the block that a node leaves is its own by
//! its footer.)
//!
//! A write finds the same of the block that it replaces: it is never overwritten where it is.

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
use super::owned::{self, Judge, Pointers};
use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::BlockAddr;
use crate::mount_state::MountState;
use crate::node::Node;
use crate::segment::Owner;
use crate::store::Store;

/// Blocks to which pointers of one node led, and do not any more.
pub(super) struct GivenUp<'a> {
    /// The node.
    pub(super) node: &'a Node,
    /// The first pointer, as a summary names it.
    pub(super) first: Owner,
    /// Where the pointers from the first one on led.
    pub(super) old: &'a [BlockAddr],
}

impl GivenUp<'_> {
    const fn pointers(&self) -> Pointers<'_> {
        let Owner { nid, ofs_in_node, .. } = self.first;
        Pointers { holder: nid, first: ofs_in_node, addrs: self.old }
    }
}

/// Frees them. Returns the number of addresses whose blocks were not freed.
///
/// # Errors
/// The segment table is damaged.
pub(super) fn free(mount: &MountState, inode: &Inode, given_up: &GivenUp<'_>) -> Result<u64> {
    let store = mount.store()?;
    let pointers = given_up.pointers();
    let mut judge = Judge::new(&mount.disk, pointers);
    let mut own = Vec::with_capacity(given_up.old.len());
    let (mut kept, mut wrong) = (0_u64, None);
    for (index, addr) in (0_u16..).zip(given_up.old.iter().copied()) {
        if !addr.is_address() {
            continue;
        }
        match fault(store, &mut judge, index, addr) {
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
pub(super) fn is_anothers(disk: &Disk, store: &Store, owner: Owner, addr: BlockAddr) -> bool {
    let pointers = Pointers { holder: owner.nid, first: owner.ofs_in_node, addrs: &[addr] };
    fault(store, &mut Judge::new(disk, pointers), 0, addr).is_some()
}

/// Why the block of the pointer of this number is not freed.
fn fault(
    store: &Store,
    judge: &mut Judge<'_>,
    index: u16,
    addr: BlockAddr,
) -> Option<&'static str> {
    if !store.segments.is_target_in_use(addr) {
        return Some("the pointer leads to a block that is free");
    }
    // A summary that cannot be read proves nothing.
    judge.is_anothers(index).unwrap_or(false).then_some(owned::OF_ANOTHER)
}

/// The file block of a pointer.
fn block_of(inode: &Inode, given_up: &GivenUp<'_>, index: u16) -> u64 {
    let slot = u64::from(given_up.first.ofs_in_node.saturating_add(index));
    let before = inode.shape().first_block(given_up.node.offset());
    before.unwrap_or_default().saturating_add(slot)
}
