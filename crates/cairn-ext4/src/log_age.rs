//! Is a log that no superblock asks for older than the volume? The superblock counts seconds; where
//! those do not tell, inodes do, which the log and the volume have.
//!
//! What the log holds was changed before its last commit, and lies on the volume only after it. So
//! an inode of the volume that was changed later than its copy in the log was changed after the
//! log; and one that was changed earlier lacks what the log has.
//!
//! **Bounds.** The copies of the log; a number for each group.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_jbd2::survey::{LogContents, survey};
use cairn_jbd2::{JournalArea, Remains};

use crate::error::Result;
use crate::format::group_desc::GroupDesc;
use crate::format::layout::Layout;
use crate::format::superblock::OFFSET;

/// Bits of the extra time that are nanoseconds.
const NANOSECONDS: u32 = 2;

/// What inodes tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The volume has all that the log has, or newer contents.
    Volume,
    /// The log has newer contents.
    Log,
    /// Neither. These inodes differ.
    None(BTreeSet<Ino>),
}

/// Seconds and nanoseconds; 0 nanoseconds are none.
type Time = (u64, u32);

/// Compares the volume with the log, whose last commit is of the second in which the volume was
/// written last.
///
/// # Errors
/// The device failed.
pub(crate) fn compare(area: &JournalArea, layout: &Layout) -> Result<Evidence> {
    let remains = match cairn_jbd2::remains(area) {
        Err(error @ cairn_jbd2::Error::Device(_)) => return Err(error.into()),
        found => found.unwrap_or_default(),
    };
    let mut last = Time::default();
    // It was read before.
    let _ = survey(area, |block| {
        if let LogContents::Commit(seconds, nanoseconds) = block.contents {
            last = last.max((seconds, nanoseconds));
        }
        true
    });
    let device = &*area.device;
    let tables = tables(device, layout)?;
    let mut found = Compared::default();
    let fast = cairn_jbd2::fast_commits_of(area, remains.end);
    found.is_same = remains.is_whole() && fast.is_ok_and(|(commits, _)| commits.is_empty());
    // Every unmount and every tool writes the superblock.
    let superblock = Pba(OFFSET.checked_div(layout.block_size.into()).unwrap_or(0));
    let is_compared = |pba: Pba| pba != superblock && layout.contains(pba, 1);
    for (pba, image) in remains.images.iter().filter(|(pba, _)| is_compared(**pba)) {
        let at = pba.get().saturating_mul(layout.block_size.into());
        let now = device.read_block(at, as_index(layout.block_size))?;
        if now[..] == image[..] {
            continue;
        }
        found.is_same = false;
        if let Some((group, first)) = index_of(*pba, &tables, layout) {
            let size = as_index(layout.inode_size);
            for (index, pair) in (first..).zip(now.chunks(size).zip(image.chunks(size))) {
                found.add(pair, layout.ino(group, index), last, &remains);
            }
        }
    }
    Ok(found.evidence())
}

#[derive(Default)]
struct Compared {
    is_same: bool,
    is_volume_newer: bool,
    is_log_newer: bool,
    inodes: BTreeSet<Ino>,
}

impl Compared {
    /// Adds an inode as the volume has it, and as the log has it.
    fn add(&mut self, (now, logged): (&[u8], &[u8]), ino: Ino, last: Time, remains: &Remains) {
        if now == logged {
            return;
        }
        self.inodes.insert(ino);
        let (here, there) = (changed(now), changed(logged));
        let is_whole = remains.is_whole();
        // Of a damaged log there may be later copies that are lost.
        let least = if is_whole { there } else { last };
        let deleted = |bytes: &[u8]| word(bytes, 0x14);
        let is_one = word(now, 0x64) == word(logged, 0x64) && here == there;
        let is_deleted = u64::from(deleted(now)) == last.0 && deleted(logged) == 0;
        let is_in_second = here.0 == last.0;
        self.is_volume_newer |= is_in_second && is_later(here, least);
        self.is_volume_newer |= is_whole && is_one && is_deleted;
        self.is_log_newer |= is_later(there, here);
        self.is_log_newer |= is_one && deleted(logged) != 0 && deleted(now) == 0;
    }

    fn evidence(self) -> Evidence {
        match (self.is_volume_newer, self.is_log_newer) {
            _ if self.is_same => Evidence::Volume,
            (true, false) => Evidence::Volume,
            (false, true) => Evidence::Log,
            _ => Evidence::None(self.inodes),
        }
    }
}

/// Is the first time later, as far as both tell?
fn is_later(time: Time, than: Time) -> bool {
    time.0 > than.0 || time.0 == than.0 && than.1 != 0 && time.1 > than.1
}

/// When an inode was changed.
fn changed(bytes: &[u8]) -> Time {
    let has_extra = bytes.len() > 0x88 && word(bytes, 0x80) & 0xffff >= 8;
    let extra = if has_extra { word(bytes, 0x84) } else { 0 };
    (u64::from(word(bytes, 0x0c)) | u64::from(extra & 3) << 32, extra >> NANOSECONDS)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    found.map_or(0, |word| u32::from_le_bytes(*word))
}

/// The first blocks of inode tables, with their groups.
fn tables(device: &dyn BlockDevice, layout: &Layout) -> Result<BTreeMap<u64, u32>> {
    let mut tables = BTreeMap::new();
    for index in 0..layout.descriptor_blocks() {
        let first = index.saturating_mul(layout.descs_per_block());
        let at = layout.descriptor_block(first).get().saturating_mul(layout.block_size.into());
        let block = device.read_block(at, as_index(layout.block_size))?;
        let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
        for group in first..end {
            let at = layout.descriptor_offset(group);
            let bytes = block.get(at..at.saturating_add(as_index(layout.desc_size)));
            let desc = GroupDesc::decode_unchecked(bytes.unwrap_or_default(), layout);
            tables.insert(desc.inode_table.get(), group);
        }
    }
    Ok(tables)
}

/// The group of a block of an inode table, and the index of its first inode.
fn index_of(pba: Pba, tables: &BTreeMap<u64, u32>, layout: &Layout) -> Option<(u32, u32)> {
    let (start, group) = tables.range(..=pba.get()).next_back()?;
    let block = u32::try_from(pba.get().checked_sub(*start)?).ok()?;
    let each = layout.block_size.checked_div(layout.inode_size)?;
    (block < layout.inode_table_blocks()).then(|| (*group, block.saturating_mul(each)))
}
