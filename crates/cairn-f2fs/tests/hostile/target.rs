//! A sound image, the blocks worth damaging, and seeded damage to them.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::format::checksum::{MAGIC, crc32};
use cairn_f2fs::format::layout::Side;
use cairn_f2fs::format::node::NodeFooter;
use cairn_f2fs::format::units::BLOCK_SIZE;
use cairn_f2fs::format::{Layout, inode};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{mkfs_f2fs, sload_f2fs};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, XattrMode};

const MIB: u64 = 1 << 20;
/// Where an inode has numbers that others rely on: mode, advice, inline flags, links, size, blocks, depth, attribute node,
/// flags, parent, length of the name, level, extent, extra size, pointers, nodes, footer.
const INODE_FIELDS: [usize; 26] = [
    0, 2, 3, 12, 16, 20, 24, 72, 76, 80, 84, 88, 347, 348, 356, 360, 362, 364, 368, 4052, 4056, 4064, 4068, 4072, 4080,
    4092,
];

/// A sound image.
pub struct Target {
    pub device: Arc<MemoryDevice>,
    layout: Layout,
    /// Superblocks, checkpoint packs, SIT, NAT and summaries.
    tables: Vec<u64>,
    /// Nodes and directories.
    trees: Vec<u64>,
}

/// A tree that sload.f2fs brought in, changes of ours behind it, and a chain of fsynced nodes behind the checkpoint.
fn volume(arguments: &[&str]) -> MemoryDevice {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    for name in ["d", "e", "e/below", "e/below/it"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    for index in 0..400 {
        std::fs::write(root.join(format!("d/a rather long name of a file {index}")), [index as u8; 10]).unwrap();
    }
    std::fs::write(root.join("e/large"), vec![7; 12 << 20]).unwrap();
    std::fs::write(root.join("e/small"), vec![7; 3000]).unwrap();
    std::os::unix::fs::symlink("e/large", root.join("link")).unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    mkfs_f2fs(image.path(), 128 * MIB, arguments);
    sload_f2fs(image.path(), root);
    let device = Arc::new(read_image(image.path()).unwrap());
    let fs = F2fs::open(device.clone(), Threads::new(), &MountOptions::default()).unwrap();
    for index in 0..20_u8 {
        let name = format!("a rather new file {index}");
        let made = fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
        fs.write(made.ino, u64::from(index) << 20, &[index; 9000], IoFlags::empty()).unwrap();
        fs.setxattr(made.ino, b"user.name", &[index; 700], XattrMode::Set).unwrap();
        match index {
            // Some in the checkpoint; one of them without a name; some in the chain, some in neither.
            0..8 => {}
            8 => {
                fs.unlink(fs.root(), name.as_bytes()).unwrap();
                fs.sync().unwrap();
            }
            _ if index % 2 == 0 => fs.fsync(made.ino, 0, false).unwrap(),
            _ => {}
        }
    }
    fs.shutdown(false).unwrap();
    drop(fs);
    device.fork()
}

/// Finds the metadata of a volume of this kind.
pub fn target(arguments: &[&str]) -> Target {
    let device = Arc::new(volume(arguments));
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let volume = F2fs::open(device.clone(), Threads::new(), &options).unwrap();
    let layout = *volume.volume().layout;
    let cp = u64::from(layout.cp);
    let mut tables: Vec<u64> = [0, 1].into_iter().chain(cp..cp + 8).chain(cp + 512..cp + 520).collect();
    for side in [Side::First, Side::Second] {
        tables.extend((0..2).map(|block| layout.sit_address(block, side).get()));
        tables.extend((0..3).map(|block| layout.nat_address(block, side).get()));
    }
    tables.extend((0..12).map(|segment| u64::from(layout.ssa) + segment));
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
    assert!(trees.len() > 400, "{} nodes and directories", trees.len());
    Target { device, layout, tables, trees }
}

impl Target {
    /// One to four wounds. Checkpoint blocks and mostly inodes get a right checksum again, or nobody would look behind it.
    pub fn mutate(&self, seed: u64) -> Arc<MemoryDevice> {
        let device = self.device.fork();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..random.usize(1..=4) {
            let at = self.pick(&mut random) * 4096;
            let mut bytes = device.read_at(at, BLOCK_SIZE).unwrap().to_vec();
            self.wound(&device, &mut bytes, &mut random);
            seal_checkpoint(&mut bytes);
            if at >= u64::from(self.layout.main) * 4096 && random.u8(..4) > 0 {
                inode::seal(&mut bytes, &self.layout);
            }
            device.write_at(at, bytes).unwrap();
        }
        Arc::new(device)
    }

    fn pick(&self, random: &mut fastrand::Rng) -> u64 {
        let list = if random.u8(..3) == 0 { &self.tables } else { &self.trees };
        list[random.usize(..list.len())]
    }

    fn wound(&self, device: &MemoryDevice, bytes: &mut [u8], random: &mut fastrand::Rng) {
        // Mostly where the fields are.
        let at = match random.u8(..8) {
            0..2 => random.usize(..200),
            2 => 1024 + random.usize(..200),
            3 => 4048 + random.usize(..44),
            4..7 => INODE_FIELDS[random.usize(..INODE_FIELDS.len())],
            _ => random.usize(..BLOCK_SIZE - 8),
        };
        match random.u8(..8) {
            0..3 => bytes[at] ^= 1 << random.u8(..8),
            3..6 => {
                let value = self.value(random).to_le_bytes();
                let width = [1, 2, 4, 4][random.usize(..4)];
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            6 => {
                let from = self.pick(random);
                bytes.copy_from_slice(&device.read_at(from * 4096, BLOCK_SIZE).unwrap());
            }
            _ => bytes[at..].iter_mut().take(64).for_each(|byte| *byte = random.u8(..)),
        }
    }

    /// Extremes, and numbers that mean something else on this volume: of nodes, of blocks.
    fn value(&self, random: &mut fastrand::Rng) -> u32 {
        const EXTREMES: [u32; 12] =
            [0, 1, 2, 3, 0xff, 0xffff, u32::MAX, u32::MAX - 1, 4096, 5000, 0x7fff_ffff, 0x8000_0000];
        match random.u8(..3) {
            0 => EXTREMES[random.usize(..EXTREMES.len())],
            1 => random.u32(3..500),
            _ => u32::try_from(self.pick(random)).unwrap(),
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
