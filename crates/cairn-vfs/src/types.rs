//! The types of [`crate::FileSystem`]'s methods.

use cairn_base::Ino;

use crate::error::{Error, Result};
use crate::name::NameBuf;

pub use crate::timestamp::Timestamp;

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
        /// The inode holds the contents (read only).
        const INLINE_DATA = 0x1000_0000;
    }
}

impl InodeFlags {
    /// True if names that change in this directory are durable when the call returns.
    #[must_use]
    pub(crate) const fn has_synchronous_names(self) -> bool {
        self.intersects(Self::SYNC.union(Self::DIRSYNC))
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

    /// The kind of a directory entry's code; `None` if the code is 0 or unknown.
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

    /// The kind of a mode's `S_IFMT` bits.
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

    /// Checks that the inode is a directory.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn check_directory(self) -> Result<()> {
        if self == Self::Directory { Ok(()) } else { Err(Error::NotDirectory) }
    }

    /// Checks that the inode is a regular file, as operations on contents require.
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

/// The attributes of `stat` and `statx`.
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
    /// Creation time, if the inode has room for it.
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
    /// New size.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time. Only FUSE's writeback cache sets it; without it the change time becomes now.
    pub ctime: Option<Timestamp>,
    /// `chattr` flags.
    pub flags: Option<InodeFlags>,
    /// Clears set-user-id and set-group-id, as after a write or chown by an unprivileged user.
    pub kill_privileges: bool,
}

impl SetAttributes {
    /// True if it sets only times, which are not needed to read the data.
    #[must_use]
    pub fn sets_times_only(&self) -> bool {
        let Self {
            permissions,
            uid,
            gid,
            size,
            atime: _,
            mtime: _,
            ctime: _,
            flags,
            kill_privileges,
        } = self;
        let others = permissions.or(*uid).or(*gid).is_some()
            || size.is_some()
            || flags.is_some()
            || *kill_privileges;
        !others
    }

    /// The access, modification and change time after the change, given those before it.
    #[must_use]
    pub fn times(&self, [atime, mtime, _]: [Timestamp; 3], now: Timestamp) -> [Timestamp; 3] {
        [
            SetTime::apply(self.atime, atime, now),
            SetTime::apply(self.mtime, mtime, now),
            self.ctime.unwrap_or(now),
        ]
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present time of the volume's clock.
    Now,
    /// This time.
    To(Timestamp),
}

impl SetTime {
    /// The time after a change that may set it.
    #[must_use]
    pub const fn apply(change: Option<Self>, old: Timestamp, now: Timestamp) -> Timestamp {
        match change {
            None => old,
            Some(Self::Now) => now,
            Some(Self::To(time)) => time,
        }
    }
}

/// The caller, who becomes the owner of new inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// File-creation mask, which is applied only if no default ACL is inherited.
    pub umask: u32,
    /// New inodes take their group, set-group-id and ACLs from their directory, as Linux has it. A
    /// copy does not: it has what its source has, and nothing else.
    pub inherits: bool,
}

impl Caller {
    /// The superuser with an empty mask.
    pub const ROOT: Self = Self { uid: 0, gid: 0, umask: 0, inherits: true };
    /// The superuser, whose new inodes inherit nothing: they become copies.
    pub const COPIER: Self = Self { inherits: false, ..Self::ROOT };
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
    /// A whiteout, which marks a deleted name in an upper layer of overlayfs: character device 0/0.
    /// Its permissions are 0.
    pub const WHITEOUT: NewInode<'static> = NewInode::CharDevice(0);
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Inode.
    pub ino: Ino,
    /// Kind, if the directory stores it.
    pub kind: Option<FileKind>,
    /// Name.
    pub name: NameBuf,
    /// Position *after* this entry. `readdir` continues there.
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
    /// Swaps both (`RENAME_EXCHANGE`).
    Exchange,
    /// As `Replace`, and leaves a [`NewInode::WHITEOUT`] of this caller at the old name in the same
    /// change (`RENAME_WHITEOUT`). overlayfs hides a name of a lower layer with it.
    Whiteout(Caller),
}

/// `fallocate` variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Allocates, and raises the size if the range ends beyond it.
    Extend,
    /// Allocates without changing the size.
    KeepSize,
    /// Makes a hole.
    PunchHole,
    /// Allocates the range and makes it read as zeros. `keep_size` as in `FALLOC_FL_KEEP_SIZE`.
    ZeroRange {
        /// The size does not change.
        keep_size: bool,
    },
    /// Removes the range and moves the following data down.
    CollapseRange,
    /// Inserts a hole and moves the following data up.
    InsertRange,
}

/// `setxattr` variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces.
    #[default]
    Set,
    /// Fails with EEXIST if the attribute exists.
    Create,
    /// Fails with ENODATA if the attribute does not exist.
    Replace,
    /// As `Set`, by an unprivileged caller who is not a member of the file's group: an access
    /// control list clears set-group-id.
    SetByStranger,
}

/// The modes of `lseek` that look for data and holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Next data at or after the offset.
    Data,
    /// Next hole at or after the offset. The end of the file counts as a hole.
    Hole,
}

/// One extent of `FIEMAP`. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the volume; 0 if the extent has no address.
    pub physical: u64,
    /// Length.
    pub length: u64,
    /// Bits of [`crate::fiemap`].
    pub flags: u32,
}

/// The open flags that concern the filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// The file is opened for writing.
    pub write: bool,
    /// Bypasses the cache (`O_DIRECT`): such reads and writes carry [`IoFlags::DIRECT`].
    pub direct: bool,
}

bitflags::bitflags! {
    /// Options of one read or write.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct IoFlags: u32 {
        /// Bypasses the cache, coherently with it.
        const DIRECT = 1;
        /// Writes at the end of the file, whatever the offset.
        const APPEND = 2;
        /// The data, and what is needed to find it, is durable on return (`O_DSYNC`).
        const DSYNC = 4;
        /// Everything is durable on return (`O_SYNC`).
        const SYNC = 8;
        /// Clears set-user-id and set-group-id, because the writer is not privileged.
        const KILL_PRIVILEGES = 16;
        /// The request comes from the kernel's writeback cache and not from a process. The kernel
        /// keeps the times, so the method does not change them.
        const WRITEBACK = 32;
        /// The caller keeps the data in a cache of its own (Linux's `RWF_DONTCACHE`): it is written
        /// back early, and dropped from the cache once it is read or written back. The result of
        /// the call is the same.
        const DONTCACHE = 64;
    }
}

/// `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bytes of a block.
    pub block_size: u32,
    /// Number of blocks for data.
    pub blocks: u64,
    /// Free blocks, without delayed ones.
    pub free_blocks: u64,
    /// Free blocks for unprivileged users.
    pub available_blocks: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// `f_fsid`.
    pub fsid: u64,
    /// Data that is overwritten takes free blocks, too.
    pub overwrites_take_blocks: bool,
}
