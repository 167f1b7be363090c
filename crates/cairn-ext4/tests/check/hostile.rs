//! Damaged images: the check ends, without a panic.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_ext4::check::repair;
use cairn_testkit::crash::read_image;
use cairn_testkit::deep;
use cairn_testkit::judge::mke2fs;
use cairn_testkit::mutate::Target;

use crate::repaired::{complaint, place_of, repaired};
use crate::support::{check, flags};

const LAYOUTS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed,inline_data"],
    &["-t", "ext2", "-b", "1024"],
];

#[test]
fn a_check_of_a_damaged_image_ends() {
    let per_layout = if deep() { 50_000 } else { 400 };
    for (layout, args) in LAYOUTS.iter().enumerate() {
        let target = Target::ext4(args, layout as u64);
        let mut found = 0_u64;
        for seed in 0..per_layout {
            let (device, damage) = target.mutate(seed);
            let checked = std::panic::catch_unwind(|| flags(&check(Arc::new(device))));
            let Ok(flagged) = checked else {
                let damage: String = damage.iter().map(|damage| format!("{damage}; ")).collect();
                panic!("{args:?}, seed {seed}: {damage}");
            };
            found += u64::from(flagged);
        }
        println!("{args:?}: {found} of {per_layout} have findings");
        assert!(found > per_layout / 3, "{args:?}: only {found}");
    }
}

/// A block of pointers to itself, which is every file's map: no walk reads it for each pointer.
#[test]
fn maps_that_lead_to_themselves_are_read_a_few_times() {
    [1024, 4096].into_iter().for_each(maps_that_lead_to_themselves);
}

fn maps_that_lead_to_themselves(block: u32) {
    const AT: u32 = 1800;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = ["-t", "ext2", "-b", &block.to_string(), "-N", "512", "-I", "128"];
    mke2fs(&path, 8 << 20, &options);
    let sound = read_image(&path).unwrap();
    let itself: Vec<u8> = (0..block / 4).flat_map(|_| AT.to_le_bytes()).collect();
    sound.write_at(u64::from(AT) * u64::from(block), itself).unwrap();
    let first = place_of(&path, "<12>");
    // All of it behind the end, or only the triple indirect block.
    for size in [0_u32, 1 << 26] {
        let device = sound.fork();
        for number in 0..200 {
            let at = first + number * 128;
            let mut record = device.read_at(at, 128).unwrap().to_vec();
            record[..2].copy_from_slice(&0o100_644_u16.to_le_bytes());
            record[4..8].copy_from_slice(&size.to_le_bytes());
            record[26..28].copy_from_slice(&1_u16.to_le_bytes());
            record[28..32].copy_from_slice(&(1_u32 << 30).to_le_bytes());
            for slot in [12, 13, 14] {
                record[40 + 4 * slot..][..4].copy_from_slice(&AT.to_le_bytes());
            }
            device.write_at(at, record).unwrap();
        }
        let stats = Arc::new(Stats::new(Arc::new(device)));
        assert!(flags(&check(stats.clone())));
        let reads = stats.snapshot().reads;
        assert!(reads < 16 << 13, "blocks of {block}, size {size}: {reads} reads");
    }
}

/// A volume where so many inodes have the same map: a tree of 86 blocks with 7056 extents of one
/// block, and the places of the first inode and its record.
fn with_one_tree(inodes: u64) -> MemoryDevice {
    const AT: u32 = 9000;
    // No read of a leaf is that of another.
    const APART: u32 = 322;
    const ENTRIES: u32 = 84;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let features = "^metadata_csum,^has_journal,^resize_inode";
    mke2fs(
        &path,
        40 << 20,
        &["-t", "ext4", "-b", "1024", "-N", "1024", "-I", "256", "-O", features],
    );
    let device = read_image(&path).unwrap();
    let header = |entries: u32, most: u32, depth: u32| -> Vec<u8> {
        let words = [0xf30a, entries, most, depth, 0, 0];
        words.iter().flat_map(|word| (*word as u16).to_le_bytes()).collect()
    };
    let index = |start: u32, child: u32| [start, child, 0].map(u32::to_le_bytes).concat();
    let leaf_of = |number: u32| AT + 2 + APART * number;
    let mut inner = header(ENTRIES, ENTRIES, 1);
    for number in 0..ENTRIES {
        inner.extend(index(number * ENTRIES, leaf_of(number)));
        let mut leaf = header(ENTRIES, ENTRIES, 0);
        for start in number * ENTRIES..(number + 1) * ENTRIES {
            let place = AT + 101 + 2 * start;
            leaf.extend([start, 1, place].map(u32::to_le_bytes).concat());
        }
        device.write_at(u64::from(leaf_of(number)) * 1024, leaf).unwrap();
    }
    device.write_at(u64::from(AT) * 1024, inner).unwrap();
    let mut root = header(1, 4, 2);
    root.extend(index(0, AT));
    let first = place_of(&path, "<12>");
    let blocks = ENTRIES * ENTRIES + ENTRIES + 1;
    for number in 0..inodes {
        let at = first + number * 256;
        let mut record = vec![0; 256];
        record[..2].copy_from_slice(&0o100_644_u16.to_le_bytes());
        record[4..8].copy_from_slice(&(ENTRIES * ENTRIES * 1024).to_le_bytes());
        record[26..28].copy_from_slice(&1_u16.to_le_bytes());
        record[28..32].copy_from_slice(&(2 * blocks).to_le_bytes());
        record[32..36].copy_from_slice(&0x8_0000_u32.to_le_bytes());
        record[40..][..root.len()].copy_from_slice(&root);
        record[128..130].copy_from_slice(&32_u16.to_le_bytes());
        device.write_at(at, record).unwrap();
    }
    device
}

/// A tree that is the map of 900 inodes is one finding for each of them at most. A check and a
/// repair read it far less often than each inode and each of their walks would.
#[test]
fn one_tree_of_all_inodes_is_read_a_few_times() {
    let device = with_one_tree(900);
    let cost = |work: &dyn Fn(Arc<Stats>)| {
        let stats = Arc::new(Stats::new(Arc::new(device.fork())));
        work(stats.clone());
        stats.snapshot().reads
    };
    let checked = cost(&|device| {
        let report = check(device).unwrap();
        let twice = report.counts.iter().find(|(kind, _)| kind.code == "ext4.map.twice");
        let count = twice.map_or(0, |(_, count)| *count);
        assert!((1..=900).contains(&count), "{count} findings");
    });
    let planned = [Scope::Accounting, Scope::All].map(|scope| {
        cost(&|device| {
            let device: Arc<dyn BlockDevice> = device;
            let plan = repair::plan(&device, Threads::new(), Arc::new(()), scope);
            drop(plan);
        })
    });
    println!("{checked} reads of a check, {planned:?} of repairs");
    assert!(checked < 300_000, "{checked} reads of a check");
    assert!(planned.iter().all(|reads| *reads < 400_000), "{planned:?} reads of repairs");
}

/// A few inodes with one tree get copies of it.
#[test]
fn one_tree_of_a_few_inodes_is_copied() {
    let (plan, mended) = repaired(&with_one_tree(3), Scope::All).unwrap();
    assert!(!plan.is_refused && plan.after.count() == 0, "{:?}", plan.after.findings);
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(complaint(&mended, &dir.path().join("mended")), None);
}
