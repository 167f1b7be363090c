//! Extended attributes: one area, made of the inode's inline part and, behind it, the attribute
//! node.
//!
//! The area begins with a header of 24 bytes; entries follow, padded to 4, and a zero word ends
//! them. Entries may cross from the inline part into the node: join the two before decoding,
//! and split them after encoding.

use cairn_base::units::as_u64;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::node::FOOTER_AT;
use super::units::{NAME_MAX, Nid};
use crate::corrupt::Corrupt;

/// First word of an area.
pub(crate) const MAGIC: u32 = 0xf2f5_2011;
/// Bytes of the header.
pub(crate) const HEADER_SIZE: usize = 24;
/// Bytes that an attribute node adds to the area.
pub(crate) const NODE_BYTES: usize = FOOTER_AT;
/// Bytes of an entry before its name.
const ENTRY_HEAD: usize = 4;
/// The zero word at the end.
const END_SIZE: usize = 4;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawXattrHeader {
    h_magic: U32,
    h_refcount: U32,
    h_sloadd: [U32; 4],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawXattrEntry {
    e_name_index: u8,
    e_name_len: u8,
    e_value_size: U16,
}

const _: () = assert!(size_of::<RawXattrHeader>() == HEADER_SIZE);
const _: () = assert!(size_of::<RawXattrEntry>() == ENTRY_HEAD);

/// Namespaces by their stored numbers, with the prefix of names in them; the two ACLs have no name
/// of their own.
const PREFIXES: [(u8, &[u8]); 7] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (5, b"lustre."),
    (6, b"security."),
    (7, b"system.advise"),
];

/// `e_name_index` of the access ACL.
pub(crate) const INDEX_ACL_ACCESS: u8 = 2;
/// `e_name_index` of the default ACL.
pub(crate) const INDEX_ACL_DEFAULT: u8 = 3;
/// `e_name_index` and name of the attribute that names the key of an encrypted inode.
const ENCRYPTION_CONTEXT: (u8, &[u8]) = (9, b"c");

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Xattr {
    /// Namespace.
    pub(crate) index: u8,
    /// Name within it.
    pub(crate) name: Vec<u8>,
    /// Value.
    pub(crate) value: Vec<u8>,
}

impl Xattr {
    /// Does it name the key of an encrypted inode?
    #[must_use]
    pub(crate) fn is_encryption_context(&self) -> bool {
        (self.index, self.name.as_slice()) == ENCRYPTION_CONTEXT
    }

    /// The name with its prefix; `None` in a namespace that users do not see.
    #[must_use]
    pub(crate) fn full_name(&self) -> Option<Vec<u8>> {
        let (_, prefix) = PREFIXES.iter().find(|(index, _)| *index == self.index)?;
        // The ACLs and the advice are whole names, so nothing follows their prefix.
        (prefix.ends_with(b".") || self.name.is_empty())
            .then(|| [prefix, self.name.as_slice()].concat())
    }

    /// Bytes it takes.
    #[must_use]
    pub(crate) fn stored_size(&self) -> usize {
        ENTRY_HEAD
            .saturating_add(self.name.len())
            .saturating_add(self.value.len())
            .next_multiple_of(4)
    }
}

/// Namespace and name within it of a full name; `None` if there is no such namespace.
#[must_use]
pub(crate) fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(index, prefix)| {
        let rest = full.strip_prefix(*prefix)?;
        (prefix.ends_with(b".") != rest.is_empty()).then_some((*index, rest))
    })
}

/// True if an area has no attributes, because it has no header.
#[must_use]
pub(crate) fn is_empty(area: &[u8]) -> bool {
    RawXattrHeader::ref_from_prefix(area).is_ok_and(|(header, _)| header.h_magic.get() == 0)
        || area.len() < HEADER_SIZE
}

