//! [`Mender`]: the volume of a round, for changes. It reads and writes blocks, records and the
//! superblock, with their checksums, allocates, and notes the steps.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::Finding;
use cairn_check::repair::{Scope, Step, Steps};

use super::super::proved::Proved;
use super::super::state::State;
use super::paths::Paths;
use super::room::{self, Room};
use crate::error::Result;
use crate::format::group_desc::GroupDesc;
use crate::format::inode::Inode as Record;
use crate::format::superblock::{OFFSET, SIZE, STATE_ERROR, STATE_VALID, Superblock};

/// What is lost where only a checksum says that something is damaged.
pub(super) const DAMAGED: &str = "what is damaged there, if anything is";

/// What is lost where an attribute block may be another inode's.
pub(super) const DISPUTED: &str =
    "its own extended attributes, if the block of them that it has is another file's";

/// What is lost of blocks that are copied: nobody knows whose contents they have.
pub(super) const WHOSE: &str = "blocks that several files had may hold another file's contents";

/// What a round changes.
pub(super) struct Mender<'a> {
    pub(super) state: &'a State,
    pub(super) device: &'a Arc<dyn BlockDevice>,
    pub(super) scope: Scope,
    pub(super) steps: &'a mut Steps,
    /// A journal is to be made when all else is sound.
    pub(super) wants_journal: bool,
    /// Whose the blocks are that several files have.
    pub(super) proved: Proved,
    /// The present time, in seconds.
    pub(super) now: u32,
    superblock: Superblock,
    paths: Option<Paths>,
    room: Room,
}

/// The step for a finding.
pub(super) fn step(finding: &Finding) -> Step {
    Step::new(finding.kind, finding.place.clone())
}

impl<'a> Mender<'a> {
    pub(super) fn new(
        state: &'a State,
        device: &'a Arc<dyn BlockDevice>,
        runtime: &dyn Runtime,
        (scope, proved): (Scope, Proved),
        steps: &'a mut Steps,
    ) -> Self {
        let since = runtime.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = u32::try_from(since.as_secs()).unwrap_or(u32::MAX).max(1);
        let superblock = state.superblock.clone();
        Self {
            state,
            device,
            scope,
            steps,
            wants_journal: false,
            proved,
            now,
            superblock,
            paths: None,
            room: Room::default(),
        }
    }

    /// Notes a step by which nothing is lost.
    pub(super) fn step(&mut self, finding: &Finding) {
        self.steps.add(step(finding));
    }

    /// Notes a step by which the inode loses something.
    pub(super) fn lose(&mut self, finding: &Finding, ino: Ino, what: &str) {
        let state = self.state;
        let paths = self.paths.get_or_insert_with(|| Paths::find(state));
        let what = format!("{what}{}", paths.others(ino));
        let path = paths.of(ino);
        self.steps.add(step(finding).losing(path, what));
    }

    /// The path of an inode; empty if it has none.
    pub(super) fn path(&mut self, ino: Ino) -> Vec<u8> {
        let state = self.state;
        self.paths.get_or_insert_with(|| Paths::find(state)).of(ino)
    }

    /// Reads a block.
    pub(super) fn read(&self, pba: Pba) -> Result<Vec<u8>> {
        Ok(self.state.source.read_from(&**self.device, pba)?)
    }

    /// Writes a block.
    pub(super) fn write(&self, pba: Pba, bytes: Vec<u8>) -> Result<()> {
        let at = pba.get().saturating_mul(self.state.layout.block_size.into());
        Ok(self.device.write_at(at, bytes)?)
    }

    /// A block of zeros.
    pub(super) fn empty_block(&self) -> Vec<u8> {
        vec![0; as_index(self.state.layout.block_size)]
    }

    /// Changes the bytes of a record, and seals it. False if its table is not known.
    pub(super) fn edit_bytes(&self, ino: Ino, edit: impl FnOnce(&mut [u8])) -> Result<bool> {
        let layout = &self.state.layout;
        let Some((group, index)) = layout.inode_group(ino) else { return Ok(false) };
        let group = self.state.groups.get(as_index(group)).filter(|group| group.has_table);
        let Some(group) = group else { return Ok(false) };
        let place = layout.inode_location(index, group.desc.inode_table);
        let mut block = self.read(place.pba)?;
        let end = place.offset.saturating_add(as_index(layout.inode_size));
        let Some(bytes) = block.get_mut(place.offset..end) else { return Ok(false) };
        edit(bytes);
        if bytes.iter().any(|byte| *byte != 0) {
            Record::seal(bytes, ino, layout);
        }
        self.write(place.pba, block)?;
        Ok(true)
    }

