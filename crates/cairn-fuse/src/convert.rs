//! Converts values between FUSE and [`cairn_vfs::FileSystem`].

use cairn_vfs::{
    AllocateMode, Attributes, Caller, Error, FileKind, NewInode, RenameMode, Result, SetTime,
    Timestamp,
};

use crate::wire::abi::{Attr, Statx, SxTime};

const FALLOC_FL_KEEP_SIZE: u32 = 0x01;
const FALLOC_FL_PUNCH_HOLE: u32 = 0x02;
const FALLOC_FL_COLLAPSE_RANGE: u32 = 0x08;
const FALLOC_FL_ZERO_RANGE: u32 = 0x10;
const FALLOC_FL_INSERT_RANGE: u32 = 0x20;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const RENAME_WHITEOUT_NOREPLACE: u32 = RENAME_WHITEOUT | RENAME_NOREPLACE;

/// The basic attributes and the time of creation, in `statx`'s mask.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// `DT_*`: the type bits of a mode, shifted down.
pub(crate) fn entry_type(kind: FileKind) -> u32 {
    kind.mode_bits() >> 12
}

fn mode(found: &Attributes) -> u32 {
    found.kind.mode_bits() | found.permissions & 0o7777
}

/// Seconds go over the wire as if they had no sign.
pub(crate) fn attributes(found: &Attributes) -> Attr {
    let [atime, mtime, ctime] = [found.atime, found.mtime, found.ctime];
    Attr {
        ino: found.ino.get(),
        size: found.size,
        blocks: found.sectors,
        atime: atime.seconds.cast_unsigned(),
        mtime: mtime.seconds.cast_unsigned(),
        ctime: ctime.seconds.cast_unsigned(),
        atimensec: atime.nanoseconds,
        mtimensec: mtime.nanoseconds,
        ctimensec: ctime.nanoseconds,
        mode: mode(found),
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: found.device,
        blksize: found.block_size,
        flags: 0,
    }
}

pub(crate) fn statx(found: &Attributes) -> Statx {
    let time =
        |time: Timestamp| SxTime { tv_sec: time.seconds, tv_nsec: time.nanoseconds, reserved: 0 };
    let (rdev_major, rdev_minor) = cairn_vfs::decode_device(found.device);
    Statx {
        mask: STATX_BASIC_STATS | if found.crtime.is_some() { STATX_BTIME } else { 0 },
        blksize: found.block_size,
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        // Sixteen bits.
        mode: mode(found) as u16,
        ino: found.ino.get(),
        size: found.size,
        blocks: found.sectors,
        atime: time(found.atime),
        btime: found.crtime.map(time).unwrap_or_default(),
        ctime: time(found.ctime),
        mtime: time(found.mtime),
        rdev_major,
        rdev_minor,
        ..Statx::default()
    }
}

pub(crate) fn timestamp(seconds: u64, nanoseconds: u32) -> Timestamp {
    Timestamp { seconds: seconds.cast_signed(), nanoseconds }
}

pub(crate) fn set_time(now: bool, seconds: u64, nanoseconds: u32) -> SetTime {
    if now { SetTime::Now } else { SetTime::To(timestamp(seconds, nanoseconds)) }
}

/// What `mknod` makes.
pub(crate) fn new_node(mode: u32, device: u32) -> Result<NewInode<'static>> {
    // No type at all means a regular file.
    if mode & 0o170_000 == 0 {
        return Ok(NewInode::Regular);
    }
    match FileKind::from_mode(mode) {
        Some(FileKind::Regular) => Ok(NewInode::Regular),
        Some(FileKind::BlockDevice) => Ok(NewInode::BlockDevice(device)),
        Some(FileKind::CharDevice) => Ok(NewInode::CharDevice(device)),
        Some(FileKind::Fifo) => Ok(NewInode::Fifo),
        Some(FileKind::Socket) => Ok(NewInode::Socket),
        Some(FileKind::Directory | FileKind::Symlink) | None => {
            Err(Error::Invalid("mknod cannot make this type"))
        }
    }
}

pub(crate) fn rename_mode(flags: u32, caller: Caller) -> Result<RenameMode> {
    match flags {
        0 => Ok(RenameMode::Replace),
        RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        // The kernel has checked that there is no target. It holds both directories locked.
        RENAME_WHITEOUT | RENAME_WHITEOUT_NOREPLACE => Ok(RenameMode::Whiteout(caller)),
        _ => Err(Error::Invalid("rename flags")),
    }
}

pub(crate) fn allocate_mode(mode: u32) -> Result<AllocateMode> {
    const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: u32 = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
    Ok(match mode {
        0 => AllocateMode::Extend,
        FALLOC_FL_KEEP_SIZE => AllocateMode::KeepSize,
        PUNCH => AllocateMode::PunchHole,
        FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange { keep_size: false },
        ZERO_KEEP => AllocateMode::ZeroRange { keep_size: true },
        FALLOC_FL_COLLAPSE_RANGE => AllocateMode::CollapseRange,
        FALLOC_FL_INSERT_RANGE => AllocateMode::InsertRange,
        _ => return Err(Error::Unsupported("this fallocate mode")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = Timestamp { seconds: -2, nanoseconds: 800_000_000 };
        assert_eq!(timestamp((-2_i64).cast_unsigned(), 800_000_000), time);
        assert_eq!(set_time(false, (-2_i64).cast_unsigned(), 800_000_000), SetTime::To(time));
        assert_eq!(set_time(true, 5, 5), SetTime::Now);
    }

    #[test]
    fn kinds_are_the_kernel_s_directory_types() {
        // DT_DIR, DT_REG, DT_LNK.
        assert_eq!(
            [FileKind::Directory, FileKind::Regular, FileKind::Symlink].map(entry_type),
            [4, 8, 10]
        );
    }

    #[test]
    fn modes_that_mean_nothing_are_refused() {
        assert!(new_node(0o040_755, 0).is_err());
        assert_eq!(new_node(0o644, 0).unwrap(), NewInode::Regular);
        assert_eq!(new_node(0o020_644, 9).unwrap(), NewInode::CharDevice(9));
        assert_eq!(allocate_mode(3).unwrap(), AllocateMode::PunchHole);
        assert!(allocate_mode(2).is_err() && allocate_mode(0x40).is_err());
        assert!(rename_mode(RENAME_NOREPLACE | RENAME_EXCHANGE, Caller::ROOT).is_err());
        assert!(rename_mode(8, Caller::ROOT).is_err());
        assert_eq!(rename_mode(5, Caller::ROOT).unwrap(), RenameMode::Whiteout(Caller::ROOT));
    }
}
