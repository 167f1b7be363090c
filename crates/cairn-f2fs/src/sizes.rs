//! How much of the main area users may have, and how much is kept for cleaning.
//!
//! A checkpoint has these sizes, the superblock has the size of the main area. While a volume is
//! resized one of the two is written first. The flag `RESIZEFS` of the checkpoint says so: the
//! sizes then follow from the superblock ([`adopted`]).

use crate::checkpoint::Loaded;
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{Checkpoint, CheckpointFlags, Layout};
use crate::mkfs::spare_segments;

/// Blocks of a segment.
const BLOCKS: u64 = BLOCKS_PER_SEGMENT as u64;

/// The sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Blocks that users may have: `user_block_count`.
    pub(crate) user_blocks: u64,
    /// Segments kept for cleaning: `rsvd_segment_count`.
    pub(crate) reserved: u32,
    /// Segments that users never get: `overprov_segment_count`.
    pub(crate) overprovision: u32,
}

impl Sizes {
    /// Those of a checkpoint.
    pub(crate) const fn of(checkpoint: &Checkpoint) -> Self {
        Self {
            user_blocks: checkpoint.user_block_count,
            reserved: checkpoint.rsvd_segment_count,
            overprovision: checkpoint.overprov_segment_count,
        }
    }

    /// Gives them to a checkpoint.
    pub(crate) const fn put(self, checkpoint: &mut Checkpoint) {
        checkpoint.user_block_count = self.user_blocks;
        checkpoint.rsvd_segment_count = self.reserved;
        checkpoint.overprov_segment_count = self.overprovision;
    }

    /// Those of a new volume with a main area of this many segments. `None` if it is too small.
    pub(crate) fn fresh(main: u32, segs_per_sec: u32) -> Option<Self> {
        let (reserved, overprovision) = spare_segments(main, segs_per_sec)?;
        Self::with(main, reserved, overprovision)
    }

    /// Those of a volume whose main area becomes larger: as of a new one, or, if users have more
    /// already, with the same parts kept back.
    pub(crate) fn grown(self, main: u32, segs_per_sec: u32, valid: u64) -> Option<Self> {
        let enough = |sizes: &Self| sizes.user_blocks >= valid;
        let same = || Self::with(main, self.reserved, self.overprovision).filter(enough);
        Self::fresh(main, segs_per_sec).filter(enough).or_else(same)
    }

    /// Those of a volume that is never written before its main area becomes larger again. `None`
    /// if the blocks in use do not fit.
    pub(crate) fn for_a_moment(self, main: u32, valid: u64) -> Option<Self> {
        let used = u32::try_from(valid.div_ceil(BLOCKS)).ok()?;
        let spare = main.checked_sub(used).filter(|spare| *spare > 0)?;
        let overprovision = spare.min(self.overprovision);
        Self::with(main, self.reserved.min(overprovision), overprovision)
    }

    fn with(main: u32, reserved: u32, overprovision: u32) -> Option<Self> {
        let user = main.checked_sub(overprovision).filter(|user| *user > 0)?;
        Some(Self { user_blocks: u64::from(user) * BLOCKS, reserved, overprovision })
    }

    /// True if they are of a main area of this many segments.
    pub(crate) fn fit(self, main: u32) -> bool {
        main.checked_sub(self.overprovision)
            .is_some_and(|user| u64::from(user) * BLOCKS == self.user_blocks)
    }
}

/// True if a change of the size was interrupted between superblock and checkpoint: sizes and free
/// segments of the checkpoint may be those of the other size.
pub(crate) fn is_between(checkpoint: &Checkpoint, layout: &Layout) -> bool {
    checkpoint.flags.contains(CheckpointFlags::RESIZEFS)
        && !Sizes::of(checkpoint).fit(layout.main_segments)
}

/// The checkpoint with the sizes that follow from the superblock, if a change of the size was
/// interrupted.
pub(crate) fn adopted(mut loaded: Loaded, layout: &Layout) -> Loaded {
    let (sizes, main) = (Sizes::of(&loaded.checkpoint), layout.main_segments);
    let valid = loaded.checkpoint.valid_block_count;
    if is_between(&loaded.checkpoint, layout)
        && let Some(sizes) = sizes.grown(main, layout.segs_per_sec, valid)
    {
        sizes.put(&mut loaded.checkpoint);
    }
    loaded
}
