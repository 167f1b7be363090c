//! The backups of superblocks on a device, wherever a group may begin.
//!
//! Formatting leaves backups of the volume that was there before. Those may lie in usual places,
//! and the younger ones not. The descriptors behind the first superblock tell them apart. All
//! places are read only if no backup in a usual one agrees with those descriptors: a file of a user
//! may hold what looks like a backup.

use std::cmp::Reverse;
use std::ops::Range;

use cairn_base::Pba;
use cairn_base::units::as_index;
use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::format::backup::{self, BackupLocation};
use crate::format::group_desc::GroupDesc;
use crate::format::inode::Inode as Record;
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::{self, Superblock};

/// Bytes of the device that are searched for backups; the first one is not farther.
const SEARCHED: u64 = 4 << 30;
/// Bytes in which group 1 begins, whatever its size, if blocks have at most 4 KiB and no clusters.
const NEAR: u64 = 128 << 20;
/// Bytes that are read at once.
const PART: u32 = 1 << 20;
/// Where a superblock has its magic number, and the number.
const MAGIC_AT: usize = 56;
const MAGIC: [u8; 2] = [0x53, 0xef];
/// Where a superblock has its UUID.
const UUID_AT: Range<usize> = 104..120;
/// The sizes of groups with clusters are powers of 2, from this one on.
const LEAST_CLUSTERED: u32 = 24;
/// Descriptors that tell a backup of this volume from another's.
const COMPARED: u32 = 16;
/// The first groups that have backups.
const GROUPS: [u64; 5] = [1, 3, 5, 7, 9];

/// A valid backup.
#[derive(Clone)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) place: BackupLocation,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    /// It is in a place where programs put backups.
    pub(crate) is_usual: bool,
}

/// The backups in usual places, and in those that the bytes of the first superblock give. Volumes
/// have at most `limit` bytes.
#[must_use]
pub(crate) fn usual(device: &dyn BlockDevice, first: &[u8], limit: u64) -> Vec<Found> {
    let places = backup::locations(first, device.geometry().size);
    let found = places.into_iter().filter_map(|place| {
        let bytes = read(device, place.offset())?;
        Some(Found { is_usual: true, ..decoded(place, &bytes, limit)? })
    });
    ordered(device, found.collect(), first)
}

/// The backups in usual places, if the first of them leads to a root and agrees with the first
/// descriptors; or else also those in all places where groups of up to 128 MiB may begin, for which
/// 128 MiB are read. The backup to take comes first.
#[must_use]
pub(crate) fn all(device: &dyn BlockDevice, first: &[u8], limit: u64) -> Vec<Found> {
    let mut found = usual(device, first, limit);
    let is_good = |found: &Found| {
        agrees(device, found) && leads_to_root(device, &found.layout, Some(found.place.group))
    };
    if found.first().is_some_and(is_good) {
        return found;
    }
    let others: Vec<Found> =
        marked(device, 0..NEAR, limit).chain(clustered(device, limit)).collect();
    for other in others {
        if found.iter().all(|known| known.place != other.place) {
            found.push(other);
        }
    }
    ordered(device, found, first)
}

/// The first backup on the device. Reads up to 4 GiB.
#[must_use]
pub(crate) fn anywhere(device: &dyn BlockDevice, limit: u64) -> Option<Found> {
    marked(device, 0..SEARCHED, limit).next()
}

/// As [`anywhere`], where [`all`] has found none: its places are left out.
#[must_use]
pub(crate) fn farther(device: &dyn BlockDevice, limit: u64) -> Option<Found> {
    marked(device, NEAR..SEARCHED, limit).next()
}

/// The backup at a byte offset, by its own description.
#[must_use]
pub(crate) fn described(device: &dyn BlockDevice, at: u64, limit: u64) -> Option<Found> {
    let bytes = read(device, at)?;
    decoded(BackupLocation::at(at, &bytes)?, &bytes, limit)
}

fn decoded(place: BackupLocation, bytes: &[u8], limit: u64) -> Option<Found> {
    let (superblock, layout) = place.decode(bytes, limit).ok()?;
    Some(Found { place, superblock, layout, is_usual: false })
}

/// Those of the volume whose UUID the first superblock has come first. Of others: those that lead
/// to a root and agree with the first descriptors; those that lead to a root; those in usual
/// places; those that were made last.
fn ordered(device: &dyn BlockDevice, mut found: Vec<Found>, first: &[u8]) -> Vec<Found> {
    let own = first.get(UUID_AT);
    found.sort_by_cached_key(|found| {
        let is_own = own == Some(&found.superblock.raw.s_uuid[..]);
        let leads = leads_to_root(device, &found.layout, Some(found.place.group));
        let age = (found.superblock.made(), found.superblock.written());
        Reverse((is_own, leads && agrees(device, found), leads, found.is_usual, age))
    });
    found
}

