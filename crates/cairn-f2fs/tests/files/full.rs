//! A volume filled to the last block and then overwritten for ever.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::mkfs_f2fs;
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode};

use crate::support::{FEATURES, deep, judge, open};

const SIZE: u64 = 64 << 20;
const BLOCK: usize = 4096;

fn block(file: usize, index: u64, version: u32) -> Vec<u8> {
    let word = (file as u64) << 56 | index << 24 | u64::from(version & 0xff_ffff);
    word.to_le_bytes().repeat(BLOCK / 8)
}

/// Appends to a few files in turn until nothing fits any more. Returns the blocks of each.
fn fill(fs: &F2fs, files: &[Ino]) -> Vec<Vec<u32>> {
    let mut blocks: Vec<Vec<u32>> = vec![Vec::new(); files.len()];
    loop {
        for (file, ino) in files.iter().enumerate() {
            let index = blocks[file].len() as u64;
            match fs.write(*ino, index * BLOCK as u64, &block(file, index, 0), IoFlags::empty()) {
                Ok(written) => assert_eq!(written, BLOCK),
                Err(Error::NoSpace) => return blocks,
                Err(error) => panic!("block {index} of file {file}: {error}"),
            }
            blocks[file].push(0);
        }
    }
}

fn check(fs: &F2fs, files: &[Ino], blocks: &[Vec<u32>]) {
    for (file, ino) in files.iter().enumerate() {
        for (index, version) in (0..).zip(&blocks[file]) {
            let mut buf = vec![0; BLOCK];
            assert_eq!(fs.read(*ino, index * BLOCK as u64, &mut buf, IoFlags::empty()).unwrap(), BLOCK);
            assert!(buf == block(file, index, *version), "block {index} of file {file}, version {version}");
        }
    }
}

fn overwrite(args: &[&str], options: &str, seed: u64) {
    let image = tempfile::NamedTempFile::new().unwrap();
    mkfs_f2fs(image.path(), SIZE, args);
    let device: Arc<MemoryDevice> = Arc::new(read_image(image.path()).unwrap());
    let fs = open(device.clone(), options);
    let make = |number: usize| {
        let name = format!("file-{number}");
        fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
    };
    let files: Vec<Ino> = (0..3).map(make).collect();
    let mut blocks = fill(&fs, &files);
    fs.sync().unwrap();
    assert!(fs.statfs().unwrap().free_blocks < 8, "{} blocks are left", fs.statfs().unwrap().free_blocks);
    let mut rng = fastrand::Rng::with_seed(seed);
    let times = if deep() { 20 } else { 2 };
    for round in 1..=times * SIZE / BLOCK as u64 {
        let file = rng.usize(0..files.len());
        let index = rng.usize(0..blocks[file].len());
        blocks[file][index] += 1;
        let data = block(file, index as u64, blocks[file][index]);
        let written = fs.write(files[file], (index * BLOCK) as u64, &data, IoFlags::empty());
        assert_eq!(written.unwrap_or_else(|error| panic!("{options:?}, write {round}: {error}")), BLOCK);
        if round % 97 == 0 {
            fs.fsync(files[file], 0, round % 2 == 0).unwrap_or_else(|error| panic!("fsync {round}: {error}"));
        }
    }
    check(&fs, &files, &blocks);
    fs.unmount().unwrap();
    let stats = &fs.volume().gc.stats;
    let sections = stats.data_sections.get() + stats.node_sections.get();
    if options.contains("lfs") {
        assert!(sections > 10, "{sections} sections were cleaned");
    }
    drop(fs);
    judge(&device);
    let fs = open(device, options);
    let find = |number: usize| fs.lookup(fs.root(), format!("file-{number}").as_bytes()).unwrap().ino;
    check(&fs, &(0..3).map(find).collect::<Vec<_>>(), &blocks);
}

#[test]
fn a_full_volume_is_overwritten_for_ever() {
    overwrite(&[], "cache=8M", 1);
    overwrite(&[], "mode=lfs,cache=8M,gc_victim=data_first", 2);
    overwrite(FEATURES, "mode=lfs,cache=4M,nobuffered_iomap,gc_victim=greedy", 3);
    overwrite(&[], "mode=lfs,cache=8M,gc_victim=adaptive", 4);
    overwrite(&[], "cache=8M,gc_victim=adaptive", 5);
}
