//! Where the metadata of an F2FS base is, and its checksums.

use std::collections::BTreeSet;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::format::checksum::{MAGIC, crc32};
use cairn_f2fs::format::layout::Side;
use cairn_f2fs::format::pack::PackMap;
use cairn_f2fs::format::units::BLOCK_SIZE;
use cairn_f2fs::format::{Checkpoint, Layout, NodeFooter, SegNo, inode, sit};
use cairn_f2fs::{F2fs, MountOptions};

/// Bytes of a block.
const BYTES: u64 = BLOCK_SIZE as u64;
/// Where the sum of a checkpoint is.
const SUM: usize = BLOCK_SIZE - 4;

/// An F2FS volume and its metadata.
pub(crate) struct Volume {
    layout: Layout,
    /// First and last block of the packs that are valid.
    packs: Vec<[u64; 2]>,
    /// Blocks of tables: superblocks, packs, SIT, NAT, summaries.
    tables: BTreeSet<u64>,
    /// Nodes and directories.
    trees: BTreeSet<u64>,
    inodes: BTreeSet<u64>,
    /// Nodes that were written after the checkpoint.
    chain: BTreeSet<u64>,
}

fn read(device: &MemoryDevice, block: u64) -> Vec<u8> {
    device.read_at(block * BYTES, BLOCK_SIZE).expect("a block of the volume").to_vec()
}

impl Volume {
    /// Finds the metadata of a sound volume.
    pub(crate) fn of(device: &MemoryDevice) -> Self {
        let options = MountOptions::parse("ro").expect("options");
        let image = std::sync::Arc::new(device.fork());
        let open = F2fs::open(image, Simulated::new(1), &options).expect("a sound volume");
        let layout = *open.disk().layout;
        let mut volume = Self {
            layout,
            packs: Vec::new(),
            tables: [0, 1].into(),
            trees: BTreeSet::new(),
            inodes: BTreeSet::new(),
            chain: BTreeSet::new(),
        };
        let mut checkpoints = Vec::new();
        for side in [Side::First, Side::Second] {
            let start = layout.pack_start(side).get();
            let len = (1 + layout.cp_payload as usize) * BLOCK_SIZE;
            let bytes = device.read_at(start * BYTES, len).expect("a pack");
            let Ok(checkpoint) = Checkpoint::decode(&bytes, start, &layout) else { continue };
            let Ok(map) = PackMap::of(&checkpoint, &layout) else { continue };
            let last = start + u64::from(map.last());
            volume.tables.extend(start..=last);
            volume.packs.push([start, last]);
            checkpoints.push(checkpoint);
        }
        let checkpoint =
            checkpoints.iter().max_by_key(|known| known.version).expect("a checkpoint");
        volume.find_tables(device, checkpoint);
        volume.find_trees(device, checkpoint);
        volume
    }

    fn find_tables(&mut self, device: &MemoryDevice, checkpoint: &Checkpoint) {
        let layout = self.layout;
        for segno in (0..layout.main_segments).map(SegNo) {
            let (block, index) = Layout::sit_place(segno);
            let place = layout.sit_address(block, checkpoint.sit_side(block)).get();
            let entry = sit::entry(&read(device, place), index, segno);
            self.tables.insert(place);
            if entry.is_ok_and(|entry| entry.valid_map.iter().any(|byte| *byte != 0)) {
                self.tables.insert(u64::from(layout.ssa) + u64::from(segno.get()));
            }
        }
        for block in 0..2 {
            for side in [Side::First, Side::Second] {
                self.tables.insert(layout.nat_address(block, side).get());
            }
        }
    }

    fn find_trees(&mut self, device: &MemoryDevice, checkpoint: &Checkpoint) {
        let start = u64::from(self.layout.main);
        for block in start..start + self.layout.main_blocks() {
            let bytes = read(device, block);
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            let footer = NodeFooter::read(&bytes);
            let is_node = footer.nid.get() != 0
                && self.layout.is_nid(footer.nid)
                && self.layout.is_nid(footer.ino);
            // The first name of a block of a directory is at byte 2,384.
            let is_directory = bytes[2384] == b'.' || bytes[..3].contains(&0xff);
            if is_node || is_directory {
                self.trees.insert(block);
            }
            if is_node && footer.nid == footer.ino && footer.offset == 0 {
                self.inodes.insert(block);
            }
            // The upper half is the sum of the checkpoint, which changes with it.
            if is_node && footer.cp_ver as u32 == checkpoint.version as u32 {
                self.chain.insert(block);
            }
        }
    }

    /// Byte offsets of all metadata.
    pub(crate) fn places(&self) -> Vec<u64> {
        self.tables.union(&self.trees).map(|block| block * BYTES).collect()
    }

    /// Byte offsets of the nodes that were written after the checkpoint.
    pub(crate) fn chain_places(&self) -> Vec<u64> {
        self.chain.iter().map(|block| block * BYTES).collect()
    }

    /// Puts the checksums of the changed blocks right. Both copies of a checkpoint become what the
    /// changed one is, else the pack would be taken for an incomplete one.
    pub(crate) fn seal(&self, device: &MemoryDevice, touched: &BTreeSet<u64>) {
        for at in touched {
            let block = at / BYTES;
            let mut bytes = read(device, block);
            let pack = self.packs.iter().find(|pack| pack.contains(&block));
            if let Some([first, last]) = pack {
                let sum = crc32(MAGIC, &bytes[..SUM]);
                bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
                for place in [*first, *last] {
                    write(device, place, bytes.clone());
                }
            } else if self.inodes.contains(&block) {
                inode::seal(&mut bytes, &self.layout);
                write(device, block, bytes);
            } else if block < 2 {
                seal_superblock(&mut bytes);
                write(device, block, bytes);
            }
        }
    }
}

fn write(device: &MemoryDevice, block: u64, bytes: Vec<u8>) {
    device.write_at(block * BYTES, bytes).expect("a block of the volume");
}

/// A superblock has a sum if its features say so.
fn seal_superblock(bytes: &mut [u8]) {
    const AT: usize = 1024;
    /// The second byte of the features, and the bit in it.
    const FEATURES: usize = AT + 2181;
    const CHECKSUM: u8 = 8;
    const END: usize = AT + 3068;
    if bytes[FEATURES] & CHECKSUM != 0 {
        let sum = crc32(MAGIC, &bytes[AT..END]);
        bytes[END..].copy_from_slice(&sum.to_le_bytes());
    }
}
