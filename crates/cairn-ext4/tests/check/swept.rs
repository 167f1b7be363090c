//! Every field of the superblock and of the group descriptors with odd values and right checksums:
//! what Cairn's readers or the kernel refuse is a finding of the check, and after a repair all of
//! them accept the volume.
//!
//! One case in many is tried, and those that once failed; with `CAIRN_SWEEP=1` or `CAIRN_DEEP=1`
//! all.

use std::path::Path;
use std::sync::Arc;

use cairn_base::checksum::crc32c;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_ext4::{Error, Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::KernelMount;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};
use cairn_vfs::FileSystem;

use crate::checked::lines;
use crate::injected::image_of;
use crate::repaired::{complaint, plan};
use crate::support::check;

/// Where the superblock is.
const SUPERBLOCK: u64 = 1024;
/// `s_feature_ro_compat`: metadata_csum.
const CHECKSUMS: u64 = 0x400;
/// `s_feature_incompat`: 64bit.
const WIDE: u64 = 0x80;

/// Fields of the superblock: name, byte, bytes.
const FIELDS: &[(&str, usize, usize)] = &[
    ("s_inodes_count", 0, 4),
    ("s_blocks_count_lo", 4, 4),
    ("s_r_blocks_count_lo", 8, 4),
    ("s_free_blocks_count_lo", 12, 4),
    ("s_free_inodes_count", 16, 4),
    ("s_first_data_block", 20, 4),
    ("s_log_block_size", 24, 4),
    ("s_log_cluster_size", 28, 4),
    ("s_blocks_per_group", 32, 4),
    ("s_clusters_per_group", 36, 4),
    ("s_inodes_per_group", 40, 4),
    ("s_mtime", 44, 4),
    ("s_wtime", 48, 4),
    ("s_mnt_count", 52, 2),
    ("s_max_mnt_count", 54, 2),
    ("s_state", 58, 2),
    ("s_errors", 60, 2),
    ("s_minor_rev_level", 62, 2),
    ("s_lastcheck", 64, 4),
    ("s_checkinterval", 68, 4),
    ("s_creator_os", 72, 4),
    ("s_rev_level", 76, 4),
    ("s_def_resuid", 80, 2),
    ("s_def_resgid", 82, 2),
    ("s_first_ino", 84, 4),
    ("s_inode_size", 88, 2),
    ("s_block_group_nr", 90, 2),
    ("s_uuid", 104, 4),
    ("s_volume_name", 120, 4),
    ("s_last_mounted", 136, 4),
    ("s_algorithm_usage_bitmap", 200, 4),
    ("s_prealloc_blocks", 204, 1),
    ("s_prealloc_dir_blocks", 205, 1),
    ("s_reserved_gdt_blocks", 206, 2),
    ("s_journal_uuid", 208, 4),
    ("s_journal_inum", 224, 4),
    ("s_journal_dev", 228, 4),
    ("s_last_orphan", 232, 4),
    ("s_hash_seed", 236, 4),
    ("s_def_hash_version", 252, 1),
    ("s_jnl_backup_type", 253, 1),
    ("s_desc_size", 254, 2),
    ("s_default_mount_opts", 256, 4),
    ("s_first_meta_bg", 260, 4),
    ("s_mkfs_time", 264, 4),
    ("s_jnl_blocks", 268, 4),
    ("s_blocks_count_hi", 336, 4),
    ("s_r_blocks_count_hi", 340, 4),
    ("s_free_blocks_count_hi", 344, 4),
    ("s_min_extra_isize", 348, 2),
    ("s_want_extra_isize", 350, 2),
    ("s_flags", 352, 4),
    ("s_raid_stride", 356, 2),
    ("s_mmp_update_interval", 358, 2),
    ("s_mmp_block", 360, 8),
    ("s_raid_stripe_width", 368, 4),
    ("s_log_groups_per_flex", 372, 1),
    ("s_checksum_type", 373, 1),
    ("s_encryption_level", 374, 1),
    ("s_reserved_pad", 375, 1),
    ("s_kbytes_written", 376, 8),
    ("s_snapshot_inum", 384, 4),
    ("s_snapshot_id", 388, 4),
    ("s_snapshot_r_blocks_count", 392, 8),
    ("s_snapshot_list", 400, 4),
    ("s_error_count", 404, 4),
    ("s_first_error_time", 408, 4),
    ("s_first_error_ino", 412, 4),
    ("s_first_error_block", 416, 8),
    ("s_first_error_line", 456, 4),
    ("s_last_error_time", 460, 4),
    ("s_last_error_ino", 464, 4),
    ("s_last_error_line", 468, 4),
    ("s_last_error_block", 472, 8),
    ("s_mount_opts", 512, 4),
    ("s_usr_quota_inum", 576, 4),
    ("s_grp_quota_inum", 580, 4),
    ("s_overhead_clusters", 584, 4),
    ("s_backup_bgs[0]", 588, 4),
    ("s_backup_bgs[1]", 592, 4),
    ("s_encrypt_algos", 596, 4),
    ("s_encrypt_pw_salt", 600, 4),
    ("s_lpf_ino", 616, 4),
    ("s_prj_quota_inum", 620, 4),
    ("s_checksum_seed", 624, 4),
    ("s_wtime_hi", 628, 1),
    ("s_mtime_hi", 629, 1),
    ("s_mkfs_time_hi", 630, 1),
    ("s_lastcheck_hi", 631, 1),
    ("s_first_error_errcode", 634, 1),
    ("s_encoding", 636, 2),
    ("s_encoding_flags", 638, 2),
    ("s_orphan_file_inum", 640, 4),
    ("s_def_resuid_hi", 644, 2),
    ("s_def_resgid_hi", 646, 2),
    ("s_reserved", 648, 4),
];

