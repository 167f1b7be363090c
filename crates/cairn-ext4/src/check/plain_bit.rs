//! The only superblock of a small volume without checksums, with one wrong bit by which it
//! describes no volume.
//!
//! A volume of one group has no backup. But fields repeat each other, the bitmaps end where the
//! numbers of inodes and blocks do, and the root lies in the table. The bit with which all of that
//! fits is the wrong one, if there is only one such bit.
//!
//! Features are left as they are: a newer program may have set an unknown one, and without that of
//! checksums nothing would contradict the rest.

use std::ops::Range;

use cairn_base::units::{as_index, as_u64};
use cairn_base::{Pba, bitmap};
use cairn_block::{BlockDevice, BlockDeviceExt};

use super::unsealed::agrees;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::features::{Access, Incompat, RoCompat};
use crate::format::group_desc::GroupDesc;
use crate::format::layout::Layout;
use crate::format::superblock::{MAGIC, OFFSET, OLD_FIRST_INODE, SIZE, Superblock, magic_of};

/// Bits that are looked at more closely, at most.
const MOST: usize = 64;
/// The words of features.
const FEATURES: Range<usize> = 92..104;

/// The superblock with the bit right.
///
/// # Errors
/// The device failed.
pub(super) fn right(device: &dyn BlockDevice) -> Result<Option<Vec<u8>>> {
    let size = device.geometry().size;
    if size < OFFSET.saturating_add(as_u64(SIZE)) {
        return Ok(None);
    }
    let mut bytes = device.read_bytes(OFFSET, SIZE)?.to_vec();
    let is_short = match described(&bytes, size) {
        Ok(_) => return Ok(None),
        Err(_) if has_unknown_features(&bytes) => return Ok(None),
        Err(why) => matches!(why, Some(Corrupt::TooShort { .. })),
    };
    let mut found = Vec::new();
    for at in (0..bytes.len()).filter(|at| !FEATURES.contains(at)) {
        for bit in 0..8 {
            let flip = |bytes: &mut [u8]| {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            };
            flip(&mut bytes);
            let layout = described(&bytes, size).ok().filter(|_| found.len() < MOST);
            if let Some(layout) = layout
                && let Some(ends) = ends(device, &layout)?
                && (!is_short || ends.is_exact && is_as_long(&layout, size))
            {
                found.push((bytes.clone(), ends));
            }
            flip(&mut bytes);
        }
    }
    // Inodes in use at the end of the bitmap look like what is behind it.
    if found.len() > 1 {
        found.retain(|(_, ends)| ends.is_exact);
    }
    Ok(match found.len() {
        1 => found.pop().map(|(bytes, _)| bytes),
        _ => None,
    })
}

/// Is the superblock sound, but of a newer program?
fn has_unknown_features(bytes: &[u8]) -> bool {
    let found = Superblock::decode(bytes).ok().filter(|_| magic_of(bytes) == Some(MAGIC));
    found.is_some_and(|found| matches!(found.features().access(), Access::Refuse(_)))
}

/// The volume that a superblock describes, as far as its fields agree with each other; else why it
/// describes none, if that is known.
fn described(bytes: &[u8], size: u64) -> Result<Layout, Option<Corrupt>> {
    if magic_of(bytes) != Some(MAGIC) {
        return Err(None);
    }
    let found = Superblock::decode(bytes).map_err(Some)?;
    let layout = Layout::new(&found, size).map_err(Some)?;
    let (raw, features) = (&found.raw, found.features());
    let has_sums = features.ro_compat(RoCompat::METADATA_CSUM);
    let has_clusters = features.ro_compat(RoCompat::BIGALLOC);
    let table = u64::from(layout.inodes_per_group).saturating_mul(layout.inode_size.into());
    let fits = layout.groups == 1
        && !has_sums
        && !matches!(features.access(), Access::Refuse(_))
        && (has_clusters || raw.s_clusters_per_group == raw.s_blocks_per_group)
        && (has_clusters || raw.s_log_cluster_size == raw.s_log_block_size)
        && table.is_multiple_of(layout.block_size.into())
        && layout.inodes_per_group.is_multiple_of(8)
        && raw.s_first_ino.get() == OLD_FIRST_INODE
        && (!features.incompat(Incompat::BITS_64) || layout.desc_size == 64);
    if fits { Ok(layout) } else { Err(None) }
}

/// Does the volume end where the device does?
fn is_as_long(layout: &Layout, size: u64) -> bool {
    layout.blocks_count.checked_mul(layout.block_size.into()) == Some(size)
}

/// How the bitmaps of a group end.
struct Ends {
    /// The last inode and the last block are free, so that the ends are seen.
    is_exact: bool,
}

/// Where the bitmaps of the only group end; `None` if that is elsewhere than the layout says, or if
/// there is no root.
fn ends(device: &dyn BlockDevice, layout: &Layout) -> Result<Option<Ends>> {
    if !agrees(device, layout)? {
        return Ok(None);
    }
    let size = as_index(layout.block_size);
    let read = |pba: Pba| device.read_block(pba.get().saturating_mul(as_u64(size)), size);
    let block = read(layout.descriptor_block(0))?;
    let at = layout.descriptor_offset(0);
    let bytes = block.get(at..at.saturating_add(as_index(layout.desc_size)));
    let Some(Ok(desc)) = bytes.map(|bytes| GroupDesc::decode(bytes, 0, layout)) else {
        return Ok(None);
    };
    let clusters = layout.group_blocks(0) >> layout.cluster_bits;
    let mut is_exact = true;
    for (pba, count) in
        [(desc.inode_bitmap, layout.inodes_per_group), (desc.block_bitmap, clusters)]
    {
        if !layout.contains(pba, 1) {
            return Ok(None);
        }
        let bits = read(pba)?;
        let count = as_index(count);
        if (count..bits.len().saturating_mul(8)).any(|bit| !bitmap::test(&bits, bit)) {
            return Ok(None);
        }
        is_exact &= count.checked_sub(1).is_some_and(|last| !bitmap::test(&bits, last));
    }
    Ok(Some(Ends { is_exact }))
}
