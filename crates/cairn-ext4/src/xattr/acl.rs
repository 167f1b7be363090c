//! The stored form of POSIX ACLs: version 1, in which an entry without an id is four bytes shorter
//! than in the attribute `system.posix_acl_*` (version 2).

use cairn_vfs::acl::{Acl, shown_from_compact};

use crate::error::{Error, Result};

const STORED_VERSION: u32 = 1;
const SHOWN_VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// True if entries with this tag have an id. `None` for an unknown tag.
const fn has_id(tag: u16) -> Option<bool> {
    match tag {
        USER | GROUP => Some(true),
        USER_OBJ | GROUP_OBJ | MASK | OTHER => Some(false),
        _ => None,
    }
}

/// The stored form of an attribute value.
///
/// # Errors
/// [`cairn_vfs::Error::Invalid`] if the value is not an ACL.
pub(crate) fn to_stored(shown: &[u8]) -> Result<Vec<u8>> {
    compact(shown).ok_or_else(|| cairn_vfs::Error::Invalid("malformed access control list").into())
}

/// The attribute value of a stored ACL.
///
/// # Errors
/// As in Linux: [`cairn_vfs::Error::Invalid`] if it is malformed, `NoAttribute` if it has no
/// entries.
pub(crate) fn to_shown(stored: &[u8]) -> Result<Vec<u8>> {
    match shown_from_compact(stored) {
        Ok(shown) => Ok(shown.ok_or(cairn_vfs::Error::NoAttribute)?),
        Err(_) => Err(cairn_vfs::Error::Invalid("malformed access control list").into()),
    }
}

/// Why readers refuse a stored ACL, if they do. One without an entry that it must have, or with one
/// twice, is shown, but no change of permissions, archive or copy takes it.
#[must_use]
pub(crate) fn refused(stored: &[u8]) -> Option<&'static str> {
    match to_shown(stored) {
        Ok(_) if Acl::from_compact(stored).is_err() => {
            Some("an access control list without a required entry, or with one twice")
        }
        Ok(_) => None,
        // It is listed, and is not there when it is asked for.
        Err(Error::Vfs(cairn_vfs::Error::NoAttribute)) => {
            Some("an access control list without entries")
        }
        Err(_) => Some("a malformed access control list"),
    }
}

/// Copies entries without undefined ids.
fn compact(shown: &[u8]) -> Option<Vec<u8>> {
    let (head, mut rest) = shown.split_first_chunk()?;
    if u32::from_le_bytes(*head) != SHOWN_VERSION {
        return None;
    }
    let mut to = STORED_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (fixed, behind) = rest.split_first_chunk::<4>()?;
        rest = behind;
        let tag_has_id = has_id(u16::from_le_bytes([fixed[0], fixed[1]]))?;
        let (id, behind) = rest.split_first_chunk::<4>()?;
        rest = behind;
        to.extend_from_slice(fixed);
        if tag_has_id {
            to.extend_from_slice(id);
        }
    }
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ID: u32 = u32::MAX;

    #[test]
    fn an_acl_goes_both_ways() {
        let entry = |tag: u16, permissions: u16, id: u32| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let shown = [
            2_u32.to_le_bytes().to_vec(),
            entry(USER_OBJ, 6, NO_ID),
            entry(USER, 7, 1000),
            entry(GROUP_OBJ, 4, NO_ID),
            entry(GROUP, 5, 0),
            entry(MASK, 7, NO_ID),
            entry(OTHER, 4, NO_ID),
        ]
        .concat();
        let stored = to_stored(&shown).unwrap();
        assert_eq!(stored.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(to_shown(&stored).unwrap(), shown);
        for cut in 1..4 {
            assert!(to_stored(&shown[..shown.len() - cut]).is_err());
            assert!(to_shown(&stored[..stored.len() - cut]).is_err());
        }
        assert!(to_stored(&stored).is_err() && to_shown(&shown).is_err());
        assert!(to_shown(&[1, 0, 0, 0, 3, 0, 7, 0]).is_err());
    }
}
