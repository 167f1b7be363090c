//! A log with a million revoke records. Recovery reads the log three times, whatever the records
//! say.
//!
//! Linux took a minute and a half for such a log while its revoke table had a fixed size.

use std::path::Path;
use std::sync::Arc;

use cairn_base::checksum::crc32c;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::wrap::Stats;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_jbd2::{JournalArea, read_superblock, recover};

use crate::judges::{self, Volume, run};

const BLOCK: u32 = 1024;
/// First logged block. The logged blocks are free in the volume, and revoked first.
const COPIES: u64 = 70_000;
const COUNT: u64 = 40;
/// Most blocks that recovery reads in one request.
const READ_AHEAD: u64 = 64;

fn open(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, OpenOptions::write()).expect("the image opens"))
}

/// Blocks of a log with 64-bit addresses and checksums of version 3, laid out by hand.
struct Writer {
    uuid: Vec<u8>,
    blocks: Vec<Vec<u8>>,
    tid: u32,
}

impl Writer {
    fn seed(&self) -> u32 {
        crc32c(!0, &self.uuid)
    }

    fn header(&self, kind: u32) -> Vec<u8> {
        [0xc03b_3998, kind, self.tid].iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
    }

    /// Pads the block and writes its checksum.
    fn put(&mut self, mut block: Vec<u8>, checksum_at: usize) {
        block.resize(BLOCK as usize, 0);
        let sum = crc32c(self.seed(), &block);
        block[checksum_at..checksum_at + 4].copy_from_slice(&sum.to_be_bytes());
        self.blocks.push(block);
    }

    /// A descriptor block and these metadata blocks, each full of one byte.
    fn copies(&mut self, homes: impl Iterator<Item = u64>, byte: u8) {
        let copy = vec![byte; BLOCK as usize];
        let checksum = crc32c(crc32c(self.seed(), &self.tid.to_be_bytes()), &copy);
        let homes: Vec<u64> = homes.collect();
        let mut block = self.header(1);
        for (index, home) in homes.iter().enumerate() {
            let (same_uuid, last) = (index > 0, index + 1 == homes.len());
            let flags = if same_uuid { 2 } else { 0 } + if last { 8 } else { 0 };
            let home = u32::try_from(*home).expect("a small volume");
            [home, flags, 0, checksum]
                .iter()
                .for_each(|word: &u32| block.extend(word.to_be_bytes()));
            if !same_uuid {
                block.extend(&self.uuid);
            }
        }
        self.put(block, BLOCK as usize - 4);
        self.blocks.extend(homes.iter().map(|_| copy.clone()));
    }

    fn revokes(&mut self, blocks: impl Iterator<Item = u64>) {
        let blocks: Vec<u64> = blocks.collect();
        for records in blocks.chunks((BLOCK as usize - 16 - 4) / 8) {
            let mut block = self.header(5);
            block.extend(u32::try_from(16 + records.len() * 8).expect("a block").to_be_bytes());
            records.iter().for_each(|record| block.extend(record.to_be_bytes()));
            self.put(block, BLOCK as usize - 4);
        }
    }

    fn commit(&mut self) {
        let mut block = self.header(2);
        block.resize(48, 0);
        block.extend(1_700_000_000_u64.to_be_bytes());
        self.put(block, 16);
        self.tid += 1;
    }
}

