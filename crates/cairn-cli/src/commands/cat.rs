//! `cairn cat`.

use std::ffi::OsString;

use cairn_vfs::{Error, FileKind, FileSystem, IoFlags, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::pattern;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `cat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn cat disk.img /etc/fstab")]
pub struct Args {
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Files to print, one after the other.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        print(fs, &self.paths, output)
    }
}

/// Copies the files' bytes to `output`.
///
/// # Errors
/// A file does not exist or cannot be read.
pub fn print(fs: &dyn FileSystem, paths: &[OsString], output: &mut Output<'_>) -> Outcome {
    let mut buffer = vec![0; 1 << 20];
    for path in pattern::expand(fs, paths)? {
        let path = path.as_slice();
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
            output.bytes(bytes)?;
            offset += bytes.len() as u64;
        }
    }
    Ok(())
}
