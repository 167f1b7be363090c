//! The superblock: 1024 bytes at byte 1024, with backups in some groups.
//!
//! [`Superblock`] keeps the raw bytes, so that unknown fields survive a rewrite. Its numbers are
//! *not* validated; [`super::Layout::new`] validates the geometry.

use cairn_base::checksum::crc32c;
use cairn_base::units::{as_u64, stored};
use cairn_vfs::OnDamage;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::features::{Compat, Features, Incompat, RoCompat};
use crate::checksum::MetadataChecksum;
use crate::corrupt::Corrupt;

/// Byte offset of the primary superblock.
pub(crate) const OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub(crate) const SIZE: usize = 1024;
/// `s_magic`.
pub(crate) const MAGIC: u16 = 0xef53;
/// `s_state`: unmounted cleanly.
pub(crate) const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
pub(crate) const STATE_ERROR: u16 = 2;
/// `s_flags`: directory hashes use signed bytes.
pub(crate) const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes use unsigned bytes.
pub(crate) const FLAG_UNSIGNED_HASH: u32 = 2;
/// The field of the revision.
pub(crate) const REVISION: &str = "s_rev_level";
/// `s_rev_level` with the fields from `s_first_ino` on.
pub(crate) const DYNAMIC_REVISION: u32 = 1;
/// `s_first_ino` of revision 0, and the default.
pub(crate) const OLD_FIRST_INODE: u32 = 11;
/// `s_inode_size` of revision 0.
pub(crate) const OLD_INODE_SIZE: u16 = 128;
/// `s_checksum_type`: crc32c.
pub(crate) const CHECKSUM_CRC32C: u8 = 1;

/// The bytes on disk, with the specification's field names.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_update_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_clusters: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_def_resuid_hi: U16,
    pub s_def_resgid_hi: U16,
    pub s_reserved: [U32; 93],
    pub s_checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SIZE);
const CHECKSUM_OFFSET: usize = SIZE - 4;

/// A superblock with the right magic and checksum.
#[derive(Clone)]
pub(crate) struct Superblock {
    /// The fields. [`Superblock::encode`] updates the checksum after changes.
    pub(crate) raw: RawSuperblock,
}

/// The magic number, which tells another format from damage. `None` if there are too few bytes.
#[must_use]
pub(crate) fn magic_of(bytes: &[u8]) -> Option<u16> {
    RawSuperblock::read_from_prefix(bytes).ok().map(|(raw, _)| raw.s_magic.get())
}

/// The bytes with the magic number, if they have another one; `wipefs` clears it.
pub(crate) fn with_magic(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut raw, _) = RawSuperblock::read_from_prefix(bytes).ok()?;
    if raw.s_magic.get() == MAGIC {
        return None;
    }
    raw.s_magic = U16::new(MAGIC);
    Some(raw.as_bytes().to_vec())
}

impl Superblock {
    /// What to do about damage, as set by `tune2fs -e`. Linux treats unknown values as
    /// `remount-ro`.
    #[must_use]
    pub(crate) fn on_damage(&self) -> OnDamage {
        match self.raw.s_errors.get() {
            1 => OnDamage::Continue,
            3 => OnDamage::Panic,
            _ => OnDamage::RemountReadOnly,
        }
    }

