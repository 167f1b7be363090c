//! What an inode has: blocks, a size that fits them, attributes.

use std::sync::atomic::Ordering::Relaxed;

use cairn_base::Ino;
use cairn_check::{Finding, Place};
use cairn_vfs::FileKind;

use super::attributes::{self, Attributes};
use super::claims::Claims;
use super::counted;
use super::facts::Facts;
use super::kinds;
use super::map;
use super::named;
use super::quota;
use super::state::State;
use crate::format::extent::MAX_FILE_BLOCKS;
use crate::format::features::{Incompat, RoCompat};
use crate::format::indirect::{self, decode_inode};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;

/// The longest target that `i_block` holds, with a NUL behind it.
const FAST_SYMLINK: u64 = 60;
/// Files from this size on need the feature large_file.
const LARGE: u64 = 1 << 31;

/// Claims the blocks of an inode, and checks what it says of them.
pub(super) fn check(state: &State, ino: Ino, record: &Record, kind: FileKind, facts: &Facts) {
    let mut claims = Claims::new(state, ino);
    if named::is_mere_map(state, ino) && has_no_kind(record) {
        // A list of bad blocks may be an empty map of any form.
        if ino == inodes::BAD && record.block.iter().any(|byte| *byte != 0) {
            map::walk(state, ino, record, &mut claims);
        }
        return;
    }
    let attributes = match has_no_map(state, ino, record) {
        true => Attributes::default(),
        false => attributes::check(state, ino, record, &mut claims),
    };
    translator(state, record, &mut claims);
    if kind == FileKind::Directory {
        state.totals.directories.fetch_add(1, Relaxed);
    }
    // Without the feature the flag is wrong, and the inode a file.
    let has_values = state.layout.features.incompat(Incompat::EA_INODE);
    if has_values && record.flags.contains(InodeFlags::EA_INODE) {
        facts.set_value();
    }
    if record.flags.contains(InodeFlags::ENCRYPT) {
        facts.set_encrypted();
        match attributes.policy {
            Some(policy) => state.set_policy(ino, policy),
            None => state.find(&kinds::ENCRYPTION_CONTEXT, Place::inode(ino.get())),
        }
    }
    let is_special = !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        inline(state, ino, record, kind, &attributes);
    } else if has_no_map(state, ino, record) {
        size(state, ino, record, kind, facts, &claims);
    } else if ino == inodes::RESIZE {
        return super::resize_inode::check(state, record, claims);
    } else if is_special {
        special(state, ino, record);
    } else if kind == FileKind::Symlink && record.size < FAST_SYMLINK {
        fast_symlink(state, ino, record);
    } else {
        claims.end_of_size = record.size.div_ceil(state.layout.block_size.into());
        if counted::walk(state, ino, record, &mut claims) && kind != FileKind::Symlink {
            let place = Place::inode(ino.get()).in_field("i_block");
            let finding = Finding::new(&kinds::INODE_SIZE_UNPROVED, place);
            state.findings.add(finding.stored("indirect blocks behind the end"));
        }
        let has_clusters = state.layout.features.ro_compat(RoCompat::BIGALLOC)
            && (ino == inodes::ROOT || !state.is_reserved(ino));
        let is_mapped = record.flags.contains(InodeFlags::EXTENTS);
        if has_clusters && !is_mapped && claims.clusters > 0 {
            // Pointers cannot say which blocks of a cluster are used.
            state.find(&kinds::EXTENT_NODE, Place::inode(ino.get()).in_field("i_flags"));
        }
        size(state, ino, record, kind, facts, &claims);
        if claims.pieces > 1 {
            state.totals.fragmented.fetch_add(1, Relaxed);
        }
    }
    if kind == FileKind::Regular {
        verity(state, ino, record, &claims);
    }
    let mut blocks_512 = record.blocks_512;
    if claims.is_whole {
        blocks_512 = space(state, ino, record, claims.clusters, &attributes);
    }
    quota::count(state, ino, record, (blocks_512, attributes.values));
}

/// The block of an inode of the Hurd's translator.
fn translator(state: &State, record: &Record, claims: &mut Claims<'_>) {
    let Some(pba) = record.translator(&state.layout) else { return };
    let is_free = !state.claimed.contains(state.cluster(pba.get()));
    if state.layout.contains(pba, 1) && is_free {
        claims.claim_block(pba);
    } else {
        state.totals.translators.fetch_add(1, Relaxed);
    }
}

