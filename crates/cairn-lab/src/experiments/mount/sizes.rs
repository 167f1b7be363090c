//! The amount of work at each scale.

use crate::scale::Scale;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes of an image.
    pub(super) image: u64,
    /// Files of fs_mark without fsync, of all its threads together.
    pub(super) files: usize,
    /// Files of fs_mark with fsync.
    pub(super) synced: usize,
    /// MiB that are written and read in order.
    pub(super) stream: usize,
    /// Blocks that are overwritten, each with its fsync.
    pub(super) overwrites: usize,
    /// Files of the tree.
    pub(super) tree: usize,
    /// Files in one directory.
    pub(super) names: usize,
}

impl Sizes {
    pub(super) fn of(scale: Scale) -> Self {
        Self {
            image: scale.pick(512 << 20, 1 << 30, 2 << 30),
            files: scale.pick(160, 2400, 20_000),
            synced: scale.pick(80, 800, 8000),
            stream: scale.pick(16, 96, 512),
            overwrites: scale.pick(50, 500, 5000),
            tree: scale.pick(200, 2000, 20_000),
            names: scale.pick(200, 3000, 30_000),
        }
    }
}
