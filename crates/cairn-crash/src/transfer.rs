//! Reads and writes by flags, as the mount does them.

use cairn_base::Ino;
use cairn_vfs::{Bytes, FileSystem, IoFlags, Result};

/// Flags of a write or read: those of most calls, direct I/O, or data that another cache holds. Of
/// `of` calls, one is direct and one is of the last kind.
pub fn flags(random: &mut fastrand::Rng, of: u8) -> IoFlags {
    match random.u8(0..of) {
        0 => IoFlags::DIRECT,
        1 => IoFlags::DONTCACHE,
        _ => IoFlags::empty(),
    }
}

/// Writes `data`. With [`IoFlags::DONTCACHE`] the filesystem may keep it without a copy.
///
/// # Errors
/// As [`FileSystem::write`].
pub fn write(
    fs: &dyn FileSystem,
    ino: Ino,
    offset: u64,
    data: &[u8],
    flags: IoFlags,
) -> Result<usize> {
    if flags.contains(IoFlags::DONTCACHE) {
        fs.write_shared(ino, offset, Bytes::copy_from_slice(data), flags)
    } else {
        fs.write(ino, offset, data, flags)
    }
}

/// Reads into `buf`. With [`IoFlags::DONTCACHE`] the bytes come from the cache's own memory where
/// they can.
///
/// # Errors
/// As [`FileSystem::read`].
pub fn read(
    fs: &dyn FileSystem,
    ino: Ino,
    offset: u64,
    buf: &mut [u8],
    flags: IoFlags,
) -> Result<usize> {
    let mut done = 0;
    if flags.contains(IoFlags::DONTCACHE)
        && fs.read_shared(ino, offset, buf.len(), flags, &mut |pieces| {
            let all = pieces.concat();
            buf[..all.len()].copy_from_slice(&all);
            done = all.len();
        })?
    {
        return Ok(done);
    }
    fs.read(ino, offset, buf, flags)
}