    /// Changes an inode, and seals it. False if its table is not known.
    pub(super) fn edit(&self, ino: Ino, edit: impl FnOnce(&mut Record)) -> Result<bool> {
        let layout = &self.state.layout;
        self.edit_bytes(ino, |bytes| {
            if let Some(mut record) = Record::decode_unchecked(bytes, layout) {
                edit(&mut record);
                record.encode(ino, layout, bytes);
            }
        })
    }

    /// Makes an inode one that is not in use.
    pub(super) fn clear(&self, ino: Ino) -> Result<bool> {
        self.edit_bytes(ino, |bytes| bytes.fill(0))
    }

    /// The superblock as it was changed so far.
    pub(super) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Changes the superblock.
    pub(super) fn edit_superblock(&mut self, edit: impl FnOnce(&mut Superblock)) -> Result<()> {
        edit(&mut self.superblock);
        self.write_superblock()
    }

    fn write_superblock(&self) -> Result<()> {
        let size = u64::from(self.state.layout.block_size);
        let pba = Pba(OFFSET.checked_div(size).unwrap_or(0));
        let offset = usize::try_from(OFFSET.checked_rem(size).unwrap_or(0)).unwrap_or(0);
        let mut block = self.read(pba)?;
        let end = offset.saturating_add(SIZE);
        if let Some(place) = block.get_mut(offset..end) {
            place.copy_from_slice(&self.superblock.encode());
        }
        self.write(pba, block)
    }

    /// After something was mended: the volume is not one that was left in use.
    pub(super) fn finish(&mut self) -> Result<()> {
        let raw = &mut self.superblock.raw;
        let state = raw.s_state.get() & !STATE_ERROR | STATE_VALID;
        if raw.s_state.get() != state {
            raw.s_state = state.into();
            self.write_superblock()?;
        }
        Ok(())
    }

    /// Changes a group descriptor, and seals it.
    pub(super) fn edit_group(&self, group: u32, edit: impl FnOnce(&mut GroupDesc)) -> Result<()> {
        let layout = &self.state.layout;
        let pba = layout.descriptor_block(group);
        let mut block = self.read(pba)?;
        let at = layout.descriptor_offset(group);
        let end = at.saturating_add(as_index(layout.desc_size));
        if let Some(bytes) = block.get_mut(at..end) {
            let mut desc = GroupDesc::decode_unchecked(bytes, layout);
            edit(&mut desc);
            desc.encode(group, layout, bytes);
        }
        self.write(pba, block)
    }

    /// Clusters that no structure and no file has, side by side. `None` if there are none.
    pub(super) fn allocate(&self, clusters: u64) -> Option<u64> {
        let state = self.state;
        let end = state.layout.blocks_count >> state.layout.cluster_bits;
        let first = state.cluster(state.layout.first_data_block);
        self.room.take(&state.claimed, (first, end), clusters)
    }

    /// As [`Mender::allocate`], from cluster `first` to before `end`.
    pub(super) fn allocate_in(&self, first: u64, end: u64, clusters: u64) -> Option<u64> {
        room::take_in(&self.state.claimed, (first, end), clusters)
    }

    /// Copies blocks of a file to new ones, which lie in their clusters as those did. `None` if
    /// there is no room.
    pub(super) fn copy(&self, from: Pba, len: u64) -> Result<Option<Pba>> {
        let state = self.state;
        let end = from.get().saturating_add(len).saturating_sub(1);
        let clusters =
            state.cluster(end).saturating_add(1).saturating_sub(state.cluster(from.get()));
        let Some(new) = self.allocate(clusters) else { return Ok(None) };
        let inside = from.get() & state.cluster_blocks().saturating_sub(1);
        let place = Pba((new << state.layout.cluster_bits).saturating_add(inside));
        for at in 0..len {
            let bytes = self.read(Pba(from.get().saturating_add(at)))?;
            self.write(Pba(place.get().saturating_add(at)), bytes)?;
        }
        Ok(Some(place))
    }

    /// Where a changed block of a map is written that is to lie at `place`, and was read from
    /// `from`. What several files have stays as it is: it may be contents of another file. `None`
    /// if there is no room.
    pub(super) fn place_of_node(&self, from: Pba, place: Pba) -> Option<Pba> {
        let is_shared = self.state.twice.contains(self.state.cluster(place.get()));
        if place == from && is_shared { self.allocate_block() } else { Some(place) }
    }

    /// One block for a map, a directory or attributes.
    pub(super) fn allocate_block(&self) -> Option<Pba> {
        self.allocate(1).map(|cluster| Pba(cluster << self.state.layout.cluster_bits))
    }
}
