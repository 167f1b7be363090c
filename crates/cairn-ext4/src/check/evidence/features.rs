//! Features that one wrong bit has set or taken away, where all that is found follows from that.

use cairn_base::Ino;
use cairn_base::units::as_index;
use cairn_block::BlockDevice;
use cairn_check::{Kind, Report};

use super::super::kinds;
use super::super::state::State;
use super::candidate::{Candidate, Proof};
use super::witnesses::backup;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::{RawSuperblock, STATE_VALID, Superblock};

/// Entries with another type than their inodes from which on the feature is likely to be wrong: the
/// root and `lost+found` have so many.
const MANY: u64 = 4;

/// The superblock without the bit, or with it.
pub(super) fn candidates(
    device: &dyn BlockDevice,
    state: &State,
    report: &Report,
) -> Vec<Candidate> {
    let count = |kind: &Kind| {
        let found = report.counts.iter().find(|(found, _)| found.code == kind.code);
        found.map_or(0, |(_, count)| *count)
    };
    let (features, raw) = (&state.layout.features, &state.superblock.raw);
    let guess = |edit: &dyn Fn(&mut RawSuperblock)| {
        Candidate::superblock(state, device, Proof::Guess, edit)
    };
    let incompat = |flag: Incompat| {
        let other = (features.incompat ^ flag).bits();
        guess(&|raw| raw.s_feature_incompat = other.into())
    };
    let mut found = Vec::new();
    if count(&kinds::ENTRY_TYPE) >= MANY {
        found.extend(incompat(Incompat::FILETYPE));
    }
    let has_no_log = !features.compat(Compat::HAS_JOURNAL) && count(&kinds::JOURNAL_REPLAY) > 0;
    if has_no_log && u64::from(raw.s_journal_inum.get()) == inodes::JOURNAL.get() {
        let other = (features.compat | Compat::HAS_JOURNAL).bits();
        found.extend(guess(&|raw| raw.s_feature_compat = other.into()));
    } else if has_no_log && raw.s_journal_inum.get() == 0 && raw.s_journal_dev.get() == 0 {
        found.extend(incompat(Incompat::RECOVER));
    }
    let has_no_block = raw.s_mmp_block.get() == 0 && raw.s_mmp_update_interval.get() == 0;
    if has_no_block && count(&kinds::MMP_INVALID) > 0 {
        found.extend(incompat(Incompat::MMP));
    }
    if features.incompat(Incompat::META_BG) && count(&kinds::INODE_RESIZE) > 0 {
        found.extend(incompat(Incompat::META_BG));
    }
    // Where the superblock has a checksum, that tells a wrong bit.
    if !features.ro_compat(RoCompat::METADATA_CSUM) {
        found.extend(parts(device, state, &count));
        found.extend(checksums(device, state, &count));
    }
    found
}

