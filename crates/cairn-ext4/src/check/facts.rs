//! [`Facts`]: what the check remembers of an inode, in 16 bytes; [`Suspect`]: of one set aside;
//! [`Dispute`]: names that contradict it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cairn_base::Ino;
use cairn_check::Finding;
use cairn_vfs::FileKind;

const IN_USE: u32 = 1 << 16;
const ORPHAN: u32 = 1 << 17;
const SYSTEM: u32 = 1 << 18;
const VALUE: u32 = 1 << 19;
const BROKEN: u32 = 1 << 20;
const ENCRYPTED: u32 = 1 << 21;
/// The code of the kind in directory entries.
const KIND_SHIFT: u32 = 24;

/// What is known of an inode. All are zeros until something is.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Stored links in the lower half, then flags, then the kind.
    word: AtomicU32,
    /// Names that were found, with `.` and `..`.
    names: AtomicU32,
    /// The directory that has an entry for this directory; for a value, the references to it.
    parent: AtomicU32,
    /// What `..` of this directory refers to.
    dotdot: AtomicU32,
}

impl Facts {
    fn set(&self, bits: u32) {
        self.word.fetch_or(bits, Relaxed);
    }

    fn has(&self, bits: u32) -> bool {
        self.word.load(Relaxed) & bits != 0
    }

    /// The inode is in use.
    pub(super) fn set_in_use(&self, kind: Option<FileKind>, links: u32) {
        let kind = kind.map_or(0, |kind| u32::from(kind.entry_code()));
        self.set(IN_USE | links & 0xffff | kind << KIND_SHIFT);
    }

    /// The inode is listed as an orphan.
    pub(super) fn set_orphan(&self) {
        self.set(ORPHAN);
    }

    /// The inode belongs to the volume, and no directory may name it.
    pub(super) fn set_system(&self) {
        self.set(SYSTEM);
    }

    /// The inode holds the value of an attribute.
    pub(super) fn set_value(&self) {
        self.set(VALUE);
    }

    /// The inode holds no value after all.
    pub(super) fn clear_value(&self) {
        self.word.fetch_and(!VALUE, Relaxed);
    }

    /// The inode is damaged, so that its contents are not looked at.
    pub(super) fn set_broken(&self) {
        self.set(BROKEN);
    }

    /// The contents of the inode are encrypted.
    pub(super) fn set_encrypted(&self) {
        self.set(ENCRYPTED);
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.has(ENCRYPTED)
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.has(IN_USE)
    }

    pub(super) fn is_orphan(&self) -> bool {
        self.has(ORPHAN)
    }

    /// It has no link, and only waits for its deletion: its contents do not matter.
    pub(super) fn is_deleted(&self) -> bool {
        self.is_orphan() && self.links() == 0
    }

    pub(super) fn is_system(&self) -> bool {
        self.has(SYSTEM)
    }

    pub(super) fn is_value(&self) -> bool {
        self.has(VALUE)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.has(BROKEN)
    }

    /// The code of the kind in directory entries; 0 if it is unknown.
    pub(super) fn kind_code(&self) -> u8 {
        u8::try_from(self.word.load(Relaxed) >> KIND_SHIFT).unwrap_or(0)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.is_in_use() && self.kind_code() == FileKind::Directory.entry_code()
    }

    /// Links as they are stored.
    pub(super) fn links(&self) -> u32 {
        self.word.load(Relaxed) & 0xffff
    }

    /// Counts a name.
    pub(super) fn add_name(&self) {
        self.names.fetch_add(1, Relaxed);
    }

    /// Names that were found.
    pub(super) fn names(&self) -> u32 {
        self.names.load(Relaxed)
    }

    /// Notes the directory with an entry for this one. False if there is one already.
    pub(super) fn set_parent(&self, parent: u32) -> bool {
        self.parent.compare_exchange(0, parent, Relaxed, Relaxed).is_ok()
    }

    /// The directory with an entry for this one; 0 if there is none.
    pub(super) fn parent(&self) -> u32 {
        self.parent.load(Relaxed)
    }

    /// Counts an attribute whose value this inode has.
    pub(super) fn add_reference(&self) {
        self.parent.fetch_add(1, Relaxed);
    }

    /// Attributes whose value this inode has.
    pub(super) fn references(&self) -> u32 {
        self.parent.load(Relaxed)
    }

    /// Notes what `..` refers to.
    pub(super) fn set_dotdot(&self, ino: u32) {
        self.dotdot.store(ino, Relaxed);
    }

    /// What `..` refers to; 0 if it was not found.
    pub(super) fn dotdot(&self) -> u32 {
        self.dotdot.load(Relaxed)
    }
}

/// An inode whose contents contradict the file type in its mode.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) ino: Ino,
    /// Its record.
    pub(super) bytes: Vec<u8>,
    /// The types that the contents fit.
    pub(super) fitting: Vec<FileKind>,
}

/// Names of an inode that have another type than its mode, although its contents fit both.
#[derive(Debug)]
pub(super) struct Dispute {
    /// The type of the first one.
    pub(super) said: FileKind,
    /// All of them have that type.
    pub(super) is_one: bool,
    /// What is found if the mode is right.
    pub(super) names: Vec<Finding>,
}

const _: () = assert!(size_of::<Facts>() == 16);

/// What is known of the bytes of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bytes {
    /// Their hash.
    Hash(u32),
    /// They cannot be read now.
    Unknown,
    /// Readers refuse them, for this reason.
    Refused(&'static str),
}
