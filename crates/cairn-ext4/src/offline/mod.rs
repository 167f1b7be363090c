//! A volume that nobody has mounted, for changes that a mount cannot make: of its superblock, its
//! journal, its size.
//!
//! A volume that needs recovery is recovered first, as by a mount. After that its log is empty, so
//! that what is on the device is the volume. [`Offline::commit`] changes many blocks at once,
//! through the log. [`Offline::write_superblock`] changes one block. Each leaves a volume that a
//! mount accepts, and a crash in the middle leaves the state before it or behind it. Without a log
//! a [`Switch`] does so, whose change the next one who opens the volume finishes.

mod claim;
mod commit;
mod switch;

pub(crate) use commit::UNCHANGED;
pub(crate) use switch::{Blocks, Switch, without_journal};

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_base::{FileBlock, Pba};
use cairn_block::{BlockDevice, BlockDeviceExt, Durability};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_jbd2::JournalArea;
use cairn_vfs::{FileSystem, Timestamp};
use zerocopy::little_endian::{U16, U32};

use crate::error::{Error, Result};
use crate::format::features::{Access, Compat, Incompat, RoCompat};
use crate::format::layout::Layout;
use crate::format::superblock::{OFFSET, SIZE, STATE_ERROR, STATE_VALID, Superblock};
use crate::groups::GroupTable;
use crate::journal_area;
use crate::options::MountOptions;
use crate::probe;
use crate::redo;
use crate::superblock::split_time;
use crate::volume::Ext4;

/// Bytes of buffers: descriptors, bitmaps, and the blocks of a transaction.
const BUDGET: u64 = 256 << 20;

/// A volume that nobody has mounted.
pub(crate) struct Offline {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) layout: Arc<Layout>,
    /// The superblock on the device.
    pub(crate) superblock: Superblock,
    pub(crate) journal: Option<JournalArea>,
}

