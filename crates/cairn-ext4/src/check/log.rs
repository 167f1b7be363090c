//! The journal of a volume: found, corrected and replayed on the device that it is given, which is
//! an overlay. What cannot be replayed is told, with what is intact of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_base::{Ino, Tid};
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_check::{Finding, Place, Value};
use cairn_jbd2::{Correction, FastCommit, Images, JournalArea, Remains, WrongField};

use super::{groups, kinds};
use crate::error::{Error, Result};
use crate::fast_commit::ReplayTarget;
use crate::format::features::Incompat;
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::{OFFSET, Superblock};
use crate::groups::locate_unopened;
use crate::journal_area::{self, Age};
use crate::recovery;
use crate::system_file::raw_record;

/// Bytes of buffers for the replay.
const BUDGET: u64 = 64 << 20;
/// Why nothing of a log is replayed that may be older than the volume.
const NOT_TOLD: &str =
    "the superblock asks for no recovery, and nothing tells whether the log is newer than it";

/// A journal that can be read.
pub(super) struct Log {
    pub(super) area: JournalArea,
    /// The inode of the journal.
    ino: Ino,
    /// What was found on the way, and corrected on the device.
    pub(super) findings: Vec<Finding>,
    /// It is to be replayed.
    pub(super) is_pending: bool,
    /// Nothing tells whether it is older than the volume.
    doubt: Option<Doubt>,
}

/// A log that may be older than the volume: the number for the next transaction, and the inodes
/// that it has otherwise.
pub(super) struct Doubt {
    pub(super) next: Tid,
    pub(super) inodes: BTreeSet<Ino>,
}

/// Why a log is not replayed, and what is intact of it.
pub(super) struct Refused {
    pub(super) why: String,
    pub(super) remains: Remains,
    /// Nothing of it is written if it may be older than the volume.
    pub(super) doubt: Option<Doubt>,
}

