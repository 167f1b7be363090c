//! How much is in use and how much may still be reserved.
//!
//! Invariant: `valid_blocks + reserved <= user_blocks`, except while roll-forward reserves more
//! than it takes ([`Space::reserve_for_recovery`]); blocks that are unusable while checkpoints are
//! disabled are not reserved. A caller that may not use root-reserved blocks
//! ([`root_reserved`]) does not get them. A block counts as valid from the moment it has a place in
//! a tree: a node, a data block, a reserved (`NEW`) slot, the header of a compressed cluster. An
//! operation gets a [`Reservation`] for such blocks before it takes the operation lock; taking
//! blocks from a reservation cannot fail.
//!
//! Locking: one leaf lock around the counters.

use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_vfs::root_reserved;

use crate::error::{Error, Result};
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{Checkpoint, Layout};

/// Blocks of a file written back at once: between two pieces a checkpoint or cleaning may come.
pub(crate) const WRITE_BACK_PIECE: u64 = 1024;

/// The checkpoint's counters of used blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Blocks in use: `valid_block_count`.
    pub(crate) valid_blocks: u64,
    /// Nodes in use: `valid_node_count`.
    pub(crate) valid_nodes: u32,
    /// Inodes in use: `valid_inode_count`.
    pub(crate) valid_inodes: u32,
}

/// Dirty blocks in memory that will take new addresses before or at the next checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Node blocks.
    pub(crate) nodes: u64,
    /// Blocks of directory data.
    pub(crate) dentries: u64,
    /// Inodes that are not in their node blocks yet.
    pub(crate) inodes: u64,
    /// Blocks of file data, where they never go back in place (mode=lfs).
    pub(crate) data: u64,
}

/// Sections that pending writes will take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequiredSections {
    /// Sections that they fill.
    pub(crate) lower: u32,
    /// The same, including sections that they only begin.
    pub(crate) upper: u32,
}

#[derive(Default)]
struct State {
    counts: Counts,
    reserved: u64,
    /// Blocks that cannot be allocated while checkpoints are disabled.
    unusable: u64,
    /// Blocks that are kept for root.
    root_reserved: u64,
    /// Reserved blocks that came into use since the last checkpoint.
    taken: u64,
    /// True if the counters differ from the last checkpoint's.
    dirty: bool,
    /// True if the checkpoint had counted too little.
    wrong: bool,
}

/// The counts of blocks and nodes of a volume: valid, reserved and free.
pub(crate) struct Space {
    user_blocks: u64,
    section_capacity: u32,
    reserved_segments: u32,
    overprovision_segments: u32,
    state: Mutex<State>,
}

/// Blocks that are kept for the holder. The rest is released when it is dropped.
#[must_use = "the reservation is given back when this is dropped"]
pub struct Reservation {
    space: Arc<Space>,
    left: u64,
}

impl Space {
    /// The counters of a checkpoint.
    #[must_use]
    pub(crate) fn new(checkpoint: &Checkpoint, layout: &Layout) -> Arc<Self> {
        let counts = Counts {
            valid_blocks: checkpoint.valid_block_count,
            valid_nodes: checkpoint.valid_node_count,
            valid_inodes: checkpoint.valid_inode_count,
        };
        // If a zone ends within a segment, mkfs counts the whole segment.
        let overprovision =
            u64::from(checkpoint.overprov_segment_count) * u64::from(BLOCKS_PER_SEGMENT);
        let writable = u64::from(layout.sections) * u64::from(layout.section_capacity());
        let most = match layout.unusable_per_section {
            0 => u64::MAX,
            _ => writable.saturating_sub(overprovision),
        };
        Arc::new(Self {
            user_blocks: checkpoint.user_block_count.min(most),
            // Nids 0 to 2 never belong to a node.
            section_capacity: layout.section_capacity(),
            reserved_segments: checkpoint.rsvd_segment_count,
            overprovision_segments: checkpoint.overprov_segment_count,
            state: Mutex::new(Rank::Leaf, State { counts, ..State::default() }),
        })
    }

    /// Reserves `blocks` blocks; none can always be had.
    ///
    /// # Errors
    /// There are fewer blocks left.
    pub(crate) fn reserve(self: &Arc<Self>, blocks: u64) -> Result<Reservation> {
        let mut state = self.state.lock();
        let kept = if root_reserved::may_be_used() { 0 } else { state.root_reserved };
        let wanted = (state.counts.valid_blocks + state.reserved + state.unusable + kept)
            .checked_add(blocks);
        if blocks > 0 && wanted.is_none_or(|wanted| wanted > self.user_blocks) {
            return Err(Error::NO_SPACE);
        }
        state.reserved += blocks;
        Ok(Reservation { space: self.clone(), left: blocks })
    }

