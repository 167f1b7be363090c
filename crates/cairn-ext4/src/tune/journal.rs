//! Adds, removes and makes anew the journal, whose file is inode 8.
//!
//! A volume with a journal gets rid of it by one write, that of its superblock. What follows, the
//! release of the file's blocks, happens on a volume without a journal, as does the allocation for
//! a new one. As in all writes to such a volume it is marked as not clean meanwhile: after a crash
//! e2fsck finishes what was begun. No file of a user changes in any of this.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::units::as_index;
use cairn_base::{FileBlock, Pba};
use cairn_block::BlockDeviceExt;
use cairn_cache::mapper::Run;
use cairn_vfs::Timestamp;
use zerocopy::little_endian::{U16, U32};

use super::features;
use super::options::TuneOptions;
use crate::alloc::{Class, MappingBlocks, Space};
use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::layout::inodes::JOURNAL;
use crate::format::superblock::{STATE_VALID, Superblock};
use crate::groups::GroupTable;
use crate::info;
use crate::map::{BlockMap, MapContext, Progress};
use crate::mkfs::journal as new_journal;
use crate::offline::Offline;
use crate::store::Location;
use crate::txn::{Handle, Txn};

/// Blocks of the journal's map that are freed in a step.
const REMOVE_STEP: u32 = 1 << 20;

/// What becomes of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// The volume has one, which goes.
    remove: bool,
    /// Blocks of the new one.
    add: Option<u32>,
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
        if feature.is_none() && options.journal_size.is_none() {
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
            (Some(false), _) => Self { remove: has, add: None },
            (_, None) if has => return Ok(None),
            (_, size) => {
                let blocks = new_journal::blocks(layout.blocks_count, layout.block_size, size)?;
                if has && u64::from(blocks) == present {
                    return Ok(None);
                }
                Self { remove: has, add: Some(blocks) }
            }
        };
        if !wish.remove && wish.add.is_none() {
            return Ok(None);
        }
        volume.check_writable()?;
        let free = volume.groups()?.free_blocks_total().saturating_add(present);
        match wish.add {
            // One block in a hundred is more than any map needs.
            Some(blocks) if u64::from(blocks).saturating_mul(101) / 100 + 8 > free => {
                refuse(format!(
                    "{blocks} blocks for the journal do not fit in {free} free ones: give a \
                     smaller size"
                ))
            }
            _ => Ok(Some(wish)),
        }
    }
}

/// Changes the journal.
///
/// # Errors
/// The volume is damaged, or the device failed.
pub(super) fn change(volume: Offline, wish: Wish) -> Result<Offline> {
    let volume = if wish.remove { remove(volume)? } else { volume };
    match wish.add {
        Some(blocks) => add(volume, blocks, Pba(u64::MAX)),
        None => Ok(volume),
    }
}

/// The superblock of a volume without a journal that is being written.
fn unclean(volume: &Offline) -> Superblock {
    let mut superblock = volume.dated();
    let raw = &mut superblock.raw;
    raw.s_state = U16::new(raw.s_state.get() & !STATE_VALID);
    superblock
}

/// The superblock of a volume that is clean again, with the present counts.
fn clean(volume: &Offline, groups: &GroupTable) -> Superblock {
    let mut superblock = volume.dated();
    superblock.set_free_blocks(groups.free_blocks_total());
    let raw = &mut superblock.raw;
    raw.s_state = U16::new(raw.s_state.get() | STATE_VALID);
    superblock
}

/// Makes the journal anew in the blocks before `end`.
///
/// # Errors
/// There is no room, the volume is damaged, or the device failed.
pub(crate) fn move_before(volume: Offline, end: Pba) -> Result<Offline> {
    let blocks = volume.journal.as_ref().map_or(0, |area| area.blocks());
    add(remove(volume)?, u32::try_from(blocks).unwrap_or(u32::MAX), end)
}

fn remove(mut volume: Offline) -> Result<Offline> {
    let mut superblock = unclean(&volume);
    let mut features = superblock.features();
    features.compat -= Compat::HAS_JOURNAL | Compat::FAST_COMMIT;
    superblock.set_features(features);
    forget(&mut superblock);
    volume.write_superblock(superblock)?;
    let mut volume = volume.reopen()?;
    let file = JournalFile::open(&volume)?;
    file.free()?;
    let superblock = clean(&volume, &file.groups);
    file.store()?;
    volume.write_superblock(superblock)?;
    volume.reopen()
}

/// Removes what the superblock says of the journal.
fn forget(superblock: &mut Superblock) {
    let raw = &mut superblock.raw;
    raw.s_journal_inum = U32::new(0);
    raw.s_jnl_backup_type = 0;
    raw.s_jnl_blocks = [U32::new(0); 17];
}