/// The flag of fs-verity on a volume without the feature. Linux opens no such file. One that has
/// its tree of hashes behind its end proves the feature.
fn verity(state: &State, ino: Ino, record: &Record, claims: &Claims<'_>) {
    let has_feature = state.layout.features.ro_compat(RoCompat::VERITY);
    if has_feature || !record.flags.contains(InodeFlags::VERITY) {
        return;
    }
    let block = u64::from(state.layout.block_size);
    if record.size < claims.end_written.saturating_sub(1).saturating_mul(block) {
        state.totals.verified.fetch_add(1, Relaxed);
        return;
    }
    let right = record.flags.difference(InodeFlags::VERITY);
    let place = Place::inode(ino.get()).in_field("i_flags");
    let finding = Finding::new(&kinds::INODE_FLAGS, place);
    state.findings.add(finding.hex(record.flags.bits(), right.bits()));
}

/// Reserved inodes without a kind have no map, except the list of bad blocks.
fn has_no_map(state: &State, ino: Ino, record: &Record) -> bool {
    let is_walked = matches!(ino, inodes::BAD | inodes::RESIZE);
    state.is_reserved(ino) && !is_walked && has_no_kind(record)
}

/// Is the inode none of those that have contents?
fn has_no_kind(record: &Record) -> bool {
    !(record.is_regular() || record.is_directory() || record.is_symlink())
}

fn symlink_fault(state: &State, ino: Ino, record: &Record, found: u64) {
    let place = Place::inode(ino.get()).in_field("i_size");
    state.differ(&kinds::SYMLINK_TARGET, place, record.size, found);
}

