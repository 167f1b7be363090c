//! Damaged images: typed errors, no panic, no endless walk.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::F2fs;
use cairn_f2fs::format::checksum::{MAGIC, crc32};
use cairn_f2fs::format::node::NodeFooter;
use cairn_f2fs::format::units::BLOCK_SIZE;
use cairn_vfs::{FileSystem, IoFlags, Seek};

use crate::support::{MIB, image, open};

/// A sound image and the blocks worth damaging.
struct Target {
    device: Arc<MemoryDevice>,
    /// Superblocks, checkpoint packs, SIT and NAT.
    tables: Vec<u64>,
    /// Nodes and directories.
    trees: Vec<u64>,
}

fn target(arguments: &[&str]) -> Target {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    std::fs::create_dir(root.join("d")).unwrap();
    std::fs::create_dir(root.join("e")).unwrap();
    for index in 0..400 {
        std::fs::write(root.join(format!("d/a rather long name of a file {index}")), [index as u8; 10]).unwrap();
    }
    std::fs::write(root.join("e/large"), vec![7; 12 << 20]).unwrap();
    std::fs::write(root.join("e/small"), vec![7; 3000]).unwrap();
    std::os::unix::fs::symlink("e/large", root.join("link")).unwrap();
    let device = image(128 * MIB, arguments, Some(root));
    let volume = open(device.clone()).unwrap();
    let (layout, superblock) = (*volume.volume().layout, volume.volume().superblock.clone());
    let mut tables: Vec<u64> = vec![0, 1];
    let cp = u64::from(superblock.cp_blkaddr.get());
    tables.extend((cp..cp + 8).chain(cp + 512..cp + 520));
    tables.extend((0..2).map(|block| u64::from(layout.sit) + block));
    tables.extend((0..2).map(|block| u64::from(layout.nat) + block));
    let mut trees = Vec::new();
    for block in u64::from(layout.main)..u64::from(layout.main) + layout.main_blocks() {
        let bytes = device.read_at(block * 4096, BLOCK_SIZE).unwrap();
        let footer = NodeFooter::read(&bytes);
        let is_node = footer.nid.get() != 0 && layout.is_nid(footer.nid) && layout.is_nid(footer.ino);
        let is_directory = bytes.get(2384..2385) == Some(b".") || bytes.windows(8).any(|piece| piece == b"a rather");
        if is_node || is_directory {
            trees.push(block);
        }
    }
    Target { device, tables, trees }
}

impl Target {
    /// One to four wounds. Checkpoint blocks get a right checksum again, or nobody would look behind it.
    fn mutate(&self, seed: u64) -> Arc<MemoryDevice> {
        let device = self.device.fork();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..random.usize(1..=4) {
            let at = self.pick(&mut random) * 4096;
            let mut bytes = device.read_at(at, BLOCK_SIZE).unwrap().to_vec();
            self.wound(&device, &mut bytes, &mut random);
            seal_checkpoint(&mut bytes);
            device.write_at(at, bytes).unwrap();
        }
        Arc::new(device)
    }

    fn pick(&self, random: &mut fastrand::Rng) -> u64 {
        let list = if random.u8(..3) == 0 { &self.tables } else { &self.trees };
        list[random.usize(..list.len())]
    }

    fn wound(&self, device: &MemoryDevice, bytes: &mut [u8], random: &mut fastrand::Rng) {
        // Mostly where the fields are: at the start, in an inode's pointers, in the footer.
        let at = match random.u8(..8) {
            0..3 => random.usize(..200),
            3 => 1024 + random.usize(..200),
            4 => 4048 + random.usize(..44),
            _ => random.usize(..BLOCK_SIZE - 8),
        };
        match random.u8(..8) {
            0..3 => bytes[at] ^= 1 << random.u8(..8),
            3..6 => {
                let interesting = [0, 1, 3, 0xff, 0xffff, u32::MAX, u32::MAX - 1, 4096, 5000, 0x8000_0000];
                let value = interesting[random.usize(..interesting.len())];
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            6 => {
                let from = self.pick(random);
                bytes.copy_from_slice(&device.read_at(from * 4096, BLOCK_SIZE).unwrap());
            }
            _ => bytes[at..].iter_mut().take(64).for_each(|byte| *byte = random.u8(..)),
        }
    }
}

fn seal_checkpoint(bytes: &mut [u8]) {
    let offset = u32::from_le_bytes(bytes[164..168].try_into().unwrap());
    if offset == 4092 && bytes[7] == 0 {
        let sum = crc32(MAGIC, &bytes[..4092]);
        bytes[4092..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Asks everything that there is to ask, with bounds of its own only where a volume may rightly be large.
fn tour(volume: &F2fs) -> usize {
    let mut pending = vec![volume.root()];
    let mut seen = 0;
    while let Some(ino) = pending.pop().filter(|_| seen < 1500) {
        seen += 1;
        let Ok(attributes) = volume.getattr(ino) else { continue };
        let _ = volume.listxattr(ino).map(|names| names.iter().for_each(|name| drop(volume.getxattr(ino, name))));
        let _ = volume.readlink(ino);
        visit_data(volume, ino, attributes.size);
        let mut names = Vec::new();
        let _ = volume.readdir(ino, 0, &mut |entry| {
            names.push(entry.name);
            names.len() < 3000
        });
        for name in names.iter().filter(|name| !matches!(name.as_slice(), b"." | b"..")) {
            if let Ok(found) = volume.lookup(ino, name) {
                volume.forget(found.ino, 1);
                pending.push(found.ino);
            }
        }
    }
    seen
}

fn visit_data(volume: &F2fs, ino: Ino, size: u64) {
    let mut buffer = vec![0; 300_000];
    for offset in [0, size / 2, size.saturating_sub(5000), 3_600_000] {
        let _ = volume.read(ino, offset, &mut buffer, IoFlags::empty());
    }
    let _ = volume.seek(ino, 0, Seek::Hole);
    let _ = volume.seek(ino, size / 2, Seek::Data);
    let mut extents = 0;
    let _ = volume.extents(ino, 0, u64::MAX, false, &mut |_| {
        extents += 1;
        extents < 1000
    });
}

fn search(arguments: &[&str], seeds: std::ops::Range<u64>) {
    let target = target(arguments);
    let (mut opened, mut refused) = (0, 0);
    for seed in seeds {
        println!("seed {seed}");
        match open(target.mutate(seed)) {
            Ok(volume) => {
                opened += usize::from(tour(&volume) > 0);
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
}

fn count() -> u64 {
    if std::env::var_os("CAIRN_DEEP").is_some() { 6000 } else { 300 }
}

#[test]
fn damage_is_survived() {
    search(&[], 0..count());
}

#[test]
fn damage_of_extra_attributes_is_survived() {
    search(&["-O", "extra_attr,inode_crtime,compression"], 10_000..10_000 + count());
}

#[test]
fn devices_that_are_cut_or_empty_are_refused() {
    let target = target(&[]);
    for size in [0, 512, 4096, 8192, MIB, 8 * MIB, 63 * MIB] {
        let cut = MemoryDevice::new(size);
        let head = target.device.read_at(0, usize::try_from(size.min(4 * MIB)).unwrap()).unwrap();
        if size > 0 {
            cut.write_at(0, head.to_vec()).unwrap();
        }
        assert_eq!(cut.geometry().size, size);
        assert!(open(Arc::new(cut)).is_err(), "{size} bytes");
    }
}
