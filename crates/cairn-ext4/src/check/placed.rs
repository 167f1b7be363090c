//! Values of attributes of which the entry gives a wrong place, and the other values and the hash
//! show the right one. It is corrected in memory, so that the check goes on with what was written.

use cairn_base::units::as_u64;
use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Place};

use super::state::State;
use super::{kinds, magic};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::xattr::{self, WrongPlace, XattrLocation};
use crate::xattr::refused;

/// The inode's record with the place right.
pub(super) fn record(state: &State, ino: Ino, bytes: &[u8]) -> Option<Vec<u8>> {
    let record = Record::decode_unchecked(bytes, &state.layout)?;
    if record.flags.contains(InodeFlags::EA_INODE) {
        return None;
    }
    let from = bytes.len().checked_sub(record.extra.len())?;
    let wrong = xattr::wrong_place(&record.extra, XattrLocation::Inode)?;
    let at = from.checked_add(wrong.at)?;
    let right = set(bytes, at, &wrong)?;
    is_sound(right.get(from..)?, XattrLocation::Inode, ino)?;
    magic::correct(state, ino, bytes, right, (at, &|place| finding(place, &wrong)))
}

/// The block of attributes with the place right.
pub(super) fn block(state: &State, (ino, pba): (Ino, Pba), bytes: &[u8]) -> Option<Vec<u8>> {
    let sums = state.layout.checksum;
    let wrong = xattr::wrong_place(bytes, XattrLocation::Block)?;
    let mut right = set(bytes, wrong.at, &wrong)?;
    is_sound(&right, XattrLocation::Block, ino)?;
    if xattr::verify_block(&right, pba, sums, ino).is_err() {
        xattr::verify_block(bytes, pba, sums, ino).ok()?;
        xattr::seal_block(&mut right, pba, sums);
    }
    if magic::correct_bytes(state, pba, 0, bytes, &right) {
        let place = Place::inode(ino.get()).at_block(pba.get()).at_offset(as_u64(wrong.at));
        state.findings.add(finding(place, &wrong));
    }
    Some(right)
}

fn set(bytes: &[u8], at: usize, wrong: &WrongPlace<'_>) -> Option<Vec<u8>> {
    let mut right = bytes.to_vec();
    *right.get_mut(at..)?.first_chunk_mut()? = wrong.right.to_le_bytes();
    Some(right)
}

/// All attributes are then what readers accept.
fn is_sound(bytes: &[u8], location: XattrLocation, ino: Ino) -> Option<()> {
    let all = xattr::decode(bytes, location, ino).ok()?;
    all.iter().all(|attribute| refused(attribute).is_none()).then_some(())
}

fn finding(place: Place, wrong: &WrongPlace<'_>) -> Finding {
    let place = place.in_field("e_value_offs").named(wrong.name);
    Finding::new(&kinds::XATTR_PLACE, place)
        .stored(u32::from(wrong.stored))
        .computed(u32::from(wrong.right))
}
