//! The trait every format implements and every front-end speaks.

use std::time::Duration;

use cairn_base::Ino;
use cairn_base::stats::Report;

use crate::error::{Error, Result};
use crate::types::{
    AllocateMode, Attributes, Caller, DirEntry, FileExtent, IoFlags, NewInode, OpenMode, RenameMode, Seek,
    SetAttributes, VolumeStats, XattrMode,
};

/// A mounted filesystem. Flat, keyed by inode number, object-safe; every method may be called from many threads.
///
/// Names are bytes without NUL or slash. An empty one is not found. `.` (of any inode) and `..` are answered by `lookup`, and get from the
/// others what Linux's system calls give: `create` and `link` [`crate::Error::Exists`], `unlink` [`crate::Error::IsDirectory`],
/// `rmdir` [`crate::Error::Invalid`] and [`crate::Error::NotEmpty`], `rename` [`crate::Error::Busy`] (a new name with
/// [`RenameMode::NoReplace`] `Exists`). Permissions are *not* checked here: the front-end's kernel
/// does (FUSE with `default_permissions`), or the caller is trusted (library, command line). What is checked here: what belongs to the
/// filesystem itself (immutable and append-only flags, name lengths, read-only state).
///
/// **Lifetime of inodes.** An inode whose last link is removed stays until its last *reference* goes. A reference is
/// taken by each `lookup`, `create`, `tmpfile` and `link` that succeeds, and dropped by `forget`. Library callers that do not hold
/// inode numbers across calls may use [`FileSystem::forget`] at once after each lookup.
pub trait FileSystem: Send + Sync {
    // --- namespace ---

    /// The root directory's number.
    fn root(&self) -> Ino;

    /// Finds a name; takes a reference on the result.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes>;

    /// Drops `count` references; an inode without links and references is deleted.
    fn forget(&self, ino: Ino, count: u64);

