//! [`FileSystem`]: the interface between a format and its front-ends.

use std::time::Duration;

use bytes::Bytes;
use cairn_base::Ino;
use cairn_base::stats::Report;

use crate::error::{Error, Result};
use crate::going_down::GoingDown;
use crate::root_reserved::ReservedFor;
use crate::types::{
    AllocateMode, Attributes, Caller, DirEntry, FileExtent, IoFlags, NewInode, OpenMode,
    RenameMode, Seek, SetAttributes, VolumeStats, XattrMode,
};

/// A mounted filesystem. It is flat and keyed by inode number; all methods may be called by many
/// threads at once.
///
/// **Names** are bytes without NUL or slash. No entry has the empty name. `lookup` accepts `.` (of
/// any inode) and `..`. The other methods refuse them with the error of Linux's system call:
/// `create` and `link` with [`Error::Exists`], `unlink` with [`Error::IsDirectory`], `rmdir` with
/// [`Error::Invalid`] and [`Error::NotEmpty`], `rename` with [`Error::Busy`] (for a new name with
/// [`RenameMode::NoReplace`], `Exists`).
///
/// **Permissions** are *not* checked: the front-end's kernel checks them, or the caller is trusted.
/// The methods check only what belongs to the filesystem: immutable and append-only flags, the
/// length of names, the read-only state.
///
/// **Lifetime of inodes.** An inode without links is deleted when its last *reference* is dropped.
/// Each successful `lookup`, `create`, `tmpfile` and `link` takes a reference, and `forget` drops
/// it. A library that does not keep inode numbers between calls may call [`FileSystem::forget`]
/// right after each lookup.
///
/// **Errors.** Every method may return [`Error::Stale`] (the inode number is not in use),
/// [`Error::Corrupt`] (bytes on the disk are wrong), [`Error::Io`] (the device failed or the volume
/// has stopped), [`Error::NoMemory`], and [`Error::Encrypted`] (it is encrypted). One that changes
/// something may return [`Error::ReadOnly`], and [`Error::NoSpace`] if it needs space. The methods
/// list only their other errors. An error of write-back is returned by the file's next
/// [`FileSystem::fsync`].
pub trait FileSystem: Send + Sync {
    // --- namespace ---

    /// The inode number of the root directory.
    fn root(&self) -> Ino;

    /// Finds a name and takes a reference on its inode.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::NotDirectory`] or [`crate::Error::NameTooLong`].
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes>;

    /// Does the directory ignore case? Then an entry that comes or goes changes other names, too:
    /// what a lookup has found must not be kept.
    fn ignores_case(&self, _directory: Ino) -> bool {
        false
    }

    /// Drops `count` references. An inode without links and references is deleted.
    fn forget(&self, ino: Ino, count: u64);

