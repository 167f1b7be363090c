//! [`Settings`]: what the form of nodes depends on. It follows from the options alone, not from
//! the size of the volume.

use crate::checksum::{InodeSeed, MetadataChecksum};
use crate::dir::hash::HashSettings;
use crate::format::dir_entry::DirFormat;
use crate::format::features::{Compat, Features, Incompat, RoCompat};
use crate::format::layout::Layout;

/// The form of nodes.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) block_size: usize,
    /// Bytes of a record for attributes.
    pub(super) area: usize,
    pub(super) features: Features,
    pub(super) checksum: MetadataChecksum,
    pub(super) hash: HashSettings,
}

impl Settings {
    pub(super) fn new(layout: &Layout, hash: HashSettings) -> Self {
        let area = match layout.inode_size {
            0..=128 => 0,
            size => size as usize - 128 - usize::from(layout.want_extra_isize),
        };
        let block_size = layout.block_size as usize;
        let (features, checksum) = (layout.features, layout.checksum);
        Self { block_size, area, features, checksum, hash }
    }

    pub(super) fn dir_index(&self) -> bool {
        self.features.compat(Compat::DIR_INDEX)
    }

    /// The format of a directory with this seed.
    pub(super) fn directory(&self, seed: InodeSeed) -> DirFormat {
        let filetype = self.features.incompat(Incompat::FILETYPE);
        DirFormat { block_size: self.block_size, filetype, seed, inodes_count: u32::MAX }
    }

    pub(super) fn ea_inode(&self) -> bool {
        self.features.incompat(Incompat::EA_INODE)
    }

    pub(super) fn inline_data(&self) -> bool {
        self.features.incompat(Incompat::INLINE_DATA)
    }

    /// Files with equal contents share their blocks.
    pub(super) fn shared_blocks(&self) -> bool {
        self.features.ro_compat(RoCompat::SHARED_BLOCKS)
    }

    /// Most levels of nodes below the root of an index.
    pub(super) fn index_levels(&self) -> u8 {
        if self.features.incompat(Incompat::LARGE_DIR) { 2 } else { 1 }
    }
}
