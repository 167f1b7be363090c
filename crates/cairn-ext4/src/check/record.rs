//! The fields of an inode that say something without its contents.

use cairn_base::Ino;
use cairn_check::{Finding, Place, Value};
use cairn_vfs::FileKind;

use super::contents::most_bytes;
use super::facts::Facts;
use super::kinds;
use super::named;
use super::state::State;
use crate::form::stored_flags;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;

/// Times from the year 2310 to 2378 were written by kernels that took times before 1970 for them.
const FUTURE: std::ops::Range<i64> = 0x2_8000_0000..0x3_0000_0000;

/// What is to be done with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its contents are those of this kind.
    Sound(FileKind),
    /// Its contents say nothing.
    Broken,
}

impl Verdict {
    pub(super) fn kind(self) -> Option<FileKind> {
        match self {
            Self::Sound(kind) => Some(kind),
            Self::Broken => None,
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
    let is_empty = bytes.iter().all(|byte| *byte == 0);
    if !is_empty && let Err(why) = Record::verify(bytes, ino, &state.layout) {
        state.report(&kinds::INODE_FIELD, &kinds::INODE_CHECKSUM, place(), &why);
    }
    if state.is_reserved(ino) && ino != inodes::ROOT {
        reserved(state, ino, record);
        if !named::is_mere_map(state, ino) {
            reserved_size(state, ino, bytes, record);
        }
        check_flags(state, ino, FileKind::Regular, record, bytes);
        return Verdict::Sound(FileKind::Regular);
    }
    check_fields(state, ino, bytes, record);
    if record.dtime != 0 && !facts.is_orphan() {
        let place = place().in_field("i_dtime");
        state.differ(&kinds::INODE_DELETED, place, record.dtime.into(), 0);
    }
    let kind = FileKind::from_mode(u32::from(record.mode));
    if ino == inodes::ROOT && kind != Some(FileKind::Directory) {
        let finding = Finding::new(&kinds::INODE_ROOT, place().in_field("i_mode"));
        state.findings.add(finding.stored(Value::Octal(record.mode.into())));
    }
    let Some(kind) = kind else {
        let finding = Finding::new(&kinds::INODE_MODE, place().in_field("i_mode"));
        state.findings.add(finding.stored(Value::Octal(record.mode.into())));
        return Verdict::Broken;
    };
    check_flags(state, ino, kind, record, bytes);
    let is_short = match kind {
        FileKind::Directory => !state.layout.features.incompat(Incompat::LARGE_DIR),
        FileKind::Regular => false,
        _ => true,
    };
    if is_short && Record::size_high(bytes) != 0 {
        let place = place().in_field("i_size_high");
        state.differ(&kinds::INODE_FIELD, place, Record::size_high(bytes).into(), 0);
    }
    Verdict::Sound(kind)
}

/// Fields that any file has.
fn check_fields(state: &State, ino: Ino, bytes: &[u8], record: &Record) {
    let place = || Place::inode(ino.get());
    if let Some(stored) = Record::wrong_extra_isize(bytes) {
        let place = place().in_field("i_extra_isize");
        let room = bytes.len().saturating_sub(128);
        let finding = Finding::new(&kinds::INODE_EXTRA_SIZE, place).stored(stored);
        state.findings.add(finding.computed(u64::try_from(room).unwrap_or(u64::MAX)));
    }
    if let Some((field, stored)) = Record::must_be_zero(bytes, &state.layout) {
        state.differ(&kinds::INODE_FIELD, place().in_field(field), stored, 0);
    }
    for (field, time) in [
        ("i_atime", record.atime),
        ("i_mtime", record.mtime),
        ("i_ctime", record.ctime),
        ("i_crtime", record.crtime),
    ] {
        if FUTURE.contains(&time.seconds) && !record.flags.contains(InodeFlags::EA_INODE) {
            let finding = Finding::new(&kinds::INODE_TIME, place().in_field(field));
            state.findings.add(finding.stored(u64::try_from(time.seconds).unwrap_or(0)));
        }
    }
}

/// Reserved inodes are no directories, have contents only with their feature, and are no orphans.
fn reserved(state: &State, ino: Ino, record: &Record) {
    let features = &state.layout.features;
    let is_unused_quota = named::is_unused_quota(state, ino);
    let is_allowed = match ino {
        Ino(3 | 4) => !is_unused_quota,
        inodes::RESIZE => features.compat(Compat::RESIZE_INODE),
        inodes::JOURNAL => state.layout.journal_ino == inodes::JOURNAL,
        _ => true,
    };
    let first = record.block.first_chunk::<4>().is_some_and(|word| *word != [0; 4]);
    // e2fsck reads only one half of the number of blocks of these, as of what it compares below.
    let blocks = if is_unused_quota { half(record.blocks_512) } else { record.blocks_512 };
    let has_contents = record.links != 0 || blocks != 0 || first;
    let is_unused = matches!(ino, Ino(6 | 9 | 10));
    // The boot loader is a file, or nothing.
    let has_parts = record.size != 0 || record.file_acl != cairn_base::Pba(0);
    let has_parts = has_parts || record.blocks_512 != 0 || first;
    let is_part = ino == inodes::BOOT_LOADER && !record.is_regular() && has_parts;
    // The list of bad blocks is a map and nothing else.
    let is_more = record.mode != 0
        || record.uid & HALF_ID != 0
        || record.gid & HALF_ID != 0
        || record.links != 0
        || half(record.file_acl.get()) != 0;
    // Nobody looks for attributes of what has no kind.
    let has_attributes = record.mode == 0
        && record.file_acl != cairn_base::Pba(0)
        && !named::is_mere_map(state, ino);
    let is_no_file = ino == inodes::RESIZE && record.mode != 0 && !record.is_regular();
    if (ino == inodes::BAD && is_more)
        || record.is_directory()
        || has_attributes
        || is_no_file
        || (record.mode != 0 && is_unused)
        || is_part
        || (has_contents && !is_allowed)
    {
        let is_limits = matches!(ino, Ino(3 | 4)) && named::holds_quota(state, ino);
        let kind = if is_limits { &kinds::INODE_RESERVED_QUOTA } else { &kinds::INODE_RESERVED };
        let finding = Finding::new(kind, Place::inode(ino.get()));
        state.findings.add(finding.stored(Value::Octal(record.mode.into())));
    }
    if record.dtime != 0 && record.dtime <= state.layout.inodes_count {
        let place = Place::inode(ino.get()).in_field("i_dtime");
        state.differ(&kinds::INODE_DELETED, place, record.dtime.into(), 0);
    }
}

/// The half of an owner that old inodes have.
const HALF_ID: u32 = 0xffff;

/// The lower half of a number.
const fn half(number: u64) -> u64 {
    number & 0xffff_ffff
}

/// A reserved inode without a kind has no size to speak of, and that of the resize inode says
/// nothing of its blocks, but e2fsck reads both halves of them.
fn reserved_size(state: &State, ino: Ino, bytes: &[u8], record: &Record) {
    let high = Record::size_high(bytes);
    let size = (u64::from(high) << 32) | (record.size & u64::from(u32::MAX));
    let is_unchecked = !record.is_regular() || ino == inodes::RESIZE;
    if is_unchecked && high != 0 && size >= most_bytes(state, record) {
        let place = Place::inode(ino.get()).in_field("i_size_high");
        state.differ(&kinds::INODE_FIELD, place, high.into(), 0);
    }
}

/// Flags that need a feature, a kind of file, or contents of a form.
fn check_flags(state: &State, ino: Ino, kind: FileKind, record: &Record, bytes: &[u8]) {
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
        (InodeFlags::CASEFOLD, features.incompat(Incompat::CASEFOLD) && is_directory),
        (InodeFlags::HUGE_FILE, features.ro_compat(RoCompat::HUGE_FILE)),
        (InodeFlags::IMMUTABLE | InodeFlags::APPEND, !is_special && kind != FileKind::Symlink),
        (InodeFlags::IMAGIC, features.compat(Compat::IMAGIC_INODES)),
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
    if named::is_unused_quota(state, ino) {
        wrong &= InodeFlags::CASEFOLD;
    } else if ino == inodes::BAD {
        wrong &= InodeFlags::CASEFOLD | both;
    }
    let (stored, computed) = (stored_flags(bytes), record.flags.difference(wrong).bits());
    if stored != computed {
        let place = Place::inode(ino.get()).in_field("i_flags");
        let is_taken = InodeFlags::from_bits_retain(stored & !computed);
        let is_secret =
            features.incompat(Incompat::ENCRYPT) && is_taken.contains(InodeFlags::ENCRYPT);
        let kind = if is_secret { &kinds::ENCRYPTION_FLAG } else { &kinds::INODE_FLAGS };
        let finding = Finding::new(kind, place).hex(stored, computed);
        match is_secret {
            true => state.doubted_marks.add(ino, finding),
            false => state.findings.add(finding),
        }
    }
}