    /// As [`Space::reserve`] for roll-forward, which may take all that was free at the fsync, and
    /// reserves more than it takes.
    ///
    /// # Errors
    /// More blocks are in use than users may have: no fsync has allowed that.
    pub(crate) fn reserve_for_recovery(self: &Arc<Self>, blocks: u64) -> Result<Reservation> {
        let mut state = self.state.lock();
        if state.counts.valid_blocks > self.user_blocks {
            return Err(Error::NO_SPACE);
        }
        state.reserved = state.reserved.saturating_add(blocks);
        Ok(Reservation { space: self.clone(), left: blocks })
    }

    /// Counts blocks as no longer in use.
    pub(crate) fn release(&self, blocks: u64) {
        self.change(|counts| less(&mut counts.valid_blocks, blocks));
    }

    /// Counts blocks that stay in use although their pointers have got others. No more are counted
    /// than users may have: a checkpoint with such a count is none.
    pub(crate) fn keep(&self, blocks: u64) {
        self.change(|counts| {
            let sum = counts.valid_blocks.saturating_add(blocks);
            counts.valid_blocks = sum.min(self.user_blocks.max(counts.valid_blocks));
            counts.valid_blocks == sum
        });
    }

    /// Counts a node and its block as no longer in use.
    pub(crate) fn release_node(&self, is_inode: bool) {
        self.change(|counts| {
            let blocks = less(&mut counts.valid_blocks, 1);
            let nodes = less32(&mut counts.valid_nodes, 1);
            less32(&mut counts.valid_inodes, is_inode.into()) && nodes && blocks
        });
    }

    /// `change` returns whether the counters could follow.
    fn change(&self, change: impl FnOnce(&mut Counts) -> bool) {
        let mut state = self.state.lock();
        state.wrong |= !change(&mut state.counts);
        state.dirty = true;
    }

    /// True if more was released than the checkpoint had counted: its counters were wrong, and fsck
    /// must count again.
    #[must_use]
    pub(crate) fn is_wrong(&self) -> bool {
        self.state.lock().wrong
    }

