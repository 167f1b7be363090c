//! The primary superblock of a mounted volume.
//!
//! It is a metadata buffer. While the journal runs it changes in handles, so that recovery does not
//! restore an older version. Before the journal starts and after it has stopped, it is written
//! directly.

use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::Pba;
use cairn_block::{BlockDevice, BlockDeviceExt, Durability};
use cairn_cache::block::BufferCache;

use crate::error::{Error, Result};
use crate::format::error_record::FoundError;
use crate::format::features::{Incompat, RoCompat};
use crate::format::superblock::{self as format, Superblock};
use crate::store::{LiveSuperblock, Store};
use crate::txn::Handle;

/// Longest label, in bytes.
pub(crate) const LABEL_MAX: usize = 16;

/// The state in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Mounted: the next mount needs recovery.
    Mounted,
    /// Unmounted cleanly.
    Clean,
}

impl LiveSuperblock {
    /// Creates the accessor for a block size.
    #[must_use]
    pub(crate) fn new(block_size: u32) -> Self {
        let byte = format::OFFSET;
        let size = u64::from(block_size);
        Self {
            block: Pba(byte / size),
            offset: usize::try_from(byte % size).unwrap_or(0),
            was_unclean: AtomicBool::new(false),
            has_ext_attr: AtomicBool::new(false),
            has_large_file: AtomicBool::new(false),
        }
    }

    /// The present superblock.
    ///
    /// # Errors
    /// The superblock cannot be read or is damaged.
    pub(crate) fn read(&self, buffers: &BufferCache) -> Result<Superblock> {
        let image = buffers.get(self.block)?.image();
        let bytes = image.get(self.offset..self.offset + format::SIZE).unwrap_or_default();
        match format::magic_of(bytes) {
            Some(format::MAGIC) => Ok(Superblock::decode(bytes)?),
            found => Err(Error::NotExt4 { found: found.unwrap_or(0) }),
        }
    }

    /// Changes the superblock in a handle.
    ///
    /// # Errors
    /// The superblock cannot be read, or the journal was aborted.
    pub(crate) fn change(
        &self,
        store: &Store,
        handle: &Handle,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let buffer = store.buffers.get(self.block)?;
        let mut block = handle.write(&buffer)?;
        let place = &mut block[self.offset..self.offset + format::SIZE];
        let mut superblock = Superblock::decode(place)?;
        change(&mut superblock);
        place.copy_from_slice(&superblock.encode());
        Ok(())
    }

