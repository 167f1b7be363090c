//! `i_flags` and the file types of `i_mode`.

use bitflags::bitflags;

bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (Linux does not implement it).
        const SECRM = 0x1;
        /// Undeletable (Linux does not implement it).
        const UNRM = 0x2;
        /// Compressed (Linux does not implement it).
        const COMPR = 0x4;
        /// Writes are synchronous.
        const SYNC = 0x8;
        /// Cannot be changed.
        const IMMUTABLE = 0x10;
        /// Can only grow.
        const APPEND = 0x20;
        /// dump(8) skips it.
        const NODUMP = 0x40;
        /// Access times are not kept.
        const NOATIME = 0x80;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// Hashed directory.
        const INDEX = 0x1000;
        /// An inode of AFS.
        const IMAGIC = 0x2000;
        /// The contents are journalled.
        const JOURNAL_DATA = 0x4000;
        /// The tail is never merged.
        const NOTAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// The subdirectories are unrelated.
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts filesystem blocks.
        const HUGE_FILE = 0x4_0000;
        /// The blocks are mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Protected by fs-verity.
        const VERITY = 0x10_0000;
        /// The contents are an attribute's value.
        const EA_INODE = 0x20_0000;
        /// The host maps it directly (DAX).
        const DAX = 0x200_0000;
        /// The inode holds the contents.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names match regardless of case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// File type bits of `i_mode`.
pub(crate) mod mode {
    /// Mask of the type.
    pub(crate) const TYPE: u16 = 0o170_000;
    /// Symbolic link.
    pub(crate) const SYMLINK: u16 = 0o120_000;
    /// Regular file.
    pub(crate) const REGULAR: u16 = 0o100_000;
    /// Directory.
    pub(crate) const DIRECTORY: u16 = 0o040_000;
}
