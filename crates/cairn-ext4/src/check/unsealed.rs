//! A first superblock with a wrong checksum or revision, of which there is no backup.
//!
//! Small volumes have one group, and so no backup. One changed bit of the superblock would be the
//! end of all their files, if nothing else said where these are. But descriptors and inodes have
//! checksums of their own, which the superblock's UUID is a part of, and lie where it says. A
//! revision of 0 hides the features; where the checksum is right with revision 1, this is proved.

use std::sync::Arc;

use cairn_base::units::{as_index, as_u64};
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::{Finding, Place};

use super::kinds;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::group_desc::GroupDesc;
use crate::format::inode::Inode as Record;
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::{self, OFFSET, REVISION, SIZE, Superblock};
use crate::mount;
use crate::options::MountOptions;

/// The volume with another checksum or revision of the superblock, which is kept in memory, and
/// what is wrong. `None` if something else is wrong with the superblock, if no mount could read the
/// volume with it, or if descriptors and the root disagree with it.
///
/// # Errors
/// The device failed.
pub(super) fn reseal(
    device: &Arc<dyn BlockDevice>,
    why: &Corrupt,
) -> Result<Option<(Arc<dyn BlockDevice>, Finding)>> {
    let bytes = device.read_bytes(OFFSET, SIZE)?;
    let Some(superblock) = Superblock::decode_unsealed(&bytes) else { return Ok(None) };
    let finding = match why {
        Corrupt::Checksum { what: "superblock", stored, computed, .. } => {
            Finding::new(&kinds::SUPERBLOCK_CHECKSUM, Place::volume()).hex(*stored, *computed)
        }
        Corrupt::Superblock { field: REVISION, value, .. } => {
            let kind = match superblock.is_sealed() {
                true => &kinds::SUPERBLOCK_FIELD,
                false => &kinds::SUPERBLOCK_REVISION,
            };
            Finding::new(kind, Place::field(REVISION)).stored(*value).computed(1_u64)
        }
        _ => return Ok(None),
    };
    let Ok(layout) = Layout::new(&superblock, device.geometry().size) else { return Ok(None) };
    let can_mount = mount::read_only_reason(&layout, &**device, &MountOptions::default()).is_ok();
    if !can_mount || !agrees(&**device, &layout)? {
        return Ok(None);
    }
    let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device.clone())?);
    overlay.write_at(OFFSET, superblock.encode().to_vec())?;
    Ok(Some((overlay, finding)))
}

/// The superblock with its magic number, if it has another one and all else of it is sound: its
/// checksum is right, or descriptors and the root agree with it.
fn with_magic(device: &dyn BlockDevice, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(right) = superblock::with_magic(bytes) else { return Ok(None) };
    let Ok(found) = Superblock::decode(&right) else { return Ok(None) };
    let Ok(layout) = Layout::new(&found, device.geometry().size) else { return Ok(None) };
    let is_sound = found.is_sealed() || agrees(device, &layout)?;
    Ok(is_sound.then_some(right))
}

/// The superblock with the magic number, or the one bit, right by which it is none, or its checksum
/// does not hold. `None` if it is sound, or more is wrong.
///
/// # Errors
/// The device failed.
pub(super) fn with_right_bit(device: &dyn BlockDevice) -> Result<Option<Vec<u8>>> {
    let size = device.geometry().size;
    if size < OFFSET.saturating_add(as_u64(SIZE)) {
        return Ok(None);
    }
    let mut bytes = device.read_bytes(OFFSET, SIZE)?.to_vec();
    if Superblock::decode(&bytes).is_ok() {
        return Ok(None);
    }
    if let Some(right) = with_magic(device, &bytes)? {
        return Ok(Some(right));
    }
    let is_sound = |bytes: &[u8]| {
        let found = Superblock::decode(bytes).ok().filter(Superblock::is_sealed);
        found.is_some_and(|found| Layout::new(&found, size).is_ok())
    };
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let flip = |bytes: &mut [u8]| {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            };
            flip(&mut bytes);
            if is_sound(&bytes) {
                return Ok(Some(bytes));
            }
            flip(&mut bytes);
        }
    }
    Ok(None)
}

/// Are the checksums of all descriptors right, and that of the root, which is a directory?
pub(super) fn agrees(device: &dyn BlockDevice, layout: &Layout) -> Result<bool> {
    let size = as_index(layout.block_size);
    let place = |pba: cairn_base::Pba| pba.get().saturating_mul(layout.block_size.into());
    let mut tables = None;
    for index in 0..layout.descriptor_blocks() {
        let first = index.saturating_mul(layout.descs_per_block());
        let block = device.read_block(place(layout.descriptor_block(first)), size)?;
        for group in (first..layout.groups).take(as_index(layout.descs_per_block())) {
            let at = layout.descriptor_offset(group);
            let bytes = block.get(at..at.saturating_add(as_index(layout.desc_size)));
            match bytes.map(|bytes| GroupDesc::decode(bytes, group, layout)) {
                Some(Ok(desc)) => tables = tables.or(Some(desc.inode_table)),
                _ => return Ok(false),
            }
        }
    }
    let root = layout.inode_group(inodes::ROOT).filter(|(group, _)| *group == 0);
    let (Some(table), Some((_, index))) = (tables, root) else { return Ok(false) };
    let root = layout.inode_location(index, table);
    if !layout.contains(root.pba, 1) {
        return Ok(false);
    }
    let block = device.read_block(place(root.pba), size)?;
    let end = root.offset.saturating_add(as_index(layout.inode_size));
    let Some(bytes) = block.get(root.offset..end) else { return Ok(false) };
    let record = Record::decode(bytes, inodes::ROOT, layout);
    Ok(record.is_ok_and(|record| record.is_directory() && record.links > 0))
}
