//! Groups: their descriptors, and after all else their bitmaps and counts.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::bitmap;
use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_check::Finding;

use super::super::bitmaps::InUse;
use super::super::kinds;
use super::mender::{DISPUTED, Mender};
use super::recover;
use crate::error::Result;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::superblock::Superblock;

/// Marks of parts that were never written.
fn marks() -> GroupFlags {
    GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT
}

/// Mends descriptors.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let before = mender.steps.made();
    for finding in findings {
        let Some(group) = finding.place.group.and_then(|group| u32::try_from(group).ok()) else {
            continue;
        };
        let code = finding.kind.code;
        if [kinds::GROUP_CHECKSUM.code, kinds::GROUP_FLAGS.code].contains(&code) {
            let is_unmarked = code == kinds::GROUP_FLAGS.code;
            if is_unmarked && mender.state.layout.features.has_group_checksums() {
                // The inodes stay as they are: nobody may have written their table.
                mender.edit_group(group, |desc| desc.flags.remove(GroupFlags::BLOCK_UNINIT))?;
            } else {
                unmark(mender, group, is_unmarked)?;
            }
            mender.step(finding);
        }
    }
    if mender.steps.made() > before {
        return Ok(());
    }
    // First what a backup has: a new place may be one of a table that is not known yet.
    for may_be_new in [false, true] {
        for finding in findings {
            let group = finding.place.group.and_then(|group| u32::try_from(group).ok());
            if let (Some(group), Some(field)) = (group, finding.place.field) {
                place(mender, group, field, finding, may_be_new)?;
            }
        }
        if mender.steps.made() > before {
            break;
        }
    }
    Ok(())
}

/// Removes marks that nobody can trust, and seals the descriptor.
fn unmark(mender: &Mender<'_>, group: u32, is_undefined: bool) -> Result<()> {
    mender.edit_group(group, |desc| {
        desc.flags.remove(marks());
        desc.itable_unused = 0;
    })?;
    if is_undefined {
        // Without checksums of descriptors the marks are not encoded.
        let layout = &mender.state.layout;
        let pba = layout.descriptor_block(group);
        let mut block = mender.read(pba)?;
        let at = layout.descriptor_offset(group).saturating_add(18);
        if let Some(byte) = block.get_mut(at) {
            *byte &= !3;
        }
        mender.write(pba, block)?;
    }
    Ok(())
}

/// Gives a bitmap or an inode table another place: that of a backup of the descriptor, or a new
/// one.
fn place(
    mender: &mut Mender<'_>,
    group: u32,
    field: &str,
    finding: &Finding,
    may_be_new: bool,
) -> Result<()> {
    let table = mender.state.layout.inode_table_blocks();
    let blocks = if field == "bg_inode_table" { table } else { 1 };
    let stored = mender.state.groups.get(as_index(group)).map(|group| group.desc.clone());
    let of = |desc: &GroupDesc| match field {
        "bg_block_bitmap" => desc.block_bitmap,
        "bg_inode_bitmap" => desc.inode_bitmap,
        _ => desc.inode_table,
    };
    let old = stored.as_ref().map_or(Pba(0), of);
    let copy = backup(mender, group)?.map(|desc| of(&desc)).filter(|copy| *copy != old);
    let is_free = |pba: Pba| {
        let state = mender.state;
        state.layout.contains(pba, blocks.into())
            && state.system.count_range(pba.get(), blocks.into()) == 0
    };
    let found = copy.filter(|copy| is_free(*copy));
    let new = match found {
        Some(place) => place,
        None if !may_be_new => return Ok(()),
        None => {
            let bits = mender.state.layout.cluster_bits;
            let clusters = u64::from(blocks).div_ceil(mender.state.cluster_blocks());
            let Some(cluster) = near(mender, group, clusters) else { return Ok(()) };
            let place = Pba(cluster << bits);
            for at in 0..u64::from(blocks) {
                mender.write(Pba(place.get().saturating_add(at)), mender.empty_block())?;
            }
            place
        }
    };
    mender.edit_group(group, |desc| match field {
        "bg_block_bitmap" => desc.block_bitmap = new,
        "bg_inode_bitmap" => desc.inode_bitmap = new,
        _ => desc.inode_table = new,
    })?;
    let is_lost = found.is_none() && field == "bg_inode_table";
    match is_lost {
        true => lose_table(mender, group, finding),
        false => mender.step(finding),
    }
    Ok(())
}

