//! Writing to a file of the volume.

use cairn_base::Ino;
use cairn_vfs::{Error, FileSystem, IoFlags};

/// Writes all of `bytes`, in as many calls as it takes.
pub(in crate::commands) fn write_all(
    fs: &dyn FileSystem,
    ino: Ino,
    offset: u64,
    bytes: &[u8],
) -> cairn_vfs::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match fs.write(ino, offset + done as u64, rest, IoFlags::empty())? {
            0 => return Err(Error::NoSpace),
            count => done += count,
        }
    }
    Ok(())
}