/// Do the descriptors of a backup agree with the first ones?
fn agrees(device: &dyn BlockDevice, found: &Found) -> bool {
    let layout = &found.layout;
    let places = |group| -> Option<Vec<_>> {
        let all = (0..layout.groups.min(COMPARED)).map(|number| {
            let found = descriptor(device, layout, number, group)?;
            Some((found.block_bitmap, found.inode_bitmap, found.inode_table))
        });
        all.collect()
    };
    let first = places(None);
    first.is_some() && first == places(Some(found.place.group))
}

/// A block, as a superblock sizes it.
fn block(device: &dyn BlockDevice, layout: &Layout, pba: Pba) -> Option<Vec<u8>> {
    let at = pba.get().checked_mul(layout.block_size.into())?;
    Some(device.read_bytes(at, as_index(layout.block_size)).ok()?.to_vec())
}

/// A descriptor, or its copy in the group of a backup, if it is sound.
#[must_use]
pub(crate) fn descriptor(
    device: &dyn BlockDevice,
    layout: &Layout,
    number: u32,
    group: Option<u32>,
) -> Option<GroupDesc> {
    let index = number.checked_div(layout.descs_per_block())?;
    let copy = group.and_then(|group| layout.descriptor_block_copy(index, group));
    let block = block(device, layout, copy.unwrap_or_else(|| layout.descriptor_block(number)))?;
    let at = layout.descriptor_offset(number);
    let bytes = block.get(at..at.checked_add(as_index(layout.desc_size))?)?;
    GroupDesc::decode(bytes, number, layout).ok()
}

/// Does a superblock, or the backup of a group, lead to a sound root?
#[must_use]
pub(crate) fn leads_to_root(device: &dyn BlockDevice, layout: &Layout, group: Option<u32>) -> bool {
    let root = || {
        let (_, index) = layout.inode_group(inodes::ROOT)?;
        let table = descriptor(device, layout, 0, group)?.inode_table;
        let place = layout.inode_location(index, table);
        let end = place.offset.checked_add(as_index(layout.inode_size))?;
        let block = block(device, layout, place.pba)?;
        Record::decode(block.get(place.offset..end)?, inodes::ROOT, layout).ok()
    };
    root().is_some_and(|root| root.is_directory())
}

/// The backups in a part of the device, by the magic number.
fn marked(
    device: &dyn BlockDevice,
    part: Range<u64>,
    limit: u64,
) -> impl Iterator<Item = Found> + '_ {
    let end = device.geometry().size.min(part.end);
    (part.start..end).step_by(as_index(PART)).flat_map(move |at| {
        // A part that cannot be read has no backup for us.
        let len = u32::try_from(end.saturating_sub(at).min(PART.into())).map_or(0, as_index);
        let bytes = device.read_bytes(at, len).map(|bytes| bytes.to_vec()).unwrap_or_default();
        // A superblock begins at a block, and no block is smaller.
        let blocks = (at..).step_by(superblock::SIZE).zip(bytes.chunks(superblock::SIZE));
        let is_marked = |block: &[u8]| {
            let magic = block.get(MAGIC_AT..).and_then(<[u8]>::first_chunk);
            magic == Some(&MAGIC)
        };
        let found = blocks.filter(|(_, block)| is_marked(block)).filter_map(|(offset, block)| {
            decoded(BackupLocation::at(offset, block)?, block, limit)
        });
        found.collect::<Vec<_>>()
    })
}

/// The backups of volumes with clusters, in their first groups.
fn clustered(device: &dyn BlockDevice, limit: u64) -> impl Iterator<Item = Found> + '_ {
    let size = device.geometry().size;
    let sizes = (LEAST_CLUSTERED..u64::BITS).map(|log| 1_u64 << log);
    let places = sizes.take_while(move |bytes| *bytes < size);
    let places = places.flat_map(|bytes| GROUPS.map(|group| bytes.saturating_mul(group)));
    places.filter(move |at| *at < size).filter_map(move |at| described(device, at, limit))
}

/// The 1024 bytes of a superblock. `None` if they cannot be read.
fn read(device: &dyn BlockDevice, offset: u64) -> Option<Vec<u8>> {
    let end = offset.checked_add(cairn_base::units::as_u64(superblock::SIZE))?;
    let is_there = end <= device.geometry().size;
    is_there.then(|| device.read_bytes(offset, superblock::SIZE).ok())?.map(|bytes| bytes.to_vec())
}
