//! The flags of an inode.

use bitflags::bitflags;

bitflags! {
    /// `i_advise`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Advise: u8 {
        /// Will hardly change.
        const COLD = 0x1;
        /// `i_pino` and `i_name` may be wrong.
        const LOST_PINO = 0x2;
        /// Encrypted.
        const ENCRYPT = 0x4;
        /// The name in the inode is encrypted.
        const ENC_NAME = 0x8;
        /// Blocks may lie behind the end of file.
        const KEEP_SIZE = 0x10;
        /// Will change often.
        const HOT = 0x20;
        /// Protected by fs-verity.
        const VERITY = 0x40;
        /// Truncated to a size inside a cluster.
        const TRUNC = 0x80;
    }

    /// `i_inline`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct InlineFlags: u8 {
        /// Attributes are in the inode.
        const XATTR = 0x1;
        /// Contents are in the inode.
        const DATA = 0x2;
        /// Directory entries are in the inode.
        const DENTRY = 0x4;
        /// Inline contents have a byte that is not zero.
        const DATA_EXIST = 0x8;
        /// Obsolete.
        const DOTS = 0x10;
        /// There are extra attributes.
        const EXTRA_ATTR = 0x20;
        /// Blocks must not move.
        const PIN_FILE = 0x40;
        /// Blocks saved by compression were given back.
        const COMPRESS_RELEASED = 0x80;
    }

    /// `i_flags`. Unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FileFlags: u32 {
        /// Compressed.
        const COMPR = 0x4;
        /// Synchronous updates.
        const SYNC = 0x8;
        /// No change of contents or attributes.
        const IMMUTABLE = 0x10;
        /// Writes only at the end.
        const APPEND = 0x20;
        /// Not dumped.
        const NODUMP = 0x40;
        /// Access times are not kept.
        const NOATIME = 0x80;
        /// Never compress.
        const NOCOMP = 0x400;
        /// Hashed directory. All directories are hashed.
        const INDEX = 0x1000;
        /// Synchronous directory changes.
        const DIRSYNC = 0x1_0000;
        /// New entries inherit the project id.
        const PROJINHERIT = 0x2000_0000;
        /// Names ignore case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}
