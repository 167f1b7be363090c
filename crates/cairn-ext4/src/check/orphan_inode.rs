//! The inode of the file of orphans: what its blocks say of it, if it says otherwise.
//!
//! Each block of the file has a checksum over the number of the inode, so that a kind, a size or a
//! flag that does not fit is one that is wrong, and the blocks are right.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::units::{as_index, as_u64};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_check::{Finding, Place, Value};

use super::kinds;
use crate::error::{Error, Result};
use crate::format::extent::{MAGIC, SystemBlocks};
use crate::format::features::Compat;
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::layout::{InodeLocation, Layout};
use crate::format::orphan;
use crate::format::superblock::Superblock;
use crate::groups::locate_unopened;
use crate::system_file::leading_blocks;

/// Bytes of buffers.
const BUDGET: u64 = 1 << 20;
/// Blocks of a file of orphans: Linux makes some hundred.
const MOST: u64 = 4096;

/// Mends the inode on a device, which is an overlay, if its blocks prove what is wrong with it.
///
/// # Errors
/// The device failed.
pub(super) fn mend(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<Option<Finding>> {
    let ino = Ino(superblock.raw.s_orphan_file_inum.get().into());
    let is_possible = ino.get() >= u64::from(layout.first_ino);
    if !layout.features.compat(Compat::ORPHAN_FILE) || !is_possible {
        return Ok(None);
    }
    let buffers = BufferCache::new(device.clone(), layout.block_size, Budget::new(BUDGET));
    let place = match locate_unopened(&buffers, layout, ino) {
        Ok(place) if layout.contains(place.pba, 1) => place,
        Err(error @ Error::Device(_)) => return Err(error),
        // A descriptor is damaged, or there is no such inode.
        _ => return Ok(None),
    };
    let (mut block, range) = read(device, layout, &place)?;
    let Some(bytes) = block.get_mut(range) else { return Ok(None) };
    let Some(record) = Record::decode_unchecked(bytes, layout) else { return Ok(None) };
    let Some((right, field)) = mended(&record, ino, layout, &buffers)? else { return Ok(None) };
    let field = match (field, Record::verify(bytes, ino, layout)) {
        (None, Ok(())) => return Ok(None),
        (field, _) => field,
    };
    right.encode(ino, layout, bytes);
    let at = place.pba.get().saturating_mul(layout.block_size.into());
    device.write_at(at, block)?;
    let place = Place::inode(ino.get());
    let finding = Finding::new(
        &kinds::ORPHAN_FILE,
        field.map_or(place.clone(), |field| place.in_field(field)),
    );
    Ok(Some(finding.stored(Value::text("it holds the file of orphans"))))
}

fn read(
    device: &Arc<dyn BlockDevice>,
    layout: &Layout,
    place: &InodeLocation,
) -> Result<(Vec<u8>, std::ops::Range<usize>)> {
    let at = place.pba.get().saturating_mul(layout.block_size.into());
    let block = device.read_block(at, as_index(layout.block_size))?.to_vec();
    Ok((block, place.offset..place.offset.saturating_add(as_index(layout.inode_size))))
}

/// The record as the blocks say, and the first field that they contradict. `None` if they are none
/// of the file of orphans.
fn mended(
    record: &Record,
    ino: Ino,
    layout: &Layout,
    buffers: &Arc<BufferCache>,
) -> Result<Option<(Record, Option<&'static str>)>> {
    let mut right = record.clone();
    if record.block.first_chunk() == Some(&MAGIC.to_le_bytes()) {
        right.flags.insert(InodeFlags::EXTENTS);
    }
    right.flags.remove(InodeFlags::INLINE_DATA);
    let blocks = match leading_blocks(layout, buffers, SystemBlocks::NONE, ino, &right, MOST) {
        Ok(blocks) => blocks,
        Err(error @ Error::Device(_)) => return Err(error),
        Err(_) => return Ok(None),
    };
    let seed = right.seed(ino, layout);
    let mut sound = 0_u64;
    for pba in blocks.iter().filter(|pba| layout.contains(**pba, 1)) {
        let image = buffers.get(*pba)?.image();
        sound = sound.saturating_add(u64::from(orphan::decode(&image, *pba, seed).is_ok()));
    }
    if sound == 0 || sound.saturating_mul(2) < as_u64(blocks.len()) {
        return Ok(None);
    }
    if !right.is_regular() {
        right.mode = mode::REGULAR | 0o600;
    }
    if right.links == 0 {
        (right.links, right.dtime) = (1, 0);
    }
    right.size = as_u64(blocks.len()).saturating_mul(layout.block_size.into());
    let fields = [
        ("i_mode", right.mode != record.mode),
        ("i_links_count", right.links != record.links),
        ("i_flags", right.flags != record.flags),
        ("i_size", right.size != record.size),
    ];
    let field = fields.iter().find(|(_, differs)| *differs).map(|(field, _)| *field);
    Ok(Some((right, field)))
}
