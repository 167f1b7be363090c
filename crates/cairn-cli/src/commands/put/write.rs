//! Writing to a file of the volume.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cairn_base::Ino;
use cairn_base::names::Escaped;
use cairn_vfs::{Error, FileSystem, IoFlags, SetAttributes, XattrMode};

use super::source::next_data;
use crate::commands::destination::{Place, write_back};
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::progress::Progress;

/// Bytes moved at a time.
const CHUNK: usize = 1 << 20;

/// Writes all of `bytes`, in as many calls as it takes.
fn write_all(fs: &dyn FileSystem, ino: Ino, offset: u64, bytes: &[u8]) -> cairn_vfs::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match fs.write(ino, offset + done as u64, rest, IoFlags::empty())? {
            0 => return Err(Error::NoSpace),
            count => done += count,
        }
    }
    Ok(())
}

/// Sets an attribute; one that the volume does not store is left out with a warning.
pub(super) fn set_xattr(
    fs: &dyn FileSystem,
    ino: Ino,
    (name, value): (&OsStr, &[u8]),
    progress: &Progress,
) -> cairn_vfs::Result<()> {
    match fs.setxattr(ino, name.as_bytes(), value, XattrMode::Set) {
        Err(Error::Unsupported(what)) => {
            progress.note(&format!("warning: left out attribute {}: {what}", name.escaped()));
            Ok(())
        }
        done => done,
    }
}

/// Copies a source of unknown length to its end. Returns the number of bytes.
pub(super) fn stream(
    fs: &dyn FileSystem,
    (path, from): (&Path, &mut dyn Read),
    (place, ino): (&Place, Ino),
    progress: &Progress,
) -> Outcome<u64> {
    let (mut at, mut buffer) = (0, vec![0; CHUNK]);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => {
                write_back(fs, ino).map_err(|error| place.failed(&error))?;
                return Ok(at);
            }
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

/// A regular file of the host.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) file: &'a File,
    /// Its size by its attributes.
    pub(super) size: u64,
}

impl Source<'_> {
    /// Reads it once and discards the bytes.
    pub(super) fn check(self) -> Outcome {
        self.read(&mut |_, _| Ok(())).map(drop)
    }

    /// Writes it to an empty file. Returns its length.
    pub(super) fn copy(
        self,
        fs: &dyn FileSystem,
        (place, ino): (&Place, Ino),
        progress: &Progress,
    ) -> Outcome<u64> {
        let failed = |error: Error| place.failed(&error);
        // A file of size zero is read to its end, because files of /proc and /sys have contents all
        // the same.
        let copied = if self.size == 0 {
            stream(fs, (self.path, &mut &*self.file), (place, ino), progress)?
        } else {
            self.read(&mut |at, bytes| {
                write_all(fs, ino, at, bytes).map_err(failed)?;
                progress.bytes(bytes.len() as u64);
                Ok(())
            })?
        };
        if copied != self.size {
            // Files of /proc and /sys have no true size, and other files may change during the
            // copy.
            let path = print::escaped(self.path.as_os_str().as_bytes());
            let size = self.size;
            progress.note(&format!(
                "warning: {path}: its attributes say {size} bytes, but {copied} could be read: \
                 these were copied"
            ));
        }
        // Before the size, which a hole at the end makes larger than what was written.
        write_back(fs, ino).map_err(failed)?;
        let set = SetAttributes { size: Some(copied), ..Default::default() };
        fs.setattr(ino, &set).map_err(failed)?;
        Ok(copied)
    }

    /// Passes the ranges with data to `take`. Returns the file's length.
    fn read(self, take: &mut dyn FnMut(u64, &[u8]) -> Outcome) -> Outcome<u64> {
        let host = |error: io::Error| Failure::host(self.path, &error);
        let most = usize::try_from(self.size).unwrap_or(CHUNK).min(CHUNK);
        let (mut at, mut buffer) = (0, vec![0; most]);
        while at < self.size {
            let range = next_data(self.file, at, self.size).map_err(host)?;
            let Some((data, hole)) = range else { break };
            at = data;
            while at < hole {
                let want = usize::try_from(hole - at).unwrap_or(most).min(most);
                let count = self.file.read_at(&mut buffer[..want], at).map_err(host)?;
                if count == 0 {
                    // The file has become shorter: only its present contents are copied.
                    return Ok(at);
                }
                take(at, buffer.get(..count).unwrap_or_default())?;
                at += count as u64;
            }
        }
        Ok(self.size)
    }
}