/// Finds the journal, and corrects its superblock. `None` if the volume has none.
///
/// # Errors
/// There is no journal that can be read, or the device failed.
pub(super) fn find(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<Option<Log>> {
    let buffers = BufferCache::new(device.clone(), layout.block_size, Budget::new(BUDGET));
    let mut findings = Vec::new();
    let numbered = journal_area::by_usual_number(superblock, layout, &buffers, device)?;
    if let Some(right) = &numbered {
        device.write_at(OFFSET, right.encode().to_vec())?;
        let place = Place::field("s_journal_inum");
        let finding = Finding::new(&kinds::SUPERBLOCK_CONTRADICTED, place);
        let stored = superblock.raw.s_journal_inum.get();
        findings.push(finding.stored(stored).computed(inodes::JOURNAL.get()));
    }
    let superblock = numbered.as_ref().unwrap_or(superblock);
    let Some(found) = journal_area::by_any(superblock, layout, &buffers, device)? else {
        return Ok(None);
    };
    let place = Place::inode(journal_area::number(superblock).get());
    // Without a root, either, the log may have both inodes.
    if let Some(why) = found.damage
        && (mend_inode(device, superblock, layout)? || !is_of_descriptors(&why))
    {
        let finding = Finding::new(&kinds::JOURNAL_INODE, place.clone());
        findings.push(finding.stored(Value::text(why.to_string())));
    }
    if let Err(why) = cairn_jbd2::read_superblock(&found.area) {
        let kind = match cairn_jbd2::correct_superblock(&found.area)? {
            Some(Correction::Bit) => &kinds::JOURNAL_BIT,
            Some(Correction::Fields) => &kinds::JOURNAL_FIELD,
            None => return Err(why.into()),
        };
        let finding = Finding::new(kind, place.clone());
        findings.push(finding.stored(Value::text(why.to_string())));
    }
    let of_field = |wrong: WrongField| {
        let finding = Finding::new(&kinds::JOURNAL_FIELD, place.clone().in_field(wrong.field));
        finding.stored(wrong.stored).computed(wrong.computed)
    };
    findings.extend(cairn_jbd2::make_mountable(&found.area)?.into_iter().map(of_field));
    let (is_pending, doubt) = match superblock.features().incompat(Incompat::RECOVER) {
        true => {
            findings.extend(cairn_jbd2::restore_field(&found.area)?.map(of_field));
            (true, None)
        }
        false => match not_empty(&found.area, device, superblock)? {
            Unasked::Empty => (false, None),
            Unasked::Old(finding) => {
                findings.push(finding);
                (false, None)
            }
            Unasked::New(finding) => {
                findings.push(finding);
                (true, None)
            }
            Unasked::Doubtful(doubt) => (true, Some(doubt)),
        },
    };
    let ino = journal_area::number(superblock);
    Ok(Some(Log { area: found.area, ino, findings, is_pending, doubt }))
}

/// A log that the superblock does not ask for.
enum Unasked {
    Empty,
    Old(Finding),
    New(Finding),
    Doubtful(Doubt),
}

/// A journal with a log, although the volume does not ask for its recovery: Linux refuses to mount
/// it read-only, and else clears it. With transactions in the log, what asks for the recovery was
/// lost, and is put right; else, or if the volume was written after all of them, the log is marked
/// as empty.
fn not_empty(
    area: &JournalArea,
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
) -> Result<Unasked> {
    let state = cairn_jbd2::survey::log_state(area)?;
    let journal = &state.superblock;
    if journal.start == 0 {
        return Ok(Unasked::Empty);
    }
    let is_empty = state.damage.is_none() && state.end == journal.sequence;
    let age = match is_empty {
        true => Age::Old(state.end),
        false => journal_area::age(area, superblock)?,
    };
    if let Age::Unknown(next, inodes) = age {
        return Ok(Unasked::Doubtful(Doubt { next, inodes }));
    }
    if let Age::Old(next) = age {
        let ino = journal_area::number(superblock);
        let place = Place::inode(ino.get()).in_field("s_start");
        cairn_jbd2::mark_empty(area, next)?;
        let finding = Finding::new(&kinds::JOURNAL_FIELD, place);
        return Ok(Unasked::Old(finding.stored(journal.start).computed(0_u32)));
    }
    let mut right = superblock.clone();
    let mut features = right.features();
    let stored = features.incompat.bits();
    features.incompat.insert(Incompat::RECOVER);
    right.set_features(features);
    device.write_at(OFFSET, right.encode().to_vec())?;
    let place = Place::field("s_feature_incompat");
    let finding = Finding::new(&kinds::SUPERBLOCK_CONTRADICTED, place);
    Ok(Unasked::New(finding.hex(stored, features.incompat.bits())))
}

fn is_of_descriptors(why: &Error) -> bool {
    matches!(why, Error::Corrupt(why) if why.is_of_descriptors())
}

/// Gives the inode of the journal the map that the superblock has a copy of. False if the place of
/// the inode is not known: then its descriptor is damaged, or says a wrong place, at which there is
/// no root, either.
fn mend_inode(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<bool> {
    let buffers = BufferCache::new(device.clone(), layout.block_size, Budget::new(BUDGET));
    let ino = journal_area::number(superblock);
    let place = match locate_unopened(&buffers, layout, ino) {
        Ok(place) => place,
        Err(error @ Error::Device(_)) => return Err(error),
        Err(_) => return Ok(false),
    };
    let root = raw_record(layout, &buffers, inodes::ROOT);
    if !root.is_ok_and(|root| root.is_directory()) {
        return Ok(false);
    }
    let Some(mut record) = journal_area::inode_of_copy(superblock, layout) else {
        return Ok(false);
    };
    let blocks = record.size.checked_div(layout.block_size.into()).unwrap_or(0);
    record.blocks_512 = blocks.saturating_mul(u64::from(layout.block_size) >> 9);
    let at = place.pba.get().saturating_mul(layout.block_size.into());
    let mut block = device.read_block(at, as_index(layout.block_size))?.to_vec();
    let end = place.offset.saturating_add(as_index(layout.inode_size));
    let Some(bytes) = block.get_mut(place.offset..end) else { return Ok(false) };
    bytes.fill(0);
    record.encode(ino, layout, bytes);
    device.write_at(at, block)?;
    Ok(true)
}

/// Replays a log on the device, if it can be replayed in whole, with single wrong bits corrected.
/// Else nothing is written. Adds what was corrected to the findings, and the descriptors that keep
/// Linux from the log.
///
/// # Errors
/// The device failed.
pub(super) fn replay(
    log: &mut Log,
    device: &Arc<dyn BlockDevice>,
    layout: &Layout,
    runtime: &Arc<dyn Runtime>,
) -> Result<Option<Refused>> {
    if let Some(doubt) = log.doubt.take() {
        let (why, remains) = (NOT_TOLD.to_owned(), Remains::default());
        return Ok(Some(Refused { why, remains, doubt: Some(doubt) }));
    }
    let before = groups::impossible(&**device, layout)?;
    let refused = replay_corrected(log, device, layout, runtime)?;
    if refused.is_none() && !before.is_empty() {
        let after = groups::impossible(&**device, layout)?;
        let healed = before.iter().filter(|group| !after.contains(*group));
        let found =
            healed.map(|group| Finding::new(&kinds::GROUP_UNREPLAYED, Place::group(*group)));
        log.findings.extend(found);
    }
    Ok(refused)
}

fn replay_corrected(
    log: &mut Log,
    device: &Arc<dyn BlockDevice>,
    layout: &Layout,
    runtime: &Arc<dyn Runtime>,
) -> Result<Option<Refused>> {
    let Some(refused) = replay_intact(&log.area, device, layout, runtime)? else { return Ok(None) };
    if refused.remains.corrected.is_empty() || !refused.remains.is_whole() {
        return Ok(Some(refused));
    }
    let trial: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device.clone())?);
    let area =
        |device: &Arc<dyn BlockDevice>| JournalArea { device: device.clone(), ..log.area.clone() };
    cairn_jbd2::write_corrected(&area(&trial), &refused.remains)?;
    if let Some(refused) = replay_intact(&area(&trial), &trial, layout, runtime)? {
        return Ok(Some(refused));
    }
    cairn_jbd2::write_corrected(&log.area, &refused.remains)?;
    for block in refused.remains.corrected.keys() {
        let place = Place::inode(log.ino.get()).at_block(u64::from(*block));
        log.findings.push(Finding::new(&kinds::JOURNAL_BIT, place));
    }
    replay_intact(&log.area, device, layout, runtime)
}