/// Words of features, each with the bits that are not compared: those that say what the volume is
/// for, which only its owner can know, and those that this kernel was built without.
const FEATURES: &[(&str, usize, u32)] = &[
    ("s_feature_compat", 92, 0),
    ("s_feature_incompat", 96, 1 << 8 | 1 << 17),
    ("s_feature_ro_compat", 100, 1 << 8 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15),
];

/// Fields of a descriptor: name, byte, bytes.
const DESCRIPTOR: &[(&str, usize, usize)] = &[
    ("bg_block_bitmap_lo", 0, 4),
    ("bg_inode_bitmap_lo", 4, 4),
    ("bg_inode_table_lo", 8, 4),
    ("bg_free_blocks_count_lo", 12, 2),
    ("bg_free_inodes_count_lo", 14, 2),
    ("bg_used_dirs_count_lo", 16, 2),
    ("bg_flags", 18, 2),
    ("bg_exclude_bitmap_lo", 20, 4),
    ("bg_block_bitmap_csum_lo", 24, 2),
    ("bg_inode_bitmap_csum_lo", 26, 2),
    ("bg_itable_unused_lo", 28, 2),
    ("bg_block_bitmap_hi", 32, 4),
    ("bg_inode_bitmap_hi", 36, 4),
    ("bg_inode_table_hi", 40, 4),
    ("bg_free_blocks_count_hi", 44, 2),
    ("bg_free_inodes_count_hi", 46, 2),
    ("bg_used_dirs_count_hi", 48, 2),
    ("bg_itable_unused_hi", 50, 2),
    ("bg_exclude_bitmap_hi", 52, 4),
    ("bg_block_bitmap_csum_hi", 56, 2),
    ("bg_inode_bitmap_csum_hi", 58, 2),
    ("bg_reserved", 60, 4),
];

/// Volumes of which the first one has backups, and the second one has none and no checksums.
const SHAPES: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024", "-N", "512"],
    &["-t", "ext4", "-b", "4096", "-N", "512", "-O", "^metadata_csum,^metadata_csum_seed"],
    &["-t", "ext2", "-b", "1024", "-N", "512"],
    &["-t", "ext4", "-b", "2048", "-N", "512", "-O", "bigalloc", "-C", "8192"],
];

