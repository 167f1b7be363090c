//! [`Session`]: a volume whose contents move, with its journal, while nobody has it mounted.

use std::sync::Arc;

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba, bitmap};
use cairn_jbd2::Journal;

use super::plan::Plan;
use crate::alloc::{Allocation, Class, Space};
use crate::credits::Credits;
use crate::dir::hash::HashSettings;
use crate::error::Result;
use crate::format::features::Compat;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::Layout;
use crate::format::layout::inodes::JOURNAL;
use crate::groups::GroupTable;
use crate::inode::directory::hash_settings;
use crate::map::{BlockMap, MapContext};
use crate::mkfs::journal as new_journal;
use crate::offline::Offline;
use crate::space::{BlockSource, Freed};
use crate::system_file::raw_record;
use crate::txn::{Handle, Txn};

/// Blocks that a map may need when a run of it gets another address: the tree splits twice.
const MAP_ROOM: u64 = 12;

/// A volume whose contents move.
pub(super) struct Session {
    volume: Offline,
    pub(super) layout: Arc<Layout>,
    pub(super) groups: Arc<GroupTable>,
    pub(super) space: Space,
    pub(super) credits: Credits,
    pub(super) hash: HashSettings,
    /// The new end.
    pub(super) end: Pba,
    /// Inodes of the smaller volume.
    pub(super) inodes: u32,
    /// `None`: changes stay in memory, and what is freed is not allocated.
    journal: Option<Arc<Journal>>,
    txn: Txn,
}

impl Session {
    /// Begins. With a journal the volume needs recovery from now on.
    ///
    /// # Errors
    /// The volume is damaged, or the device failed.
    pub(super) fn open(mut volume: Offline, plan: &Plan) -> Result<Self> {
        let groups = Arc::new(volume.groups()?);
        let layout = volume.layout.clone();
        let space = Space::new(groups.clone(), layout.clone(), volume.runtime.clone());
        let end = Pba(plan.layout.blocks_count);
        space.close_from(end)?;
        let (journal, txn) = if volume.journal.is_some() {
            volume.claim_log(u64::MAX)?;
            let journal = volume.start_journal()?;
            (Some(journal.clone()), Txn::Journaled(journal))
        } else {
            space.keep_freed();
            (None, Txn::Direct(volume.buffers.clone()))
        };
        Ok(Self {
            credits: Credits::for_layout(&layout),
            hash: hash_settings(&volume.superblock),
            inodes: plan.layout.inodes_count,
            volume,
            layout,
            groups,
            space,
            end,
            journal,
            txn,
        })
    }

    /// Ends: the volume is clean. Without a journal its buffers hold what has changed.
    ///
    /// # Errors
    /// The journal was aborted, or the device failed.
    pub(super) fn close(self) -> Result<Offline> {
        let Self { mut volume, groups, journal, .. } = self;
        let Some(journal) = journal else { return Ok(volume) };
        volume.stop_journal(&journal)?;
        let mut superblock = volume.dated();
        superblock.set_free_blocks(groups.free_blocks_total());
        let inodes = u32::try_from(groups.free_inodes_total()).unwrap_or(u32::MAX);
        superblock.raw.s_free_inodes_count = inodes.into();
        if superblock.raw.s_jnl_backup_type == 1 {
            // Blocks of the journal's map may have moved.
            let record = raw_record(&volume.layout, &volume.buffers, JOURNAL)?;
            new_journal::back_up(&mut superblock, &record);
        }
        volume.write_superblock(superblock)?;
        volume.reopen()
    }

    /// The inode of the orphan file, if there is one.
    pub(super) fn orphan_file(&self) -> Option<Ino> {
        let has = self.layout.features.compat(Compat::ORPHAN_FILE);
        has.then(|| Ino(self.volume.superblock.raw.s_orphan_file_inum.get().into()))
    }

    pub(super) fn begin(&self, credits: u32) -> Result<Handle> {
        self.txn.begin(credits)
    }

    pub(super) fn buffers(&self) -> &Arc<cairn_cache::block::BufferCache> {
        &self.volume.buffers
    }

    pub(super) fn device(&self) -> &Arc<dyn cairn_block::BlockDevice> {
        &self.volume.device
    }

