//! The structures of `linux/fuse.h`, in the machine's own byte order, by their names there.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a request asks for: `enum fuse_opcode`.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// `fuse_setattr_in.valid`.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `fuse_getattr_in.getattr_flags`: asked through an open file, not through a name.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// `fuse_open_out.open_flags`: what the kernel has cached of the file stays.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// `fuse_write_in.write_flags`: pages of the kernel's cache.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `fuse_write_in.write_flags`: the writer may not keep set-user-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `fuse_setxattr_in.setxattr_flags`: who sets this access list may not keep set-group-id.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `fuse_fsync_in.fsync_flags`.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident ($size:literal) { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $kind),* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

/// `enum fuse_notify_code`.
pub(crate) const NOTIFY_RETRIEVE: i32 = 5;

structures! {
    /// `fuse_notify_retrieve_out`
    NotifyRetrieveOut (32) { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32 }
    /// `fuse_in_header`
    InHeader (40) {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// `fuse_out_header`
    OutHeader (16) { len: u32, error: i32, unique: u64 }
    /// `fuse_attr`
    Attr (88) {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// `fuse_entry_out`
    EntryOut (128) {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    /// `fuse_getattr_in`
    GetattrIn (16) { getattr_flags: u32, dummy: u32, fh: u64 }
    /// `fuse_attr_out`
    AttrOut (104) { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    /// `fuse_open_out`
    OpenOut (16) { fh: u64, open_flags: u32, padding: u32 }
    /// What answers CREATE and TMPFILE.
    CreateOut (144) { entry: EntryOut, open: OpenOut }
    /// `fuse_forget_in`
    ForgetIn (8) { nlookup: u64 }
    /// `fuse_forget_one`
    ForgetOne (16) { nodeid: u64, nlookup: u64 }
    /// `fuse_batch_forget_in`
    BatchForgetIn (8) { count: u32, dummy: u32 }
    /// `fuse_access_in`
    AccessIn (8) { mask: u32, padding: u32 }
    /// `fuse_mknod_in`
    MknodIn (16) { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// `fuse_mkdir_in`
    MkdirIn (8) { mode: u32, umask: u32 }
    /// `fuse_rename_in`
    RenameIn (8) { newdir: u64 }
    /// `fuse_rename2_in`
    Rename2In (16) { newdir: u64, flags: u32, padding: u32 }
    /// `fuse_link_in`
    LinkIn (8) { oldnodeid: u64 }
    /// `fuse_setattr_in`
    SetattrIn (88) {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// `fuse_open_in`
    OpenIn (8) { flags: u32, open_flags: u32 }
    /// `fuse_create_in`
    CreateIn (16) { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// `fuse_release_in`
    ReleaseIn (24) { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// `fuse_read_in`
    ReadIn (40) {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// `fuse_write_in`
    WriteIn (40) {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    /// `fuse_write_out`
    WriteOut (8) { size: u32, padding: u32 }
    /// `fuse_fsync_in`
    FsyncIn (16) { fh: u64, fsync_flags: u32, padding: u32 }
    /// `fuse_setxattr_in` without its extension.
    SetxattrIn (8) { size: u32, flags: u32 }
    /// The extension (`FUSE_SETXATTR_EXT`).
    SetxattrMore (8) { setxattr_flags: u32, padding: u32 }
    /// `fuse_getxattr_in`
    GetxattrIn (8) { size: u32, padding: u32 }
    /// `fuse_getxattr_out`
    GetxattrOut (8) { size: u32, padding: u32 }
    /// `fuse_kstatfs`
    StatfsOut (80) {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32,
        spare: [u32; 6],
    }
    /// `fuse_ioctl_in`
    IoctlIn (32) { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    /// `fuse_ioctl_out`
    IoctlOut (16) { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// `fuse_fallocate_in`
    FallocateIn (32) { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// `fuse_lseek_in`
    LseekIn (24) { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// `fuse_lseek_out`
    LseekOut (8) { offset: u64 }
    /// `fuse_copy_file_range_in`
    CopyFileRangeIn (56) {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    /// `fuse_dirent` without its name
    Dirent (24) { ino: u64, off: u64, namelen: u32, kind: u32 }
    /// `fuse_statx_in`
    StatxIn (24) { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// `fuse_sx_time`
    SxTime (16) { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    /// `fuse_statx`
    Statx (256) {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64,
        blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime,
        mtime: SxTime, rdev_major: u32,
        rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    /// `fuse_statx_out`
    StatxOut (288) { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
    stat: Statx }
}