/// Lists the files whose inodes are lost with the table of a group: its bitmap has their numbers.
fn lose_table(mender: &mut Mender<'_>, group: u32, finding: &Finding) {
    let state = mender.state;
    let known = state.groups.get(as_index(group)).filter(|known| known.has_inode_bitmap);
    let bits = known.and_then(|known| mender.read(known.desc.inode_bitmap).ok());
    let bits = bits.unwrap_or_default();
    let is_used =
        |index: &u32| bits.len() > as_index(*index / 8) && bitmap::test(&bits, as_index(*index));
    let mut is_listed = false;
    for index in (0..state.layout.inodes_per_group).filter(is_used) {
        let ino = state.layout.ino(group, index);
        if ino.get() >= u64::from(state.layout.first_ino) {
            mender.lose(finding, ino, &format!("the file of inode {ino}"));
            is_listed = true;
        }
    }
    if !is_listed {
        mender.lose(finding, Ino(0), &format!("all files of group {group}"));
    }
}

/// Free clusters in a group, or anywhere if structures may lie anywhere.
fn near(mender: &Mender<'_>, group: u32, clusters: u64) -> Option<u64> {
    use crate::format::features::Incompat;
    let layout = &mender.state.layout;
    if layout.features.incompat(Incompat::FLEX_BG) {
        return mender.allocate(clusters);
    }
    let first = mender.state.cluster(layout.group_first_block(group).get());
    let end = first.saturating_add(layout.group_clusters(group).into());
    mender.allocate_in(first, end, clusters)
}

/// The descriptor of a group in the first backup, if its checksum is right.
fn backup(mender: &Mender<'_>, group: u32) -> Result<Option<GroupDesc>> {
    let layout = &mender.state.layout;
    let Some(first) = (1..layout.groups).find(|group| layout.backups(*group)) else {
        return Ok(None);
    };
    let per_block = layout.descs_per_block().max(1);
    let index = group.checked_div(per_block).unwrap_or(0);
    let place = layout.superblock_block(first).get().saturating_add(1).saturating_add(index.into());
    if layout.is_meta_bg(group) || !layout.contains(Pba(place), 1) {
        return Ok(None);
    }
    let block = mender.read(Pba(place))?;
    let at = layout.descriptor_offset(group);
    let end = at.saturating_add(as_index(layout.desc_size));
    let bytes = block.get(at..end).unwrap_or_default();
    Ok(GroupDesc::decode(bytes, group, layout).ok())
}

/// Writes bitmaps and counts as the rest of the volume implies them. With `adds`, bits are only
/// set: what seems to be free may belong to what is left damaged.
pub(super) fn count(mender: &mut Mender<'_>, findings: &[&Finding], adds: bool) -> Result<()> {
    let mut groups = BTreeSet::new();
    for finding in findings {
        match finding.place.group.and_then(|group| u32::try_from(group).ok()) {
            Some(group) if finding.kind.code == kinds::SUPERBLOCK_BACKUP.code => {
                recover::write_backup(mender, group)?;
            }
            Some(group) => {
                groups.insert(group);
            }
            None if adds => continue,
            None => totals(mender, finding)?,
        }
    }
    for group in groups {
        one(mender, group, adds)?;
    }
    let is_total = |finding: &&&Finding| finding.place.group.is_some() || !adds;
    for finding in findings.iter().filter(is_total) {
        match finding.place.inode.map(Ino) {
            Some(ino) if finding.kind.code == kinds::XATTR_DISPUTED.code => {
                mender.lose(finding, ino, DISPUTED);
            }
            _ if finding.kind.code == kinds::BLOCK_BITMAP_LEFT.code => {
                mender.lose(finding, Ino(0), "what these blocks hold of a file that had them");
            }
            _ => mender.step(finding),
        }
    }
    Ok(())
}