    /// All inodes in use, in order.
    ///
    /// # Errors
    /// A bitmap is damaged.
    pub(super) fn used_inodes(&self) -> Result<Vec<Ino>> {
        let mut used = Vec::new();
        for group in 0..self.layout.groups {
            let state = self.groups.group(group).lock();
            let image = self.groups.inode_bitmap(group, &state)?;
            let end = as_index(self.layout.inodes_per_group);
            let mut at = 0;
            while let Some(index) = bitmap::next_set(&image, at, end) {
                used.push(self.layout.ino(group, u32::try_from(index).unwrap_or(u32::MAX)));
                at = index + 1;
            }
        }
        Ok(used)
    }

    fn place(&self, ino: Ino) -> Result<(Pba, std::ops::Range<usize>)> {
        let (group, index) = self.layout.inode_group(ino).ok_or(cairn_vfs::Error::Stale)?;
        let place = self.layout.inode_location(index, self.groups.inode_table(group));
        Ok((place.pba, place.offset..place.offset + as_index(self.layout.inode_size)))
    }

    /// The record of an inode.
    ///
    /// # Errors
    /// It is damaged, or the device failed.
    pub(super) fn record(&self, ino: Ino) -> Result<Record> {
        let (pba, range) = self.place(ino)?;
        let image = self.buffers().get(pba)?.image();
        Ok(Record::decode(image.get(range).unwrap_or_default(), ino, &self.layout)?)
    }

    /// Stores a record, or zeros.
    ///
    /// # Errors
    /// The journal was aborted.
    pub(super) fn put(&self, handle: &Handle, ino: Ino, record: Option<&Record>) -> Result<()> {
        let (pba, range) = self.place(ino)?;
        let buffer = self.buffers().get(pba)?;
        let mut block = handle.write(&buffer)?;
        let Some(bytes) = block.get_mut(range) else { return Ok(()) };
        match record {
            Some(record) => record.encode(ino, &self.layout, bytes),
            None => bytes.fill(0),
        }
        Ok(())
    }

    /// The block map of a record. Data blocks that leave it stay in use.
    pub(super) fn map<'a>(
        &'a self,
        ino: Ino,
        record: &Record,
        source: &'a Kept<'a>,
    ) -> BlockMap<'a> {
        let context = MapContext {
            ino,
            seed: record.seed(ino, &self.layout),
            layout: &self.layout,
            system: self.groups.system_blocks(ino),
            buffers: self.buffers(),
            source,
        };
        BlockMap::new(context, record.flags.contains(InodeFlags::EXTENTS))
    }

    pub(super) fn kept(&self) -> Kept<'_> {
        Kept { space: &self.space }
    }

    /// Allocates up to `want` blocks before the end, for what will be marked in a handle. Leaves as
    /// many as a map may need in this handle, because a handle that ends early changes a part.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn allocate(&self, goal: Pba, want: u32) -> Result<Allocation> {
        let room = || self.space.allocatable().saturating_sub(MAP_ROOM);
        if room() == 0 && self.journal.is_some() && self.space.pending_free() > 0 {
            self.commit()?;
        }
        let want = u32::try_from(room()).unwrap_or(want).min(want);
        if want == 0 {
            return Err(cairn_vfs::Error::NoSpace.into());
        }
        self.space.allocate_for(goal, want, Class::Mapping)
    }

    /// Makes free what was freed until now.
    ///
    /// # Errors
    /// The journal was aborted.
    pub(super) fn commit(&self) -> Result<()> {
        match &self.journal {
            Some(journal) => Ok(journal.force_commit()?),
            None => Ok(()),
        }
    }
}

/// Blocks for maps. Data blocks that leave a map stay in use: they come back at once, or the caller
/// frees them.
pub(super) struct Kept<'a> {
    space: &'a Space,
}

impl BlockSource for Kept<'_> {
    fn allocate_block(&self, handle: &Handle, goal: Pba) -> Result<Pba> {
        self.space.for_mapping().allocate_block(handle, goal)
    }

    fn free(&self, handle: &Handle, start: Pba, count: u64, kind: Freed) -> Result<()> {
        match kind {
            Freed::Data => Ok(()),
            Freed::Metadata => self.space.free(handle, start, count, kind),
        }
    }
}
