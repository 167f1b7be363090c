//! How errors affect later calls. The checks are the same for ext4 and F2FS
//! ([`cairn_testkit::policy`]).

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::format::Superblock;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::{dump_f2fs, fsck_f2fs_device};
use cairn_testkit::policy::{self, Record, Subject};
use cairn_vfs::FileSystem;

use crate::support::{FEATURES, judge, volume};

/// `CP_FSCK_FLAG`.
const FSCK_FLAG: u64 = 0x10;

/// Volumes with checksums of inodes.
struct Kind;

fn open(device: Arc<dyn BlockDevice>, options: &str) -> Arc<F2fs> {
    F2fs::open(device, Simulated::new(1), &MountOptions::parse(options).unwrap()).unwrap()
}

impl Subject for Kind {
    fn name(&self) -> String {
        "F2FS".into()
    }

    fn fresh(&self) -> Arc<MemoryDevice> {
        volume(64 << 20, FEATURES)
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &str) -> Arc<dyn FileSystem> {
        open(device, options)
    }

    fn record(&self, device: &MemoryDevice, ino: Ino) -> Record {
        record_of(&open(Arc::new(device.fork()), "ro"), ino)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }

    fn asks_for_check(&self, device: &MemoryDevice) -> bool {
        let image = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        write_image(device, image.path()).unwrap();
        dump_f2fs(image.path())["ckpt_flags"] & FSCK_FLAG != 0
    }

    fn check_record_of_stop(&self, device: &MemoryDevice, damage: bool) {
        // Stopped on request or by a failed write; a damaged inode.
        let expected = if damage { (0, 1 << 4) } else { (3, 0) };
        for superblock in superblocks(device) {
            let mut stops = [0; 32];
            stops[expected.0] = 1;
            assert_eq!(superblock.s_stop_reason, stops);
            assert_eq!(superblock.s_errors[0], expected.1);
        }
        assert!(!self.asks_for_check(device), "no checkpoint was written");
        // All checkpoints of later mounts ask for fsck.f2fs.
        let later = Arc::new(device.fork());
        for _ in 0..2 {
            open(later.clone(), "").unmount().unwrap();
            assert!(self.asks_for_check(&later));
            assert!(!superblocks(&later).iter().any(Superblock::has_errors), "they say it now");
        }
    }

    fn is_in_superblock(&self, at: u64) -> bool {
        at < 8192 && at % 4096 >= 1024
    }
}

fn superblocks(device: &MemoryDevice) -> [Superblock; 2] {
    [0, 4096].map(|at| Superblock::decode(&device.read_at(at, 4096).unwrap()).unwrap())
}

pub fn record_of(fs: &F2fs, ino: Ino) -> Record {
    let nid = cairn_f2fs::format::Nid::of(ino).unwrap();
    let at = fs.disk().nat.lookup(nid).unwrap().block_addr.bytes();
    Record { at, checked: at + 32 }
}

#[test]
fn a_sector_that_cannot_be_written_concerns_its_file() {
    policy::a_sector_that_cannot_be_written_concerns_its_file(&Kind);
}

#[test]
fn a_sector_that_cannot_be_read_is_an_answer() {
    policy::a_sector_that_cannot_be_read_is_an_answer(&Kind);
}

/// fsck.f2fs finds only the inode.
#[test]
fn a_damaged_inode_is_noted_and_loses_nothing_of_others() {
    let device = policy::a_damaged_inode_is_noted_and_loses_nothing_of_others(&Kind);
    let found = fsck_f2fs_device(&device).output;
    let asserts: Vec<&str> = found.lines().filter(|line| line.contains("[ASSERT]")).collect();
    assert!(asserts.len() == 1 && asserts[0].contains("chksum"), "{found}");
    for superblock in superblocks(&device) {
        assert_eq!((superblock.s_stop_reason, superblock.s_errors[0]), ([0; 32], 1 << 4));
    }
}

#[test]
fn damage_that_was_only_looked_at_is_noted() {
    policy::damage_that_was_only_looked_at_is_noted(&Kind);
}

#[test]
fn the_first_damage_stops_a_volume_that_asks_for_it() {
    policy::the_first_damage_stops_a_volume_that_asks_for_it(&Kind);
}

#[test]
fn a_failed_write_of_metadata_is_recorded() {
    policy::a_failed_write_of_metadata_is_recorded(&Kind);
}

/// It stays in the list of orphans, and is deleted once it can be read.
#[test]
fn an_orphan_on_a_bad_sector_does_not_prevent_the_mount() {
    judge(&policy::an_orphan_on_a_bad_sector_does_not_prevent_the_mount(&Kind));
}

#[test]
fn a_damaged_orphan_does_not_prevent_the_mount() {
    let _ = policy::a_damaged_orphan_does_not_prevent_the_mount(&Kind);
}

#[test]
fn an_fsync_after_a_shutdown_fails() {
    policy::an_fsync_after_a_shutdown_fails(&Kind);
}