    /// Creates an entry of any kind and takes a reference. `permissions` are the requested ones
    /// (`0o7777`); the method applies the umask, and of the parent the default ACL and the
    /// set-group-id bit, unless the caller inherits nothing.
    ///
    /// # Errors
    /// [`crate::Error::Exists`], [`crate::Error::NotDirectory`], [`crate::Error::NameTooLong`];
    /// [`crate::Error::TooManyLinks`] if the parent can have no further directory;
    /// [`crate::Error::NotPermitted`] if the parent is immutable; [`crate::Error::NotFound`] if the
    /// parent was removed, or a symbolic link has an empty target.
    fn create(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewInode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes>;

    /// Creates a regular file without a name (`O_TMPFILE`) and takes a reference. `link` may give
    /// it a name.
    ///
    /// # Errors
    /// [`crate::Error::NotDirectory`], or [`crate::Error::NotFound`] if `parent` was removed.
    fn tmpfile(&self, parent: Ino, permissions: u32, caller: &Caller) -> Result<Attributes>;

    /// Adds a hard link and takes a reference.
    ///
    /// # Errors
    /// As [`FileSystem::create`]; [`crate::Error::TooManyLinks`] if the inode can have no further
    /// link; [`crate::Error::NotPermitted`] if the inode is a directory, immutable or append-only.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes>;

    /// Removes a name of an inode that is not a directory.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::IsDirectory`] or [`crate::Error::NotDirectory`];
    /// [`crate::Error::NotPermitted`] if the inode or the parent is immutable or append-only.
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::NotDirectory`], [`crate::Error::NotEmpty`];
    /// [`crate::Error::NotPermitted`] as for [`FileSystem::unlink`].
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Renames; see [`RenameMode`].
    ///
    /// # Errors
    /// As [`FileSystem::create`] and [`FileSystem::unlink`], for a replaced target as well;
    /// [`crate::Error::Invalid`] if a directory would be
    /// moved into itself; [`crate::Error::Loop`] if a directory's ancestors form a loop.
    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the inode is not a symbolic link.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Lists entries from `position` as long as `emit` returns true. Position 0 is the start; other
    /// positions are the `next` of an entry. `.` and `..` come first. An entry that exists during
    /// the whole listing is given exactly once, whatever is added or removed meanwhile.
    ///
    /// Damage does not end the listing: the method gives all entries that can be read and then
    /// returns the first damage that it found, even if `emit` returned false. A caller that wants
    /// the other entries continues behind the last entry, until a call gives none.
    ///
    /// # Errors
    /// [`crate::Error::NotDirectory`]. The first damage, as described above.
    fn readdir(
        &self,
        ino: Ino,
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()>;

    // --- attributes ---

    /// All attributes of an inode.
    ///
    /// # Errors
    /// Those of every method; see [`FileSystem`].
    fn getattr(&self, ino: Ino) -> Result<Attributes>;

    /// Sets attributes and returns all of them.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] if the inode is immutable or append-only. For a size:
    /// [`crate::Error::TooLarge`], or [`crate::Error::IsDirectory`] and [`crate::Error::Invalid`]
    /// if the inode is not a regular file.
    fn setattr(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes>;

    // --- data ---

    /// Opens a file. The returned handle gets later errors of write-back.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] if the file is immutable or append-only and `mode` writes;
    /// [`crate::Error::ReadOnly`]
    /// if the volume cannot be written and `mode` writes.
    fn open(&self, ino: Ino, mode: OpenMode) -> Result<u64>;

    /// Closes a handle.
    fn release(&self, ino: Ino, handle: u64);

    /// Reads into `buf`. Returns the number of bytes, which is less than asked only at the end of
    /// the file.
    ///
    /// # Errors
    /// [`crate::Error::IsDirectory`], or [`crate::Error::Invalid`] if the inode is not a regular
    /// file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8], flags: IoFlags) -> Result<usize>;

    /// As [`FileSystem::read`] of up to `len` bytes, but passes the cached bytes to `take` without
    /// a copy, in order and in one call. Returns false, without a call of `take`, if the data
    /// cannot be shared; the caller then uses `read`.
    ///
    /// # Errors
    /// As [`FileSystem::read`].
    fn read_shared(
        &self,
        _ino: Ino,
        _offset: u64,
        _len: usize,
        _flags: IoFlags,
        _take: &mut dyn FnMut(&[&[u8]]),
    ) -> Result<bool> {
        Ok(false)
    }

    /// Writes `data`. Returns the number of bytes, which is less than asked only if space ran out.
    ///
    /// # Errors
    /// As [`FileSystem::read`]; [`crate::Error::TooLarge`]; [`crate::Error::NotPermitted`] if the
    /// file is immutable, or append-only and `flags` lack [`IoFlags::APPEND`]. With a synchronous
    /// flag, those of [`FileSystem::fsync`].
    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize>;

    /// As [`FileSystem::write`], but the data, which never changes, may be kept without a copy.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    fn write_shared(&self, ino: Ino, offset: u64, data: Bytes, flags: IoFlags) -> Result<usize> {
        self.write(ino, offset, &data, flags)
    }

    /// Makes one file durable. `data_only` leaves out attributes that are not needed to read the
    /// data (`fdatasync`). `handle` comes from `open`: it gets each write-back error once. Callers
    /// without a handle pass 0 and together get each error once.
    ///
    /// # Errors
    /// [`crate::Error::Io`] or [`crate::Error::NoSpace`] if data of the file could not be written
    /// since the handle's last call.
    fn fsync(&self, ino: Ino, handle: u64, data_only: bool) -> Result<()>;

    /// `fallocate`. Offset and length are in bytes.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the length is 0, or a range to collapse or insert is not
    /// aligned or not inside the file; [`crate::Error::TooLarge`]; [`crate::Error::Unsupported`] if
    /// the inode is not a regular file or its map cannot hold unwritten extents;
    /// [`crate::Error::IsDirectory`]; [`crate::Error::NotPermitted`] if the file is immutable or
    /// append-only.
    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()>;

    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE`.
    ///
    /// # Errors
    /// [`crate::Error::NoData`] if the offset is beyond the end, or no data follows.
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;

    /// Passes extents that overlap the range to `emit`, as long as it returns true. With `sync`,
    /// delayed blocks are written first.
    ///
    /// # Errors
    /// With `sync`, those of [`FileSystem::fsync`]; otherwise those of every method.
    fn extents(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        sync: bool,
        emit: &mut dyn FnMut(FileExtent) -> bool,
    ) -> Result<()>;

    /// Copies within the volume. Returns the number of bytes, which is less than asked at the end
    /// of the source.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the ranges overlap; those of [`FileSystem::read`] and
    /// [`FileSystem::write`].
    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64>;

    // --- extended attributes ---

    /// The value of an attribute. `name` has its prefix (`user.…`, `system.posix_acl_access`).
    ///
    /// # Errors
    /// [`crate::Error::NoAttribute`]; [`crate::Error::Unsupported`] if the prefix is unknown,
    /// [`crate::Error::Range`] if the name is too long, [`crate::Error::Invalid`] if it is only a
    /// prefix.
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// The names of all attributes.
    ///
    /// # Errors
    /// Those of every method; see [`FileSystem`].
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// Sets an attribute. Setting `system.posix_acl_access` also sets the permission bits.
    ///
    /// # Errors
    /// [`crate::Error::Exists`] and [`crate::Error::NoAttribute`] by `mode`;
    /// [`crate::Error::NoAttributeSpace`] or [`crate::Error::TooBig`] if the value is too large;
    /// [`crate::Error::Invalid`] if an access control list is malformed;
    /// [`crate::Error::Unsupported`] if a symbolic link gets a list,
    /// [`crate::Error::AccessDenied`] if a file gets a default list; [`crate::Error::NotPermitted`]
    /// if the inode is immutable or append-only. For the name, as [`FileSystem::getxattr`].
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] as for [`FileSystem::setxattr`]; the others as
    /// [`FileSystem::getxattr`].
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    // --- volume ---

