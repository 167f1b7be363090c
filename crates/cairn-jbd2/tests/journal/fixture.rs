//! A small volume with a journal. It is laid out by hand, so that the tests do not depend on the
//! crate's own encoder.

use std::sync::Arc;

use cairn_base::checksum::crc32c;
use cairn_base::runtime::Runtime;
use cairn_base::{FileBlock, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt, Bytes};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_jbd2::{
    CheckpointClean, CheckpointParts, Journal, JournalArea, JournalOptions, KeepFree, Recovered,
    recover,
};

pub const BLOCK: u32 = 1024;
/// Blocks of the journal: as few as Linux accepts.
pub const LOG_BLOCKS: u32 = 1024;
/// The journal has two extents, so that no block has the same address and number.
const FIRST_RUN: (u64, u64) = (64, 400);
const SECOND_RUN: (u64, u64) = (2000, LOG_BLOCKS as u64 - 400);
/// First block of the volume's metadata and data.
pub const HOME: u64 = 4096;
pub const VOLUME_BLOCKS: u64 = 16 * 1024;

/// `s_feature_incompat` values.
pub mod features {
    pub const REVOKE: u32 = 0x1;
    pub const BITS_64: u32 = 0x2;
    pub const CSUM_V2: u32 = 0x8;
    pub const CSUM_V3: u32 = 0x10;
}

/// A journal superblock, version 2.
pub fn superblock(incompat: u32, compat: u32, sequence: u32, start: u32) -> Vec<u8> {
    let mut block = vec![0_u8; BLOCK as usize];
    let mut put = |at: usize, value: u32| block[at..at + 4].copy_from_slice(&value.to_be_bytes());
    put(0x00, 0xc03b_3998);
    put(0x04, 4);
    put(0x0c, BLOCK);
    put(0x10, LOG_BLOCKS);
    put(0x14, 1);
    put(0x18, sequence);
    put(0x1c, start);
    put(0x24, compat);
    put(0x28, incompat);
    put(0x40, 1);
    block[0x30..0x40].copy_from_slice(b"cairn journal id");
    if incompat & (features::CSUM_V2 | features::CSUM_V3) != 0 {
        block[0x50] = 4;
        let sum = crc32c(!0, &block);
        block[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
    }
    block
}

/// A volume whose journal is empty.
pub fn format(incompat: u32, compat: u32, sequence: u32) -> MemoryDevice {
    let device = MemoryDevice::new(VOLUME_BLOCKS * u64::from(BLOCK));
    let block = Bytes::from(superblock(incompat, compat, sequence, 0));
    device.write_at(FIRST_RUN.0 * u64::from(BLOCK), block).unwrap();
    device
}

pub fn area(device: Arc<dyn BlockDevice>) -> JournalArea {
    let extents = vec![
        (FileBlock(0), Pba(FIRST_RUN.0), FIRST_RUN.1),
        (FileBlock(FIRST_RUN.1), Pba(SECOND_RUN.0), SECOND_RUN.1),
    ];
    JournalArea { device, block_size: BLOCK, extents, since: 0 }
}

/// Recovers and opens.
pub fn open(
    device: &Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
) -> cairn_jbd2::Result<(Arc<BufferCache>, Arc<Journal>)> {
    open_with(device, runtime, JournalOptions::default())
}

/// Recovers and opens with these options.
pub fn open_with(
    device: &Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: JournalOptions,
) -> cairn_jbd2::Result<(Arc<BufferCache>, Arc<Journal>)> {
    recover(&area(device.clone()), device)?;
    let buffers = BufferCache::new(device.clone(), BLOCK, Budget::new(4 << 20));
    let journal = Journal::open(options, buffers.clone(), area(device.clone()), runtime)?;
    Ok((buffers, journal))
}

/// Both checkpoint options in all combinations.
pub fn modes() -> impl Iterator<Item = JournalOptions> {
    CheckpointClean::ALL.into_iter().flat_map(|checkpoint_clean| {
        [None, Some(KeepFree::AsNeeded), Some(KeepFree::Percent(90))].map(|async_checkpoint| {
            JournalOptions { checkpoint_clean, async_checkpoint, ..JournalOptions::default() }
        })
    })
}

/// Changes both checkpoint options, as a remount does.
pub fn toggle(journal: &Arc<Journal>, random: &mut fastrand::Rng) {
    let keep = match random.u8(..6) {
        0 => None,
        1 | 2 => Some(KeepFree::AsNeeded),
        _ => Some(KeepFree::Percent([1, 30, 99][random.usize(..3)])),
    };
    journal.set_async_checkpoint(keep).expect("1 to 99");
    journal.set_checkpoint_clean(CheckpointClean::ALL[random.usize(..3)]);
}

/// Leaves out some parts of checkpointing, or none.
pub fn leave_out_parts(journal: &Journal, random: &mut fastrand::Rng) {
    let parts = if random.bool() { u8::MAX } else { random.u8(..) };
    journal.set_checkpoint_parts(CheckpointParts::from_bits_truncate(parts));
}

/// Commits one transaction that fills the given blocks with `value`.
pub fn commit_blocks(
    buffers: &BufferCache,
    journal: &Arc<Journal>,
    blocks: impl Iterator<Item = u64>,
    value: u64,
) {
    let blocks: Vec<u64> = blocks.collect();
    let handle =
        journal.start(u32::try_from(blocks.len()).expect("few")).expect("the device works");
    for block in blocks {
        let buffer = buffers.get(Pba(HOME + block)).expect("the device works");
        handle.get_write_access(&buffer).expect("the device works").copy_from_slice(&stamp(value));
    }
    let tid = handle.tid();
    drop(handle);
    journal.commit_and_wait(tid).expect("the device works");
}

/// Recovers the image that a crash left.
pub fn recovered(crashed: MemoryDevice) -> cairn_jbd2::Result<(Arc<dyn BlockDevice>, Recovered)> {
    let device: Arc<dyn BlockDevice> = Arc::new(crashed);
    let done = recover(&area(device.clone()), &device)?;
    Ok((device, done))
}

pub fn read_home(device: &dyn BlockDevice, index: u64) -> Vec<u8> {
    device.read_at((HOME + index) * u64::from(BLOCK), BLOCK as usize).unwrap().to_vec()
}

/// A block full of one number. Every third begins with the journal's magic number, which the log
/// must escape.
pub fn stamp(value: u64) -> Vec<u8> {
    let mut block: Vec<u8> = value.to_le_bytes().repeat(BLOCK as usize / 8);
    if value.is_multiple_of(3) {
        block[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
    }
    block
}
