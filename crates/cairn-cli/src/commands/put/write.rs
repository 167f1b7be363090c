//! Writing to a file of the volume.

use std::io::{self, Read};
use std::path::Path;

use cairn_base::Ino;
use cairn_vfs::{Error, FileSystem, IoFlags};

use crate::commands::destination::Place;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;

/// Bytes moved at a time.
pub(super) const CHUNK: usize = 1 << 20;

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

/// Copies to the end of what has no length that could be known; gives the bytes.
pub(super) fn stream(
    fs: &dyn FileSystem,
    (path, from): (&Path, &mut dyn Read),
    (place, ino): (&Place, Ino),
    progress: &Progress,
) -> Outcome<u64> {
    let (mut at, mut buffer) = (0, vec![0; CHUNK]);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(at),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::host(path, &error)),
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        write_all(fs, ino, at, bytes).map_err(|error| place.failed(&error))?;
        at += count as u64;
        progress.bytes(count as u64);
    }
}