    /// Makes an entry of any kind; takes a reference. `permissions` are those asked for (`0o7777`); umask, default ACL, and the
    /// set-group-id bit of the parent are applied here.
    fn create(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewInode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes>;

    /// Makes an unnamed regular file (`O_TMPFILE`) that `link` may name later; takes a reference.
    fn tmpfile(&self, parent: Ino, permissions: u32, caller: &Caller) -> Result<Attributes>;

    /// Adds a hard link; takes a reference.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes>;

    /// Removes a name that is not a directory.
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Renames; see [`RenameMode`].
    fn rename(&self, parent: Ino, name: &[u8], new_parent: Ino, new_name: &[u8], mode: RenameMode) -> Result<()>;

    /// Target of a symbolic link.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Entries from `position` (0 is the start; else a `next` of an entry) as long as `emit` returns true. `.` and `..` come
    /// first. Entries present throughout are given exactly once, whatever is added or removed meanwhile.
    ///
    /// Damage ends no listing: what can be listed is given, and the first damage that the call met is its error, at the end and
    /// also where `emit` has had enough. Whoever wants the rest goes on behind the last entry until a call gives none.
    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    // --- attributes ---

    /// All attributes.
    fn getattr(&self, ino: Ino) -> Result<Attributes>;

    /// Sets some; returns all.
    fn setattr(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes>;

    // --- data ---

    /// A file was opened: errors of write-back are reported to this handle from now on.
    fn open(&self, ino: Ino, mode: OpenMode) -> Result<u64>;

    /// The handle was closed for the last time.
    fn release(&self, ino: Ino, handle: u64);

    /// Reads into `buf`; returns the bytes read, fewer only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8], flags: IoFlags) -> Result<usize>;

    /// As [`FileSystem::read`] of up to `len` bytes, but hands them to `take` where they lie, in order and in one call.
    /// False if that cannot be had here, without a call: then `read` can.
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

    /// Writes all of `data`, or fails; after ENOSPC a shorter count may be returned.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize>;

    /// Makes one file durable. `data_only` leaves out attributes that are not needed to read the data (`fdatasync`).
    /// `handle` is what `open` gave: it hears of each write-back error once. All who have none pass 0 and hear of each
    /// once together.
    fn fsync(&self, ino: Ino, handle: u64, data_only: bool) -> Result<()>;

    /// `fallocate`. Bytes.
    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()>;

    /// `SEEK_DATA` and `SEEK_HOLE`.
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;

    /// Extents that overlap the range, as long as `emit` returns true. Delayed blocks are written out first if `sync`.
    fn extents(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        sync: bool,
        emit: &mut dyn FnMut(FileExtent) -> bool,
    ) -> Result<()>;

    /// Copies within the volume; returns the bytes copied (fewer at the end of the source).
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64>;

    // --- extended attributes ---

    /// Value of an attribute; `name` has its prefix ("user.…", "system.posix_acl_access"…).
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Names of all attributes.
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// Sets one. Setting `system.posix_acl_access` also sets the permission bits.
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes one.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    // --- volume ---

    /// `statfs`.
    fn statfs(&self) -> Result<VolumeStats>;

    /// Bytes of new data that `who` can have stored, what is promised to nobody's data included or not: never more than there
    /// are. Asked with every write: waits for nothing.
    fn room(&self, who: &Caller) -> u64 {
        let _ = who;
        u64::MAX
    }

    /// True if `who` may have the blocks that the volume reserves, too.
    fn may_use_reserved(&self, who: &Caller) -> bool {
        let _ = who;
        true
    }

    /// The inodes that somebody holds a reference on.
    fn referenced(&self) -> Vec<Ino> {
        Vec::new()
    }

    /// Makes everything durable (`syncfs`).
    fn sync(&self) -> Result<()>;

    /// Discards free space in a byte range of the volume, in runs of at least `minimum` bytes; returns the bytes discarded.
    fn trim(&self, offset: u64, len: u64, minimum: u64) -> Result<u64>;

    /// The volume's label (bytes up to the first NUL).
    fn label(&self) -> Result<Vec<u8>>;

    /// Sets the label.
    fn set_label(&self, label: &[u8]) -> Result<()>;

    /// What times are stored in: a power of ten of nanoseconds, up to a second.
    fn time_granularity(&self) -> Duration {
        Duration::from_nanos(1)
    }

    /// Counters and present options of this volume, in sections: `options`, `state`, and one for each part that counts
    /// (`journal`, `cache`…). Cheap enough to be asked every second; waits for no I/O.
    fn report(&self) -> Report;

    /// Changes options of the mounted volume, given as for mounting (a list separated by commas; what is not named stays
    /// as it is). All or nothing: [`crate::Error::Option`] names the first that is unknown, malformed or cannot be changed
    /// now, and then no option has changed. Safe beside every other call.
    fn remount(&self, options: &str) -> Result<()>;

    /// What [`FileSystem::remount`] would refuse, without changing anything. What only shows when it is done (the device fails) is
    /// not foreseen.
    fn check_remount(&self, options: &str) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// Freezes the volume (`FIFREEZE`): everything written so far is on the disk, as after an unmount, and nothing is written any
    /// more, so the image can be copied. Reading goes on; calls that change something wait until [`FileSystem::thaw`].
    ///
    /// Files that are unlinked but open stay recorded as orphans: whoever mounts a copy deletes them.
    ///
    /// # Errors
    /// [`crate::Error::Frozen`] if it is frozen; it has stopped after an error, or a write failed: then it is not frozen.
    fn freeze(&self) -> Result<()> {
        Err(Error::Unsupported("this filesystem cannot be frozen"))
    }

    /// Ends what [`FileSystem::freeze`] began (`FITHAW`).
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is not frozen; a write failed: then it is thawed, but read-only.
    fn thaw(&self) -> Result<()> {
        Err(Error::Invalid("the volume is not frozen"))
    }

    /// Is it frozen, so that calls wait? Cheap enough to be asked with every call.
    fn is_frozen(&self) -> bool {
        false
    }

    /// Stops at once, as a power cut would (`EXT4_IOC_SHUTDOWN`): nothing is written any more. With `flush_log`, the journal is
    /// committed first.
    fn shutdown(&self, flush_log: bool) -> Result<()>;

    /// Stops at once because of a fault that is nobody's wish: as [`FileSystem::shutdown`] without a flush, but [`FileSystem::unmount`]
    /// fails with the reason.
    fn abandon(&self, reason: &str) -> Result<()> {
        let _ = reason;
        self.shutdown(false)
    }

    /// Writes everything, marks the volume clean and stops its daemons; thaws it first if it is frozen. Later calls fail.
    ///
    /// # Errors
    /// Some data could not be written, or a file could not be deleted: everything else is on the disk, and the volume is clean. Or
    /// an error had stopped the volume, or does now: what was synced before is on the disk. One that was shut down on request ends
    /// without an error.
    fn unmount(&self) -> Result<()>;
}