/// The attributes of an area. One without a header (all zeros, or too short) has none.
///
/// # Errors
/// The magic number is wrong, or an entry crosses the end.
pub(crate) fn decode(area: &[u8], ino: Nid) -> Result<Vec<Xattr>, Corrupt> {
    let Ok((header, _)) = RawXattrHeader::ref_from_prefix(area) else { return Ok(Vec::new()) };
    let bad = |offset, what, value: u64| Corrupt::Xattr { ino, offset, what, value };
    match header.h_magic.get() {
        MAGIC => {}
        0 => return Ok(Vec::new()),
        other => return Err(bad(0, "the magic number is wrong", other.into())),
    }
    let mut found = Vec::new();
    let mut at = HEADER_SIZE;
    // Every step goes forward by at least 4 bytes.
    while let Some((head, rest)) =
        area.get(at..).and_then(|rest| rest.split_first_chunk::<ENTRY_HEAD>())
    {
        if *head == [0; END_SIZE] {
            break;
        }
        let raw: &RawXattrEntry = zerocopy::transmute_ref!(head);
        let (name_len, value_len) =
            (usize::from(raw.e_name_len), usize::from(raw.e_value_size.get()));
        let xattr = rest.split_at_checked(name_len).and_then(|(name, rest)| {
            let value = rest.get(..value_len)?;
            Some(Xattr { index: raw.e_name_index, name: name.to_vec(), value: value.to_vec() })
        });
        let Some(xattr) = xattr else {
            let end =
                at.saturating_add(ENTRY_HEAD).saturating_add(name_len).saturating_add(value_len);
            return Err(bad(at, "an entry crosses the end of the area", as_u64(end)));
        };
        at = at.saturating_add(xattr.stored_size());
        found.push(xattr);
    }
    Ok(found)
}

/// Bytes that an area needs for these attributes, with header and end.
#[must_use]
pub(crate) fn area_size(xattrs: &[Xattr]) -> usize {
    const EMPTY: usize = HEADER_SIZE + END_SIZE;
    xattrs.iter().fold(EMPTY, |size, xattr| size.saturating_add(xattr.stored_size()))
}

/// An area of `size` bytes with these attributes, zeros behind them; `None` if they do not fit or
/// one of them can never be stored (name or value too long).
#[must_use]
pub(crate) fn encode(xattrs: &[Xattr], size: usize) -> Option<Vec<u8>> {
    if area_size(xattrs) > size {
        return None;
    }
    let header =
        RawXattrHeader { h_magic: MAGIC.into(), h_refcount: 1.into(), h_sloadd: [0.into(); 4] };
    let mut area = header.as_bytes().to_vec();
    for xattr in xattrs {
        let e_name_len =
            u8::try_from(xattr.name.len()).ok().filter(|len| usize::from(*len) <= NAME_MAX)?;
        let e_value_size = u16::try_from(xattr.value.len()).ok()?.into();
        let raw = RawXattrEntry { e_name_index: xattr.index, e_name_len, e_value_size };
        area.extend_from_slice(raw.as_bytes());
        area.extend_from_slice(&xattr.name);
        area.extend_from_slice(&xattr.value);
        area.resize(area.len().next_multiple_of(4), 0);
    }
    area.resize(size, 0);
    Some(area)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(index: u8, name: &[u8], value: &[u8]) -> Xattr {
        Xattr { index, name: name.to_vec(), value: value.to_vec() }
    }

    #[test]
    fn areas_survive_the_disk() {
        let list = [xattr(1, b"a", b"12345"), xattr(6, b"selinux", b""), xattr(2, b"", &[9; 300])];
        let size = area_size(&list);
        for size in [size, size + 4, 4272] {
            let area = encode(&list, size).unwrap();
            assert_eq!((area.len(), decode(&area, Nid(5)).unwrap()), (size, list.to_vec()));
        }
        assert_eq!(encode(&list, size - 1), None);
        assert_eq!(area_size(&[]), 28);
        assert_eq!(encode(&[], 28).unwrap()[..8], [0x11, 0x20, 0xf5, 0xf2, 1, 0, 0, 0]);
    }

    #[test]
    fn damaged_areas_are_named() {
        let area = encode(&[xattr(1, b"a", b"12345")], 40).unwrap();
        let mut magic = area.clone();
        magic[0] = 1;
        assert!(matches!(decode(&magic, Nid(5)), Err(Corrupt::Xattr { offset: 0, .. })));
        let mut long = area;
        long[26] = 0xff;
        assert!(matches!(decode(&long, Nid(5)), Err(Corrupt::Xattr { offset: 24, .. })));
        assert_eq!(decode(&[0; 200], Nid(5)), Ok(vec![]));
        assert_eq!(decode(&[1; 7], Nid(5)), Ok(vec![]));
    }

    #[test]
    fn names_have_prefixes() {
        let names: [&[u8]; 4] =
            [b"user.x", b"system.posix_acl_access", b"trusted.y.z", b"security.selinux"];
        for full in names {
            let (index, name) = split_name(full).unwrap();
            assert_eq!(xattr(index, name, b"").full_name().unwrap(), full);
        }
        for foreign in [&b"user."[..], b"system.posix_acl_accessx", b"other.x", b""] {
            assert_eq!(split_name(foreign), None);
        }
        assert_eq!(xattr(9, b"c", b"").full_name(), None);
    }
}