fn add(mut volume: Offline, blocks: u32, end: Pba) -> Result<Offline> {
    let superblock = unclean(&volume);
    volume.write_superblock(superblock)?;
    let file = JournalFile::open(&volume)?;
    file.space.close_from(end)?;
    // An interrupted removal may have left it.
    file.free()?;
    let (record, extents) = file.allocate(&volume, blocks)?;
    let size = u64::from(volume.layout.block_size);
    for run in &extents {
        volume.device.write_zeroes(run.start * size, (run.end - run.start) * size)?;
    }
    if let Some(first) = extents.first() {
        let block = new_journal::superblock(volume.layout.block_size, blocks);
        volume.device.write_at(first.start * size, block)?;
    }
    let mut superblock = clean(&volume, &file.groups);
    let mut features = superblock.features();
    features.compat |= Compat::HAS_JOURNAL;
    superblock.set_features(features);
    new_journal::back_up(&mut superblock, &record);
    file.store()?;
    volume.write_superblock(superblock)?;
    volume.reopen()
}

/// The journal's inode on a volume without a journal.
struct JournalFile {
    layout: Arc<crate::format::layout::Layout>,
    buffers: Arc<cairn_cache::block::BufferCache>,
    groups: Arc<GroupTable>,
    space: Space,
    /// Blocks for its map.
    mapping: MappingBlocks,
    handle: Handle,
    location: Location,
}

impl JournalFile {
    fn open(volume: &Offline) -> Result<Self> {
        let groups = Arc::new(volume.groups()?);
        let layout = volume.layout.clone();
        let space = Space::new(groups.clone(), layout.clone(), volume.runtime.clone());
        let handle = Txn::Direct(volume.buffers.clone()).begin(u32::MAX)?;
        let (group, index) = layout.inode_group(JOURNAL).unwrap_or((0, 0));
        let place = layout.inode_location(index, groups.inode_table(group));
        let location = Location { block: place.pba, offset: place.offset };
        let buffers = volume.buffers.clone();
        let mapping = space.for_mapping();
        Ok(Self { layout, buffers, groups, space, mapping, handle, location })
    }

    fn record(&self) -> Result<Record> {
        let image = self.buffers.get(self.location.block)?.image();
        let end = self.location.offset + as_index(self.layout.inode_size);
        let bytes = image.get(self.location.offset..end).unwrap_or_default();
        Ok(Record::decode(bytes, JOURNAL, &self.layout)?)
    }

    /// Stores the record, or zeros.
    fn put(&self, record: Option<&Record>) -> Result<()> {
        let buffer = self.buffers.get(self.location.block)?;
        let mut block = self.handle.write(&buffer)?;
        let end = self.location.offset + as_index(self.layout.inode_size);
        let Some(place) = block.get_mut(self.location.offset..end) else { return Ok(()) };
        place.fill(0);
        if let Some(record) = record {
            record.encode(JOURNAL, &self.layout, place);
        }
        Ok(())
    }

    fn map(&self, record: &Record) -> BlockMap<'_> {
        let context = MapContext {
            ino: JOURNAL,
            seed: record.seed(JOURNAL, &self.layout),
            layout: &self.layout,
            system: self.groups.system_blocks(JOURNAL),
            buffers: &self.buffers,
            source: &self.mapping,
        };
        BlockMap::new(context, record.flags.contains(InodeFlags::EXTENTS))
    }

    /// Frees the blocks, and clears the record.
    fn free(&self) -> Result<()> {
        let mut record = self.record()?;
        if record.file_type() == mode::REGULAR {
            let all = Run { start: FileBlock(0), len: u64::MAX };
            let map = self.map(&record);
            while let (Progress::More, _) =
                map.remove(&self.handle, &mut record.block, all, REMOVE_STEP)?
            {}
        }
        self.put(None)
    }

    /// Allocates the file. Returns its record and its blocks, in the order of the file.
    fn allocate(&self, volume: &Offline, blocks: u32) -> Result<(Record, Vec<Range<u64>>)> {
        let layout = &self.layout;
        let mut record = Record::new(0, layout);
        record.mode = mode::REGULAR | 0o600;
        record.links = 1;
        record.size = u64::from(blocks).saturating_mul(layout.block_size.into());
        let now = Timestamp { nanoseconds: 0, ..Timestamp::from(volume.runtime.now()) };
        (record.atime, record.mtime, record.ctime) = (now, now, now);
        crate::inode::init_block_map(layout, &mut record);
        let mut goal = layout.group_first_block(layout.flex_start(layout.groups / 2));
        let (mut at, mut added, mut extents) = (0_u32, 0_i64, Vec::new());
        let most =
            crate::map::max_run(layout.features.incompat(Incompat::EXTENTS), layout.block_size);
        while at < blocks {
            let want = (blocks - at).min(most);
            let found = self.space.allocate_for(goal, want, Class::Mapping)?;
            self.space.mark(&self.handle, &found)?;
            let run = Run { start: FileBlock(at.into()), len: found.len.into() };
            let map = self.map(&record);
            added += map.insert(&self.handle, &mut record.block, run, found.start, false)?;
            extents.push(found.start.get()..found.start.get() + u64::from(found.len));
            at += found.len;
            goal = Pba(found.start.get() + u64::from(found.len));
        }
        let sectors = u64::from(layout.block_size) / 512;
        record.blocks_512 = added.unsigned_abs().saturating_mul(sectors);
        self.put(Some(&record))?;
        Ok((record, extents))
    }

    /// Writes what has changed.
    fn store(self) -> Result<()> {
        self.handle.finish();
        drop(self.handle);
        self.buffers.write_back()?;
        Ok(self.buffers.device().flush()?)
    }
}
