//! Single fields that say where everything else is, changed by somebody who puts the checksums
//! right: a repair loses no file that e2fsck keeps, or changes nothing.
//!
//! `CAIRN_DEEP=1` tries all values of all fields.

use std::path::{Path, PathBuf};

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::{self, KernelMount, command, mke2fs};
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};

use crate::repaired::{complaint, place_of, plan, snapshot};

/// A volume, by how it is made.
struct Shape {
    size: u64,
    args: &'static [&'static str],
}

const PLAIN: &str = "^metadata_csum,^metadata_csum_seed,^uninit_bg";

const SHAPES: &[Shape] = &[
    Shape { size: 26 << 20, args: &["-t", "ext4", "-b", "1024", "-N", "1024"] },
    Shape { size: 26 << 20, args: &["-t", "ext4", "-b", "1024", "-N", "1024", "-O", PLAIN] },
    Shape { size: 48 << 20, args: &["-t", "ext4", "-b", "4096", "-g", "4096", "-N", "1024"] },
    Shape { size: 7 << 20, args: &["-t", "ext4", "-b", "1024", "-N", "512"] },
    Shape { size: 26 << 20, args: &["-t", "ext2", "-b", "1024", "-N", "1024"] },
];

/// A volume with 200 files in several directories, which is almost full.
struct Filled {
    args: &'static [&'static str],
    device: MemoryDevice,
    tree: Snapshot,
    paths: Vec<String>,
    /// The inode of one of the files, and a block of another one.
    file: u32,
    data: Vec<u64>,
}

impl Filled {
    fn new(shape: &Shape, at: &Path) -> Self {
        mke2fs(at, shape.size, shape.args);
        let mount = KernelMount::new(at, "");
        let mut paths = Vec::new();
        let mean = usize::try_from(shape.size).unwrap() * 6 / 10 / 200;
        for number in 0..200_usize {
            let directory = format!("dir {}", number % 7);
            std::fs::create_dir_all(mount.path().join(&directory)).unwrap();
            let path = format!("{directory}/file number {number}");
            let len = [10, 900, mean / 2, mean, mean * 3][number % 5];
            let bytes: Vec<u8> = (0..len).map(|at| ((at * 31 + number * 7) % 251) as u8).collect();
            std::fs::write(mount.path().join(&path), bytes).unwrap();
            paths.push(path);
        }
        mount.unmount();
        let device = read_image(at).unwrap();
        let tree = snapshot(device.fork());
        let ask = |request: &str| cairn_testkit::judge::debugfs(at, request);
        let stat = ask("stat \"/dir 3/file number 3\"");
        let file = stat.split("Inode: ").nth(1).unwrap().split_whitespace().next().unwrap();
        let data = [4, 9, 44, 104, 199].map(|number| {
            let blocks = ask(&format!("blocks \"/dir {}/file number {number}\"", number % 7));
            let numbers: Vec<u64> =
                blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            numbers[numbers.len() / 2]
        });
        let file = file.parse().unwrap();
        Self { args: shape.args, device, tree, paths, file, data: data.to_vec() }
    }

    fn superblock(&self) -> Vec<u8> {
        self.device.read_at(1024, 1024).unwrap().to_vec()
    }

    /// The files that are not as they were.
    fn lost(&self, now: &Snapshot) -> Vec<&str> {
        let of = |tree: &Snapshot, path: &str| tree.get(path.as_bytes()).map(str::to_owned);
        let is_lost = |path: &&String| of(&self.tree, path) != of(now, path);
        self.paths.iter().filter(is_lost).map(String::as_str).collect()
    }