    /// `statfs`.
    ///
    /// # Errors
    /// Those of every method; see [`FileSystem`].
    fn statfs(&self) -> Result<VolumeStats>;

    /// Bytes of new data that can be stored, at most: the volume may count space that is reserved
    /// for metadata. With `reserved`, root-reserved blocks count. It does not wait.
    fn room(&self, reserved: bool) -> u64 {
        let _ = reserved;
        u64::MAX
    }

    /// The user and the group who may use the volume's root-reserved blocks, beside root. `None` if
    /// the volume reserves none. See [`crate::root_reserved`].
    fn reserved_for(&self) -> Option<ReservedFor> {
        None
    }

    /// The inodes with references.
    fn referenced(&self) -> Vec<Ino> {
        Vec::new()
    }

    /// Makes everything durable (`syncfs`).
    ///
    /// # Errors
    /// [`Error::Io`] if metadata could not be written. [`Error::Io`] or [`Error::NoSpace`] if data
    /// of a file could not be written; all other files are durable.
    fn sync(&self) -> Result<()>;

    /// Discards free space in a byte range of the volume, in runs of at least `minimum` bytes.
    /// Returns the number of bytes discarded.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] if the device cannot discard; [`crate::Error::Invalid`] if the
    /// range is beyond the volume.
    fn trim(&self, offset: u64, len: u64, minimum: u64) -> Result<u64>;