    /// The counters now.
    #[must_use]
    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// True if the counters have changed since the last [`Space::committed`].
    #[must_use]
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.lock().dirty
    }

    /// Records that a checkpoint has the present counters. Called with the operation lock held
    /// exclusively.
    pub(crate) fn committed(&self) {
        let mut state = self.state.lock();
        (state.dirty, state.taken) = (false, 0);
    }

    /// Blocks that came into use since the last checkpoint, without subtracting released ones:
    /// roll-forward adds them to the checkpoint's blocks, and may not see that others were
    /// released.
    #[must_use]
    pub(crate) fn taken(&self) -> u64 {
        self.state.lock().taken
    }

    /// All blocks that users may have: `user_block_count`, or fewer if the zones have less
    /// capacity.
    #[must_use]
    pub(crate) const fn user_blocks(&self) -> u64 {
        self.user_blocks
    }

    /// Blocks that are neither in use nor reserved.
    #[must_use]
    pub(crate) fn free_blocks(&self) -> u64 {
        let state = self.state.lock();
        self.user_blocks.saturating_sub(state.counts.valid_blocks + state.reserved + state.unusable)
    }

    /// Free blocks that can be had: all with `reserved`, or those that are not root-reserved.
    #[must_use]
    pub(crate) fn available(&self, reserved: bool) -> u64 {
        let kept = if reserved { 0 } else { self.state.lock().root_reserved };
        self.free_blocks().saturating_sub(kept)
    }

    /// Keeps this many blocks for root, at most an eighth of all. Returns the number.
    pub(crate) fn keep_for_root(&self, blocks: u64) -> u64 {
        let kept = blocks.min(self.user_blocks / 8);
        self.state.lock().root_reserved = kept;
        kept
    }

    /// Sets what can be allocated while checkpoints are disabled: all but `unusable` blocks, and no
    /// more than `writable` ones beside what waits for its place. That is what is reserved, what is
    /// in use beyond the `placed` blocks, and dirty data over blocks that are kept: how many there
    /// are at most of both says `over`.
    pub(crate) fn limit(&self, unusable: u64, writable: u64, placed: u64, over: (u64, u64)) {
        let (dirty, kept) = over;
        let mut state = self.state.lock();
        let taken = state.counts.valid_blocks.saturating_add(state.reserved);
        let new = taken.saturating_sub(placed);
        let waits = new.saturating_add(dirty.saturating_sub(new).min(kept));
        let left = writable.saturating_sub(waits);
        let beyond = self.user_blocks.saturating_sub(taken).saturating_sub(left);
        state.unusable = unusable.max(beyond).min(self.user_blocks);
    }

    /// Ends that, because checkpoints are enabled.
    pub(crate) fn unlimit(&self) {
        self.state.lock().unusable = 0;
    }

    /// Sections kept for cleaning.
    #[must_use]
    pub(crate) const fn reserved_sections(&self) -> u32 {
        self.sections_of(self.reserved_segments)
    }

    /// The sections that have as many blocks as this number of whole segments.
    const fn sections_of(&self, segments: u32) -> u32 {
        (segments as u64 * BLOCKS_PER_SEGMENT as u64 / self.section_capacity as u64) as u32
    }

    /// Segments that users never get.
    #[must_use]
    pub(crate) const fn overprovision_segments(&self) -> u32 {
        self.overprovision_segments
    }

    /// Sections that pending writes will take. Entries count twice, because their directories'
    /// nodes are written, too. Dirty data counts up to half of the space beyond the reserve,
    /// because more could never be kept free for it.
    #[must_use]
    pub(crate) fn required_sections(&self, pending: Pending) -> RequiredSections {
        let section = u64::from(self.section_capacity);
        let spare =
            self.sections_of(self.overprovision_segments).saturating_sub(self.reserved_sections())
                / 2;
        let data = pending.data.min(u64::from(spare) * section);
        let amounts = [pending.nodes + pending.inodes + pending.dentries, pending.dentries, data];
        let lower: u64 = amounts.iter().map(|blocks| blocks / section).sum();
        let begun = amounts.iter().filter(|blocks| **blocks % section > 0).count() as u64;
        let sections = |count| u32::try_from(count).unwrap_or(u32::MAX);
        RequiredSections { lower: sections(lower), upper: sections(lower + begun) }
    }

    /// With this many free sections or fewer, logs fill holes of used segments instead of taking
    /// free ones.
    #[must_use]
    pub(crate) fn reuse_below(&self, pending: Pending) -> u32 {
        let section = u64::from(self.section_capacity);
        let [nodes, dentries, inodes] =
            [pending.nodes, pending.dentries, pending.inodes].map(|n| n.div_ceil(section));
        let sections = nodes + 2 * dentries + inodes + 2 * u64::from(self.reserved_sections());
        u32::try_from(sections).unwrap_or(u32::MAX)
    }
}

/// Subtracts `by` from a counter that was read from the disk. False if it was smaller.
fn less(count: &mut u64, by: u64) -> bool {
    let right = *count >= by;
    *count = count.saturating_sub(by);
    right
}

fn less32(count: &mut u32, by: u32) -> bool {
    let right = *count >= by;
    *count = count.saturating_sub(by);
    right
}

impl Reservation {
    /// Blocks left in it.
    #[must_use]
    pub(crate) const fn left(&self) -> u64 {
        self.left
    }

    /// Splits `blocks` off, as a reservation of their own.
    ///
    /// # Panics
    /// Fewer were reserved.
    pub(crate) fn split(&mut self, blocks: u64) -> Self {
        assert!(self.left >= blocks, "{blocks} blocks are split off {} reserved", self.left);
        self.left -= blocks;
        Self { space: self.space.clone(), left: blocks }
    }

    /// Both as one.
    pub(crate) fn join(mut self, mut other: Self) -> Self {
        self.left += std::mem::take(&mut other.left);
        self
    }

    /// Makes `blocks` of the reserved blocks used ones.
    ///
    /// # Panics
    /// Fewer were reserved.
    pub(crate) fn take(&mut self, blocks: u64) {
        self.turn(blocks, |_| {});
    }

    /// Makes one reserved block a node in use.
    ///
    /// # Panics
    /// None is left.
    pub(crate) fn take_node(&mut self, is_inode: bool) {
        self.turn(1, |counts| {
            counts.valid_nodes += 1;
            counts.valid_inodes += u32::from(is_inode);
        });
    }

    fn turn(&mut self, blocks: u64, also: impl FnOnce(&mut Counts)) {
        assert!(self.left >= blocks, "{blocks} blocks are taken of {} reserved", self.left);
        self.left -= blocks;
        let mut state = self.space.state.lock();
        state.reserved -= blocks;
        state.taken += blocks;
        state.counts.valid_blocks += blocks;
        also(&mut state.counts);
        state.dirty = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.space.state.lock().reserved -= self.left;
    }
}

#[cfg(test)]
mod tests;