    /// What is wrong with the repair of a changed copy, if anything is.
    fn judge(&self, device: &MemoryDevice, at: &Path, asks_e2fsck: bool) -> Option<String> {
        // A volume that cannot be read is refused, too.
        let planned = plan(device.fork(), Scope::All).ok()?;
        if planned.changes.is_empty() {
            return None;
        }
        let after = device.fork();
        let undo = MemoryDevice::new(file_size(&planned.changes));
        planned.apply(&after, &undo).unwrap();
        let lost = match mounted(after.fork()) {
            Some(tree) => self.lost(&tree),
            None => return Some("it cannot be mounted".into()),
        };
        if !lost.is_empty() {
            write_image(device, at).unwrap();
            for _ in 0..2 {
                command("e2fsck").arg("-fy").arg(at).output().expect("e2fsck starts");
            }
            let theirs = mounted(read_image(at).unwrap());
            let theirs = theirs.map(|tree| self.lost(&tree));
            let worse = |path: &&str| theirs.as_ref().is_some_and(|lost| !lost.contains(path));
            let worse: Vec<&str> = lost.into_iter().filter(worse).collect();
            if !worse.is_empty() {
                return Some(format!("{} files that e2fsck keeps: {}", worse.len(), worse[0]));
            }
        }
        let again = plan(after.fork(), Scope::All);
        match again {
            Ok(again) if again.changes.is_empty() && again.before.count() == 0 => {}
            Ok(again) => return Some(format!("a second repair: {:?}", again.steps.kept())),
            Err(error) => return Some(format!("a second repair: {error}")),
        }
        let said = asks_e2fsck.then(|| complaint(&after, at)).flatten();
        said.map(|said| format!("e2fsck -fn: {said}"))
    }
}

/// What a mount shows, if it is possible.
fn mounted(device: MemoryDevice) -> Option<Snapshot> {
    let options = MountOptions::parse("ro").unwrap();
    let threads = cairn_base::runtime::threads::Threads::new();
    let volume = Ext4::open(std::sync::Arc::new(device), threads, &options).ok()?;
    digest_volume(&*volume, SnapshotOptions::default()).ok()
}

/// Fields of the superblock: name, byte, bytes.
const FIELDS: &[(&str, usize, usize)] = &[
    ("s_inodes_count", 0, 4),
    ("s_blocks_count", 4, 4),
    ("s_r_blocks_count", 8, 4),
    ("s_first_data_block", 20, 4),
    ("s_log_block_size", 24, 4),
    ("s_log_cluster_size", 28, 4),
    ("s_blocks_per_group", 32, 4),
    ("s_clusters_per_group", 36, 4),
    ("s_inodes_per_group", 40, 4),
    ("s_creator_os", 72, 4),
    ("s_rev_level", 76, 4),
    ("s_first_ino", 84, 4),
    ("s_inode_size", 88, 2),
    ("s_reserved_gdt_blocks", 206, 2),
    ("s_journal_inum", 224, 4),
    ("s_last_orphan", 232, 4),
    ("s_def_hash_version", 252, 1),
    ("s_desc_size", 254, 2),
    ("s_first_meta_bg", 260, 4),
    ("s_blocks_count_hi", 336, 4),
    ("s_min_extra_isize", 348, 2),
    ("s_want_extra_isize", 350, 2),
    ("s_flags", 352, 4),
    ("s_mmp_block", 360, 8),
    ("s_log_groups_per_flex", 372, 1),
    ("s_checksum_type", 373, 1),
    ("s_snapshot_inum", 384, 4),
    ("s_usr_quota_inum", 576, 4),
    ("s_grp_quota_inum", 580, 4),
    ("s_backup_bgs", 588, 4),
    ("s_prj_quota_inum", 620, 4),
    ("s_checksum_seed", 624, 4),
    ("s_encoding", 636, 2),
    ("s_orphan_file_inum", 640, 4),
];