    /// Changes the superblock on the device, durably. No transaction may hold it.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn change_directly(
        &self,
        store: &Store,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let buffer = store.buffers.get(self.block)?;
        {
            let mut block = buffer.modify_direct();
            let place = &mut block[self.offset..self.offset + format::SIZE];
            let mut superblock = Superblock::decode(place)?;
            change(&mut superblock);
            place.copy_from_slice(&superblock.encode());
        }
        store.buffers.write_back()?;
        store.device.flush()?;
        Ok(())
    }

    /// Adds errors to the record on the device, durably (`ext4_commit_super`): for a volume that
    /// has stopped. Of the superblock in memory, only its record of errors goes to the device: its
    /// other changes may belong to a transaction that was not committed.
    ///
    /// # Errors
    /// The superblock cannot be read or is damaged, or the device failed.
    pub(crate) fn record_errors(&self, store: &Store, found: &[FoundError]) -> Result<()> {
        let mut known = self.read(&store.buffers)?;
        found.iter().for_each(|found| known.note_error(found));
        let size = store.layout.block_size;
        let at = self.block.get() * u64::from(size);
        let mut block = store.device.read_block(at, size as usize)?.to_vec();
        let place = &mut block[self.offset..self.offset + format::SIZE];
        let mut superblock = Superblock::decode(place)?;
        superblock.merge_errors(&known);
        place.copy_from_slice(&superblock.encode());
        store.device.write_durable(at, block, Durability { preflush: false, fua: true })?;
        Ok(())
    }

    /// Restores a record of errors that is newer than what the log had of the superblock.
    ///
    /// # Errors
    /// As [`LiveSuperblock::change_directly`].
    pub(crate) fn restore_errors(&self, store: &Store, before_replay: &Superblock) -> Result<()> {
        let mut replayed = self.read(&store.buffers)?;
        if replayed.merge_errors(before_replay) {
            self.change_directly(store, |superblock| *superblock = replayed)?;
        }
        Ok(())
    }

    /// Sets the head of the orphan list.
    ///
    /// # Errors
    /// As [`LiveSuperblock::change`].
    pub(crate) fn set_last_orphan(&self, store: &Store, handle: &Handle, ino: u32) -> Result<()> {
        self.change(store, handle, |superblock| superblock.raw.s_last_orphan = ino.into())
    }

    /// Marks the volume as mounted or clean, with the time and the counts of free space.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn mark(&self, store: &Store, mark: Mark, orphans_left: bool) -> Result<()> {
        let journaled = store.layout.features.compat(crate::format::features::Compat::HAS_JOURNAL);
        let orphan_file =
            store.layout.features.compat(crate::format::features::Compat::ORPHAN_FILE);
        let now = cairn_vfs::Timestamp::from(store.runtime.now()).seconds;
        let (low, high) = split_time(now);
        let (free_blocks, free_inodes) =
            (store.groups.free_blocks_total(), store.groups.free_inodes_total());
        self.change_directly(store, |superblock| {
            let mut features = superblock.features();
            features.incompat.set(Incompat::RECOVER, journaled && mark == Mark::Mounted);
            features.ro_compat.set(
                RoCompat::ORPHAN_PRESENT,
                orphan_file && (mark == Mark::Mounted || orphans_left),
            );
            superblock.set_features(features);
            superblock.set_free_blocks(free_blocks);
            let raw = &mut superblock.raw;
            raw.s_free_inodes_count = u32::try_from(free_inodes).unwrap_or(u32::MAX).into();
            raw.s_wtime = low.into();
            raw.s_wtime_hi = high;
            if mark == Mark::Mounted {
                raw.s_mtime = low.into();
                raw.s_mtime_hi = high;
                raw.s_mnt_count = raw.s_mnt_count.get().saturating_add(1).into();
            }
            // Without a journal, only this flag tells a mounted volume from a clean one.
            if !journaled {
                raw.s_state = self.state_without_journal(raw.s_state.get(), mark).into();
            }
        })
    }

    /// The state with this mark. A volume that was not clean when it was mounted stays so, as in
    /// Linux.
    fn state_without_journal(&self, state: u16, mark: Mark) -> u16 {
        let is_valid = state & format::STATE_VALID != 0;
        match mark {
            Mark::Mounted => {
                self.was_unclean.store(!is_valid, Ordering::Relaxed);
                state & !format::STATE_VALID
            }
            Mark::Clean if self.was_unclean.load(Ordering::Relaxed) => state,
            Mark::Clean => state | format::STATE_VALID,
        }
    }

    /// The label's bytes, up to the first zero.
    ///
    /// # Errors
    /// As [`LiveSuperblock::read`].
    pub(crate) fn label(&self, buffers: &BufferCache) -> Result<Vec<u8>> {
        let name = self.read(buffers)?.raw.s_volume_name;
        Ok(name.into_iter().take_while(|byte| *byte != 0).collect())
    }

    /// Sets the label.
    ///
    /// # Errors
    /// As [`LiveSuperblock::change`].
    pub(crate) fn set_label(&self, store: &Store, handle: &Handle, label: &[u8]) -> Result<()> {
        let mut name = [0; LABEL_MAX];
        name[..label.len()].copy_from_slice(label);
        self.change(store, handle, |superblock| superblock.raw.s_volume_name = name)
    }
}

/// Splits seconds into the superblock's 32 + 8 bits.
pub(crate) fn split_time(seconds: i64) -> (u32, u8) {
    let seconds = seconds.max(0).cast_unsigned();
    let low = u32::try_from(seconds & 0xffff_ffff).unwrap_or(0);
    (low, u8::try_from((seconds >> 32) & 0xff).unwrap_or(0))
}
