//! Where the metadata of an ext4 base is, read independently of `cairn-ext4`; and its checksums.
//!
//! Only sound images are read here, which the repository holds: what is wrong panics.

mod journal;
mod read;
mod role;
mod seal;
mod walk;

use std::collections::BTreeMap;

use cairn_block::memory::MemoryDevice;

use read::Geometry;
use role::Role;

/// An ext4 volume and its metadata.
pub(crate) struct Volume {
    geometry: Geometry,
    /// What each block of metadata holds.
    roles: BTreeMap<u64, Role>,
    /// The log's blocks on the volume, in order.
    journal: Vec<u64>,
}

impl Volume {
    /// Finds the metadata of a sound volume.
    pub(crate) fn of(device: &MemoryDevice) -> Self {
        let geometry = Geometry::read(device);
        let (roles, journal) = walk::walk(device, &geometry);
        Self { geometry, roles, journal }
    }

    pub(crate) fn block_size(&self) -> usize {
        self.geometry.block_size
    }

    /// Byte offsets of all metadata, but only the blocks of the log that are used.
    pub(crate) fn places(&self, device: &MemoryDevice) -> Vec<u64> {
        let size = self.geometry.block_size as u64;
        let is_used = |(block, role): &(&u64, &Role)| {
            !matches!(role, Role::Journal(_))
                || self.geometry.block(device, **block).iter().any(|byte| *byte != 0)
        };
        self.roles.iter().filter(is_used).map(|(block, _)| *block * size).collect()
    }

    /// Byte offsets of the blocks of the log that are used.
    pub(crate) fn journal_places(&self, device: &MemoryDevice) -> Vec<u64> {
        let size = self.geometry.block_size as u64;
        let is_used =
            |block: &&u64| self.geometry.block(device, **block).iter().any(|byte| *byte != 0);
        self.journal.iter().filter(is_used).map(|block| *block * size).collect()
    }

    /// The log's blocks on the volume, in order.
    pub(crate) fn journal(&self) -> &[u64] {
        &self.journal
    }
}
