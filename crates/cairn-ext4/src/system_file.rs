//! The blocks of system files: the journal and the orphan file.

use std::sync::Arc;

use cairn_base::{FileBlock, Ino, Pba};
use cairn_cache::block::BufferCache;
use cairn_cache::status::State as Mapped;

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::extent::SystemBlocks;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::Layout;
use crate::map::{BlockMap, MapContext, NoSource};

/// Most extents of a system file. A file with more is damaged.
const MAX_SYSTEM_EXTENTS: usize = 1 << 20;

/// The extents of a system file, read from its record before the volume is open. `system`: the
/// known blocks of structures.
pub(crate) fn file_extents(
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    system: SystemBlocks<'_>,
    ino: Ino,
) -> Result<Vec<(FileBlock, Pba, u64)>> {
    record_extents(layout, buffers, system, ino, &raw_record(layout, buffers, ino)?)
}

/// As [`file_extents`], of a record that is known.
pub(crate) fn record_extents(
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    system: SystemBlocks<'_>,
    ino: Ino,
    record: &Record,
) -> Result<Vec<(FileBlock, Pba, u64)>> {
    let map = map_of(layout, buffers, system, ino, record);
    let blocks = record.size / u64::from(layout.block_size);
    let mut extents = Vec::new();
    let mut at = 0;
    while at < blocks {
        let found = map.lookup(&record.block, FileBlock(at))?;
        let part = found.clip(at, blocks);
        match part.map(|part| (part.state, part.len)) {
            Some((Mapped::Mapped(pba), len)) if extents.len() < MAX_SYSTEM_EXTENTS => {
                extents.push((FileBlock(at), pba, len));
                at += len;
            }
            _ => {
                let what = "hole in a system file";
                return Err(Corrupt::Mapping {
                    ino,
                    at: FileBlock(at),
                    pba: Pba(0),
                    what,
                    value: 0,
                }
                .into());
            }
        }
    }
    Ok(extents)
}

/// The blocks of a file up to its first hole, and at most `most`, whatever its size is.
///
/// # Errors
/// The map is damaged, or the device failed.
pub(crate) fn leading_blocks(
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    system: SystemBlocks<'_>,
    ino: Ino,
    record: &Record,
    most: u64,
) -> Result<Vec<Pba>> {
    let map = map_of(layout, buffers, system, ino, record);
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < most {
        let found = map.lookup(&record.block, FileBlock(at))?;
        match found.clip(at, most).map(|part| (part.state, part.len)) {
            Some((Mapped::Mapped(pba), len)) if len > 0 => {
                blocks.extend((0..len).map(|index| Pba(pba.get() + index)));
                at += len;
            }
            _ => break,
        }
    }
    Ok(blocks)
}

fn map_of<'a>(
    layout: &'a Layout,
    buffers: &'a Arc<BufferCache>,
    system: SystemBlocks<'a>,
    ino: Ino,
    record: &Record,
) -> BlockMap<'a> {
    let seed = layout.checksum.for_inode(ino, record.generation);
    let context = MapContext { ino, seed, layout, system, buffers, source: &NoSource };
    BlockMap::new(context, record.flags.contains(InodeFlags::EXTENTS))
}

/// Reads an inode record by its group's descriptor only.
///
/// # Errors
/// The number, the record or its checksum is wrong, or the device failed.
pub(crate) fn raw_record(layout: &Layout, buffers: &Arc<BufferCache>, ino: Ino) -> Result<Record> {
    let location = crate::groups::locate_unopened(buffers, layout, ino)?;
    let image = buffers.get(location.pba)?.image();
    let end = location.offset + layout.inode_size as usize;
    let raw = image.get(location.offset..end).unwrap_or_default();
    Ok(Record::decode(raw, ino, layout)?)
}