/// Sets `s_start` and the feature `REVOKE` in the superblock.
fn start_log(device: &dyn BlockDevice, area: &JournalArea, first: u32) {
    let at = area.extents[0].1.get() * u64::from(BLOCK);
    let mut block = device.read_at(at, BLOCK as usize).expect("the device works").to_vec();
    block[0x1c..0x20].copy_from_slice(&first.to_be_bytes());
    block[0x2b] |= 1;
    block[0xfc..0x100].fill(0);
    let sum = crc32c(!0, &block);
    block[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
    device.write_at(at, block).expect("the device works");
}

/// Writes three transactions: forty blocks; revokes, also of these; every fourth block again.
/// Returns the length of the log.
fn write_log(device: &Arc<dyn BlockDevice>, area: &JournalArea, records: u64) -> u32 {
    let superblock = read_superblock(area).expect("a good superblock");
    let at = area.extents[0].1.get() * u64::from(BLOCK);
    let uuid = device.read_at(at + 0x30, 16).expect("the device works").to_vec();
    let mut writer = Writer { uuid, blocks: Vec::new(), tid: superblock.sequence.0 };
    writer.copies(COPIES..COPIES + COUNT, 1);
    writer.commit();
    // The worst order for a hash table with few buckets: multiples of its size come first.
    let order = (0..records).map(|n| COPIES + (n * 4096 + n * 4096 / records) % records);
    writer.revokes(order);
    writer.commit();
    writer.copies((COPIES..COPIES + COUNT).step_by(4), 3);
    writer.commit();
    let used = u32::try_from(writer.blocks.len()).expect("a log");
    let mut blocks = writer.blocks.into_iter();
    // The log begins behind the superblock.
    let mut skip = u64::from(superblock.first);
    for (_, start, len) in &area.extents {
        let here = len.saturating_sub(skip);
        let bytes: Vec<u8> =
            blocks.by_ref().take(usize::try_from(here).expect("a log")).flatten().collect();
        if !bytes.is_empty() {
            device
                .write_at((start.get() + skip) * u64::from(BLOCK), bytes)
                .expect("the device works");
        }
        skip = skip.saturating_sub(*len);
    }
    assert!(blocks.next().is_none(), "the journal is too short");
    start_log(&**device, area, superblock.first);
    device.flush().expect("the device works");
    used
}

fn homes(device: &dyn BlockDevice) -> Vec<u8> {
    let first = |n| {
        let block = device
            .read_at((COPIES + n) * u64::from(BLOCK), BLOCK as usize)
            .expect("the device works");
        assert!(block.iter().all(|byte| *byte == block[0]), "block {n} is neither");
        block[0]
    };
    (0..COUNT).map(first).collect()
}

/// A volume with such a log, and the length of the log.
fn prepare(records: u64) -> (Volume, u64) {
    let volume = Volume::of("metadata_csum,64bit", 1100 << 20, 16);
    judges::set_journal_features(&volume, "-c -v 3");
    let plain = open(&volume.image);
    let used = write_log(&plain, &volume.area(plain.clone()), records);
    drop(plain);
    volume.debugfs("feature needs_recovery\n");
    (volume, u64::from(used))
}

/// The first byte of each logged block after recovery.
fn expected() -> Vec<u8> {
    (0..COUNT).map(|n| if n % 4 == 0 { 3 } else { 0 }).collect()
}

#[test]
fn a_million_revoke_records_cost_three_walks_over_the_log() {
    let (volume, used) = prepare(1_000_000);
    let stats = Arc::new(Stats::new(open(&volume.image)));
    let device: Arc<dyn BlockDevice> = stats.clone();
    let done = recover(&volume.area(device.clone()), &device).expect("a good log");
    assert_eq!((done.transactions, done.revokes, done.blocks), (3, 1_000_000, COUNT / 4));
    let seen = stats.snapshot();
    // Each pass reads the log once, in large requests; and a commit block is looked for behind its
    // end, in as many blocks at most.
    let passes = 3 + 1;
    assert!(
        seen.read_bytes <= passes * (used + READ_AHEAD) * u64::from(BLOCK) + 2 * 4096,
        "{seen:?}, log of {used}"
    );
    assert!(seen.reads <= passes * (used / READ_AHEAD + 8) + 2, "{seen:?}, log of {used}");
    assert_eq!(homes(&*device), expected());
    drop((device, stats));
    volume.debugfs("feature ^needs_recovery\n");
    run("e2fsck", &["-fn"], &volume.image, &[0]);
}

/// Fewer records: e2fsck's revoke table has few buckets.
#[test]
fn many_revoke_records_mean_the_same_to_e2fsck() {
    let (volume, _) = prepare(50_000);
    let theirs = volume.image.with_extension("theirs");
    std::fs::copy(&volume.image, &theirs).expect("room for a sparse copy");
    run("e2fsck", &["-fy", "-E", "journal_only"], &theirs, &[0, 1]);
    let device = open(&volume.image);
    recover(&volume.area(device.clone()), &device).expect("a good log");
    assert_eq!(homes(&*device), expected());
    assert_eq!(homes(&*open(&theirs)), expected(), "e2fsck replays something else");
}
