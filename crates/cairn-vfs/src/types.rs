//! The values that cross the filesystem seam.

use std::time::{SystemTime, UNIX_EPOCH};

use cairn_base::Ino;

use crate::error::{Error, Result};
use crate::name::NameBuf;

bitflags::bitflags! {
    /// Inode flags of `FS_IOC_GETFLAGS` (`chattr`) that Cairn knows; the bits are Linux's.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
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
        /// Directory is indexed (read only).
        const INDEX = 0x1000;
        /// Synchronous directory changes.
        const DIRSYNC = 0x1_0000;
        /// Top of directory hierarchies.
        const TOPDIR = 0x2_0000;
        /// Mapped by extents (read only).
        const EXTENT = 0x8_0000;
        /// New entries inherit the project id.
        const PROJINHERIT = 0x2000_0000;
        /// Contents live in the inode (read only).
        const INLINE_DATA = 0x1000_0000;
    }
}

/// Kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Block device.
    BlockDevice,
    /// Character device.
    CharDevice,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
}

impl FileKind {
    /// The number that ext4 and F2FS store beside a name.
    #[must_use]
    pub const fn entry_code(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }

    /// The kind that a number beside a name means; `None` if it says nothing.
    #[must_use]
    pub const fn of_entry_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// From a mode's `S_IFMT` bits.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Fails unless it is a directory.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn check_directory(self) -> Result<()> {
        if self == Self::Directory { Ok(()) } else { Err(Error::NotDirectory) }
    }

    /// Fails unless it is a regular file: operations on contents are for these alone.
    ///
    /// # Errors
    /// [`Error::IsDirectory`] or [`Error::Invalid`].
    pub fn check_regular(self) -> Result<()> {
        match self {
            Self::Regular => Ok(()),
            Self::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }
}

/// A point in time: seconds since 1970 (may be negative) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => {
                Self { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanoseconds: since.subsec_nanos() }
            }
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                Self {
                    seconds: -i64::try_from(before.as_secs()).unwrap_or(i64::MAX) - borrow,
                    nanoseconds: (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000,
                }
            }
        }
    }
}

/// What `stat` and `statx` tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: Ino,
    /// Reuse counter of the inode number.
    pub generation: u32,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky (`0o7777`).
    pub permissions: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Allocated space in 512-byte units (delayed blocks included).
    pub sectors: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Device number of a device node, in Linux's 32-bit `dev_t` encoding (`new_encode_dev`).
    pub device: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, where the inode has room for it.
    pub crtime: Option<Timestamp>,
    /// `chattr` flags.
    pub flags: InodeFlags,
}

/// Which attributes to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits (`0o7777`).
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Truncate or extend.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time (only FUSE's writeback cache sets it; otherwise it becomes now).
    pub ctime: Option<Timestamp>,
    /// `chattr` flags.
    pub flags: Option<InodeFlags>,
    /// Clear set-user-id and set-group-id as a write or chown by an ordinary user does.
    pub kill_privileges: bool,
}

impl SetAttributes {
    /// Does it set times and nothing else (reading the data back does not need those)?
    #[must_use]
    pub fn sets_times_only(&self) -> bool {
        let Self { permissions, uid, gid, size, atime: _, mtime: _, ctime: _, flags, kill_privileges } = self;
        let others = permissions.or(*uid).or(*gid).is_some() || size.is_some() || flags.is_some() || *kill_privileges;
        !others
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The volume's clock.
    Now,
    /// This.
    To(Timestamp),
}

impl SetTime {
    /// A time after a change that may name it.
    #[must_use]
    pub const fn apply(change: Option<Self>, old: Timestamp, now: Timestamp) -> Timestamp {
        match change {
            None => old,
            Some(Self::Now) => now,
            Some(Self::To(time)) => time,
        }
    }
}

/// Who asks: decides ownership of what is created, and permission checks where the front-end leaves them to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process file-creation mask, applied only where no default ACL is inherited.
    pub umask: u32,
}

impl Caller {
    /// The superuser with an empty mask.
    pub const ROOT: Self = Self { uid: 0, gid: 0, umask: 0 };
}