/// Cases that once failed, each with the number of the volume.
const KNOWN: &[(usize, &str)] = &[
    (0, "s_def_hash_version 1 -> 7"),
    (0, "s_creator_os 0 -> 1"),
    (0, "s_feature_compat bit 10"),
    (0, "s_feature_compat bit 12"),
    (0, "s_feature_incompat bit 1"),
    (0, "s_feature_ro_compat bit 9"),
    (0, "group 1: bg_itable_unused_hi 0 -> 1"),
    (3, "s_clusters_per_group 16384 -> 32768"),
    (3, "s_log_cluster_size 3 -> 4"),
    (3, "s_log_cluster_size 3 -> 7"),
];

/// Cases in which nothing tells what was there, on a volume without a backup: the repair says so,
/// and changes nothing.
const UNREPAIRED: &[&str] = &["s_blocks_count_lo 6144 -> 77", "s_log_block_size 1 -> 0"];

/// One in so many of the other cases is tried.
const EVERY: usize = 400;

/// A sound volume.
struct Sound {
    device: MemoryDevice,
    tree: Snapshot,
}

/// A change: what it is, where, the bytes.
struct Case {
    what: String,
    at: u64,
    bytes: Vec<u8>,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// What a mount shows, or why it is none that can be written.
fn read(device: &MemoryDevice) -> Result<Snapshot, String> {
    let open = |options: &str| {
        let options = MountOptions::parse(options).unwrap();
        let volume = Ext4::open(Arc::new(device.fork()), Threads::new(), &options);
        volume.map_err(|error| error.to_string())
    };
    let writing = open("")?;
    let reason = writing.read_only_reason().filter(|reason| reason.contains("backup superblock"));
    writing.unmount().map_err(|error| error.to_string())?;
    if let Some(reason) = reason {
        return Err(reason.to_string());
    }
    digest_volume(&*open("ro")?, SnapshotOptions::default()).map_err(|error| error.to_string())
}

impl Sound {
    fn new(args: &[&str], at: &Path) -> Self {
        image_of(at, 12 << 20, args);
        let device = read_image(at).unwrap();
        let tree = read(&device).unwrap();
        Self { device, tree }
    }

    fn superblock(&self) -> Vec<u8> {
        self.device.read_at(SUPERBLOCK, 1024).unwrap().to_vec()
    }

    /// The superblock with other bytes in one place, and a right checksum.
    fn with_field(&self, what: String, at: usize, bytes: &[u8]) -> Case {
        let mut new = self.superblock();
        new[at..at + bytes.len()].copy_from_slice(bytes);
        if number(&new[100..104]) & CHECKSUMS != 0 {
            let sum = crc32c(!0, &new[..1020]);
            new[1020..].copy_from_slice(&sum.to_le_bytes());
        }
        Case { what, at: SUPERBLOCK, bytes: new }
    }

    fn superblocks(&self) -> Vec<Case> {
        let old = self.superblock();
        let mut found = Vec::new();
        for &(name, at, len) in FIELDS {
            let stored = number(&old[at..at + len]);
            for value in values(stored, len) {
                let what = format!("{name} {stored} -> {value}");
                found.push(self.with_field(what, at, &value.to_le_bytes()[..len]));
            }
        }
        for &(name, at, left) in FEATURES {
            let stored = number(&old[at..at + 4]);
            for bit in (0..32).filter(|bit| left >> bit & 1 == 0) {
                let bytes = (stored ^ 1 << bit).to_le_bytes();
                found.push(self.with_field(format!("{name} bit {bit}"), at, &bytes[..4]));
            }
        }
        found
    }

    fn descriptors(&self) -> Vec<Case> {
        let first = self.superblock();
        let word = |at: usize| number(&first[at..at + 4]);
        let (size, len) = (1024 << word(24), if word(96) & WIDE == 0 { 32 } else { 64 });
        let groups = (word(4) - word(20)).div_ceil(word(32));
        let mut found = Vec::new();
        for group in 0..groups.min(2) {
            let at = (word(20) + 1) * size + group * len as u64;
            let old = self.device.read_at(at, len).unwrap().to_vec();
            for &(name, field, width) in DESCRIPTOR.iter().filter(|(_, at, _)| *at < len) {
                let stored = number(&old[field..field + width]);
                for value in values(stored, width) {
                    let mut bytes = old.clone();
                    bytes[field..field + width].copy_from_slice(&value.to_le_bytes()[..width]);
                    if word(100) & CHECKSUMS != 0 {
                        bytes[30..32].fill(0);
                        let number = u32::try_from(group).unwrap().to_le_bytes();
                        let seed = crc32c(crc32c(!0, &first[104..120]), &number);
                        let sum = crc32c(seed, &bytes).to_le_bytes();
                        bytes[30..32].copy_from_slice(&sum[..2]);
                    }
                    let what = format!("group {group}: {name} {stored} -> {value}");
                    found.push(Case { what, at, bytes });
                }
            }
        }
        found
    }

