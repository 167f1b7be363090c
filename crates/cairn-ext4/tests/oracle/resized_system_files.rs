//! What belongs to no file of a user moves, too, when a volume becomes smaller: the blocks that
//! lead to the reserved descriptor blocks, and to the journal.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::mkfs::{self, MkfsOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge;

use crate::checked::assert_clean;
use crate::resize::{MIB, least_of, on_larger, resized, shortened, size_of};
use crate::support::{self, volume};

/// Features of mke2fs's volumes.
const FEATURES: [&str; 8] = [
    "has_journal",
    "^metadata_csum",
    "^metadata_csum,^64bit,uninit_bg",
    "^orphan_file,^has_journal",
    "^flex_bg",
    "^extents,^64bit",
    "sparse_super2",
    "^sparse_super,^resize_inode",
];

/// A fresh volume, by one of the two that make some.
fn fresh(rng: &mut fastrand::Rng, block: u32, size: u64) -> (Arc<MemoryDevice>, String) {
    if rng.u8(0..4) == 0 {
        let device = Arc::new(MemoryDevice::new(size));
        let options = MkfsOptions { block_size: Some(block), ..MkfsOptions::default() };
        mkfs::make(device.clone(), &options, &Threads::new()).unwrap();
        return (device, format!("by mkfs, -b {block}"));
    }
    let (features, block) = (FEATURES[rng.usize(0..FEATURES.len())], block.to_string());
    let words = ["-t", "ext4", "-b", &block, "-O", features];
    (volume(size, &words), format!("{words:?}"))
}

#[test]
fn volumes_of_all_sizes_shrink_and_grow_again() {
    let seeds = if std::env::var_os("CAIRN_DEEP").is_some() { 300 } else { 16 };
    for seed in 0..seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let block = [1024, 1024, 2048, 4096][rng.usize(0..4)];
        let size = [9, 20, 70, 130, 200, 300][rng.usize(0..6)] * MIB;
        let (mut device, shape) = fresh(&mut rng, block, size);
        let least = least_of(&device);
        let between = rng.u64(least..size);
        for wanted in [between, 0, size, 0, between, size] {
            let wanted = wanted.max(least_of(&device));
            println!("seed {seed}, {shape}, {size} bytes: to {wanted}");
            device = Arc::new(on_larger(&device, wanted.max(size_of(&device))));
            let done = resized(&device, wanted).unwrap();
            device = Arc::new(shortened(&device, done.after));
            support::judge(&device);
        }
    }
}

/// The block of pointers of an ext3 journal lies behind everything else.
#[test]
fn the_map_of_a_journal_moves() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    judge::mke2fs(&image, 40 * MIB, &["-t", "ext3", "-b", "1024", "-J", "size=1"]);
    let pointers = |image: &Path| -> u64 {
        let said = judge::debugfs(image, "stat <8>");
        let at = said.split("(IND):").nth(1).unwrap();
        at.split([',', '\n']).next().unwrap().trim().parse().unwrap()
    };
    let (from, to) = (pointers(&image), 40_000);
    let file = OpenOptions::new().read(true).write(true).open(&image).unwrap();
    let mut block = [0; 1024];
    file.read_exact_at(&mut block, from * 1024).unwrap();
    file.write_all_at(&block, to * 1024).unwrap();
    for request in [
        format!("set_inode_field <8> block[IND] {to}"),
        format!("setb {to}"),
        format!("freeb {from}"),
    ] {
        judge::run("debugfs", ["-w", "-R", &request, image.to_str().unwrap()]);
    }
    // The numbers of free blocks.
    let repair = judge::command("e2fsck").arg("-fy").arg(&image).output().unwrap();
    assert_eq!(repair.status.code(), Some(1), "{repair:?}");
    assert_eq!(pointers(&image), to);

    let device = Arc::new(read_image(&image).unwrap());
    let done = resized(&device, 30 * MIB).unwrap();
    write_image(&shortened(&device, done.after), &image).unwrap();
    assert_clean(&image);
    assert!(pointers(&image) < 30 * 1024);
    let superblock = judge::run("dumpe2fs", ["-h".as_ref(), image.as_os_str()]);
    assert!(superblock.contains("Journal backup:           inode blocks"), "{superblock}");
}