/// What to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewInode<'a> {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link to this target (1 to 4,095 bytes).
    Symlink(&'a [u8]),
    /// Block device.
    BlockDevice(u32),
    /// Character device.
    CharDevice(u32),
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
}

impl NewInode<'_> {
    /// What stands for "no such name" in an upper layer of overlayfs: character device 0/0. Without permissions.
    pub const WHITEOUT: NewInode<'static> = NewInode::CharDevice(0);
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Inode.
    pub ino: Ino,
    /// Kind, where the directory stores it.
    pub kind: Option<FileKind>,
    /// Name.
    pub name: NameBuf,
    /// Position *after* this entry: pass it to `readdir` to go on.
    pub next: u64,
}

/// `rename` variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces the target if there is one.
    #[default]
    Replace,
    /// Fails with [`crate::Error::Exists`] if there is a target (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two (`RENAME_EXCHANGE`).
    Exchange,
    /// As `Replace`, and leaves a [`NewInode::WHITEOUT`] of this caller in the old place, all at once (`RENAME_WHITEOUT`): what
    /// overlayfs hides a name of a lower layer with.
    Whiteout(Caller),
}

/// `fallocate` variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Allocate; raise the size if the range ends beyond it.
    Extend,
    /// Allocate without changing the size.
    KeepSize,
    /// Make a hole.
    PunchHole,
    /// Make the range read as zeros, allocated; `keep_size` as in `FALLOC_FL_KEEP_SIZE`.
    ZeroRange {
        /// Leave the size alone.
        keep_size: bool,
    },
    /// Remove the range, moving what follows down.
    CollapseRange,
    /// Insert a hole, moving what follows up.
    InsertRange,
}

/// `setxattr` variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Set,
    /// Fail with EEXIST if there.
    Create,
    /// Fail with ENODATA if not there.
    Replace,
    /// As `Set`, by somebody who is neither of the file's group nor privileged: an access list takes set-group-id away.
    SetByStranger,
}

/// `lseek` questions about holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Next data at or after the offset.
    Data,
    /// Next hole at or after the offset (the end of file is one).
    Hole,
}

/// One extent of `FIEMAP`. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the volume (0 if it has none).
    pub physical: u64,
    /// Length.
    pub length: u64,
    /// `FIEMAP_EXTENT_*` bits of Linux.
    pub flags: u32,
}

/// How a file is opened, as far as the filesystem cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Will be written.
    pub write: bool,
    /// Bypasses the cache (`O_DIRECT`): such reads and writes carry [`IoFlags::DIRECT`].
    pub direct: bool,
}

bitflags::bitflags! {
    /// How one read or write is to be done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct IoFlags: u32 {
        /// Bypass the cache (coherently).
        const DIRECT = 1;
        /// Write at the end of the file, whatever the offset.
        const APPEND = 2;
        /// Data and what is needed to find it are durable on return (`O_DSYNC`).
        const DSYNC = 4;
        /// Everything is durable on return (`O_SYNC`).
        const SYNC = 8;
        /// Clear set-user-id and set-group-id (the writer is not privileged).
        const KILL_PRIVILEGES = 16;
        /// The kernel's writeback cache sends this, not a process: it keeps the times itself, so they are not touched
        /// (the size still grows as with any write).
        const WRITEBACK = 32;
        /// The writer may not have what the volume reserves ([`crate::FileSystem::may_use_reserved`]).
        const ORDINARY = 64;
    }
}

/// `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks usable for data in all.
    pub blocks: u64,
    /// Free blocks (delayed ones subtracted).
    pub free_blocks: u64,
    /// Free blocks for ordinary users.
    pub available_blocks: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// `f_fsid`.
    pub fsid: u64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_1970_have_positive_nanoseconds() {
        let before = UNIX_EPOCH - Duration::new(1, 250_000_000);
        assert_eq!(Timestamp::from(before), Timestamp { seconds: -2, nanoseconds: 750_000_000 });
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(3)), Timestamp { seconds: -3, nanoseconds: 0 });
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::new(5, 7)), Timestamp { seconds: 5, nanoseconds: 7 });
    }
}
