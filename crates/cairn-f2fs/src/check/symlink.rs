//! Targets of symbolic links: what reading a link needs.

use cairn_base::units::as_u64;
use cairn_check::{Finding, Kind, Place};

use super::context::{Context, Scratch};
use super::kinds;
use super::shape::Seen;
use crate::error::Result;
use crate::form;
use crate::format::Inode;
use crate::format::block::is_zero;
use crate::format::inode::Advise;
use crate::format::units::{BLOCK_BYTES, Nid};

/// Checks the target of a link.
///
/// # Errors
/// The device's.
pub(super) fn check(
    context: &Context,
    scratch: &mut Scratch,
    (ino, record, image): (Nid, &Inode, &[u8]),
) -> Result<()> {
    let Some(bytes) = contents(context, scratch, record, image)? else {
        context.add(Finding::new(&kinds::INODE_TARGET, Place::inode(ino.get())));
        return Ok(());
    };
    // Of an encrypted target, only the size shows the length.
    let judged = match record.advise.contains(Advise::ENCRYPT) {
        true if (1..BLOCK_BYTES).contains(&record.size) => None,
        true => Some(&kinds::INODE_TARGET),
        false => judge(&bytes, record.size),
    };
    if let Some(kind) = judged {
        let place = Place::inode(ino.get());
        context.add(if kind.code == kinds::INODE_SIZE.code {
            Finding::new(kind, place.in_field("i_size")).stored(record.size)
        } else {
            Finding::new(kind, place)
        });
    }
    Ok(())
}

/// What is wrong with a target in these bytes.
fn judge(bytes: &[u8], size: u64) -> Option<&'static Kind> {
    let len = len(bytes);
    let is_size = (1..BLOCK_BYTES).contains(&size);
    if len == 0 || (as_u64(len) >= BLOCK_BYTES && !is_size) {
        return Some(&kinds::INODE_TARGET);
    }
    // Some writers count the NUL after the target in the size.
    let is_right = (as_u64(len)..=as_u64(len).saturating_add(1)).contains(&size);
    if is_right || as_u64(len) >= BLOCK_BYTES {
        return None;
    }
    // More of the target behind a NUL: the target is damaged, not the size.
    let behind = usize::try_from(size).ok().and_then(|size| bytes.get(len..size));
    let is_size_wrong = behind.is_none_or(is_zero);
    Some(if is_size_wrong { &kinds::INODE_SIZE } else { &kinds::INODE_TARGET })
}

/// Bytes up to the NUL that ends a target.
pub(super) fn len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())
}

/// The bytes that a target lies in. `None` if its block is missing.
///
/// # Errors
/// The device's.
pub(super) fn contents(
    context: &Context,
    scratch: &mut Scratch,
    record: &Inode,
    image: &[u8],
) -> Result<Option<Vec<u8>>> {
    form::contents(&mut Seen { context, scratch }, record, image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_target_are_compared() {
        let code = |bytes: &[u8], size| judge(bytes, size).map(|kind| kind.code);
        let area = |text: &[u8]| [text, &[0; 40]].concat();
        let (size, target) = (Some(kinds::INODE_SIZE.code), Some(kinds::INODE_TARGET.code));
        let cases = [
            (area(b"target"), 6, None),
            (area(b"target"), 7, None),
            (area(b"target"), 5, size),
            (area(b"target"), 0, size),
            (area(b"target"), 8, size),
            (area(b"target"), 1 << 40, size),
            (area(b"tar\0et"), 6, target),
            (area(b""), 3, target),
            // Full to the last byte.
            (b"target".to_vec(), 6, None),
            (b"target".to_vec(), 4, size),
        ];
        for (bytes, stored, expected) in cases {
            assert_eq!(code(&bytes, stored), expected, "{bytes:?}, {stored}");
        }
    }
}