/// Bytes before the first NUL.
fn text_len(bytes: &[u8]) -> u64 {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Bytes of an encrypted target, which has its length before it; 0 if it is empty.
fn encrypted_len(bytes: &[u8]) -> u64 {
    match bytes.first_chunk().map_or(0, |len| u16::from_le_bytes(*len)) {
        0 => 0,
        len => u64::from(len).saturating_add(2),
    }
}

/// A target of this size is in the inode, where a map would be.
fn fast_symlink(state: &State, ino: Ino, record: &Record) {
    if record.flags.contains(InodeFlags::EXTENTS) {
        return symlink_fault(state, ino, record, 0);
    }
    let found = match record.flags.contains(InodeFlags::ENCRYPT) {
        true => encrypted_len(&record.block),
        false => text_len(&record.block),
    };
    if record.size == 0 || found != record.size {
        symlink_fault(state, ino, record, found);
    }
}

/// The target of a symbolic link in a block. A map has nothing else.
fn slow_symlink(state: &State, ino: Ino, record: &Record, claims: &Claims<'_>) {
    let size = u64::from(state.layout.block_size);
    // Readers, and Linux, take the target also from a block that is marked as never written.
    let Some(pba) = claims.first_block().filter(|_| (1..size).contains(&record.size)) else {
        return symlink_fault(state, ino, record, claims.end.saturating_mul(size));
    };
    let is_encrypted = record.flags.contains(InodeFlags::ENCRYPT);
    let is_mapped = record.flags.contains(InodeFlags::EXTENTS);
    let has_others = !is_mapped && decode_inode(&record.block).iter().skip(1).any(|at| *at != 0);
    let len = |block: &[u8]| if is_encrypted { encrypted_len(block) } else { text_len(block) };
    match state.source.block(pba) {
        Ok(block) if len(&block) != record.size => {
            symlink_fault(state, ino, record, len(&block));
        }
        Ok(_) if has_others || claims.end > 1 => {
            let place = Place::inode(ino.get()).in_field("i_block");
            state.differ(
                &kinds::INODE_SIZE_UNPROVED,
                place,
                record.size,
                claims.end.saturating_mul(size),
            );
        }
        Ok(_) => {}
        Err(error) => state.unreadable(Place::inode(ino.get()).at_block(pba.get()), &error),
    }
}

fn special(state: &State, ino: Ino, record: &Record) {
    if record.size != 0 {
        let place = Place::inode(ino.get()).in_field("i_size");
        state.differ(&kinds::SPECIAL_CONTENTS, place, record.size, 0);
    }
}

/// Contents in the inode and in the attribute `system.data`.
fn inline(state: &State, ino: Ino, record: &Record, kind: FileKind, attributes: &Attributes) {
    let place = Place::inode(ino.get());
    let Some(tail) = &attributes.inline_tail else {
        if kind == FileKind::Symlink && record.size < FAST_SYMLINK {
            return;
        }
        return state.find(&kinds::INLINE_DATA, place);
    };
    if kind == FileKind::Symlink && !record.flags.contains(InodeFlags::ENCRYPT) {
        let found = text_len(&[record.block.as_slice(), tail].concat());
        if found != record.size {
            return symlink_fault(state, ino, record, found);
        }
    }
    let held = u64::try_from(tail.len()).unwrap_or(u64::MAX).saturating_add(60);
    let fits = match kind {
        FileKind::Directory => record.size == held,
        // Behind its contents, a file has a hole.
        FileKind::Regular => record.size < most_bytes(state, record),
        _ => record.size <= held,
    };
    if kind == FileKind::Regular && record.size >= LARGE {
        state.totals.large_files.fetch_add(1, Relaxed);
    }
    if !fits {
        state.differ(&kinds::INLINE_DATA, place.in_field("i_size"), record.size, held);
    }
}

/// The first size that no map of this kind can have.
pub(super) fn most_bytes(state: &State, record: &Record) -> u64 {
    let block = u64::from(state.layout.block_size);
    match record.flags.contains(InodeFlags::EXTENTS) {
        true => MAX_FILE_BLOCKS.saturating_add(1).saturating_mul(block),
        false => {
            indirect::max_blocks(state.layout.block_size).saturating_mul(block).saturating_add(1)
        }
    }
}

fn size(
    state: &State,
    ino: Ino,
    record: &Record,
    kind: FileKind,
    facts: &Facts,
    claims: &Claims<'_>,
) {
    if facts.is_orphan() {
        return;
    }
    let block = u64::from(state.layout.block_size);
    let place = || Place::inode(ino.get()).in_field("i_size");
    let wrong = |implied: u64| {
        state.differ(&kinds::INODE_SIZE, place(), record.size, implied);
    };
    match kind {
        FileKind::Symlink => slow_symlink(state, ino, record, claims),
        FileKind::Directory => {
            let blocks = record.size.div_ceil(block);
            let spare = u64::from(state.superblock.raw.s_prealloc_dir_blocks);
            let is_whole = record.size.is_multiple_of(block);
            let extra = claims.end.checked_sub(blocks);
            if claims.end == 0 {
                state.find(&kinds::DIRECTORY_HOLE, Place::inode(ino.get()));
            } else if !is_whole || extra.is_none_or(|extra| extra > spare) {
                wrong(claims.end.saturating_mul(block));
            }
        }
        _ => {
            let last = claims.end_written.saturating_sub(1).saturating_mul(block);
            let most = most_bytes(state, record);
            let is_verified = record.flags.contains(InodeFlags::VERITY);
            let implied = claims.end_written.saturating_mul(block);
            // Behind its blocks, a quota file has nothing that anybody could read. e2fsck takes no
            // journal of extents that is longer than its blocks, by a part of a block either.
            let is_journal =
                ino == state.layout.journal_ino && record.flags.contains(InodeFlags::EXTENTS);
            let is_dense = is_journal || quota::is_file(state, ino);
            let is_empty = record.size > implied && is_dense;
            if (record.size < last && !is_verified) || record.size >= most || is_empty {
                match state.is_reserved(ino) || facts.is_system() || facts.is_value() {
                    true => wrong(implied),
                    false => size_of_file(state, ino, record, claims, implied),
                }
            }
            if record.size >= LARGE && ino != inodes::RESIZE {
                state.totals.large_files.fetch_add(1, Relaxed);
            }
        }
    }
}

/// The size of a file that contradicts its blocks. If the inode counts only those that the size
/// has, the others are none of it.
fn size_of_file(state: &State, ino: Ino, record: &Record, claims: &Claims<'_>, implied: u64) {
    let kind = &kinds::INODE_SIZE_UNPROVED;
    let counted = claims.clusters.saturating_sub(claims.behind) << state.units();
    let is_counted = claims.is_read && claims.behind > 0 && state.cluster_blocks() == 1;
    let place = Place::inode(ino.get());
    if is_counted && counted == record.blocks_512 {
        let finding = Finding::new(kind, place.in_field("i_block"));
        return state.findings.add(finding.stored(claims.behind).computed(0_u32));
    }
    let block = u64::from(state.layout.block_size);
    let implied = size_with_bit(record.size, implied, block).unwrap_or(implied);
    state.differ(kind, place.in_field("i_size"), record.size, implied);
}

/// The size with the only one bit changed by which the file ends in its last block.
fn size_with_bit(stored: u64, implied: u64, block: u64) -> Option<u64> {
    let fits = |size: &u64| size.div_ceil(block).saturating_mul(block) == implied;
    let mut sizes = (0..u64::BITS).map(|bit| stored ^ 1 << bit).filter(fits);
    sizes.next().filter(|_| sizes.next().is_none())
}

/// `i_blocks`: all clusters, and the space of values in inodes of their own.
fn space(state: &State, ino: Ino, record: &Record, clusters: u64, attributes: &Attributes) -> u64 {
    let blocks = clusters.saturating_mul(state.cluster_blocks());
    let charged = attributes.charged.div_ceil(state.cluster_blocks());
    let blocks = blocks.saturating_add(charged.saturating_mul(state.cluster_blocks()));
    let computed = blocks << state.units();
    if record.blocks_512 != computed {
        let place = Place::inode(ino.get()).in_field("i_blocks");
        state.differ(&kinds::INODE_BLOCKS, place, record.blocks_512, computed);
        if record.blocks_512.abs_diff(computed) == 1 << state.units() {
            state.doubted_lists.note(ino);
        }
    }
    computed
}
