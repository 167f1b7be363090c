//! Can an inode have the attributes of a block?

use cairn_base::Ino;
use cairn_vfs::FileKind;
use cairn_vfs::acl::Acl;

use super::super::state::State;
use crate::form::context;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::xattr::{self, Attribute, Value, XattrLocation};
use crate::xattr::names;

/// How an inode and the attributes of a block go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Nothing speaks against it.
    Fits,
    /// The mode is another one than that of the access control list.
    OtherMode,
    /// No program gives the inode these attributes.
    Never,
}

/// Can the inode have these attributes in its block?
pub(super) fn fit(state: &State, ino: Ino, all: &[Attribute<'_>]) -> Fit {
    let Some(record) = state.record(ino) else { return Fit::Never };
    let kind = FileKind::from_mode(record.mode.into());
    let own = xattr::decode(&record.extra, XattrLocation::Inode, ino).unwrap_or_default();
    let is_encrypted = record.flags.contains(InodeFlags::ENCRYPT);
    let is_never = |one: &Attribute<'_>| {
        let is_own = own.iter().any(|own| (own.index, own.name) == (one.index, one.name));
        let is_strange = match one.index {
            names::USER => !matches!(kind, Some(FileKind::Regular | FileKind::Directory)),
            names::ACL_ACCESS => kind == Some(FileKind::Symlink),
            names::ACL_DEFAULT => kind != Some(FileKind::Directory),
            _ => context::value(one).is_some() && !is_encrypted,
        };
        is_own || is_strange
    };
    if all.iter().any(is_never) {
        return Fit::Never;
    }
    let is_list = |one: &&Attribute<'_>| one.index == names::ACL_ACCESS;
    match all.iter().find(is_list).is_none_or(|list| has_mode(&record, list)) {
        true => Fit::Fits,
        false => Fit::OtherMode,
    }
}

/// Is the mode of the inode that of its access control list?
fn has_mode(record: &Record, list: &Attribute<'_>) -> bool {
    let Value::Here(value) = list.value else { return true };
    let list = Acl::from_compact(value).ok().flatten();
    list.is_none_or(|list| list.equivalent_mode().0 == u32::from(record.mode) & 0o777)
}
