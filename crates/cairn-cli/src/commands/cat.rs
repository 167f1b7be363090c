//! `cairn cat`.

use cairn_vfs::{Error, FileSystem, IoFlags, walk};

use super::on_volume::OnVolume;
use crate::failure::{self, Failure, Outcome};
use crate::operands::Operands;
use crate::output::Output;
use crate::pattern;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `cat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn cat disk.img /etc/fstab")]
pub struct Args {
    /// Files to print, one after the other.
    #[command(flatten)]
    pub operands: Operands,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.operands.image
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        print(fs, pattern::expand(fs, &self.operands.paths)?, output)
    }
}

/// Copies the files' bytes to `output`.
///
/// # Errors
/// A file does not exist or cannot be read.
pub fn print(fs: &dyn FileSystem, paths: Vec<Vec<u8>>, output: &mut Output<'_>) -> Outcome {
    let mut buffer = vec![0; 1 << 20];
    failure::each(paths, |path| one(fs, &path, &mut buffer, output))
}

fn one(fs: &dyn FileSystem, path: &[u8], buffer: &mut [u8], output: &mut Output<'_>) -> Outcome {
    let failed = |error: Error| Failure::volume(shown(path), &error);
    let found = walk::resolve(fs, path, true).map_err(failed)?;
    found.kind.check_regular().map_err(failed)?;
    let mut offset = 0;
    loop {
        let count = fs.read(found.ino, offset, buffer, IoFlags::empty()).map_err(failed)?;
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        output.bytes(bytes)?;
        offset += bytes.len() as u64;
    }
}
