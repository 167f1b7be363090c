//! A valid image, its metadata blocks, and seeded damage to them.

use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::ZoneLayout;
use cairn_f2fs::format::checksum::{MAGIC, crc32};
use cairn_f2fs::format::layout::Side;
use cairn_f2fs::format::node::NodeFooter;
use cairn_f2fs::format::units::BLOCK_SIZE;
use cairn_f2fs::format::{Layout, inode};

use crate::volume::{End, Kind, sound};
use crate::{open, sealed, zones};

/// Offsets of the fields of an inode: mode, advice, inline flags, links, size, blocks, depth,
/// attribute node, flags, parent, length of the name, level, extent, extra size, pointers, nodes,
/// footer.
const INODE_FIELDS: [usize; 26] = [
    0, 2, 3, 12, 16, 20, 24, 72, 76, 80, 84, 88, 347, 348, 356, 360, 362, 364, 368, 4052, 4056,
    4064, 4068, 4072, 4080, 4092,
];

/// A valid image.
pub struct Target {
    pub device: Arc<MemoryDevice>,
    pub layout: Layout,
    zones: Option<ZoneLayout>,
    /// Superblocks, checkpoint packs, SIT, NAT and summaries.
    tables: Vec<u64>,
    /// Nodes and directories.
    trees: Vec<u64>,
}

/// Finds the metadata of a volume of this kind.
pub fn target(kind: Kind, end: End) -> Target {
    let device = sound(kind, end);
    let volume = open(device.clone(), "ro").unwrap();
    let mut layout = *volume.disk().layout;
    if let Some(zones) = kind.zones() {
        // Only a search that writes uses this.
        layout.unusable_per_section = ((zones.zone_size - zones.capacity) >> 12) as u32;
    }
    let cp = u64::from(layout.cp);
    let mut tables: Vec<u64> =
        [0, 1].into_iter().chain(cp..cp + 8).chain(cp + 512..cp + 520).collect();
    for side in [Side::First, Side::Second] {
        tables.extend((0..2).map(|block| layout.sit_address(block, side).get()));
        tables.extend((0..3).map(|block| layout.nat_address(block, side).get()));
    }
    tables.extend((0..12).map(|segment| u64::from(layout.ssa) + segment));
    let mut trees = Vec::new();
    for block in u64::from(layout.main)..u64::from(layout.main) + layout.main_blocks() {
        let bytes = device.read_at(block * 4096, BLOCK_SIZE).unwrap();
        let footer = NodeFooter::read(&bytes);
        let is_node =
            footer.nid.get() != 0 && layout.is_nid(footer.nid) && layout.is_nid(footer.ino);
        let is_directory = bytes.get(2384..2385) == Some(b".")
            || bytes.windows(8).any(|piece| piece == b"a rather");
        if is_node || is_directory {
            trees.push(block);
        }
    }
    assert!(trees.len() > 400, "{} nodes and directories", trees.len());
    Target { device, layout, zones: kind.zones(), tables, trees }
}

impl Target {
    /// One to four damages: to zones, with counters and checksums corrected, or to single blocks.
    /// Checkpoint blocks, and usually inodes, get a correct checksum, so that the checks after the
    /// checksum are reached.
    pub fn mutate(&self, seed: u64) -> Arc<MemoryDevice> {
        let device = self.device.fork();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..random.usize(1..=4) {
            match (&self.zones, random.u8(..9)) {
                (Some(zones), 0..3) => zones::wound(&device, zones, &mut random),
                (Some(_), 3..6) | (None, 0..2) => sealed::wound(&device, &self.layout, &mut random),
                _ => self.wound_block(&device, &mut random),
            }
        }
        Arc::new(device)
    }

    fn wound_block(&self, device: &MemoryDevice, random: &mut fastrand::Rng) {
        let at = self.pick(random) * 4096;
        let mut bytes = device.read_at(at, BLOCK_SIZE).unwrap().to_vec();
        self.wound(device, &mut bytes, random);
        seal_checkpoint(&mut bytes);
        if at >= u64::from(self.layout.main) * 4096 && random.u8(..4) > 0 {
            inode::seal(&mut bytes, &self.layout);
        }
        device.write_at(at, bytes).unwrap();
    }

    fn pick(&self, random: &mut fastrand::Rng) -> u64 {
        let list = if random.u8(..3) == 0 { &self.tables } else { &self.trees };
        list[random.usize(..list.len())]
    }

    fn wound(&self, device: &MemoryDevice, bytes: &mut [u8], random: &mut fastrand::Rng) {
        // Mostly in the fields.
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

    /// Extremes, and numbers that have another meaning on this volume: of nodes, of blocks.
    fn value(&self, random: &mut fastrand::Rng) -> u32 {
        const EXTREMES: [u32; 12] = [
            0,
            1,
            2,
            3,
            0xff,
            0xffff,
            u32::MAX,
            u32::MAX - 1,
            4096,
            5000,
            0x7fff_ffff,
            0x8000_0000,
        ];
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
