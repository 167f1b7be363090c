//! The fields of an inode that say something without its contents.

use cairn_base::Ino;
use cairn_check::{Finding, Place, Value};
use cairn_vfs::FileKind;

use super::facts::Facts;
use super::kinds;
use super::state::State;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;

/// What is to be done with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its contents are those of this kind.
    Sound(FileKind),
    /// It is a reserved one that has blocks, but no kind.
    Reserved,
    /// Its contents say nothing.
    Broken,
}

impl Verdict {
    pub(super) fn kind(self) -> Option<FileKind> {
        match self {
            Self::Sound(kind) => Some(kind),
            _ => None,
        }
    }
}

/// Checks the fields of an inode in use.
pub(super) fn check(
    state: &State,
    ino: Ino,
    bytes: &[u8],
    record: &Record,
    facts: &Facts,
) -> Verdict {
    let place = || Place::inode(ino.get());
    if let Some(stored) = Record::wrong_extra_isize(bytes) {
        let place = place().in_field("i_extra_isize");
        let room = bytes.len().saturating_sub(128);
        let finding = Finding::new(&kinds::INODE_EXTRA_SIZE, place).stored(stored);
        state.findings.add(finding.computed(u64::try_from(room).unwrap_or(u64::MAX)));
    }
    let is_empty = bytes.iter().all(|byte| *byte == 0);
    if !is_empty && let Err(why) = Record::verify(bytes, ino, &state.layout) {
        state.report(&kinds::INODE_FIELD, &kinds::INODE_CHECKSUM, place(), &why);
    }
    if record.dtime != 0 && !facts.is_orphan() && !state.is_reserved(ino) {
        let place = place().in_field("i_dtime");
        state.differ(&kinds::INODE_DELETED, place, record.dtime.into(), 0);
    }
    let kind = FileKind::from_mode(u32::from(record.mode));
    if ino == inodes::ROOT && kind != Some(FileKind::Directory) {
        let finding = Finding::new(&kinds::INODE_ROOT, place().in_field("i_mode"));
        state.findings.add(finding.stored(Value::Hex(record.mode.into())));
    }
    let Some(kind) = kind else {
        if state.is_reserved(ino) && record.mode == 0 {
            return Verdict::Reserved;
        }
        let finding = Finding::new(&kinds::INODE_MODE, place().in_field("i_mode"));
        state.findings.add(finding.stored(Value::Hex(record.mode.into())));
        return Verdict::Broken;
    };
    if let Some((field, stored)) = Record::must_be_zero(bytes, &state.layout) {
        state.differ(&kinds::INODE_FIELD, place().in_field(field), stored, 0);
    }
    check_reserved(state, ino, kind);
    check_flags(state, ino, kind, record);
    if kind == FileKind::Directory
        && !state.layout.features.incompat(Incompat::LARGE_DIR)
        && Record::size_high(bytes) != 0
    {
        let place = place().in_field("i_size_high");
        state.differ(&kinds::INODE_FIELD, place, Record::size_high(bytes).into(), 0);
    }
    Verdict::Sound(kind)
}

/// Reserved inodes are regular files, and have contents only with their feature.
fn check_reserved(state: &State, ino: Ino, kind: FileKind) {
    let features = &state.layout.features;
    if !state.is_reserved(ino) || ino == inodes::ROOT {
        return;
    }
    let is_allowed = match ino {
        inodes::RESIZE => features.compat(Compat::RESIZE_INODE),
        inodes::JOURNAL => state.layout.journal_ino == inodes::JOURNAL,
        _ => true,
    };
    if kind != FileKind::Regular || !is_allowed {
        let finding = Finding::new(&kinds::INODE_RESERVED, Place::inode(ino.get()));
        state.findings.add(finding.stored(Value::text(format!("{kind:?}"))));
    }
}

/// Flags that need a feature, or a kind of file.
fn check_flags(state: &State, ino: Ino, kind: FileKind, record: &Record) {
    let features = &state.layout.features;
    let is_directory = kind == FileKind::Directory;
    let is_special = !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
    let extents = features.incompat(Incompat::EXTENTS);
    let inline = features.incompat(Incompat::INLINE_DATA);
    let index = features.compat(Compat::DIR_INDEX) && is_directory;
    let rules = [
        (InodeFlags::EXTENTS, extents && !is_special),
        (InodeFlags::INLINE_DATA, inline && !is_special),
        (InodeFlags::INDEX, index && !record.flags.contains(InodeFlags::INLINE_DATA)),
        (InodeFlags::EA_INODE, features.incompat(Incompat::EA_INODE)),
        (InodeFlags::ENCRYPT, features.incompat(Incompat::ENCRYPT)),
        (InodeFlags::VERITY, features.ro_compat(RoCompat::VERITY)),
        (InodeFlags::CASEFOLD, features.incompat(Incompat::CASEFOLD) && is_directory),
        (InodeFlags::HUGE_FILE, features.ro_compat(RoCompat::HUGE_FILE)),
        (InodeFlags::IMMUTABLE | InodeFlags::APPEND, !is_special),
    ];
    let mut wrong = InodeFlags::empty();
    for (flag, is_allowed) in rules {
        if !is_allowed {
            wrong |= record.flags & flag;
        }
    }
    let both = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
    if record.flags.contains(both) {
        wrong |= InodeFlags::EXTENTS;
    }
    if !wrong.is_empty() {
        let stored = record.flags.bits();
        let place = Place::inode(ino.get()).in_field("i_flags");
        let finding = Finding::new(&kinds::INODE_FLAGS, place);
        state.findings.add(finding.hex(stored, stored & !wrong.bits()));
    }
}
