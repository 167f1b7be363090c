//! [`Draft`]: changes of system files, made in memory. Nothing of them is written.

use std::sync::Arc;

use cairn_base::units::as_index;
use cairn_base::{FileBlock, Ino, Pba};
use cairn_cache::block::BufferCache;
use cairn_cache::mapper::Run;

use crate::alloc::{MappingBlocks, Space};
use crate::error::Result;
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::groups::GroupTable;
use crate::map::{BlockMap, MapContext, Progress};
use crate::offline::{Blocks, Offline};
use crate::txn::{Handle, Txn};

/// Blocks of a map that are freed in a step.
const REMOVE_STEP: u32 = 1 << 20;

/// Changes of system files in memory.
pub(super) struct Draft {
    pub(super) layout: Arc<Layout>,
    pub(super) space: Space,
    buffers: Arc<BufferCache>,
    groups: Arc<GroupTable>,
    /// Blocks for maps.
    mapping: MappingBlocks,
}

impl Draft {
    /// An empty one.
    ///
    /// # Errors
    /// The descriptors are damaged, or the device failed.
    pub(super) fn open(volume: &Offline) -> Result<Self> {
        let (layout, buffers) = (volume.layout.clone(), volume.fresh_buffers());
        // The blocks of the journal are not among those that nobody may free.
        let groups = Arc::new(GroupTable::open(&buffers, &layout, &[])?);
        let space = Space::new(groups.clone(), layout.clone(), volume.runtime.clone());
        let mapping = space.for_mapping();
        Ok(Self { layout, space, buffers, groups, mapping })
    }

    /// Begins a change. What it frees can be allocated when the handle is dropped.
    pub(super) fn begin(&self) -> Result<Handle> {
        Txn::Direct(self.buffers.clone()).begin(u32::MAX)
    }

    fn place(&self, ino: Ino) -> Result<(Pba, std::ops::Range<usize>)> {
        let (group, index) = self.layout.inode_group(ino).ok_or(cairn_vfs::Error::Stale)?;
        let place = self.layout.inode_location(index, self.groups.inode_table(group));
        Ok((place.pba, place.offset..place.offset + as_index(self.layout.inode_size)))
    }

    fn record(&self, ino: Ino) -> Result<Record> {
        let (pba, range) = self.place(ino)?;
        let image = self.buffers.get(pba)?.image();
        Ok(Record::decode(image.get(range).unwrap_or_default(), ino, &self.layout)?)
    }

    /// Stores a record, or zeros.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn put(&self, handle: &Handle, ino: Ino, record: Option<&Record>) -> Result<()> {
        let (pba, range) = self.place(ino)?;
        let buffer = self.buffers.get(pba)?;
        let mut block = handle.write(&buffer)?;
        let Some(bytes) = block.get_mut(range) else { return Ok(()) };
        bytes.fill(0);
        if let Some(record) = record {
            record.encode(ino, &self.layout, bytes);
        }
        Ok(())
    }

    /// The block map of a record.
    pub(super) fn map(&self, ino: Ino, record: &Record) -> BlockMap<'_> {
        let context = MapContext {
            ino,
            seed: record.seed(ino, &self.layout),
            layout: &self.layout,
            system: self.groups.system_blocks(ino),
            buffers: &self.buffers,
            source: &self.mapping,
        };
        BlockMap::new(context, record.flags.contains(InodeFlags::EXTENTS))
    }

    /// Frees the blocks of a file, and clears its record.
    ///
    /// # Errors
    /// The file is damaged, or the device failed.
    pub(super) fn free_file(&self, ino: Ino) -> Result<()> {
        let handle = self.begin()?;
        let mut record = self.record(ino)?;
        if record.file_type() == mode::REGULAR {
            let all = Run { start: FileBlock(0), len: u64::MAX };
            let map = self.map(ino, &record);
            while let (Progress::More, _) =
                map.remove(&handle, &mut record.block, all, REMOVE_STEP)?
            {}
        }
        self.put(&handle, ino, None)?;
        handle.finish();
        Ok(())
    }

    /// Frees the number of a file.
    ///
    /// # Errors
    /// It is free already, or the device failed.
    pub(super) fn free_inode(&self, ino: Ino) -> Result<()> {
        let handle = self.begin()?;
        self.space.free_inode(&handle, ino, false)?;
        handle.finish();
        Ok(())
    }

    /// Sets the counts of a superblock.
    pub(super) fn count(&self, superblock: &mut Superblock) {
        superblock.set_free_blocks(self.groups.free_blocks_total());
        let inodes = u32::try_from(self.groups.free_inodes_total()).unwrap_or(u32::MAX);
        superblock.raw.s_free_inodes_count = inodes.into();
    }

    /// All blocks that the changes have changed, as they are then.
    pub(super) fn blocks(&self) -> Blocks {
        let dirty = self.buffers.dirty();
        dirty.iter().map(|buffer| (buffer.pba(), buffer.image().to_vec())).collect()
    }
}