impl Offline {
    /// Opens a volume, and recovers it if it was not unmounted cleanly.
    ///
    /// # Errors
    /// It cannot be recovered, its superblock is damaged, its features do not allow changes, or the
    /// device failed.
    pub(crate) fn open(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Result<Self> {
        redo::finish(&*device)?;
        let superblock = first_superblock(&*device)?;
        let superblock = if is_at_rest(&device, &superblock)? {
            superblock
        } else {
            let volume = Ext4::open(device.clone(), runtime.clone(), &MountOptions::default())?;
            volume.unmount()?;
            let superblock = first_superblock(&*device)?;
            if !is_at_rest(&device, &superblock)? {
                let why = "it was not unmounted cleanly and cannot be recovered";
                return Err(Error::NeedsCheck(why.into()));
            }
            superblock
        };
        Self::of(device, runtime, superblock)
    }

    /// A volume that is at rest.
    fn of(
        device: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        superblock: Superblock,
    ) -> Result<Self> {
        let features = superblock.features();
        if let Access::Refuse(reason) = features.access() {
            return Err(Error::Feature(reason));
        }
        if features.incompat(Incompat::MMP) {
            let why = "another computer may use it (feature mmp): use tune2fs and resize2fs";
            return Err(Error::Feature(why.into()));
        }
        let layout = Arc::new(Layout::new(&superblock, device.geometry().size)?);
        probe::check_sectors(&*device, &layout)?;
        let buffers = BufferCache::new(device.clone(), layout.block_size, Budget::new(BUDGET));
        let journal = match crate::info::has_external_journal(&superblock) {
            true => None,
            false => journal_area::journal_area(&superblock, &layout, &buffers, &device)?,
        };
        Ok(Self { device, runtime, buffers, layout, superblock, journal })
    }

    /// The same volume after a change of its superblock.
    ///
    /// # Errors
    /// As [`Offline::open`].
    pub(crate) fn reopen(self) -> Result<Self> {
        let superblock = first_superblock(&*self.device)?;
        Self::of(self.device, self.runtime, superblock)
    }

    /// Refuses what changes more than the superblock on a volume that has errors, or that Cairn
    /// does not write.
    ///
    /// # Errors
    /// There is a reason not to.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.superblock.raw.s_state.get() & STATE_ERROR != 0 {
            return Err(Error::NeedsCheck("it has errors".into()));
        }
        match self.superblock.features().access() {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly(reason) | Access::Refuse(reason) => Err(Error::Feature(reason)),
        }
    }

    /// Blocks of the journal, in the order of the file.
    pub(crate) fn journal_extents(&self) -> &[(FileBlock, Pba, u64)] {
        self.journal.as_ref().map_or(&[], |area| &area.extents)
    }

    /// Buffers of the device alone: of nothing that was changed in memory.
    pub(crate) fn fresh_buffers(&self) -> Arc<BufferCache> {
        BufferCache::new(self.device.clone(), self.layout.block_size, Budget::new(BUDGET))
    }

    /// The group descriptors.
    ///
    /// # Errors
    /// One of them is damaged, or the device failed.
    pub(crate) fn groups(&self) -> Result<GroupTable> {
        GroupTable::open(&self.buffers, &self.layout, self.journal_extents())
    }

    /// Replaces the superblock, durably. One block is written.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn write_superblock(&mut self, superblock: Superblock) -> Result<()> {
        let size = u64::from(self.layout.block_size);
        let at = OFFSET / size * size;
        let mut block = self.device.read_block(at, as_index(self.layout.block_size))?.to_vec();
        let offset = usize::try_from(OFFSET % size).unwrap_or(0);
        if let Some(place) = block.get_mut(offset..offset + SIZE) {
            place.copy_from_slice(&superblock.encode());
        }
        let durability = Durability { preflush: true, fua: true };
        self.device.write_durable(at, block, durability)?;
        self.superblock = superblock;
        Ok(())
    }

    /// The superblock with the present time as that of its last change.
    pub(crate) fn dated(&self) -> Superblock {
        let mut superblock = self.superblock.clone();
        let (low, high) = split_time(Timestamp::from(self.runtime.now()).seconds);
        superblock.raw.s_wtime = U32::new(low);
        superblock.raw.s_wtime_hi = high;
        superblock
    }

    /// Copies the superblock to its backups. A crash leaves some of them as they were, as a mount
    /// does.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn write_backups(&self) -> Result<()> {
        let layout = &self.layout;
        for group in (1..layout.groups).filter(|group| layout.backups(*group)) {
            let at = layout.superblock_block(group).get() * u64::from(layout.block_size);
            let mut block = self.device.read_block(at, as_index(layout.block_size))?.to_vec();
            let mut superblock = self.superblock.clone();
            // The field has 16 bits; readers accept 65535 for larger numbers.
            superblock.raw.s_block_group_nr = U16::new(u16::try_from(group).unwrap_or(u16::MAX));
            if let Some(place) = block.get_mut(..SIZE) {
                place.copy_from_slice(&superblock.encode());
            }
            self.device.write_at(at, block)?;
        }
        Ok(self.device.flush()?)
    }
}

/// The first superblock, which must be whole.
fn first_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    match probe::probe(device)? {
        Some(found) if found.backup.is_none() => Ok(found.superblock),
        Some(_) => Err(Error::NeedsCheck("its superblock or its descriptors are damaged".into())),
        None => Err(Error::NotExt4 { found: probe::found_magic(device) }),
    }
}

/// True if nothing is to be recovered. A log may hold changes although the superblock does not say
/// so: a mount replays it.
fn is_at_rest(device: &Arc<dyn BlockDevice>, superblock: &Superblock) -> Result<bool> {
    let features = superblock.features();
    let is_marked = features.incompat(Incompat::RECOVER)
        || features.ro_compat(RoCompat::ORPHAN_PRESENT)
        || superblock.raw.s_last_orphan.get() != 0;
    let is_valid = superblock.raw.s_state.get() & STATE_VALID != 0;
    if is_marked || !(is_valid || features.compat(Compat::HAS_JOURNAL)) {
        return Ok(false);
    }
    let layout = Layout::new(superblock, device.geometry().size)?;
    probe::check_sectors(&**device, &layout)?;
    Ok(!journal_area::has_start(device, superblock, &layout)?)
}
