//! The context of an encrypted inode that one wrong byte hides: without it, nothing says with which
//! key the contents can be read. The mark of the inode and the form of the entry show the byte.

use cairn_base::Ino;
use cairn_check::{Finding, Place};

use super::state::State;
use super::{kinds, magic};
use crate::form::context::{self, Context};
use crate::format::features::Incompat;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::xattr::{self, XattrLocation, entry_len};
use crate::xattr::refused;

/// What the entry of a context has at these offsets: the length of its name, its prefix, no inode,
/// the length of its value, its name.
const ENTRY: &[(usize, &[u8])] =
    &[(0, &[1]), (1, &[9]), (4, &[0; 4]), (8, &[40, 0, 0, 0]), (8, &[28, 0, 0, 0]), (16, b"c")];
/// Bytes of an entry with the name of a context.
const ENTRY_LEN: usize = entry_len(1);

/// The inode's record with the byte right.
pub(super) fn record(state: &State, ino: Ino, bytes: &[u8]) -> Option<Vec<u8>> {
    let record = Record::decode_unchecked(bytes, &state.layout)?;
    let is_marked = record.flags.contains(InodeFlags::ENCRYPT);
    if !is_marked || !state.layout.features.incompat(Incompat::ENCRYPT) {
        return None;
    }
    if context::of(state, ino, &record) == Some(Context::Valid) {
        return None;
    }
    let from = bytes.len().checked_sub(record.extra.len())?;
    let mut found = candidates(&record.extra).into_iter().filter(|(at, byte)| {
        let mut extra = record.extra.clone();
        if let Some(place) = extra.get_mut(*at) {
            *place = *byte;
        }
        is_context(&extra, ino)
    });
    let (at, byte) = found.next().filter(|_| found.next().is_none())?;
    let at = from.checked_add(at)?;
    let mut right = bytes.to_vec();
    let stored = std::mem::replace(right.get_mut(at)?, byte);
    let finding = |place: Place| Finding::new(&kinds::ENCRYPTION_BYTE, place).hex(stored, byte);
    magic::correct(state, ino, bytes, right, (at, &finding))
}

/// Single bytes that may be wrong, each with its offset: those of entries, and the version of a
/// value.
fn candidates(extra: &[u8]) -> Vec<(usize, u8)> {
    let mut found = Vec::new();
    let mut at = XattrLocation::Inode.header_len();
    while let Some(entry) = at.checked_add(ENTRY_LEN).and_then(|end| extra.get(at..end)) {
        if entry.first_chunk() == Some(&[0; 4]) {
            break;
        }
        for (offset, right) in ENTRY {
            let stored = entry.iter().skip(*offset).zip(*right).enumerate();
            let mut wrong = stored.filter(|(_, (stored, right))| stored != right);
            if let (Some((inside, (_, byte))), None) = (wrong.next(), wrong.next()) {
                found.push((at.saturating_add(*offset).saturating_add(inside), *byte));
            }
        }
        at = at.saturating_add(entry_len(entry.first().map_or(0, |len| usize::from(*len))));
    }
    let all = xattr::decode(extra, XattrLocation::Inode, Ino(0)).unwrap_or_default();
    let version = all.iter().find_map(|attribute| {
        // A context names the modes of contents and of names, which are no zeros.
        let value = context::value(attribute)
            .filter(|value| value.get(1..3).is_some_and(|modes| !modes.contains(&0)))?;
        Some((attribute.value_at, if value.len() == 28 { 1 } else { 2 }))
    });
    found.extend(version);
    found
}

/// Readers accept all attributes, and one is a context.
fn is_context(extra: &[u8], ino: Ino) -> bool {
    let all = xattr::decode(extra, XattrLocation::Inode, ino).unwrap_or_default();
    let mut contexts = all.iter().filter_map(context::value);
    contexts.next().is_some_and(context::is_valid)
        && all.iter().all(|attribute| refused(attribute).is_none())
}