    /// Decodes the 1024 bytes at [`OFFSET`] or of a backup.
    ///
    /// # Errors
    /// There are too few bytes, or the magic, the revision, the checksum type or the checksum is
    /// wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let short = || Corrupt::Superblock {
            field: "length",
            value: as_u64(bytes.len()),
            problem: "not 1024 bytes",
        };
        let (raw, _) = RawSuperblock::read_from_prefix(bytes).map_err(|_| short())?;
        if raw.s_magic.get() != MAGIC {
            let value = raw.s_magic.get().into();
            return Err(Corrupt::Superblock { field: "s_magic", value, problem: "not 0xef53" });
        }
        let superblock = Self { raw };
        superblock.check_revision()?;
        if superblock.features().ro_compat(RoCompat::METADATA_CSUM) {
            superblock.verify()?;
        }
        Ok(superblock)
    }

    /// Decodes a superblock whose checksum or revision may be wrong: with feature flags it is of
    /// revision 1. `None` without the magic number.
    #[must_use]
    pub(crate) fn decode_unsealed(bytes: &[u8]) -> Option<Self> {
        let (mut raw, _) = RawSuperblock::read_from_prefix(bytes).ok()?;
        if raw.s_magic.get() != MAGIC {
            return None;
        }
        if (Self { raw }).check_revision().is_err() {
            raw.s_rev_level = U32::new(DYNAMIC_REVISION);
            // What a volume of revision 0 leaves empty.
            if raw.s_first_ino.get() == 0 {
                raw.s_first_ino = U32::new(OLD_FIRST_INODE);
            }
            if raw.s_inode_size.get() == 0 {
                raw.s_inode_size = U16::new(OLD_INODE_SIZE);
            }
        }
        Some(Self { raw })
    }

    /// A revision of 0 would hide the features, and with them checksums and the size of inodes.
    fn check_revision(&self) -> Result<(), Corrupt> {
        let raw = &self.raw;
        let words = [raw.s_feature_compat, raw.s_feature_incompat, raw.s_feature_ro_compat];
        let has_features = words.iter().any(|word| word.get() != 0);
        if raw.s_rev_level.get() >= DYNAMIC_REVISION || !has_features {
            return Ok(());
        }
        let (field, value) = (REVISION, raw.s_rev_level.get().into());
        Err(Corrupt::Superblock { field, value, problem: "but it has feature flags" })
    }

    /// Are the bytes proved by a right checksum?
    #[must_use]
    pub(crate) fn is_sealed(&self) -> bool {
        self.features().ro_compat(RoCompat::METADATA_CSUM) && self.verify().is_ok()
    }

    /// The checksum that the bytes should have.
    #[must_use]
    pub(crate) fn computed_checksum(&self) -> u32 {
        let (covered, _) = self.raw.as_bytes().split_at(CHECKSUM_OFFSET);
        crc32c(!0, covered)
    }

    fn verify(&self) -> Result<(), Corrupt> {
        if self.raw.s_checksum_type != CHECKSUM_CRC32C {
            let value = self.raw.s_checksum_type.into();
            return Err(Corrupt::Superblock {
                field: "s_checksum_type",
                value,
                problem: "not 1 (crc32c)",
            });
        }
        let (stored, computed) = (self.raw.s_checksum.get(), self.computed_checksum());
        if stored == computed {
            Ok(())
        } else {
            Err(Corrupt::Checksum { what: "superblock", place: 0, stored, computed })
        }
    }

    /// The bytes with a new checksum.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let mut copy = self.clone();
        if copy.features().ro_compat(RoCompat::METADATA_CSUM) {
            copy.raw.s_checksum = U32::new(copy.computed_checksum());
        }
        zerocopy::transmute!(copy.raw)
    }

    /// Feature flags. A volume of revision 0 has none.
    #[must_use]
    pub(crate) fn features(&self) -> Features {
        if self.raw.s_rev_level.get() < DYNAMIC_REVISION {
            return Features::default();
        }
        Features {
            compat: Compat::from_bits_retain(self.raw.s_feature_compat.get()),
            incompat: Incompat::from_bits_retain(self.raw.s_feature_incompat.get()),
            ro_compat: RoCompat::from_bits_retain(self.raw.s_feature_ro_compat.get()),
        }
    }

    /// Makes a volume of revision 0 one that can have features, with the sizes that it has had.
    pub(crate) fn make_dynamic(&mut self) {
        if self.raw.s_rev_level.get() < DYNAMIC_REVISION {
            self.raw.s_rev_level = U32::new(DYNAMIC_REVISION);
            self.raw.s_first_ino = U32::new(OLD_FIRST_INODE);
            self.raw.s_inode_size = U16::new(OLD_INODE_SIZE);
            self.set_features(Features::default());
        }
    }

    /// Sets the feature flags.
    pub(crate) fn set_features(&mut self, features: Features) {
        self.raw.s_feature_compat = U32::new(features.compat.bits());
        self.raw.s_feature_incompat = U32::new(features.incompat.bits());
        self.raw.s_feature_ro_compat = U32::new(features.ro_compat.bits());
    }

    /// The volume's UUID.
    #[must_use]
    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.raw.s_uuid)
    }

    /// The label up to its first NUL. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub(crate) fn label(&self) -> String {
        let name = self.raw.s_volume_name;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned()
    }

    /// When the volume was made, in seconds. Of backups of several volumes, that of the youngest
    /// one counts: the others were left by what was there before.
    #[must_use]
    pub(crate) fn made(&self) -> u64 {
        u64::from(self.raw.s_mkfs_time.get()) | u64::from(self.raw.s_mkfs_time_hi) << 32
    }

    /// When the superblock was written, in seconds.
    #[must_use]
    pub(crate) fn written(&self) -> u64 {
        u64::from(self.raw.s_wtime.get()) | u64::from(self.raw.s_wtime_hi) << 32
    }

    /// Seed of the metadata checksums.
    #[must_use]
    pub(crate) fn metadata_checksum(&self) -> MetadataChecksum {
        let features = self.features();
        if !features.ro_compat(RoCompat::METADATA_CSUM) {
            MetadataChecksum::NONE
        } else if features.incompat(Incompat::CSUM_SEED) {
            MetadataChecksum::with_seed(self.raw.s_checksum_seed.get())
        } else {
            MetadataChecksum::with_seed(crc32c(!0, &self.raw.s_uuid))
        }
    }

    fn wide(&self, low: U32, high: U32) -> u64 {
        // Without 64bit the upper halves are undefined.
        let high = if self.features().incompat(Incompat::BITS_64) { high.get() } else { 0 };
        u64::from(low.get()) | u64::from(high) << 32
    }

    /// Blocks of the volume.
    #[must_use]
    pub(crate) fn blocks_count(&self) -> u64 {
        self.wide(self.raw.s_blocks_count_lo, self.raw.s_blocks_count_hi)
    }

    /// Blocks reserved for root and the user and group in the superblock (`s_r_blocks_count`).
    #[must_use]
    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.wide(self.raw.s_r_blocks_count_lo, self.raw.s_r_blocks_count_hi)
    }

    /// Free blocks at the last sync. The group descriptors have the present number.
    #[must_use]
    pub(crate) fn free_blocks(&self) -> u64 {
        self.wide(self.raw.s_free_blocks_count_lo, self.raw.s_free_blocks_count_hi)
    }

    /// Sets the number of blocks.
    pub(crate) fn set_blocks_count(&mut self, blocks: u64) {
        (self.raw.s_blocks_count_lo, self.raw.s_blocks_count_hi) = halves(blocks);
    }

    /// Sets the number of reserved blocks.
    pub(crate) fn set_reserved_blocks(&mut self, blocks: u64) {
        (self.raw.s_r_blocks_count_lo, self.raw.s_r_blocks_count_hi) = halves(blocks);
    }

    /// Sets the number of free blocks.
    pub(crate) fn set_free_blocks(&mut self, blocks: u64) {
        (self.raw.s_free_blocks_count_lo, self.raw.s_free_blocks_count_hi) = halves(blocks);
    }
}

fn halves(value: u64) -> (U32, U32) {
    (U32::new(stored(value & 0xffff_ffff)), U32::new(stored(value >> 32)))
}
