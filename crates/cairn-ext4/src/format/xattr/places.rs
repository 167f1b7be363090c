//! Where values lie in their container. All writers put them side by side up to its end, each in a
//! multiple of 4 bytes, so that the others show where one lies whose place is wrong.

use cairn_base::units::as_index;

use super::{
    Attribute, ENTRY_LEN, MAGIC, RawEntry, XattrLocation, entry_hashes, entry_len, padded,
    value_start,
};
use zerocopy::FromBytes;

/// The offset of `e_value_offs` in an entry.
const OFFSET_AT: usize = 2;

/// An `e_value_offs` that is wrong, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongPlace<'a> {
    /// Name without the prefix.
    pub name: &'a [u8],
    /// The offset of the field in the container.
    pub at: usize,
    /// The field.
    pub stored: u16,
    /// Where the value lies.
    pub right: u16,
}

impl Attribute<'_> {
    /// The value is where one can be: at a multiple of 4 bytes.
    #[must_use]
    pub(crate) const fn is_aligned(&self) -> bool {
        self.value_at.is_multiple_of(4)
    }
}

/// An entry whose value is in the container, or empty.
struct Slot<'a> {
    name: &'a [u8],
    at: usize,
    offset: u16,
    /// Where the value begins by its entry.
    start: usize,
    len: usize,
    hash: u32,
}

impl Slot<'_> {
    /// Nothing says that the value is where the entry says, and a wrong length is no reason.
    fn is_suspect(&self, bytes: &[u8], first: usize) -> bool {
        if self.hash != 0 {
            return !self.is_proved(bytes, self.start);
        }
        !self.start.is_multiple_of(4) || self.start < first || self.start >= bytes.len()
    }

    /// The bytes there have the hash of the value.
    fn is_proved(&self, bytes: &[u8], start: usize) -> bool {
        let value = start.checked_add(self.len).and_then(|end| bytes.get(start..end));
        value.is_some_and(|value| entry_hashes(self.name, value).contains(&self.hash))
    }
}

/// The one value whose place is wrong, if the other values leave one place for it, and its hash
/// does not contradict that; or the first empty value with a place behind its block.
#[must_use]
pub(crate) fn wrong_place(bytes: &[u8], location: XattrLocation) -> Option<WrongPlace<'_>> {
    let (slots, first) = slots(bytes, location)?;
    let (empty, slots): (Vec<_>, Vec<_>) = slots.into_iter().partition(|slot| slot.len == 0);
    // e2fsck gives up the block for it. It does not look at it in an inode.
    let lost = empty.iter().find(|slot| slot.start > bytes.len());
    if let Some(Slot { name, at, offset, .. }) = lost
        && location == XattrLocation::Block
    {
        let at = at.checked_add(OFFSET_AT)?;
        return Some(WrongPlace { name, at, stored: *offset, right: 0 });
    }
    let mut found = None;
    for slot in slots.iter().filter(|slot| slot.is_suspect(bytes, first)) {
        let others = slots.iter().filter(|other| other.at != slot.at);
        let place = place_beside(others, padded(slot.len), bytes.len() & !3);
        let place = place.filter(|place| *place >= first && *place != slot.start);
        let place = place.filter(|place| slot.hash == 0 || slot.is_proved(bytes, *place));
        let Some(place) = place else { continue };
        let right = place.checked_sub(location.values_from())?;
        let Ok(right) = u16::try_from(right) else { continue };
        let at = slot.at.checked_add(OFFSET_AT)?;
        let wrong = WrongPlace { name: slot.name, at, stored: slot.offset, right };
        if found.replace(wrong).is_some() {
            return None;
        }
    }
    found
}

/// The place of so many bytes that the others leave, if these lie side by side.
fn place_beside<'a>(
    others: impl Iterator<Item = &'a Slot<'a>>,
    len: usize,
    end: usize,
) -> Option<usize> {
    let mut others: Vec<_> = others.map(|other| (other.start, padded(other.len))).collect();
    others.sort_unstable();
    let (mut end, mut place) = (end, None);
    for (start, padded) in others.into_iter().rev() {
        let behind = start.checked_add(padded)?;
        if behind.checked_add(len) == Some(end) && place.is_none() {
            place = Some(behind);
        } else if behind != end {
            return None;
        }
        end = start;
    }
    place.or_else(|| end.checked_sub(len))
}

/// The entries with values in the container or empty ones, and where the first value may begin.
fn slots(bytes: &[u8], location: XattrLocation) -> Option<(Vec<Slot<'_>>, usize)> {
    let magic = bytes.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    if magic != Some(MAGIC) {
        return None;
    }
    let (mut slots, mut at) = (Vec::new(), location.header_len());
    loop {
        let rest = bytes.get(at..)?;
        if rest.first_chunk() == Some(&[0; 4]) {
            return Some((slots, at.checked_add(4)?));
        }
        let (raw, names) = RawEntry::ref_from_prefix(rest).ok()?;
        let name = names.get(..usize::from(raw.e_name_len))?;
        let len = as_index(raw.e_value_size.get());
        if raw.e_value_inum.get() == 0 && len <= bytes.len() {
            let (offset, hash) = (raw.e_value_offs.get(), raw.e_hash.get());
            let start = value_start(raw, location);
            slots.push(Slot { name, at, offset, start, len, hash });
        } else if raw.e_value_inum.get() == 0 {
            return None;
        }
        debug_assert!(rest.len() >= ENTRY_LEN, "an entry was read");
        at = at.checked_add(entry_len(name.len()))?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OwnedAttribute, OwnedValue, encode_block, encode_inode};
    use super::*;

    fn attribute(name: &str, len: usize) -> OwnedAttribute {
        let value = OwnedValue::Here(vec![name.as_bytes()[0]; len]);
        OwnedAttribute { index: 1, name: name.as_bytes().to_vec(), value }
    }

    fn places(bytes: &[u8], location: XattrLocation) -> Vec<(usize, u16)> {
        let (slots, _) = slots(bytes, location).unwrap();
        slots.iter().map(|slot| (slot.at + OFFSET_AT, slot.offset)).collect()
    }

    /// With a hash every wrong place is known; without one those that no value can have.
    #[test]
    fn a_wrong_place_is_known_by_the_others() {
        let mut all = [attribute("a", 10), attribute("b", 21), attribute("c", 3)];
        let mut block = vec![0; 1024];
        encode_block(&mut block, &mut all);
        let mut area = vec![0; 160];
        encode_inode(&mut area, &all);
        for (sound, location) in [(block, XattrLocation::Block), (area, XattrLocation::Inode)] {
            assert_eq!(wrong_place(&sound, location), None);
            for (at, right) in places(&sound, location) {
                for stored in [right + 1, right ^ 2, right ^ 4, right ^ 0x4000, 0] {
                    let mut hurt = sound.clone();
                    hurt[at..at + 2].copy_from_slice(&stored.to_le_bytes());
                    let found = wrong_place(&hurt, location);
                    let found = found.map(|wrong| (wrong.at, wrong.stored, wrong.right));
                    let is_hashed = location == XattrLocation::Block;
                    let is_known = is_hashed || !stored.is_multiple_of(4) || stored != right ^ 4;
                    let expected = is_known.then_some((at, stored, right));
                    assert_eq!(found, expected, "{location:?} {right} -> {stored}");
                }
            }
        }
    }
}
