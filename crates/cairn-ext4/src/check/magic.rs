//! The mark that begins the attributes in an inode. Without it readers see none, so that one wrong
//! byte takes all of them away, also contents in the inode and the context of encryption.
//!
//! Three of its four bytes, with a list of possible attributes behind them, are so by no accident.

use cairn_base::units::{as_index, as_u64};
use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Place};

use super::kinds;
use super::state::State;
use crate::format::inode::Inode as Record;
use crate::format::xattr::{self, MAGIC, XattrLocation};
use crate::xattr::refused;

/// The inode's record with the mark right, if one byte of it is wrong.
pub(super) fn record(state: &State, ino: Ino, bytes: &[u8]) -> Option<Vec<u8>> {
    let layout = &state.layout;
    let extra = Record::decode_unchecked(bytes, layout)?.extra;
    let at = bytes.len().checked_sub(extra.len())?;
    let (stored, mark) = (extra.first_chunk::<4>()?, MAGIC.to_le_bytes());
    let wrong = stored.iter().zip(&mark).filter(|(one, other)| one != other).count();
    if wrong != 1 {
        return None;
    }
    let mut right = bytes.to_vec();
    right.get_mut(at..)?.first_chunk_mut::<4>().map(|place| *place = mark)?;
    let all = xattr::decode(right.get(at..)?, XattrLocation::Inode, ino).ok()?;
    if all.is_empty() || all.iter().any(|attribute| refused(attribute).is_some()) {
        return None;
    }
    let stored = u32::from_le_bytes(*stored);
    let finding = |place: Place| {
        Finding::new(&kinds::XATTR_MARK, place.in_field("h_magic")).hex(stored, MAGIC)
    };
    correct(state, ino, bytes, right, (at, &finding))
}

/// Has a record read as `right` from now on, if a checksum says so or none contradicts. The finding
/// is about what begins at an offset.
pub(super) fn correct(
    state: &State,
    ino: Ino,
    bytes: &[u8],
    mut right: Vec<u8>,
    (at, finding): (usize, &dyn Fn(Place) -> Finding),
) -> Option<Vec<u8>> {
    let layout = &state.layout;
    if Record::verify(&right, ino, layout).is_err() {
        // The checksum is that of the wrong bytes, or says that more is wrong.
        Record::verify(bytes, ino, layout).ok()?;
        Record::seal(&mut right, ino, layout);
    }
    let (group, index) = layout.inode_group(ino)?;
    let table = state.groups.get(as_index(group))?.desc.inode_table;
    let place = layout.inode_location(index, table);
    if correct_bytes(state, place.pba, place.offset, bytes, &right) {
        let at = place.offset.saturating_add(at);
        let place = Place::inode(ino.get()).at_block(place.pba.get()).at_offset(as_u64(at));
        state.findings.add(finding(place));
    }
    Some(right)
}

/// Has the bytes from an offset of a block on read as `right`. False if that is known.
pub(super) fn correct_bytes(
    state: &State,
    pba: Pba,
    from: usize,
    bytes: &[u8],
    right: &[u8],
) -> bool {
    let mut is_new = false;
    let pairs = right.iter().zip(bytes).enumerate();
    for (offset, (byte, _)) in pairs.filter(|(_, (right, stored))| right != stored) {
        is_new |= state.source.correct(pba, from.saturating_add(offset), *byte);
    }
    is_new
}
