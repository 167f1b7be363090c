//! [`of`]: the context of an encrypted inode, an attribute that names its key. Linux gives it to an
//! inode together with the flag, and can open neither without the other.

use std::ops::Range;

use cairn_base::{Ino, Pba};

use super::Around;
use crate::format::features::Incompat;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::xattr::{self, Attribute, Value, XattrLocation};

/// Prefix index and name of the attribute.
const NAME: (u8, &[u8]) = (9, b"c");

/// Bytes at the end of a context that each inode has for itself.
pub(crate) const NONCE: usize = 16;

/// What the attributes of an inode have of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// None.
    Missing,
    /// One of a form that nobody knows.
    Malformed,
    /// One of a known form.
    Valid,
}

/// The value of a context, if the attribute is one.
pub(crate) fn value<'v>(attribute: &Attribute<'v>) -> Option<&'v [u8]> {
    match attribute.value {
        Value::Here(value) if (attribute.index, attribute.name) == NAME => Some(value),
        _ => None,
    }
}

/// Is the context of a known form? Version 1 has 28 bytes, version 2 has 40.
pub(crate) fn is_valid(context: &[u8]) -> bool {
    matches!((context.first(), context.len()), (Some(1), 28) | (Some(2), 40))
}

/// The context in the record of an inode, and its place among the attributes there.
pub(crate) fn inside(ino: Ino, record: &Record) -> Option<(Range<usize>, Vec<u8>)> {
    let all = xattr::decode(&record.extra, XattrLocation::Inode, ino).ok()?;
    all.iter().find_map(|attribute| {
        let value = value(attribute)?;
        let end = attribute.value_at.checked_add(value.len())?;
        Some((attribute.value_at..end, value.to_vec()))
    })
}

/// The context of an inode. `None` if its attributes cannot be read.
pub(crate) fn of(around: &dyn Around, ino: Ino, record: &Record) -> Option<Context> {
    let inside = xattr::decode(&record.extra, XattrLocation::Inode, ino).ok()?;
    let here = among(&inside);
    if here != Context::Missing || record.file_acl == Pba(0) {
        return Some(here);
    }
    let block = around.attribute_block(record)?;
    let all = xattr::decode(&block, XattrLocation::Block, ino).ok()?;
    Some(among(&all))
}

fn among(all: &[Attribute<'_>]) -> Context {
    match all.iter().find_map(value) {
        None => Context::Missing,
        Some(context) if is_valid(context) => Context::Valid,
        Some(_) => Context::Malformed,
    }
}

/// The flag of encryption as the context proves it, where the volume has the feature.
pub(crate) fn proved(around: &dyn Around, ino: Ino, record: &Record) -> InodeFlags {
    let (flags, flag) = (record.flags, InodeFlags::ENCRYPT);
    if !around.layout().features.incompat(Incompat::ENCRYPT) {
        return flags;
    }
    match of(around, ino, record) {
        Some(Context::Missing) => flags.difference(flag),
        Some(Context::Valid) => flags | flag,
        Some(Context::Malformed) | None => flags,
    }
}
