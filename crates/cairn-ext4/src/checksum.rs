//! Seeds of metadata_csum. Source: "Checksums" in the kernel's ext4 documentation.

use cairn_base::Ino;
use cairn_base::checksum::crc32c;

/// The checksum of a volume's metadata.
///
/// The seed is `s_checksum_seed` (metadata_csum_seed) or crc32c of the UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetadataChecksum {
    seed: Option<u32>,
}

impl MetadataChecksum {
    /// A volume without metadata_csum: no checksum is verified, and stored checksums are zero.
    pub(crate) const NONE: Self = Self { seed: None };

    /// A volume with metadata_csum and this seed.
    #[must_use]
    pub(crate) const fn with_seed(seed: u32) -> Self {
        Self { seed: Some(seed) }
    }

    /// The volume's seed.
    #[must_use]
    pub(crate) const fn seed(self) -> Option<u32> {
        self.seed
    }

    /// The seed for everything that belongs to one inode: its record, directory blocks, extent
    /// blocks.
    #[must_use]
    pub(crate) fn for_inode(self, ino: Ino, generation: u32) -> InodeSeed {
        InodeSeed(self.seed.map(|seed| {
            // The on-disk inode number is 32 bits wide.
            let number = u32::try_from(ino.get()).unwrap_or(u32::MAX);
            crc32c(crc32c(seed, &number.to_le_bytes()), &generation.to_le_bytes())
        }))
    }
}

/// Seed of one inode's metadata. `None` without metadata_csum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeSeed(pub Option<u32>);
