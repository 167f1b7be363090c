//! Attribute names, whose prefix is one byte on disk. Source: "Extended Attributes" in the kernel's
//! ext4 documentation.

use crate::error::Result;

/// `user.`
pub(crate) const USER: u8 = 1;
/// `system.posix_acl_access`, the whole name.
pub(crate) const ACL_ACCESS: u8 = 2;
/// `system.posix_acl_default`, the whole name.
pub(crate) const ACL_DEFAULT: u8 = 3;
/// `trusted.`
pub(crate) const TRUSTED: u8 = 4;
/// `security.`
pub(crate) const SECURITY: u8 = 6;
/// `system.`: for the filesystem itself (inline data); not visible.
pub(crate) const SYSTEM: u8 = 7;
/// `system.richacl`, the whole name.
pub(crate) const RICHACL: u8 = 8;

const NAME_MAX: usize = 255;

/// Names that consist of their index only.
const WHOLE: [(u8, &[u8]); 3] = [
    (ACL_ACCESS, b"system.posix_acl_access"),
    (ACL_DEFAULT, b"system.posix_acl_default"),
    (RICHACL, b"system.richacl"),
];
const PREFIXES: [(u8, &[u8]); 3] =
    [(USER, b"user."), (TRUSTED, b"trusted."), (SECURITY, b"security.")];

/// Prefix index and rest of a full name.
///
/// # Errors
/// [`cairn_vfs::Error::Unsupported`] for unknown prefixes, `Invalid` for a prefix alone, `Range`
/// for a name over 255 bytes.
pub(crate) fn parse(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.len() > NAME_MAX {
        return Err(cairn_vfs::Error::Range.into());
    }
    if let Some((index, _)) = WHOLE.iter().find(|(_, whole)| *whole == name) {
        return Ok((*index, b""));
    }
    for (index, prefix) in PREFIXES {
        match name.strip_prefix(prefix) {
            Some(b"") => {
                return Err(cairn_vfs::Error::Invalid("attribute name ends with its prefix").into());
            }
            Some(rest) => return Ok((index, rest)),
            None => {}
        }
    }
    Err(cairn_vfs::Error::Unsupported("extended attributes with this prefix").into())
}

/// The full name. `None` for attributes that are not visible (inline data, encryption contexts,
/// unknown prefixes).
#[must_use]
pub(crate) fn full(index: u8, rest: &[u8]) -> Option<Vec<u8>> {
    if let Some((_, whole)) = WHOLE.iter().find(|(other, _)| *other == index) {
        return rest.is_empty().then(|| whole.to_vec());
    }
    let (_, prefix) = PREFIXES.iter().find(|(other, _)| *other == index)?;
    Some([prefix, rest].concat())
}

/// A name for messages, whether readers accept it or not.
#[must_use]
pub(crate) fn shown(index: u8, rest: &[u8]) -> String {
    match full(index, rest) {
        Some(prefix) if rest.is_empty() && WHOLE.iter().all(|(whole, _)| *whole != index) => {
            format!("without a name behind '{}'", prefix.escape_ascii())
        }
        Some(full) => full.escape_ascii().to_string(),
        None => format!("{} of the prefix {index}", rest.escape_ascii()),
    }
}

/// What no reader accepts of a stored name.
#[must_use]
pub(crate) fn refused(index: u8, rest: &[u8]) -> Option<&'static str> {
    let is_whole = WHOLE.iter().any(|(other, _)| *other == index);
    if index == 0 {
        Some("a name without a prefix")
    } else if rest.contains(&0) {
        Some("a name with a NUL in it")
    } else if rest.is_empty() && !is_whole {
        Some("a prefix without a name")
    } else {
        let is_long = full(index, rest).is_some_and(|full| parse(&full).is_err());
        is_long.then_some("a name that is too long")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for name in
            ["user.a", "trusted.overlay.opaque", "security.selinux", "system.posix_acl_access"]
        {
            let (index, rest) = parse(name.as_bytes()).unwrap();
            assert_eq!(full(index, rest).unwrap(), name.as_bytes());
        }
        assert_eq!(parse(b"user.x.y").unwrap(), (USER, &b"x.y"[..]));
        for bad in ["user.", "user", "system.data", "system.posix_acl_accessx", "", "foo.bar"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let long = [&b"user."[..], &[b'x'; 251]].concat();
        assert!(parse(&long).is_err() && parse(&long[1..]).is_err() && parse(&long[..255]).is_ok());
        assert_eq!(full(SYSTEM, b"data"), None);
        assert_eq!(full(ACL_ACCESS, b"x"), None);
        for (index, rest) in [(0, &b"x"[..]), (USER, b""), (USER, b"x\0"), (SYSTEM, b"")] {
            assert!(refused(index, rest).is_some(), "{index} {rest:?}");
        }
        assert!(refused(USER, &[b'x'; 251]).is_some());
        for (index, rest) in [(ACL_ACCESS, &b""[..]), (USER, b"x"), (SYSTEM, b"data"), (9, b"c")] {
            assert!(refused(index, rest).is_none(), "{index} {rest:?}");
        }
    }
}
