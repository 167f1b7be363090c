//! The fields of a superblock.

use cairn_check::{Detail, Fields};

use crate::format::features::RoCompat;
use crate::raw::RawVolume;

/// Adds little-endian fields by their names.
macro_rules! words {
    ($fields:ident, $raw:ident: $($name:ident)+) => {
        $($fields.put(stringify!($name), $raw.$name.get());)+
    };
}

/// Adds fields of one byte by their names.
macro_rules! bytes {
    ($fields:ident, $raw:ident: $($name:ident)+) => {
        $($fields.put(stringify!($name), $raw.$name);)+
    };
}

fn text(bytes: &[u8]) -> Detail {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Detail::Name(bytes.get(..end).unwrap_or_default().to_vec())
}

/// The superblock in use.
pub(super) fn show(volume: &RawVolume) -> Fields {
    let (superblock, layout) = (&volume.superblock, &volume.layout);
    let raw = &superblock.raw;
    let mut fields = Fields::new()
        .with("offset", volume.superblock_at)
        .with("uuid", superblock.uuid().to_string())
        .with("s_volume_name", text(&raw.s_volume_name))
        .with("s_last_mounted", text(&raw.s_last_mounted))
        .with("features", superblock.features().names())
        .with("block_size", layout.block_size)
        .with("blocks_count", superblock.blocks_count())
        .with("free_blocks_count", superblock.free_blocks())
        .with("r_blocks_count", superblock.reserved_blocks())
        .with("groups", layout.groups);
    words!(fields, raw:
        s_inodes_count s_free_inodes_count s_first_data_block s_log_block_size s_log_cluster_size
        s_blocks_per_group s_clusters_per_group s_inodes_per_group);
    for (key, low, high) in [
        ("s_mkfs_time", raw.s_mkfs_time, raw.s_mkfs_time_hi),
        ("s_mtime", raw.s_mtime, raw.s_mtime_hi),
        ("s_wtime", raw.s_wtime, raw.s_wtime_hi),
        ("s_lastcheck", raw.s_lastcheck, raw.s_lastcheck_hi),
    ] {
        fields.put(key, Detail::Time(i64::from(low.get()) | i64::from(high) << 32));
    }
    words!(fields, raw:
        s_mnt_count s_max_mnt_count s_magic s_state s_errors s_checkinterval s_creator_os
        s_rev_level s_minor_rev_level s_def_resuid s_def_resgid s_first_ino s_inode_size
        s_block_group_nr s_feature_compat s_feature_incompat s_feature_ro_compat
        s_reserved_gdt_blocks s_journal_inum s_journal_dev s_last_orphan s_desc_size
        s_default_mount_opts s_first_meta_bg s_min_extra_isize s_want_extra_isize s_flags
        s_raid_stride s_raid_stripe_width s_mmp_update_interval s_mmp_block s_kbytes_written
        s_error_count s_first_error_time s_first_error_ino s_first_error_block
        s_last_error_time s_last_error_ino s_last_error_block s_usr_quota_inum s_grp_quota_inum
        s_prj_quota_inum s_overhead_clusters s_lpf_ino s_checksum_seed s_encoding
        s_encoding_flags s_orphan_file_inum);
    bytes!(fields, raw:
        s_def_hash_version s_jnl_backup_type s_log_groups_per_flex s_checksum_type
        s_encryption_level);
    let seed: Vec<Detail> =
        raw.s_hash_seed.iter().map(|word| Detail::Hex(word.get().into())).collect();
    fields.put("s_hash_seed", Detail::List(seed));
    fields.put("s_mount_opts", text(&raw.s_mount_opts));
    if superblock.features().ro_compat(RoCompat::METADATA_CSUM) {
        fields.checksum(raw.s_checksum.get(), superblock.computed_checksum());
    }
    fields
}
