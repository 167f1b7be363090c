//! Rewrites a map, whatever form it has.

use cairn_base::Ino;

use super::mender::Mender;
use super::policy::Policy;
use super::{pointers, tree};
use crate::error::Result;
use crate::format::inode::{Inode as Record, InodeFlags};

/// Rewrites the map of an inode by a policy. True if something of it has changed.
pub(super) fn rewrite(
    mender: &Mender<'_>,
    ino: Ino,
    record: &mut Record,
    policy: &mut dyn Policy,
) -> Result<bool> {
    match record.flags.contains(InodeFlags::EXTENTS) {
        true => tree::rewrite(mender, ino, record, policy),
        false => pointers::rewrite(mender, record, policy),
    }
}