/// Features of parts of the volume that are there, or not there: the journal, the resize inode,
/// blocks of attributes. Programs that remove a part remove what leads to it, too.
fn parts(
    device: &dyn BlockDevice,
    state: &State,
    count: &dyn Fn(&Kind) -> u64,
) -> Option<Candidate> {
    let (features, raw) = (&state.layout.features, &state.superblock.raw);
    let has = |flag: Compat| features.compat(flag);
    let journal = u64::from(raw.s_journal_inum.get());
    let is_local = raw.s_journal_dev.get() == 0 && raw.s_journal_uuid == [0; 16];
    let reserved = raw.s_reserved_gdt_blocks.get();
    let has_wrong_field = count(&kinds::SUPERBLOCK_FIELD) > 0;
    let no_journal = has(Compat::HAS_JOURNAL)
        && count(&kinds::JOURNAL_INVALID) > 0
        && (journal, raw.s_jnl_backup_type) == (0, 0)
        && is_local
        && is_unused(state, inodes::JOURNAL);
    let journal = !has(Compat::HAS_JOURNAL)
        && !features.incompat(Incompat::RECOVER)
        && journal == inodes::JOURNAL.get()
        && is_local
        && has_wrong_field;
    let no_resize = has(Compat::RESIZE_INODE)
        && count(&kinds::INODE_RESIZE) > 0
        && reserved == 0
        && is_unused(state, inodes::RESIZE);
    let resize = !has(Compat::RESIZE_INODE) && reserved > 0 && has_wrong_field;
    // tune2fs leaves the resize inode to e2fsck, and says so in the state.
    let is_left = resize && raw.s_state.get() & STATE_VALID == 0;
    let is_one_sided = |flag: Compat| match backup(device, &state.superblock) {
        Some(copy) => copy.features().compat.contains(flag) != has(flag),
        None => !is_left,
    };
    let change = |flag: Compat, proof: Proof| {
        let other = (features.compat ^ flag).bits();
        Candidate::superblock(state, device, proof, |raw| raw.s_feature_compat = other.into())
    };
    if no_journal || journal {
        return change(Compat::HAS_JOURNAL, Proof::Witness)
            .filter(|_| is_one_sided(Compat::HAS_JOURNAL));
    }
    if no_resize || resize {
        return change(Compat::RESIZE_INODE, Proof::Witness)
            .filter(|_| is_one_sided(Compat::RESIZE_INODE));
    }
    // Linux sets it with the first attribute, and in the first superblock only.
    let attributes = !has(Compat::EXT_ATTR) && count(&kinds::XATTR_INVALID) > 0;
    attributes.then(|| change(Compat::EXT_ATTR, Proof::Guess)).flatten()
}

/// Is the inode all zeros but for times?
fn is_unused(state: &State, ino: Ino) -> bool {
    state.record(ino).is_some_and(|record| {
        let numbers = (record.mode, record.links, record.size, record.blocks_512);
        numbers == (0, 0, 0, 0) && record.block.iter().all(|byte| *byte == 0)
    })
}

/// Checksums of group descriptors, where no descriptor has one, or each has the right one.
fn checksums(
    device: &dyn BlockDevice,
    state: &State,
    count: &dyn Fn(&Kind) -> u64,
) -> Option<Candidate> {
    let (layout, sums) = (&state.layout, RoCompat::GDT_CSUM);
    let features = layout.features;
    let has_sums = features.ro_compat(sums);
    let other = features.ro_compat ^ sums;
    let mut new: Superblock = state.superblock.clone();
    new.raw.s_feature_ro_compat = other.bits().into();
    let with_other = Layout::new(&new, device.geometry().size).ok()?;
    let is_wrong = match has_sums {
        true => count(&kinds::GROUP_CHECKSUM) == u64::from(layout.groups),
        false => count(&kinds::GROUP_FLAGS) > 0,
    };
    let fits = |group: u32| {
        let block = state.source.block(layout.descriptor_block(group)).ok();
        let from = layout.descriptor_offset(group);
        let behind = from.saturating_add(as_index(layout.desc_size));
        let bytes = block.as_deref().and_then(|block| block.get(from..behind));
        bytes.is_some_and(|bytes| match has_sums {
            true => has_no_sum(bytes, group, layout),
            false => GroupDesc::verify(bytes, group, &with_other).is_ok(),
        })
    };
    if !is_wrong || !(0..layout.groups).all(fits) {
        return None;
    }
    let copy = backup(device, &state.superblock);
    let is_one_sided = copy.is_none_or(|copy| copy.features().ro_compat.contains(sums) != has_sums);
    let edit = |raw: &mut RawSuperblock| raw.s_feature_ro_compat = other.bits().into();
    let candidate = Candidate::superblock(state, device, Proof::Witness, edit);
    candidate.filter(|_| is_one_sided)
}

/// Has a descriptor neither a checksum nor marks that only one with a checksum has?
fn has_no_sum(bytes: &[u8], group: u32, layout: &Layout) -> bool {
    let marks = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
    let sums = GroupDesc::checksums(bytes, group, layout);
    let is_zero = sums.is_none_or(|(stored, _)| stored == 0);
    let desc = GroupDesc::decode_unchecked(bytes, layout);
    is_zero && !desc.flags.intersects(marks) && desc.itable_unused == 0
}