/// Words of feature flags.
const FLAGS: &[(&str, usize)] =
    &[("s_feature_compat", 92), ("s_feature_incompat", 96), ("s_feature_ro_compat", 100)];

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Superblocks of which one field has another value, sealed, each with what was changed.
fn superblocks(filled: &Filled) -> Vec<(String, Vec<u8>)> {
    let old = filled.superblock();
    let mut found = Vec::new();
    let mut add = |name: &str, at: usize, len: usize, value: u64| {
        let stored = number(&old[at..at + len]);
        let value = value & (u64::MAX >> (64 - 8 * len));
        if value != stored {
            let mut new = old.clone();
            new[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            if number(&new[100..104]) & 0x400 != 0 {
                let sum = cairn_base::checksum::crc32c(!0, &new[..1020]);
                new[1020..].copy_from_slice(&sum.to_le_bytes());
            }
            found.push((format!("{name} {stored} -> {value}"), new));
        }
    };
    for &(name, at, len) in FIELDS {
        let stored = number(&old[at..at + len]);
        let around = [stored.wrapping_sub(1), stored + 1, stored + 8, stored * 2, stored / 2];
        let named = if name.ends_with("inum") { u64::from(filled.file) } else { stored ^ 64 };
        for value in around.into_iter().chain([0, 1, u64::MAX, stored ^ 4, named]) {
            add(name, at, len, value);
        }
    }
    for &(name, at) in FLAGS {
        let stored = number(&old[at..at + 4]);
        (0..18).for_each(|bit| add(name, at, 4, stored ^ 1 << bit));
    }
    found.dedup();
    found
}

/// One in so many is tried, and of those one in so many is shown to e2fsck.
const STEP: usize = 13;
const ASKED: usize = 4;

/// Changes that have lost files.
const KNOWN: &[&str] = &[
    "s_first_ino 11 -> 12",
    "s_first_ino 11 -> 22",
    "s_inode_size 256 -> ",
    "s_reserved_gdt_blocks",
    "s_journal_inum 8 -> ",
    "s_desc_size 64 -> 128",
    "s_prj_quota_inum 0 -> ",
    "s_orphan_file_inum 0 -> ",
    "s_snapshot_inum 0 -> ",
];

/// Prints what is wrong, and asserts that nothing is.
#[track_caller]
fn settle(tried: usize, wrong: &[String]) {
    println!("{tried} tried, {} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_lying_superblock_loses_no_file_that_e2fsck_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (shape, number) in SHAPES.iter().zip(0..) {
        let filled = Filled::new(shape, &at);
        for (index, (what, bytes)) in superblocks(&filled).into_iter().enumerate() {
            let is_known = number == 0 && KNOWN.iter().any(|known| what.starts_with(known));
            let is_drawn = (index + number) % STEP == 0;
            if !(deep() || is_known || is_drawn) {
                continue;
            }
            tried += 1;
            let device = filled.device.fork();
            device.write_at(1024, bytes).unwrap();
            let asks = deep() || tried % ASKED == 0;
            if let Some(why) = filled.judge(&device, &at, asks) {
                println!("{:?}: {what}: {why}", filled.args);
                wrong.push(format!("{:?}: {what}: {why}", filled.args));
            }
        }
    }
    settle(tried, &wrong);
}

/// Descriptors of which one field is another one, sealed, each with what was changed.
fn descriptors(filled: &Filled) -> Vec<(String, u64, Vec<u8>)> {
    let first = filled.superblock();
    let word = |at: usize| number(&first[at..at + 4]);
    let size = 1024 << word(24);
    let wide = word(96) & 0x80 != 0;
    let (len, sealed) = (if wide { 64 } else { 32 }, word(100) & 0x400 != 0);
    let groups = (word(4) - word(20)).div_ceil(word(32));
    let table = (1024 / size + 1) * size;
    let desc = |group: u64| {
        let at = table + group * len;
        (at, filled.device.read_at(at, len as usize).unwrap().to_vec())
    };
    let place = |group: u64, field: usize| number(&desc(group).1[field..field + 4]);
    let mut found = Vec::new();
    for group in 0..groups {
        let mut change = |name: &str, field: usize, width: usize, value: u64| {
            let (at, mut bytes) = desc(group);
            bytes[field..field + width].copy_from_slice(&value.to_le_bytes()[..width]);
            if sealed {
                bytes[30..32].fill(0);
                let seed = cairn_base::checksum::crc32c(!0, &first[104..120]);
                let group = u32::try_from(group).unwrap().to_le_bytes();
                let seed = cairn_base::checksum::crc32c(seed, &group);
                let sum = cairn_base::checksum::crc32c(seed, &bytes).to_le_bytes();
                bytes[30..32].copy_from_slice(&sum[..2]);
            }
            found.push((format!("group {group}: {name} -> {value}"), at, bytes));
        };
        for (name, field) in [("bg_block_bitmap", 0), ("bg_inode_bitmap", 4), ("bg_inode_table", 8)]
        {
            let (stored, other) = (place(group, field), (group + 1) % groups);
            let mut values = filled.data.clone();
            values.extend([place(other, 8), place(other, 0), place(group, 8) + 1, 1, 3]);
            values.extend([word(4) - 1, word(4) + 5, stored + 1, stored - 1, 0, u64::MAX >> 32]);
            for value in values.into_iter().filter(|value| *value != stored) {
                change(name, field, 4, value);
            }
        }
        for value in [1, 2, 3, 5, 7, 0x6aa1, 0xffff] {
            change("bg_flags", 18, 2, value);
        }
        for value in [1, word(40) / 2, word(40) - 5, word(40), 0xffff] {
            change("bg_itable_unused", 28, 2, value);
        }
    }
    found
}

#[test]
fn a_lying_descriptor_loses_no_file_that_e2fsck_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let at: PathBuf = dir.path().join("image");
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (shape, number) in SHAPES.iter().zip(0..) {
        let filled = Filled::new(shape, &at);
        for (index, (what, place, bytes)) in descriptors(&filled).into_iter().enumerate() {
            if !deep() && (index + number) % STEP != 0 {
                continue;
            }
            tried += 1;
            let device = filled.device.fork();
            device.write_at(place, bytes).unwrap();
            let asks = deep() || tried % ASKED == 0;
            if let Some(why) = filled.judge(&device, &at, asks) {
                println!("{:?}: {what}: {why}", filled.args);
                wrong.push(format!("{:?}: {what}: {why}", filled.args));
            }
        }
    }
    settle(tried, &wrong);
}

