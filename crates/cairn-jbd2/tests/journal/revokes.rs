//! A log with a million revoke records: recovery costs what reading the log thrice costs, whatever the records say.
//!
//! Linux took a minute and a half for such a log until its table of revoked blocks could grow.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Pba, Tid};
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::wrap::Stats;
use cairn_block::{BlockDevice, BlockDeviceExt, Durability};
use cairn_jbd2::format::Incompat;
use cairn_jbd2::format::blocks::BlockLayout;
use cairn_jbd2::format::superblock::Superblock;
use cairn_jbd2::format::tags::Tag;
use cairn_jbd2::{JournalArea, read_superblock, recover};

use crate::judges::{self, Volume, run};

const BLOCK: u32 = 1024;
/// Blocks with a copy in the log; free in the volume, and the first of those that are revoked.
const COPIES: u64 = 70_000;
const COUNT: u64 = 40;
/// Blocks that the recovery may ask for in one request.
const READ_AHEAD: u64 = 64;

fn open(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, OpenOptions::write()).expect("the image opens"))
}

/// Blocks of a log, one after the other.
struct Writer {
    layout: BlockLayout,
    blocks: Vec<Bytes>,
    tid: Tid,
}

impl Writer {
    fn put(&mut self, block: Vec<u8>) {
        self.blocks.push(Bytes::from(block));
    }

    /// Copies of these blocks, each full of a byte.
    fn copies(&mut self, homes: impl Iterator<Item = u64>, byte: u8) {
        let copy = vec![byte; BLOCK as usize];
        let checksum = self.layout.tags.data_checksum(self.layout.seed, self.tid, &copy);
        let tags: Vec<Tag> = homes.map(|home| Tag { pba: Pba(home), flags: 0, checksum }).collect();
        self.put(self.layout.descriptor(self.tid, &tags));
        for _ in tags {
            self.put(copy.clone());
        }
    }

    fn revokes(&mut self, blocks: impl Iterator<Item = u64>) {
        let blocks: Vec<Pba> = blocks.map(Pba).collect();
        for records in blocks.chunks(self.layout.revokes_per_block()) {
            self.put(self.layout.revoke(self.tid, records));
        }
    }

    fn commit(&mut self) {
        let commit = self.layout.commit(self.tid, Duration::from_secs(1_700_000_000), None);
        self.put(commit);
        self.tid = self.tid.next();
    }
}

/// Copies of forty blocks; revokes, theirs among them; copies of every fourth again, after their revokes. Gives the log's
/// length.
fn write_log(device: &Arc<dyn BlockDevice>, area: &JournalArea, records: u64) -> u32 {
    let mut superblock: Superblock = read_superblock(area).expect("a good superblock");
    let mut writer = Writer { layout: BlockLayout::of(&superblock), blocks: Vec::new(), tid: superblock.sequence };
    writer.copies(COPIES..COPIES + COUNT, 1);
    writer.commit();
    // Spread as a table of few buckets likes them least: multiples of its size first.
    let order = (0..records).map(|n| COPIES + (n * 4096 + n * 4096 / records) % records);
    writer.revokes(order);
    writer.commit();
    writer.copies((COPIES..COPIES + COUNT).step_by(4), 3);
    writer.commit();
    superblock.start = superblock.first;
    superblock.incompat |= Incompat::REVOKE;
    let used = u32::try_from(writer.blocks.len()).expect("a log");
    area.write(superblock.first, writer.blocks, Durability::default()).expect("the journal is long enough");
    area.write(0, vec![Bytes::from(superblock.encode())], Durability::default()).expect("the device works");
    device.flush().expect("the device works");
    used
}

fn homes(device: &dyn BlockDevice) -> Vec<u8> {
    let first = |n| {
        let block = device.read_at((COPIES + n) * u64::from(BLOCK), BLOCK as usize).expect("the device works");
        assert!(block.iter().all(|byte| *byte == block[0]), "block {n} is neither");
        block[0]
    };
    (0..COUNT).map(first).collect()
}

/// A volume with such a log, and the log's length.
fn prepare(records: u64) -> (Volume, u64) {
    let volume = Volume::of("metadata_csum,64bit", 1100 << 20, 16);
    judges::set_journal_features(&volume, "-c -v 3");
    let plain = open(&volume.image);
    let used = write_log(&plain, &volume.area(plain.clone()), records);
    drop(plain);
    volume.debugfs("feature needs_recovery\n");
    (volume, u64::from(used))
}

/// What the copied blocks must hold after recovery.
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
    // Each pass reads what it walks over, once, and in large requests.
    let passes = 3;
    assert!(seen.read_bytes <= passes * (used + READ_AHEAD) * u64::from(BLOCK) + 2 * 4096, "{seen:?}, log of {used}");
    assert!(seen.reads <= passes * (used / READ_AHEAD + 8) + 2, "{seen:?}, log of {used}");
    assert_eq!(homes(&*device), expected());
    drop((device, stats));
    volume.debugfs("feature ^needs_recovery\n");
    run("e2fsck", &["-fn"], &volume.image, &[0]);
}

/// Fewer, for e2fsck's own table of revoked blocks has few buckets.
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
