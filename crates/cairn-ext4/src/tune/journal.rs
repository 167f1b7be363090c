//! Adds, removes and makes anew the journal, whose file is inode 8.
//!
//! The change is made in memory ([`Draft`]) and written at once ([`Switch`]). Meanwhile the volume
//! has no journal and is marked as not clean, as in all writes to such a volume. After a crash the
//! next one who opens it finishes what was begun, or e2fsck makes it clean. No file of a user
//! changes in any of this.
//!
//! The log is empty all the time, so that nobody reads it: only its first block counts. The blocks
//! of a new log are therefore made ready before anything changes, also where the old one lies.
//!
//! The orphan file needs a journal (feature orphan_file). It goes before the journal does, in a
//! transaction of it.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::{FileBlock, Ino, Pba};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::mapper::Run;
use cairn_vfs::Timestamp;
use zerocopy::little_endian::{U16, U32};

use super::draft::Draft;
use super::features;
use super::options::TuneOptions;
use crate::alloc::Class;
use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{Inode as Record, mode};
use crate::format::layout::inodes::JOURNAL;
use crate::format::superblock::{STATE_VALID, Superblock};
use crate::info;
use crate::mkfs::journal as new_journal;
use crate::offline::{Blocks, Offline, Switch, without_journal};

/// The state of a volume whose change has failed and left nothing.
const UNCHANGED: &str = "the journal is as it was, and the volume clean: make room on the host or \
                         replace the device, and try again";

/// The error of what has left the journal.
fn unchanged(error: Error) -> Error {
    Error::unfinished(error, UNCHANGED)
}

/// What becomes of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// The volume has one, which goes.
    remove: bool,
    /// Blocks of the new one.
    add: Option<u32>,
    /// The orphan file goes.
    orphans: bool,
}

impl Wish {
    /// What is asked for, if it changes anything.
    ///
    /// # Errors
    /// The volume cannot have it.
    pub(super) fn of(volume: &Offline, options: &TuneOptions) -> Result<Option<Self>> {
        let layout = &volume.layout;
        let feature = features::journal(&options.features);
        let refuse = |why: String| Err(Error::Option(why));
        let has_orphans = layout.features.compat(Compat::ORPHAN_FILE);
        let orphans = has_orphans && features::removes(&options.features, features::ORPHAN_FILE);
        if feature.is_none() && options.journal_size.is_none() && !orphans {
            return Ok(None);
        }
        if feature == Some(false) && options.journal_size.is_some() {
            return refuse("a volume without a journal has no size of one: leave it out".into());
        }
        if info::has_external_journal(&volume.superblock) {
            return refuse("its journal is on another device: use tune2fs".into());
        }
        let has = layout.features.compat(Compat::HAS_JOURNAL);
        let present = volume.journal.as_ref().map_or(0, |area| area.blocks());
        let wish = match (feature, options.journal_size) {
            (Some(false), _) => Self { remove: has, add: None, orphans: has_orphans },
            (None, None) => Self { remove: false, add: None, orphans },
            (_, None) if has => Self { remove: false, add: None, orphans },
            (_, size) => {
                let blocks = new_journal::blocks(layout.blocks_count, layout.block_size, size)?;
                let same = has && u64::from(blocks) == present;
                Self { remove: has && !same, add: (!same).then_some(blocks), orphans }
            }
        };
        if wish == (Self { remove: false, add: None, orphans: false }) {
            return Ok(None);
        }
        volume.check_writable()?;
        if let Some(blocks) = wish.add {
            check_room(volume, blocks, present)?;
        }
        Ok(Some(wish))
    }
}

/// Refuses a journal for which there is no room, beside the blocks that the present one has.
fn check_room(volume: &Offline, blocks: u32, present: u64) -> Result<()> {
    let free = volume.groups()?.free_blocks_total().saturating_add(present);
    // One block in a hundred is more than any map needs.
    if u64::from(blocks).saturating_mul(101) / 100 + 8 > free {
        return Err(Error::Option(format!(
            "{blocks} blocks for the journal do not fit in {free} free ones: give a smaller size"
        )));
    }
    Ok(())
}