fn replay_intact(
    area: &JournalArea,
    device: &Arc<dyn BlockDevice>,
    layout: &Layout,
    runtime: &Arc<dyn Runtime>,
) -> Result<Option<Refused>> {
    let (budget, images) = (Budget::new(BUDGET), Images::new());
    let target = ReplayTarget { device, budget: &budget, runtime, images: &images };
    // First in memory: what cannot be replayed to its end is not begun.
    for is_real in [false, true] {
        let buffers = BufferCache::new(device.clone(), layout.block_size, budget.clone());
        let why = match recovery::replay(area, &target, buffers, *layout, is_real) {
            Ok(_) => continue,
            Err(error @ Error::Device(_)) => return Err(error),
            // The finding says that it cannot be replayed.
            Err(Error::Unreplayable(why)) => why.to_string(),
            Err(error) => error.to_string(),
        };
        let remains = cairn_jbd2::remains(area).unwrap_or_default();
        return Ok(Some(Refused { why, remains, doubt: None }));
    }
    Ok(None)
}

/// Replays a log with the fast commits before the first damaged one. False, and nothing is written,
/// if that is not possible.
///
/// # Errors
/// The device failed.
pub(super) fn replay_prefix(
    area: &JournalArea,
    device: &Arc<dyn BlockDevice>,
    layout: &Layout,
    runtime: &Arc<dyn Runtime>,
) -> Result<bool> {
    let (budget, images) = (Budget::new(BUDGET), Images::new());
    let target = ReplayTarget { device, budget: &budget, runtime, images: &images };
    for is_real in [false, true] {
        let buffers = BufferCache::new(device.clone(), layout.block_size, budget.clone());
        match recovery::replay_intact(area, &target, buffers, *layout, is_real) {
            Ok(_) => {}
            Err(error @ Error::Device(_)) => return Err(error),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Applies fast commits to a volume whose log is empty. False, and nothing is written, if they do
/// not fit it.
///
/// # Errors
/// The device failed.
pub(super) fn apply_fast_commits(
    area: &JournalArea,
    device: &Arc<dyn BlockDevice>,
    layout: &Layout,
    runtime: &Arc<dyn Runtime>,
    commits: &[FastCommit],
) -> Result<bool> {
    let (budget, images) = (Budget::new(BUDGET), Images::new());
    let target = ReplayTarget { device, budget: &budget, runtime, images: &images };
    match recovery::apply_fast_commits(area, &target, *layout, commits) {
        Ok(()) => Ok(true),
        Err(error @ Error::Device(_)) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Writes blocks to their places. Those beyond the volume are left out.
///
/// # Errors
/// The device failed.
pub(super) fn write(device: &dyn BlockDevice, layout: &Layout, images: &Images) -> Result<()> {
    for (pba, image) in images.iter().filter(|(pba, _)| layout.contains(**pba, 1)) {
        device.write_at(pba.get().saturating_mul(layout.block_size.into()), image.to_vec())?;
    }
    Ok(())
}