fn totals(mender: &mut Mender<'_>, finding: &Finding) -> Result<()> {
    if finding.kind.code == kinds::SUPERBLOCK_ERRORS.code {
        return mender.edit_superblock(Superblock::forget_errors);
    }
    if finding.kind.code == kinds::SUPERBLOCK_UNCLEAN.code {
        // Every repair that leaves nothing marks the volume as clean.
        return Ok(());
    }
    let (totals, bits) = (&mender.state.totals, mender.state.layout.cluster_bits);
    let blocks = totals.free_clusters.load(Relaxed) << bits;
    let inodes = u32::try_from(totals.free_inodes.load(Relaxed)).unwrap_or(u32::MAX);
    let is_blocks = finding.kind.code == kinds::SUPERBLOCK_FREE_BLOCKS.code;
    mender.edit_superblock(|superblock| match is_blocks {
        true => superblock.set_free_blocks(blocks),
        false => superblock.raw.s_free_inodes_count = inodes.into(),
    })
}

fn one(mender: &Mender<'_>, group: u32, adds: bool) -> Result<()> {
    let state = mender.state;
    let layout = state.layout;
    let Some(known) = state.groups.get(as_index(group)) else { return Ok(()) };
    let all = layout.block_size.saturating_mul(8);
    let clusters = layout.group_clusters(group);
    let mut blocks = InUse::blocks(state, group);
    let mut inodes = InUse::inodes(state, group);
    if adds {
        add_stored(mender, known.desc.block_bitmap, known.has_block_bitmap, &mut blocks.bits)?;
        add_stored(mender, known.desc.inode_bitmap, known.has_inode_bitmap, &mut inodes.bits)?;
    }
    pad(&mut blocks.bits, clusters, all);
    pad(&mut inodes.bits, layout.inodes_per_group, all);
    let block_sum = GroupDesc::block_bitmap_checksum(&blocks.bits, &layout);
    let inode_sum = GroupDesc::inode_bitmap_checksum(&inodes.bits, &layout);
    if known.has_block_bitmap {
        mender.write(known.desc.block_bitmap, blocks.bits)?;
    }
    if known.has_inode_bitmap {
        mender.write(known.desc.inode_bitmap, inodes.bits)?;
    }
    let has_checksums = layout.features.has_group_checksums();
    mender.edit_group(group, |desc| {
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        desc.block_bitmap_csum = block_sum.unwrap_or(desc.block_bitmap_csum);
        desc.inode_bitmap_csum = inode_sum.unwrap_or(desc.inode_bitmap_csum);
        if inodes.used > 0 {
            desc.flags.remove(GroupFlags::INODE_UNINIT);
        }
        if has_checksums {
            let unused = layout.inodes_per_group.saturating_sub(inodes.last);
            desc.itable_unused = desc.itable_unused.min(unused);
        }
        if !adds {
            desc.free_blocks = clusters.saturating_sub(blocks.used);
            desc.free_inodes = layout.inodes_per_group.saturating_sub(inodes.used);
            desc.used_dirs = inodes.directories;
        }
    })
}

/// Adds the bits that are stored.
fn add_stored(mender: &Mender<'_>, pba: Pba, exists: bool, bits: &mut [u8]) -> Result<()> {
    if exists {
        let stored = mender.read(pba)?;
        bits.iter_mut().zip(stored).for_each(|(byte, stored)| *byte |= stored);
    }
    Ok(())
}

/// Sets the bits from `bits` to `end`.
fn pad(map: &mut [u8], bits: u32, end: u32) {
    let end = as_index(end).min(map.len().saturating_mul(8));
    (as_index(bits)..end).for_each(|bit| {
        bitmap::set(map, bit);
    });
}
