//! Damaged images: the check ends, without a panic.

use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::wrap::Stats;
use cairn_testkit::crash::read_image;
use cairn_testkit::deep;
use cairn_testkit::judge::mke2fs;
use cairn_testkit::mutate::Target;

use crate::repaired::place_of;
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