    /// What is wrong with how a change is judged and repaired.
    fn judge(&self, case: &Case, at: &Path) -> Result<(), String> {
        let hurt = self.device.fork();
        hurt.write_at(case.at, case.bytes.clone()).unwrap();
        let found = check(Arc::new(hurt.fork()));
        if matches!(&found, Ok(found) if found.count() == 0) {
            self.is_accepted(&hurt, at).map_err(|why| format!("nothing is found, and {why}"))?;
            return Ok(());
        }
        let planned = match plan(hurt.fork(), Scope::All) {
            Ok(planned) => planned,
            Err(Error::Refused(_)) => return Ok(()),
            // What cannot be checked is not repaired, either.
            Err(error) => return found.map_or(Ok(()), |_| Err(error.to_string())),
        };
        if planned.is_refused && UNREPAIRED.contains(&&*case.what) {
            return Ok(());
        }
        if planned.is_refused {
            return Err(format!("not repaired:\n{}", lines(&Ok(planned.after))));
        }
        planned.apply(&hurt, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
        if let Some(said) = complaint(&hurt, at) {
            return Err(format!("e2fsck after the repair: {said}"));
        }
        match planned.steps.losing().count() {
            0 => self.is_accepted(&hurt, at),
            _ => read(&hurt).map(drop),
        }
        .map_err(|why| format!("after the repair {why}"))
    }

    /// Do Cairn and the kernel mount the volume, and is its tree the right one?
    fn is_accepted(&self, device: &MemoryDevice, at: &Path) -> Result<(), String> {
        let tree = read(device).map_err(|why| format!("Cairn says: {why}"))?;
        if tree != self.tree {
            return Err("the tree is another one".into());
        }
        write_image(device, at).unwrap();
        let mount =
            KernelMount::try_new(at, "").map_err(|why| format!("the kernel says: {why}"))?;
        mount.unmount();
        Ok(())
    }
}

/// Other values of a field.
fn values(stored: u64, len: usize) -> Vec<u64> {
    let bits = 8 * len as u32;
    let most = u64::MAX >> (64 - bits);
    let around = [stored.wrapping_add(1), stored.wrapping_sub(1), stored.wrapping_mul(2)];
    let fixed = [0, 1, 7, 77, 0x0123_4567, stored ^ 4, most, 1 << (bits - 1)];
    let mut found = Vec::new();
    for value in fixed.into_iter().chain(around).map(|value| value & most) {
        if value != stored && !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn sweep(cases: fn(&Sound) -> Vec<Case>) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let all = deep() || std::env::var_os("CAIRN_SWEEP").is_some();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (shape, args) in SHAPES.iter().enumerate() {
        let sound = Sound::new(args, &at);
        for (index, case) in cases(&sound).iter().enumerate() {
            let is_known = KNOWN.contains(&(shape, &*case.what));
            if !(all || is_known || (index + shape * 97).is_multiple_of(EVERY)) {
                continue;
            }
            tried += 1;
            if let Err(why) = sound.judge(case, &at) {
                println!("{args:?}: {}: {why}", case.what);
                wrong.push(format!("{args:?}: {}: {why}", case.what));
            }
        }
    }
    println!("{tried} tried");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_readers_refuse_of_a_superblock_is_found_and_mended() {
    sweep(Sound::superblocks);
}

#[test]
fn what_readers_refuse_of_a_descriptor_is_found_and_mended() {
    sweep(Sound::descriptors);
}
