//! [`check`]: an inode's record against the volume's features and its own contents, once, when the
//! inode is loaded.
//!
//! Who reads by a record that contradicts itself takes pointers for contents, or a target for a
//! file, and who writes by it destroys what is there. Linux refuses most such inodes as well
//! (`__ext4_iget`). The first block is read only where the record leaves no other way.

use cairn_base::Ino;
use cairn_vfs::FileKind;

use super::shape::{FAST_SYMLINK, has_attribute, is_tree};
use super::{Around, context, is_reserved, types};
use crate::corrupt::Corrupt;
use crate::format::features::Incompat;
use crate::format::inode::{Inode as Record, InodeFlags};

/// Checks the record of an inode of this type.
///
/// # Errors
/// The inode holds something else than its record says.
pub(crate) fn check(
    around: &dyn Around,
    ino: Ino,
    record: &Record,
    kind: FileKind,
) -> Result<(), Corrupt> {
    let features = &around.layout().features;
    let is_value = features.incompat(Incompat::EA_INODE);
    if is_reserved(around.layout(), ino)
        || (is_value && record.flags.contains(InodeFlags::EA_INODE))
    {
        return Ok(());
    }
    let (field, value) = ("i_flags", record.flags.bits().into());
    let encryption = context::proved(around, ino, record);
    if encryption != record.flags {
        let problem = match encryption.contains(InodeFlags::ENCRYPT) {
            true => "without the flag of encryption that a context proves",
            false => "with the flag of encryption, and without a context",
        };
        return Err(Corrupt::Inode { ino, field, value, problem });
    }
    if let Some(problem) = wrong_form(ino, record, kind, features.incompat(Incompat::INLINE_DATA)) {
        return Err(Corrupt::Inode { ino, field, value, problem });
    }
    let is_possible = match kind {
        // What a directory and a long target hold is seen when they are read. A file may hold
        // anything, also what looks like a directory's first block: its names say what it is.
        FileKind::Directory | FileKind::Regular => true,
        FileKind::Symlink => {
            record.size >= FAST_SYMLINK || types::allows(around, ino, record, kind)
        }
        _ => types::contradicted(around, ino, record).is_empty(),
    };
    if is_possible {
        return Ok(());
    }
    let problem = "a file type that what the inode holds contradicts";
    Err(Corrupt::Inode { ino, field: "i_mode", value: record.mode.into(), problem })
}

/// What the flags of the form say that is not so.
fn wrong_form(ino: Ino, record: &Record, kind: FileKind, has_inline: bool) -> Option<&'static str> {
    let has_map = matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
    let is_fast = kind == FileKind::Symlink && record.size < FAST_SYMLINK;
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        let is_there = has_inline && (is_fast || has_attribute(ino, record));
        return match (is_there, has_inline) {
            (true, _) => None,
            (false, true) => Some("and there are no contents in the inode"),
            (false, false) => Some("and the feature inline_data is missing"),
        };
    }
    match (record.flags.contains(InodeFlags::EXTENTS), is_tree(ino, record)) {
        (true, false) if has_map => Some("and there is no extent tree in the inode"),
        (false, true) => Some("without the flag of the extent tree that the inode holds"),
        (false, false) if has_inline && has_attribute(ino, record) => {
            Some("without the flag of the contents that the inode holds")
        }
        _ => None,
    }
}
