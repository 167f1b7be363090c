//! The check of the root directory's inode before a volume is opened.
//!
//! Without its root nothing of a volume can be reached. Linux refuses the same inodes ("corrupt
//! root inode, run e2fsck", "get root inode failed"). Only the inode is checked: a damaged block of
//! the directory is an error for who reads it.

use std::sync::Arc;

use cairn_base::{FileBlock, Pba};
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::extent::{NodeView, SystemBlocks};
use crate::format::features::Incompat;
use crate::format::inode::InodeFlags;
use crate::format::layout::{Layout, inodes};
use crate::map::{BlockMap, MapContext, NoSource};
use crate::probe::{Probe, check_sectors};
use crate::system_file::raw_record;

/// Bytes of buffers for the check of a volume that is not open: a descriptor and a record are read.
const BUDGET: u64 = 1 << 20;

/// As [`check`], of a volume that is not open. A volume that needs recovery is not checked, because
/// the journal may hold the inode. The blocks of structures are not known.
///
/// # Errors
/// As [`check`]; the layout is invalid, or the device's sectors are larger than blocks.
pub(crate) fn check_unopened(probe: &Probe, device: &Arc<dyn BlockDevice>) -> Result<()> {
    let layout = Layout::new(&probe.superblock, device.geometry().size)?;
    check_sectors(&**device, &layout)?;
    if probe.superblock.features().incompat(Incompat::RECOVER) {
        return Ok(());
    }
    let budget = Budget::new(BUDGET);
    let buffers =
        BufferCache::with_overlay(device.clone(), layout.block_size, budget, probe.images());
    check(&layout, &buffers, SystemBlocks::NONE)
}

/// Checks the inode of the root directory. `system`: the blocks of structures.
///
/// # Errors
/// The inode is not that of a directory with a name and contents, its map is invalid, or the device
/// failed.
pub(crate) fn check(
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    system: SystemBlocks<'_>,
) -> Result<()> {
    let ino = inodes::ROOT;
    let record = raw_record(layout, buffers, ino)?;
    let wrong = |field, value, problem| Err(Corrupt::Inode { ino, field, value, problem }.into());
    if !record.is_directory() {
        return wrong("i_mode", record.mode.into(), "not that of a directory, as the root must be");
    }
    if record.links == 0 {
        return wrong("i_links_count", 0, "although the root is in use");
    }
    if record.size == 0 {
        return wrong("i_size", 0, "although the root has at least one block");
    }
    if record.blocks_512 == 0 {
        return wrong("i_blocks", 0, "although the root has at least one block");
    }
    let seed = layout.checksum.for_inode(ino, record.generation);
    let context = MapContext { ino, seed, layout, system, buffers, source: &NoSource };
    if record.flags.contains(InodeFlags::EXTENTS) {
        let site = context.site(Pba(0));
        return Ok(NodeView::parse(&record.block, None, site)?.validate(&context.bounds(), site)?);
    }
    // The first block's address is in the inode.
    BlockMap::new(context, false).lookup(&record.block, FileBlock(0)).map(drop)
}
