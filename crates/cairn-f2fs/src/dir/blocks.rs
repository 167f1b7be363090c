//! The blocks of a directory.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use cairn_base::{FileBlock, Pba};
use cairn_cache::block::Image;
use cairn_cache::mapper::{Place, Run};
use cairn_vfs::FileKind;

use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::dentry::{MAX_DEPTH, bucket_blocks, buckets, level_blocks};
use crate::format::inode::shows_dots;
use crate::format::units::BLOCK_BYTES;
use crate::inode::Inode;
use crate::inode::read_mapper::{ReadMapper, block_address};

/// One block, immutable; `None` where the directory has a hole.
///
/// # Errors
/// The node tree is damaged, or the device failed.
pub(crate) fn read(disk: &Disk, inode: &Inode, block: u64) -> Result<Option<Image>> {
    if disk.store.is_some() {
        return read_live(disk, inode, block);
    }
    let Some(pba) = block_address(disk, inode, block)? else { return Ok(None) };
    let image = disk.buffers.get(pba)?.image();
    check_first(inode, block, Some(&image))?;
    Ok(Some(image))
}

/// As [`read`], of a block whose names are searched.
///
/// # Errors
/// As [`read`]; or it is the first block, and there is none.
pub(crate) fn search(disk: &Disk, inode: &Inode, block: u64) -> Result<Option<Image>> {
    let image = read(disk, inode, block)?;
    check_first(inode, block, image.as_deref())?;
    Ok(image)
}

/// Checks that the first block of a directory has `.` or `..`. Without both it has lost what was in
/// it: a directory is not empty for that.
fn check_first(inode: &Inode, block: u64, image: Option<&[u8]>) -> Result<(), Corrupt> {
    let is_asked = block == 0 && inode.kind == FileKind::Directory;
    if !is_asked || image.is_some_and(shows_dots) || !inode.with_record(|record| record.has_dots())
    {
        return Ok(());
    }
    let what = "the first block of the directory has neither . nor ..";
    Err(Corrupt::Directory { ino: inode.nid, block, slot: 0, what, value: 0 })
}

/// As [`read`], on a writable volume, where blocks change and move.
fn read_live(disk: &Disk, inode: &Inode, block: u64) -> Result<Option<Image>> {
    if let Some(image) = inode.entries.get(block) {
        return Ok(Some(image));
    }
    let mut place = block_address(disk, inode, block)?;
    while let Some(pba) = place {
        let image: Image = crate::blocks::read(&*disk.device, pba, 1)?.into();
        // Cleaning may have moved the block meanwhile, and its old address may have been allocated
        // again.
        place = block_address(disk, inode, block)?;
        if place == Some(pba) {
            check_first(inode, block, Some(&image))?;
            inode.entries.keep(block, image.clone());
            return Ok(Some(image));
        }
    }
    Ok(None)
}

/// Blocks up to the end of the directory.
#[must_use]
pub(crate) fn count(inode: &Inode) -> u64 {
    let state = inode.state.read();
    state.record.size.div_ceil(BLOCK_BYTES).min(state.record.shape().max_blocks())
}

/// Calls `visit` for each block from `start` on until it returns false: with its bytes, or with why
/// it cannot be read (the node tree is damaged, or the device failed).
///
/// # Errors
/// The directory has more blocks than the volume, or `visit` fails.
pub(crate) fn for_each(
    disk: &Disk,
    inode: &Inode,
    start: u64,
    mut visit: impl FnMut(u64, Result<&[u8]>) -> Result<bool>,
) -> Result<()> {
    let end = count(inode);
    let mapper = ReadMapper::new(disk, inode);
    let mut visited = 0_u64;
    let mut block = start;
    while block < end {
        let left = end.saturating_sub(block);
        let mapping = match mapper.find(Run { start: FileBlock(block), len: left }) {
            Ok(mapping) => mapping,
            Err(error) => {
                if !visit(block, Err(error))? {
                    return Ok(());
                }
                block = block.saturating_add(1);
                continue;
            }
        };
        let len = mapping.run.len.min(left);
        let run = block..block.saturating_add(len);
        let is_hole = block == 0 && !matches!(mapping.place, Place::Mapped(_));
        if is_hole
            && inode.entries.get(block).is_none()
            && let Err(error) = check_first(inode, block, None)
            && !visit(block, Err(error.into()))?
        {
            return Ok(());
        }
        if disk.store.is_some() {
            if !visit_live(disk, inode, run.clone(), mapping.place, &mut visit)? {
                return Ok(());
            }
        } else if let Place::Mapped(pba) = mapping.place {
            visited = len.saturating_add(visited);
            if visited > disk.layout.main_blocks() {
                let what = "the directory has more blocks than the volume";
                return Err(Corrupt::Mapping { ino: inode.nid, block, what, value: visited }.into());
            }
            disk.buffers.prefetch(pba, len);
            for (block, pba) in run.clone().zip(pba.get()..) {
                let image = disk.buffers.get(Pba(pba)).map(|buffer| buffer.image());
                let image = image.as_deref().map_err(|error| error.clone().into());
                let image = image.and_then(|image| {
                    check_first(inode, block, Some(image))?;
                    Ok(image)
                });
                if !visit(block, image)? {
                    return Ok(());
                }
            }
        }
        block = run.end;
    }
    Ok(())
}

/// Blocks of one run; those that have no address yet are in memory.
fn visit_live(
    disk: &Disk,
    inode: &Inode,
    run: std::ops::Range<u64>,
    place: Place,
    visit: &mut impl FnMut(u64, Result<&[u8]>) -> Result<bool>,
) -> Result<bool> {
    let there = match place {
        Place::Mapped(_) => run.collect(),
        _ => inode.entries.in_range(run),
    };
    for block in there {
        let goes_on = match read_live(disk, inode, block) {
            Ok(Some(image)) => visit(block, Ok(&image))?,
            Ok(None) => true,
            Err(error) => visit(block, Err(error))?,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number of buckets at the level of a block, and the bucket that the block belongs to.
#[must_use]
pub(crate) fn bucket_of(block: u64, dir_level: u8) -> Option<(u64, u64)> {
    let mut within = block;
    for level in 0..MAX_DEPTH {
        let Some(behind) = within.checked_sub(level_blocks(level, dir_level)) else {
            return Some((buckets(level, dir_level), within.checked_div(bucket_blocks(level))?));
        };
        within = behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::dentry::bucket_start;

    #[test]
    fn buckets_are_found_from_their_blocks() {
        for dir_level in [0, 1, 5] {
            for hash in [0, 1, 77, 0xffff_ffff_u32] {
                for level in 0..12 {
                    let block = bucket_start(level, dir_level, hash) + 1;
                    let (count, bucket) = bucket_of(block, dir_level).unwrap();
                    assert_eq!(
                        (count, bucket),
                        (buckets(level, dir_level), u64::from(hash) % count)
                    );
                }
            }
        }
        assert_eq!(bucket_of(u64::MAX, 0), None);
    }
}
