//! [`Switch`]: many blocks and the superblock change together, without a log.
//!
//! All blocks are first written as they are: a host without room for one of them refuses it before
//! anything has changed. What will be written is recorded in free blocks ([`crate::redo`]). Then
//! the superblock says that the volume is not clean, the blocks change, and the superblock follows.
//! If one of these writes fails, the old blocks are written back. After a crash the record finishes
//! the change; without room for it, only e2fsck can.

use std::collections::BTreeMap;

use cairn_base::units::as_index;
use cairn_base::{Pba, bitmap};
use cairn_block::BlockDeviceExt;
use zerocopy::little_endian::{U16, U32};

use super::Offline;
use crate::error::{Error, Result};
use crate::format::features::Compat;
use crate::format::superblock::{OFFSET, SIZE, STATE_VALID, Superblock};
use crate::groups::GroupTable;
use crate::redo;

/// Blocks and their new contents.
pub(crate) type Blocks = BTreeMap<Pba, Vec<u8>>;

/// The old state of a volume and the new one.
pub(crate) struct Switch {
    before: Superblock,
    between: Superblock,
    after: Superblock,
    old: Blocks,
    new: Blocks,
    is_recorded: bool,
}

impl Switch {
    /// Reads the old state, and writes all of it, unchanged, and the record of the new one.
    ///
    /// # Errors
    /// The device failed, or has no room for the blocks.
    pub(crate) fn prepare(volume: &Offline, after: Superblock, new: Blocks) -> Result<Self> {
        let mut between = unclean(volume);
        let is_recorded = record(volume, &mut between, &after, &new)?;
        let size = u64::from(volume.layout.block_size);
        let mut old = Blocks::new();
        for pba in new.keys() {
            old.insert(*pba, volume.claim(*pba, 1)?);
        }
        volume.claim(Pba(OFFSET / size), 1)?;
        volume.device.flush()?;
        Ok(Self { before: volume.superblock.clone(), between, after, old, new, is_recorded })
    }

    /// True if the record is there.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Makes the new state. `unchanged` says of the volume what holds if that fails and the old
    /// state is there again.
    ///
    /// # Errors
    /// The device failed. The error says in which state the volume is.
    pub(crate) fn make(self, volume: &mut Offline, unchanged: &str) -> Result<()> {
        let done = write(volume, (&self.between, &self.new, &self.after));
        done.map_err(|error| match write(volume, (&self.between, &self.old, &self.before)) {
            Ok(()) => Error::unfinished(error, unchanged),
            Err(_) if self.is_recorded => Error::unfinished(
                error,
                "the volume is not clean, and the next command or mount that writes it finishes \
                 the change: make room on the host or replace the device, and try again",
            ),
            Err(_) => Error::unfinished(
                error,
                "the volume has no journal now and is not clean: make room on the host or \
                 replace the device, run e2fsck -f on it, and add a journal again",
            ),
        })
    }
}

type State<'a> = (&'a Superblock, &'a Blocks, &'a Superblock);

fn write(volume: &mut Offline, (between, blocks, end): State<'_>) -> Result<()> {
    volume.write_superblock(between.clone())?;
    let size = u64::from(volume.layout.block_size);
    for (pba, bytes) in blocks {
        volume.device.write_at(pba.get() * size, bytes.clone())?;
    }
    // The flush before it makes the blocks durable.
    volume.write_superblock(end.clone())
}

/// The superblock of a volume without a journal that is being written.
fn unclean(volume: &Offline) -> Superblock {
    let mut superblock = volume.dated();
    without_journal(&mut superblock);
    let raw = &mut superblock.raw;
    raw.s_state = U16::new(raw.s_state.get() & !STATE_VALID);
    superblock
}

/// Removes what the superblock says of the journal.
pub(crate) fn without_journal(superblock: &mut Superblock) {
    let mut features = superblock.features();
    features.compat -= Compat::HAS_JOURNAL | Compat::FAST_COMMIT;
    superblock.set_features(features);
    let raw = &mut superblock.raw;
    raw.s_journal_inum = U32::new(0);
    raw.s_jnl_backup_type = 0;
    raw.s_jnl_blocks = [U32::new(0); 17];
}

/// Records the new state, and names the record in `between`. False if there is no room for it.
fn record(
    volume: &Offline,
    between: &mut Superblock,
    after: &Superblock,
    new: &Blocks,
) -> Result<bool> {
    let block_size = volume.layout.block_size;
    let size = u64::from(block_size);
    let mut all = new.clone();
    let at = Pba(OFFSET / size);
    let mut block = volume.device.read_block(at.get() * size, as_index(block_size))?.to_vec();
    let offset = usize::try_from(OFFSET % size).unwrap_or(0);
    if let Some(place) = block.get_mut(offset..offset + SIZE) {
        place.copy_from_slice(&after.encode());
    }
    all.insert(at, block);
    let Some(needed) = redo::needed(all.len(), block_size) else { return Ok(false) };
    let places = free_in_both(volume, new, needed)?;
    if places.len() < needed {
        return Ok(false);
    }
    redo::write(&*volume.device, between, block_size, &all, &places)?;
    Ok(true)
}

/// At most `count` blocks that are free in the old state and in the new one.
fn free_in_both(volume: &Offline, new: &Blocks, count: usize) -> Result<Vec<Pba>> {
    let layout = &volume.layout;
    let mut found = Vec::new();
    if layout.cluster_bits > 0 {
        return Ok(found);
    }
    // What the volume has in memory may be the new state already.
    let groups = GroupTable::open(&volume.fresh_buffers(), layout, volume.journal_extents())?;
    for group in (0..layout.groups).rev() {
        let state = groups.group(group).lock();
        let old = groups.block_bitmap(group, &state)?;
        let now = new.get(&state.desc.block_bitmap);
        let (first, end) = (layout.group_first_block(group), as_index(layout.group_blocks(group)));
        let mut at = 0;
        while let Some(bit) = bitmap::next_clear(&old, at, end) {
            at = bit + 1;
            let pba = Pba(first.get() + bit as u64);
            let is_free = now.is_none_or(|now| bitmap::next_clear(now, bit, bit + 1).is_some());
            if is_free && !new.contains_key(&pba) {
                found.push(pba);
                if found.len() == count {
                    return Ok(found);
                }
            }
        }
    }
    Ok(found)
}
