//! Where the structures of a volume in use are.

use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_f2fs::format::layout::Side;
use cairn_f2fs::format::pack::PackMap;
use cairn_f2fs::format::units::{BLOCK_SIZE, Nid};
use cairn_f2fs::format::{Checkpoint, Layout, Log, NodeFooter, SegNo, sit};

/// The places of a volume's structures, as byte offsets on the device.
pub struct Places {
    pub layout: Layout,
    /// The first and the last block of the current pack.
    pub pack: [u64; 2],
    /// The blocks between them.
    pub pack_contents: Vec<u64>,
    /// Entries of the NAT.
    pub nat: Vec<u64>,
    /// Entries of the SIT, of segments in use.
    pub sit: Vec<u64>,
    /// The entry of each segment.
    pub sit_entries: Vec<u64>,
    /// Summary blocks of segments in use that no log is in, with the blocks in use.
    pub summaries: Vec<(u64, Vec<u16>)>,
    pub inodes: Vec<u64>,
    /// Nodes other than inodes.
    pub nodes: Vec<u64>,
    /// Blocks of directories.
    pub directories: Vec<u64>,
}

fn read(device: &MemoryDevice, at: u64) -> Vec<u8> {
    device.read_at(at, BLOCK_SIZE).unwrap().to_vec()
}

/// The current checkpoint and its side.
fn checkpoint(device: &MemoryDevice, layout: &Layout) -> (Checkpoint, Side) {
    let packs = [Side::First, Side::Second].into_iter().filter_map(|side| {
        let start = layout.pack_start(side).get();
        let len = (1 + layout.cp_payload as usize) * BLOCK_SIZE;
        let blocks = device.read_at(start << 12, len).unwrap();
        Some((Checkpoint::decode(&blocks, start, layout).ok()?, side))
    });
    packs.max_by_key(|(checkpoint, _)| checkpoint.version).unwrap()
}

impl Places {
    /// The places of a volume that is open for reading on this device.
    pub fn of(device: &MemoryDevice, volume: &Arc<F2fs>) -> Self {
        let layout = *volume.disk().layout;
        let (checkpoint, side) = checkpoint(device, &layout);
        let start = layout.pack_start(side).get();
        let last = u64::from(PackMap::of(&checkpoint, &layout).unwrap().last());
        let mut places = Self {
            layout,
            pack: [start << 12, (start + last) << 12],
            pack_contents: (1..last).map(|block| (start + block) << 12).collect(),
            nat: Vec::new(),
            sit: Vec::new(),
            sit_entries: Vec::new(),
            summaries: Vec::new(),
            inodes: Vec::new(),
            nodes: Vec::new(),
            directories: Vec::new(),
        };
        places.find_segments(device, &checkpoint);
        places.find_nat(device, volume);
        places
    }

    fn find_segments(&mut self, device: &MemoryDevice, checkpoint: &Checkpoint) {
        for segno in (0..self.layout.main_segments).map(SegNo) {
            let (block, index) = Layout::sit_place(segno);
            let block = self.layout.sit_address(block, checkpoint.sit_side(block)).get() << 12;
            self.sit_entries.push(block + index as u64 * 74);
            let Ok(entry) = sit::entry(&read(device, block), index, segno) else { continue };
            let used: Vec<u16> = (0..512)
                .filter(|at| entry.valid_map[at / 8] & 0x80 >> (at % 8) != 0)
                .map(|at| at as u16)
                .collect();
            if used.is_empty() {
                continue;
            }
            self.sit.push(block + index as u64 * 74);
            if Log::ALL.iter().all(|log| checkpoint.log(*log).segno != segno) {
                let at = u64::from(self.layout.ssa + segno.get()) << 12;
                self.summaries.push((at, used.clone()));
            }
            let layout = self.layout;
            for at in used.iter().map(|at| layout.address(segno, *at).bytes()) {
                self.add(entry.log, at, &read(device, at));
            }
        }
    }

    fn add(&mut self, log: Log, at: u64, block: &[u8]) {
        let footer = NodeFooter::read(block);
        match log {
            Log::HotData => self.directories.push(at),
            _ if !log.is_node() => {}
            _ if footer.nid == footer.ino => self.inodes.push(at),
            _ => self.nodes.push(at),
        }
    }

    fn find_nat(&mut self, device: &MemoryDevice, volume: &F2fs) {
        for nid in (3..1200).map(Nid) {
            let known = volume.disk().nat.lookup(nid).unwrap();
            let (block, index) = (nid.get() / 455, u64::from(nid.get() % 455));
            for side in [Side::First, Side::Second] {
                let at = (self.layout.nat_address(block, side).get() << 12) + index * 9;
                let bytes = read(device, at & !0xfff);
                let from = (at & 0xfff) as usize + 5;
                let addr = u32::from_le_bytes(bytes[from..from + 4].try_into().unwrap());
                if addr != 0 && addr == known.block_addr.get() {
                    self.nat.push(at);
                }
            }
        }
    }
}
