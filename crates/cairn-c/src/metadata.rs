//! [`Metadata`]: what a volume knows about a file, as stat(2) tells it.

/// What a volume knows about a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access, in seconds since 1970.
    pub atime: i64,
    /// Last change of the contents.
    pub mtime: i64,
    /// Last change of the inode.
    pub ctime: i64,
    /// Creation, or 0 if the volume does not keep it.
    pub btime: i64,
    /// Nanoseconds of `atime`.
    pub atime_nsec: u32,
    /// Nanoseconds of `mtime`.
    pub mtime_nsec: u32,
    /// Nanoseconds of `ctime`.
    pub ctime_nsec: u32,
    /// Nanoseconds of `btime`.
    pub btime_nsec: u32,
    /// Kind and permission bits: S_ISDIR() and its like read them.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major number of a device.
    pub rdev_major: u32,
    /// Minor number of a device.
    pub rdev_minor: u32,
}

impl From<&cairn::fs::Metadata> for Metadata {
    fn from(found: &cairn::fs::Metadata) -> Self {
        let found = found.attributes();
        let born = found.crtime.unwrap_or_default();
        let (rdev_major, rdev_minor) = cairn::decode_device(found.device);
        Self {
            ino: found.ino.get(),
            size: found.size,
            blocks: found.sectors,
            atime: found.atime.seconds,
            mtime: found.mtime.seconds,
            ctime: found.ctime.seconds,
            btime: born.seconds,
            atime_nsec: found.atime.nanoseconds,
            mtime_nsec: found.mtime.nanoseconds,
            ctime_nsec: found.ctime.nanoseconds,
            btime_nsec: born.nanoseconds,
            mode: found.kind.mode_bits() | found.permissions,
            nlink: found.links,
            uid: found.uid,
            gid: found.gid,
            rdev_major,
            rdev_minor,
        }
    }
}