/// A block of descriptors of which nothing is left but noise. Its backup has the places, and what
/// is in use is read.
#[test]
fn descriptors_that_became_noise_cost_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    for shape in &SHAPES[..1] {
        let filled = Filled::new(shape, &at);
        for seed in 0..6 {
            let mut random = fastrand::Rng::with_seed(seed);
            let noise: Vec<u8> = (0..1024).map(|_| random.u8(..)).collect();
            let noise = if seed == 0 { vec![0xff; 1024] } else { noise };
            let hurt = filled.device.fork();
            hurt.write_at(2048, noise).unwrap();
            let planned = plan(hurt.fork(), Scope::All).unwrap();
            let undo = MemoryDevice::new(file_size(&planned.changes));
            planned.apply(&hurt, &undo).unwrap();
            assert_eq!(filled.lost(&mounted(hurt.fork()).unwrap()), [""; 0], "{seed}");
            assert_eq!(complaint(&hurt, &at), None, "{seed}");
        }
    }
}

/// A table of inodes whose place no copy knows is found by the root in it. Without a root, a repair
/// is refused.
#[test]
fn a_lost_table_is_not_a_single_loss() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let shape = Shape { size: 24 << 20, args: &["-t", "ext4", "-b", "4096", "-N", "1024"] };
    let filled = Filled::new(&shape, &at);
    let rows = descriptors(&filled);
    let is_it = |what: &str| what == format!("group 0: bg_inode_table -> {}", u64::MAX >> 32);
    let (_, place, bytes) = rows.into_iter().find(|(what, ..)| is_it(what)).unwrap();
    let hurt = filled.device.fork();
    hurt.write_at(place, bytes).unwrap();
    let rootless = hurt.fork();
    let planned = plan(hurt.fork(), Scope::All).unwrap();
    assert_eq!(planned.steps.losing().count(), 0);
    planned.apply(&hurt, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
    assert_eq!(filled.lost(&mounted(hurt.fork()).unwrap()), [""; 0]);
    assert_eq!(complaint(&hurt, &at), None);
    write_image(&filled.device, &at).unwrap();
    rootless.write_at(place_of(&at, "<2>"), vec![0; 256]).unwrap();
    // The log has copies of the table's first block.
    let log = judge::run("debugfs", ["-R", "blocks <8>", at.to_str().unwrap()]);
    let blocks: Vec<u64> = log.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    for block in blocks {
        rootless.write_at(block * 4096, vec![0; 4096]).unwrap();
    }
    assert!(matches!(plan(rootless, Scope::All), Err(cairn_ext4::Error::Refused(_))));
}

/// If most files would be lost, and nothing says by which field, a repair changes nothing.
#[test]
fn a_repair_that_would_lose_most_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let filled = Filled::new(&SHAPES[3], &at);
    let hurt = filled.device.fork();
    // The table from inode 33 on.
    hurt.write_at(place_of(&at, "<33>"), vec![0; 40 * 1024]).unwrap();
    match plan(hurt, Scope::All) {
        Err(error @ cairn_ext4::Error::Refused(_)) => {
            assert!(error.to_string().contains("copy what can be read"), "{error}");
        }
        Err(error) => panic!("{error}"),
        Ok(plan) => panic!("{:?}", plan.steps.kept()),
    }
}