/// Gives a sound volume without a journal one of the usual size. Features that Cairn only reads do
/// not matter, but for those by which blocks are allocated in another way: the journal's are those
/// of no user.
///
/// # Errors
/// There is no room for it, the volume is damaged, or the device failed.
pub(crate) fn restore(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Result<()> {
    let volume = Offline::open(device, runtime)?;
    let layout = volume.layout.clone();
    if layout.features.ro_compat.intersects(RoCompat::BIGALLOC | RoCompat::SHARED_BLOCKS) {
        let why = "blocks of clusters (bigalloc) and shared blocks cannot be allocated";
        return Err(Error::Option(why.into()));
    }
    let blocks = new_journal::blocks(layout.blocks_count, layout.block_size, None)?;
    check_room(&volume, blocks, 0)?;
    replace(volume, Some(blocks), Pba(u64::MAX), &Ok)?.write_backups()
}

/// Changes the journal. `last` makes the other changes of the superblock.
///
/// # Errors
/// The volume is damaged, or the device failed. The error says in which state the volume is.
pub(super) fn change(
    mut volume: Offline,
    wish: Wish,
    last: &dyn Fn(Superblock) -> Result<Superblock>,
) -> Result<Offline> {
    if wish.orphans {
        volume = remove_orphan_file(volume)?;
    }
    if wish.remove || wish.add.is_some() {
        return replace(volume, wish.add, Pba(u64::MAX), last);
    }
    let superblock = last(volume.dated())?;
    volume.write_superblock(superblock)?;
    Ok(volume)
}

/// Makes the journal anew in the blocks before `end`.
///
/// # Errors
/// There is no room, the volume is damaged, or the device failed.
pub(crate) fn move_before(volume: Offline, end: Pba) -> Result<Offline> {
    let blocks = volume.journal.as_ref().map_or(0, |area| area.blocks());
    replace(volume, Some(u32::try_from(blocks).unwrap_or(u32::MAX)), end, &Ok)
}

/// Removes the orphan file, in a transaction of the journal if there is one.
fn remove_orphan_file(mut volume: Offline) -> Result<Offline> {
    let ino = Ino(volume.superblock.raw.s_orphan_file_inum.get().into());
    let draft = Draft::open(&volume)?;
    draft.free_file(ino)?;
    draft.free_inode(ino)?;
    let mut superblock = volume.dated();
    draft.count(&mut superblock);
    let mut features = superblock.features();
    features.compat -= Compat::ORPHAN_FILE;
    features.ro_compat -= RoCompat::ORPHAN_PRESENT;
    superblock.set_features(features);
    superblock.raw.s_orphan_file_inum = U32::new(0);
    let (device, runtime) = (volume.device.clone(), volume.runtime.clone());
    match volume.commit(draft.blocks(), superblock) {
        Ok(()) => volume.reopen(),
        // What was begun is undone, or finished.
        Err(error) => Err(match Offline::open(device, runtime) {
            Ok(_) => unchanged(error),
            Err(_) => Error::unfinished(
                error,
                "the volume is not clean, and is recovered by the next command that writes it: \
                 make room on the host or replace the device, and try again",
            ),
        }),
    }
}

/// Removes the journal, if there is one, and makes a new one of so many blocks.
fn replace(
    mut volume: Offline,
    blocks: Option<u32>,
    end: Pba,
    last: &dyn Fn(Superblock) -> Result<Superblock>,
) -> Result<Offline> {
    let draft = Draft::open(&volume)?;
    draft.space.close_from(end)?;
    // Without a journal, too: an interrupted removal may have left its file.
    draft.free_file(JOURNAL)?;
    let mut after = volume.dated();
    without_journal(&mut after);
    let new = blocks.map(|blocks| allocate(&draft, &volume, blocks)).transpose()?;
    if let Some((record, _)) = &new {
        let mut features = after.features();
        features.compat |= Compat::HAS_JOURNAL;
        after.set_features(features);
        new_journal::back_up(&mut after, record);
    }
    draft.count(&mut after);
    let state = after.raw.s_state.get();
    after.raw.s_state = U16::new(state | STATE_VALID);
    let after = last(after)?;
    let mut changed = draft.blocks();
    let prepared = match &new {
        Some((_, extents)) => make_log(&volume, extents, &mut changed),
        None => Ok(()),
    };
    let switch = prepared.and_then(|()| Switch::prepare(&volume, after, changed));
    switch.map_err(unchanged)?.make(&mut volume, UNCHANGED)?;
    volume.reopen()
}

/// Makes an empty log in free blocks, and in those of the old one. The first block of the old one
/// keeps its contents: what it becomes is added to `changed`.
fn make_log(volume: &Offline, extents: &[Range<u64>], changed: &mut Blocks) -> Result<()> {
    let size = u64::from(volume.layout.block_size);
    let old = volume.journal_extents().first().map(|(_, start, _)| start.get());
    let zero = |run: Range<u64>| match run.is_empty() {
        true => Ok(()),
        false => volume.device.write_zeroes(run.start * size, (run.end - run.start) * size),
    };
    for run in extents {
        match old.filter(|old| run.contains(old)) {
            Some(old) => {
                zero(run.start..old)?;
                zero(old + 1..run.end)?;
                let zeros = vec![0; cairn_base::units::as_index(volume.layout.block_size)];
                changed.insert(Pba(old), zeros);
            }
            None => zero(run.clone())?,
        }
    }
    let Some(first) = extents.first() else { return Ok(()) };
    let count: u64 = extents.iter().map(|run| run.end - run.start).sum();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let block = new_journal::superblock(volume.layout.block_size, count);
    match changed.get_mut(&Pba(first.start)) {
        Some(place) => *place = block,
        None => volume.device.write_at(first.start * size, block)?,
    }
    Ok(())
}

/// Allocates the file. Returns its record and its blocks, in the order of the file.
fn allocate(draft: &Draft, volume: &Offline, blocks: u32) -> Result<(Record, Vec<Range<u64>>)> {
    let layout = &draft.layout;
    let handle = draft.begin()?;
    let mut record = Record::new(0, layout);
    record.mode = mode::REGULAR | 0o600;
    record.links = 1;
    record.size = u64::from(blocks).saturating_mul(layout.block_size.into());
    let now = Timestamp { nanoseconds: 0, ..Timestamp::from(volume.runtime.now()) };
    (record.atime, record.mtime, record.ctime) = (now, now, now);
    crate::inode::init_block_map(layout, &mut record);
    let mut goal = layout.group_first_block(layout.flex_start(layout.groups / 2));
    let (mut at, mut added, mut extents) = (0_u32, 0_i64, Vec::new());
    let most = crate::map::max_run(layout.features.incompat(Incompat::EXTENTS), layout.block_size);
    while at < blocks {
        let want = (blocks - at).min(most);
        let found = draft.space.allocate_for(goal, want, Class::Mapping)?;
        draft.space.mark(&handle, &found)?;
        let run = Run { start: FileBlock(at.into()), len: found.len.into() };
        let map = draft.map(JOURNAL, &record);
        added += map.insert(&handle, &mut record.block, run, found.start, false)?;
        extents.push(found.start.get()..found.start.get() + u64::from(found.len));
        at += found.len;
        goal = Pba(found.start.get() + u64::from(found.len));
    }
    let sectors = u64::from(layout.block_size) / 512;
    record.blocks_512 = added.unsigned_abs().saturating_mul(sectors);
    draft.put(&handle, JOURNAL, Some(&record))?;
    handle.finish();
    Ok((record, extents))
}
