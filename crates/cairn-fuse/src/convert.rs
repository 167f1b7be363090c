//! Values between FUSE and the filesystem seam.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cairn_vfs::{AllocateMode, Attributes, Error, FileKind, NewInode, RenameMode, Result, SetTime, Timestamp};
use fuser::{FileAttr, FileType, INodeNo, RenameFlags, TimeOrNow};

const FALLOC_FL_KEEP_SIZE: i32 = 0x01;
const FALLOC_FL_PUNCH_HOLE: i32 = 0x02;
const FALLOC_FL_COLLAPSE_RANGE: i32 = 0x08;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;
const FALLOC_FL_INSERT_RANGE: i32 = 0x20;

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

/// Attributes under the number `ino` (a node's where one is being handed out, else the inode's own).
pub(crate) fn attributes(found: &Attributes, ino: INodeNo) -> FileAttr {
    FileAttr {
        ino,
        size: found.size,
        blocks: found.sectors,
        atime: system_time(found.atime),
        mtime: system_time(found.mtime),
        ctime: system_time(found.ctime),
        crtime: found.crtime.map_or(UNIX_EPOCH, system_time),
        kind: file_type(found.kind),
        // Twelve bits.
        perm: (found.permissions & 0o7777) as u16,
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: found.device,
        blksize: found.block_size,
        flags: 0,
    }
}

/// What a reply carries where there is no inode.
pub(crate) fn no_attributes() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let second = if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second.and_then(|second| second.checked_add(Duration::from_nanos(time.nanoseconds.into()))).unwrap_or(UNIX_EPOCH)
}

/// The kernel's pair of seconds and nanoseconds. For times before 1970 fuser 0.18 subtracts the nanoseconds too, instead of adding
/// them; that is undone here.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: seconds(after), nanoseconds: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Timestamp { seconds: -seconds(before), nanoseconds: before.subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(timestamp(time)),
    }
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
        Some(FileKind::Directory | FileKind::Symlink) | None => Err(Error::Invalid("mknod cannot make this type")),
    }
}

pub(crate) fn rename_mode(flags: RenameFlags) -> Result<RenameMode> {
    if flags.is_empty() {
        Ok(RenameMode::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Ok(RenameMode::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Ok(RenameMode::Exchange)
    } else {
        Err(Error::Invalid("rename flags"))
    }
}

pub(crate) fn allocate_mode(mode: i32) -> Result<AllocateMode> {
    const PUNCH: i32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
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
        assert_eq!(system_time(time), UNIX_EPOCH - Duration::from_millis(1200));
        // As fuser 0.18 decodes the kernel's (-2, 800000000).
        assert_eq!(timestamp(UNIX_EPOCH - Duration::new(2, 800_000_000)), time);
        let after = Timestamp { seconds: 5, nanoseconds: 7 };
        assert_eq!(timestamp(system_time(after)), after);
        let far = Timestamp { seconds: i64::MIN, nanoseconds: 0 };
        assert_eq!(system_time(far).duration_since(UNIX_EPOCH).unwrap_err().duration().as_secs(), 1 << 63);
    }

    #[test]
    fn modes_that_mean_nothing_are_refused() {
        assert!(new_node(0o040_755, 0).is_err());
        assert_eq!(new_node(0o644, 0).unwrap(), NewInode::Regular);
        assert_eq!(new_node(0o020_644, 9).unwrap(), NewInode::CharDevice(9));
        assert_eq!(allocate_mode(3).unwrap(), AllocateMode::PunchHole);
        assert!(allocate_mode(2).is_err() && allocate_mode(0x40).is_err());
        assert!(rename_mode(RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE).is_err());
        assert!(rename_mode(RenameFlags::RENAME_WHITEOUT).is_err());
    }
}
