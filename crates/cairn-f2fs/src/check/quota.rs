//! Quota files: what they count, against what users, groups and projects have.
//!
//! Linux counts inodes, and all blocks of an inode but its own node. A mount of Cairn does not
//! count, and sets `CP_QUOTA_NEED_FSCK` instead. Nor does a recovery in memory: there the counts
//! were compared before it.
//!
//! A number of the superblock that leads to a file with a name is wrong: the file is somebody's.

use cairn_base::Pba;
use cairn_base::units::{as_index, as_u64};
use cairn_check::quota::{OwnerKind, QUOTA_BLOCK, QuotaFile, differences};
use cairn_check::{Finding, Place, Value};
use cairn_vfs::FileKind;

use super::context::{Context, Scratch};
use super::quota_walk::Contents;
use super::volume::is_no_quota;
use super::{kinds, nodes, slots};
use crate::blocks;
use crate::error::Result;
use crate::format::units::{BLOCK_SIZE, BlockAddr, Nid};
use crate::format::{Features, Inode};

/// The quota files that the superblock names.
pub(super) fn files(context: &Context) -> impl Iterator<Item = (OwnerKind, Nid)> {
    let named = OwnerKind::ALL.into_iter().zip(context.layout.quota_inodes);
    named.filter(|(_, ino)| !ino.is_none())
}

/// Compares all quota files with what was counted. One that is no file was found before.
///
/// # Errors
/// The device's.
pub(super) fn check(context: &Context, scratch: &mut Scratch) -> Result<()> {
    let Some(quota) = &context.quota else { return Ok(()) };
    let named = context.layout.quota_inodes;
    let right = names(context, scratch)?;
    for (ino, right) in named.into_iter().zip(right).filter(|(ino, right)| ino != right) {
        // An impossible number was found with the superblock.
        if !is_no_quota(ino, &context.volume) {
            let finding = Finding::new(&kinds::SUPERBLOCK_FIELD, Place::field("qf_ino"));
            context.add(finding.stored(ino.get()).computed(right.get()));
        }
    }
    // What is somebody's is not compared.
    for (kind, ino) in files(context).filter(|(_, ino)| right.contains(ino)) {
        let Some(file) = read(context, kind, ino) else { continue };
        let place = Place::inode(ino.get());
        if let Some(why) = &file.damage {
            context.add(Finding::new(&kinds::QUOTA_FILE, place).stored(Value::text(why)));
            continue;
        }
        if context.volume.is_recovered {
            continue;
        }
        for one in differences(&file, &quota.counted.usage(kind)) {
            let stored = one.stored.map_or("no entry".into(), |usage| usage.to_string());
            let finding = Finding::new(&kinds::QUOTA_COUNTS, place.clone().of_owner(one.id));
            let finding = finding.stored(Value::text(stored));
            context.add(finding.computed(Value::text(one.counted.to_string())));
        }
    }
    Ok(())
}

/// The numbers that the superblock must have: one that leads to somebody's file, or nowhere, is
/// that of the file that proves to count for these owners, or else 0.
///
/// # Errors
/// The device's.
pub(super) fn names(context: &Context, scratch: &mut Scratch) -> Result<[Nid; 3]> {
    let mut right = context.layout.quota_inodes;
    if !context.layout.features.contains(Features::QUOTA_INO) {
        return Ok([Nid::NONE; 3]);
    }
    for (kind, slot) in OwnerKind::ALL.into_iter().zip(&mut right) {
        let ino = *slot;
        if ino.is_none() {
            continue;
        }
        let is_possible = !is_no_quota(ino, &context.volume);
        let is_there = is_possible && context.nodes.inode(ino).is_some();
        if is_there && !is_somebodys(context, scratch, kind, ino)? {
            continue;
        }
        match search(context, scratch, kind)? {
            Some(found) => *slot = found,
            // What is missing has a finding of its own.
            None if !is_possible || is_there => *slot = Nid::NONE,
            None => {}
        }
    }
    Ok(right)
}

