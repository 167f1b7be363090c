//! [`Stat`]: what a volume knows about a file, as plain numbers.

use cairn::Timestamp;
use cairn::fs::Metadata;

/// What `os.stat_result` begins with (mode, ino, dev, nlink, uid, gid, size); atime, mtime and
/// ctime as seconds and nanoseconds; allocated sectors; number of a device (major, minor).
pub(crate) type Stat = ((u32, u64, u32, u32, u32, u32, u64), [(i64, u32); 3], u64, (u32, u32));

pub(crate) fn stat_of(found: &Metadata) -> Stat {
    let found = found.attributes();
    let time = |time: Timestamp| (time.seconds, time.nanoseconds);
    let mode = found.kind.mode_bits() | found.permissions;
    (
        (mode, found.ino.get(), 0, found.links, found.uid, found.gid, found.size),
        [time(found.atime), time(found.mtime), time(found.ctime)],
        found.sectors,
        cairn::decode_device(found.device),
    )
}