    /// The volume's label: its bytes before the first NUL.
    ///
    /// # Errors
    /// Those of every method; see [`FileSystem`].
    fn label(&self) -> Result<Vec<u8>>;

    /// Sets the label.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the label is too long or malformed.
    fn set_label(&self, label: &[u8]) -> Result<()>;

    /// The unit of stored times: a power of ten of nanoseconds, at most a second.
    fn time_granularity(&self) -> Duration {
        Duration::from_nanos(1)
    }

    /// Counters and options of the volume, by section: `options`, `state`, and a section for each
    /// part with counters (`journal`, `cache`). It does no I/O and is cheap enough for a call every
    /// second.
    fn report(&self) -> Report;

    /// Changes mount options. `options` is a list separated by commas, as for mounting; other
    /// options do not change. Either all changes are made or none. It may be called at any time.
    ///
    /// # Errors
    /// [`crate::Error::Option`] names the first option that is unknown, malformed or cannot be
    /// changed now; nothing has changed then. [`crate::Error::Frozen`] if the volume is frozen.
    fn remount(&self, options: &str) -> Result<()>;

    /// Checks options as [`FileSystem::remount`] does, but changes nothing. It does not foresee a
    /// failure of the device.
    ///
    /// # Errors
    /// As [`FileSystem::remount`].
    fn check_remount(&self, options: &str) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// Freezes the volume (`FIFREEZE`), so that its image can be copied: all earlier changes are on
    /// the disk, and nothing is written. Reads continue. Calls that change something wait until
    /// [`FileSystem::thaw`].
    ///
    /// Files that are unlinked but open stay recorded as orphans; a mount of the copy deletes them.
    ///
    /// # Errors
    /// [`Error::Frozen`] if it is frozen. [`Error::Io`] if it has stopped after an error or a write
    /// failed; it is not frozen then.
    fn freeze(&self) -> Result<()> {
        Err(Error::Unsupported("this filesystem cannot be frozen"))
    }

    /// Ends [`FileSystem::freeze`] (`FITHAW`).
    ///
    /// # Errors
    /// [`Error::NotFrozen`]. [`Error::Io`] if a write failed; the volume is then thawed, read-only.
    fn thaw(&self) -> Result<()> {
        Err(Error::NotFrozen)
    }

    /// True if it is frozen: calls that change it wait, or fail if it is read-only. It is cheap.
    fn is_frozen(&self) -> bool {
        false
    }

    /// Stops the volume at once, as a power cut would. With `flush_log`, the journal is committed.
    ///
    /// # Errors
    /// The journal could not be committed. The volume has stopped all the same.
    fn shutdown(&self, flush_log: bool) -> Result<()>;

    /// Fails if a shutdown or an error has stopped the volume. It is cheap enough for every write.
    ///
    /// # Errors
    /// The one that a write would fail with.
    fn check_stopped(&self) -> Result<()> {
        Ok(())
    }

    /// Shuts the volume down in the way that an ioctl asks for.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the format has no such flags. Else as `sync` and `shutdown`.
    fn go_down(&self, flags: GoingDown) -> Result<()> {
        flags.of_any_format(|| self.sync(), |flush_log| self.shutdown(flush_log))
    }

    /// Stops the volume at once for a fault, with which [`FileSystem::unmount`] then fails.
    ///
    /// # Errors
    /// As [`FileSystem::shutdown`].
    fn abandon(&self, reason: &str) -> Result<()> {
        let _ = reason;
        self.shutdown(false)
    }

    /// Writes everything, marks the volume clean and stops its daemons. It thaws a frozen volume
    /// before. Later calls fail.
    ///
    /// # Errors
    /// Data could not be written, or a file could not be deleted; everything else is on the disk,
    /// and the volume is clean. Or an error has stopped the volume; what was synced before is on
    /// the disk. A volume that was shut down on request unmounts without an error.
    fn unmount(&self) -> Result<()>;
}