/// Does an entry lead to the inode? Or does it record a name, and hold no quota?
fn is_somebodys(
    context: &Context,
    scratch: &mut Scratch,
    kind: OwnerKind,
    ino: Nid,
) -> Result<bool> {
    let Some(node) = context.nodes.inode(ino) else { return Ok(false) };
    if node.links() > 0 || ino == Nid::ROOT {
        return Ok(true);
    }
    let has_name = record(context, scratch, ino)?.is_some_and(|(record, _)| {
        // Quota files have none.
        !record.name.is_empty()
    });
    Ok(has_name && !is_file_of(context, scratch, kind, ino)?)
}

/// The only inode without a name that holds the quota of these owners, and that nothing else names.
fn search(context: &Context, scratch: &mut Scratch, kind: OwnerKind) -> Result<Option<Nid>> {
    let mut found = None;
    for (ino, node) in context.nodes.iter() {
        let is_hidden = node.ino() == ino
            && node.links() == 0
            && ino != Nid::ROOT
            && ![nodes::QUOTA, nodes::ORPHAN, nodes::DAMAGED].iter().any(|mark| node.is(*mark));
        if !is_hidden || !is_file_of(context, scratch, kind, ino)? {
            continue;
        }
        if found.is_some() {
            return Ok(None);
        }
        found = Some(ino);
    }
    Ok(found)
}

/// Is it a sound file of quota of these owners? One that is so large that it has nodes is not read.
fn is_file_of(context: &Context, scratch: &mut Scratch, kind: OwnerKind, ino: Nid) -> Result<bool> {
    let Some((record, image)) = record(context, scratch, ino)? else { return Ok(false) };
    if record.kind != FileKind::Regular || !slots::has_pointers(&record) {
        return Ok(false);
    }
    let blocks = (0_u64..).zip(record.data_pointers(&image));
    let blocks = blocks.filter(|(_, addr)| context.layout.in_main(*addr)).collect();
    let contents = Contents { size: record.size, blocks };
    let file = read_contents(context, kind, &contents);
    Ok(file.is_some_and(|file| file.damage.is_none()))
}

fn record(context: &Context, scratch: &mut Scratch, ino: Nid) -> Result<Option<(Inode, Vec<u8>)>> {
    let Some(node) = context.nodes.inode(ino) else { return Ok(None) };
    let found = context.with_block(scratch, node.addr(), |image| {
        let record = Inode::decode(image, ino, context.layout.features).ok()?;
        Some((record, image.to_vec()))
    })?;
    Ok(found.flatten())
}

/// Reads a quota file, as far as it can be read. `None` if the walk has seen no such file.
pub(super) fn read(context: &Context, kind: OwnerKind, ino: Nid) -> Option<QuotaFile> {
    read_contents(context, kind, &*context.quota.as_ref()?.file(ino)?)
}

fn read_contents(context: &Context, kind: OwnerKind, contents: &Contents) -> Option<QuotaFile> {
    let per_block = BLOCK_SIZE.checked_div(QUOTA_BLOCK)?;
    let count = contents.size.checked_div(as_u64(QUOTA_BLOCK))?;
    let mut last: Option<(BlockAddr, Vec<u8>)> = None;
    let mut block = |number: u32| {
        let number = as_index(number);
        let at = as_u64(number.checked_div(per_block)?);
        let addr = *contents.blocks.get(&at)?;
        if last.as_ref().is_none_or(|(known, _)| *known != addr) {
            let bytes = blocks::read(&*context.volume.device, Pba(addr.get().into()), 1).ok()?;
            last = Some((addr, bytes.to_vec()));
        }
        let (_, bytes) = last.as_ref()?;
        let start = number.checked_rem(per_block)?.checked_mul(QUOTA_BLOCK)?;
        bytes.get(start..start.checked_add(QUOTA_BLOCK)?).map(<[u8]>::to_vec)
    };
    Some(QuotaFile::read(kind, u32::try_from(count).unwrap_or(u32::MAX), &mut block))
}
