//! Damage that no checksum and no counter detects: a checkpoint is changed in both blocks of its
//! pack, and the SIT together with it.

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::format::checkpoint::LogPosition;
use cairn_f2fs::format::layout::Side;
use cairn_f2fs::format::log::AllocType;
use cairn_f2fs::format::pack::PackMap;
use cairn_f2fs::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use cairn_f2fs::format::{Checkpoint, CheckpointFlags, Layout, Log, SegNo, SitEntry, bits, sit};

/// The valid checkpoint.
pub struct Sealed<'a> {
    device: &'a MemoryDevice,
    layout: &'a Layout,
    side: Side,
    pub checkpoint: Checkpoint,
}

/// Changes the positions of logs, or the blocks in use. A volume without a valid checkpoint is not
/// changed.
pub fn wound(device: &MemoryDevice, layout: &Layout, random: &mut fastrand::Rng) {
    let Some(mut sealed) = Sealed::find(device, layout) else { return };
    match random.u8(..8) {
        0..3 => sealed.move_log(random),
        3..5 => sealed.move_block(random),
        5..7 => sealed.use_blocks(random),
        _ => sealed.exchange_kinds(random),
    }
    if random.bool() {
        // Keeps the chain valid although the checksum changes.
        sealed.checkpoint.flags |= CheckpointFlags::NOCRC_RECOVERY;
    }
    sealed.write();
}

impl<'a> Sealed<'a> {
    /// The later one of the readable packs.
    pub fn find(device: &'a MemoryDevice, layout: &'a Layout) -> Option<Self> {
        let read = |side: Side| {
            let start = layout.pack_start(side).get();
            let len = (1 + layout.cp_payload as usize) * BLOCK_SIZE;
            let checkpoint =
                Checkpoint::decode(&device.read_at(start * 4096, len).unwrap(), start, layout)
                    .ok()?;
            PackMap::of(&checkpoint, layout).ok()?;
            Some(Self { device, layout, side, checkpoint })
        };
        let packs = [Side::First, Side::Second].into_iter().filter_map(read);
        packs.max_by_key(|pack| pack.checkpoint.version)
    }

    /// Writes both blocks of the pack.
    pub fn write(mut self) {
        let start = self.layout.pack_start(self.side).get();
        let blocks = self.checkpoint.encode(self.layout);
        let last = PackMap::of(&self.checkpoint, self.layout).unwrap().last();
        self.device
            .write_at((start + u64::from(last)) * 4096, blocks[..BLOCK_SIZE].to_vec())
            .unwrap();
        self.device.write_at(start * 4096, blocks).unwrap();
    }

    fn log(&mut self, random: &mut fastrand::Rng) -> &mut LogPosition {
        &mut self.checkpoint.logs[random.usize(..Log::COUNT)]
    }

    /// Moves a log to another block of its segment, to the section of another log, or anywhere.
    fn move_log(&mut self, random: &mut fastrand::Rng) {
        let sections = self.layout.segs_per_sec;
        let near = self.log(random).segno.get() / sections * sections + random.u32(..sections);
        let anywhere = random.u32(..self.layout.main_segments);
        let log = self.log(random);
        match random.u8(..4) {
            0 => log.segno = SegNo(near),
            1 => log.segno = SegNo(anywhere),
            _ => {}
        }
        match random.u8(..6) {
            0 => log.blkoff = 0,
            1 => log.blkoff = random.u16(..BLOCKS_PER_SEGMENT as u16),
            2 => log.blkoff = (log.blkoff + random.u16(1..4)).min(511),
            3 => log.blkoff = log.blkoff.saturating_sub(random.u16(1..4)),
            _ => {}
        }
        if random.u8(..4) == 0 {
            log.alloc = [AllocType::Lfs, AllocType::Ssr][random.usize(..2)];
        }
    }

    /// A segment of a log's section, or any.
    fn segment(&mut self, random: &mut fastrand::Rng) -> SegNo {
        let sections = self.layout.segs_per_sec;
        let near = self.log(random).segno.get() / sections * sections + random.u32(..sections);
        SegNo(if random.bool() { near } else { random.u32(..self.layout.main_segments) })
    }

    /// Changes an entry of the SIT.
    pub fn change_entry(&self, segno: SegNo, change: impl FnOnce(&mut SitEntry)) {
        let (block, index) = Layout::sit_place(segno);
        let at = self.layout.sit_address(block, self.checkpoint.sit_side(block)).get() * 4096;
        let mut bytes = self.device.read_at(at, BLOCK_SIZE).unwrap().to_vec();
        let Ok(mut entry) = sit::entry(&bytes, index, segno) else { return };
        change(&mut entry);
        sit::set_entry(&mut bytes, index, &entry);
        self.device.write_at(at, bytes).unwrap();
    }

    /// A block of a segment, rarely behind the capacity of its zone.
    fn block(&self, segno: SegNo, random: &mut fastrand::Rng) -> usize {
        let usable = self.layout.usable_blocks(segno).max(1);
        let end = if random.u8(..8) > 0 { usable } else { 512 };
        usize::from(random.u16(..end))
    }

    /// Marks a block as used instead of another one of its segment.
    fn move_block(&mut self, random: &mut fastrand::Rng) {
        let segno = self.segment(random);
        let [from, to] = [random.usize(..512), self.block(segno, random)];
        self.change_entry(segno, |entry| {
            let found = bits::next_set(&entry.valid_map, from, 512);
            if let Some(found) = found.filter(|_| !bits::test(&entry.valid_map, to)) {
                bits::clear(&mut entry.valid_map, found);
                bits::set(&mut entry.valid_map, to);
            }
        });
    }

    /// Marks blocks without pointers as used, and counts them.
    fn use_blocks(&mut self, random: &mut fastrand::Rng) {
        let segno = self.segment(random);
        let [one, other] = [self.block(segno, random), self.block(segno, random)];
        let (mut more, mut is_node) = (0, false);
        self.change_entry(segno, |entry| {
            is_node = entry.log.is_node();
            let blocks = one.min(other)..=one.max(other);
            more = blocks.filter(|block| !bits::set(&mut entry.valid_map, *block)).count() as u32;
        });
        self.checkpoint.valid_block_count += u64::from(more);
        self.checkpoint.valid_node_count += if is_node { more } else { 0 };
    }

    /// Assigns a segment to another log of its class.
    fn exchange_kinds(&mut self, random: &mut fastrand::Rng) {
        let segno = self.segment(random);
        self.change_entry(segno, |entry| {
            let class = if entry.log.is_node() { Log::NODE } else { Log::DATA };
            entry.log = class[random.usize(..3)];
        });
    }
}
