//! `cairn cat`.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{Error, FileKind, FileSystem, IoFlags, walk};

use crate::failure::{Failure, Outcome};
use crate::session::{Access, shown, with_volume};

/// Arguments of `cat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn cat disk.img /etc/fstab")]
pub struct Args {
    /// The image.
    pub image: OsString,
    /// Files to print, one after the other.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// Prints files.
///
/// # Errors
/// A file does not exist or cannot be read.
pub fn run(args: &Args) -> Outcome {
    with_volume(&args.image, Access::Read, |fs| print(fs, &args.paths, &mut std::io::stdout().lock()))
}

/// Copies the files' bytes to `output`. A reader that has gone away (a closed pipe) ends it without an error.
///
/// # Errors
/// As [`run`].
pub fn print(fs: &dyn FileSystem, paths: &[OsString], output: &mut dyn Write) -> Outcome {
    let mut buffer = vec![0; 1 << 20];
    for path in paths {
        let path = path.as_bytes();
        let failed = |error: Error| Failure::volume(shown(path), &error);
        let found = walk::resolve(fs, path, true).map_err(failed)?;
        match found.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Failure::volume(shown(path), &Error::IsDirectory)),
            _ => return Err(failed(Error::Invalid("not a regular file"))),
        }
        let mut offset = 0;
        loop {
            let count = fs.read(found.ino, offset, &mut buffer, IoFlags::empty()).map_err(failed)?;
            let bytes = buffer.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            match output.write_all(bytes) {
                Ok(()) => offset += bytes.len() as u64,
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(Failure::host("standard output", &error)),
            }
        }
    }
    match output.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::host("standard output", &error)),
        _ => Ok(()),
    }
}
