//! One wrong bit of a structure, which its checksum tells. It is corrected in memory when the
//! structure is read, so that the check goes on with what was written.
//!
//! A checksum of 32 bits names the bit. Other damage of a block of 4 KiB looks like one bit in one
//! of 100,000 cases, and must then leave a structure that is well-formed. Checksums of 16 bits
//! prove too little; what follows from the rest of the volume (bitmaps, indexes) needs no proof.

use cairn_base::one_bit::{WrongBit, find};
use cairn_base::units::{as_index, as_u64};
use cairn_base::{FileBlock, Ino, Pba};
use cairn_check::{Finding, Place};
use cairn_vfs::FileKind;

use super::kinds;
use super::state::State;
use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;
use crate::form::{is_reserved, loaded};
use crate::format::dir_entry::{self, DirFormat};
use crate::format::extent::{NodeView, Site, block_capacity, block_checksums};
use crate::format::inode::Inode as Record;
use crate::format::mmp::Mmp;
use crate::format::xattr::{self, XattrLocation};

/// The inode's record with the one bit right, if that is what is wrong with it.
pub(super) fn record(state: &State, ino: Ino, bytes: &[u8]) -> Option<Vec<u8>> {
    let is_empty = || bytes.iter().all(|byte| *byte == 0);
    if Record::verify(bytes, ino, &state.layout).is_ok() || is_empty() || !state.source.may_try() {
        return None;
    }
    let (at, mask) = Record::wrong_bit(bytes, ino, &state.layout)?;
    let (group, index) = state.layout.inode_group(ino)?;
    let table = state.groups.get(as_index(group))?.desc.inode_table;
    let place = state.layout.inode_location(index, table);
    let of = Structure { place: Place::inode(ino.get()), pba: place.pba, from: place.offset };
    of.correct(state, bytes, (at, mask), |right| is_possible(state, ino, right))
}

/// Is the record one that a reader accepts? Of one that is not in use nothing is asked.
fn is_possible(state: &State, ino: Ino, bytes: &[u8]) -> bool {
    let Ok(record) = Record::decode(bytes, ino, &state.layout) else { return false };
    if record.links == 0 || (is_reserved(&state.layout, ino) && record.mode == 0) {
        return true;
    }
    let kind = FileKind::from_mode(record.mode.into());
    kind.is_some_and(|kind| loaded::check(state, ino, &record, kind).is_ok())
}

/// A block of names with the one bit right.
pub(super) fn leaf(
    state: &State,
    place: Place,
    pba: Pba,
    (ino, format, block): (Ino, &DirFormat, FileBlock),
    bytes: &[u8],
    why: &Corrupt,
) -> Option<Vec<u8>> {
    let bit = wrong_byte(state, format.leaf_len(), why)?;
    let of = Structure { place, pba, from: 0 };
    of.correct(state, bytes, bit, |right| {
        dir_entry::verify_leaf(right, format, ino, block).is_ok()
            && dir_entry::entries_in(right, 0..format.leaf_len(), format).all(|entry| entry.is_ok())
    })
}

/// A block of an extent tree with the one bit right.
pub(super) fn extents(
    state: &State,
    (site, seed, depth): (Site, InodeSeed, Option<u16>),
    bytes: &[u8],
) -> Option<Vec<u8>> {
    let is_sound = |bytes: &[u8]| {
        let view = NodeView::parse(bytes, depth, site);
        view.is_ok_and(|view| view.verify_checksum(bytes, seed, site).is_ok())
    };
    if seed.0.is_none() || is_sound(bytes) || !state.source.may_try() {
        return None;
    }
    // The capacity in the header may be what is wrong.
    let capacity = block_capacity(state.layout.block_size);
    let (covered, stored, computed) = block_checksums(bytes, capacity, seed)?;
    let bit = match find(covered, stored, computed)? {
        WrongBit::Byte { at, mask } => (at, mask),
        WrongBit::Checksum => of_sum(covered, stored ^ computed)?,
    };
    let place = Place::inode(site.ino.get());
    Structure { place, pba: site.pba, from: 0 }.correct(state, bytes, bit, is_sound)
}

/// A block of attributes with the one bit right.
pub(super) fn attributes(
    state: &State,
    (ino, pba): (Ino, Pba),
    bytes: &[u8],
    why: &Corrupt,
) -> Option<Vec<u8>> {
    let bit = wrong_byte(state, bytes.len(), why)?;
    let of = Structure { place: Place::inode(ino.get()), pba, from: 0 };
    of.correct(state, bytes, bit, |right| {
        xattr::verify_block(right, pba, state.layout.checksum, ino).is_ok()
            && xattr::decode(right, XattrLocation::Block, ino).is_ok()
    })
}

/// The block of multiple-mount protection with the one bit right.
pub(super) fn mmp(state: &State, pba: Pba, bytes: &[u8], why: &Corrupt) -> Option<Vec<u8>> {
    let &Corrupt::Checksum { stored, computed, .. } = why else { return None };
    let bit = match find(Mmp::COVERED, stored, computed)? {
        WrongBit::Byte { at, mask } => (at, mask),
        WrongBit::Checksum => of_sum(Mmp::COVERED, stored ^ computed)?,
    };
    let of = Structure { place: Place::field("s_mmp_block"), pba, from: 0 };
    of.correct(state, bytes, bit, |right| Mmp::decode(right, state.layout.checksum).is_ok())
}

/// The wrong bit, if it is none of the checksum: what a wrong bit there says is judged elsewhere.
fn wrong_byte(state: &State, covered: usize, why: &Corrupt) -> Option<(usize, u8)> {
    let &Corrupt::Checksum { stored, computed, .. } = why else { return None };
    if !state.source.may_try() {
        return None;
    }
    match find(covered, stored, computed)? {
        WrongBit::Byte { at, mask } => Some((at, mask)),
        WrongBit::Checksum => None,
    }
}

/// The wrong bit of a checksum that begins at `at`.
fn of_sum(at: usize, difference: u32) -> Option<(usize, u8)> {
    let byte = difference.to_le_bytes().iter().position(|byte| *byte != 0)?;
    Some((at.checked_add(byte)?, *difference.to_le_bytes().get(byte)?))
}

/// Where a structure is.
struct Structure {
    place: Place,
    pba: Pba,
    /// Where it begins in the block.
    from: usize,
}

impl Structure {
    /// Corrects a bit, if the structure is sound then.
    fn correct(
        self,
        state: &State,
        bytes: &[u8],
        (at, mask): (usize, u8),
        is_sound: impl Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let mut right = bytes.to_vec();
        let byte = right.get_mut(at)?;
        let stored = *byte;
        *byte ^= mask;
        let computed = *byte;
        if !is_sound(&right) {
            return None;
        }
        let at = self.from.saturating_add(at);
        if state.source.correct(self.pba, at, computed) {
            let place = self.place.at_block(self.pba.get()).at_offset(as_u64(at));
            let finding = Finding::new(&kinds::METADATA_BIT, place);
            state.findings.add(finding.hex(stored, computed));
        }
        Some(right)
    }
}
