//! `cairn rmdir`.

use cairn_vfs::{Error, FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome, Status};
use crate::operands::Operands;
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `rmdir`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn rmdir -p disk.img /opt/app/data")]
pub struct Args {
    /// Remove the directories above it, too, as long as they are empty.
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// Ignore directories that are not empty.
    #[arg(long)]
    pub ignore_fail_on_non_empty: bool,
    /// Print what is done.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Empty directories to remove.
    #[command(flatten)]
    pub operands: Operands,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.operands.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        self.operands.each(fs, |path| remove(fs, self, path, output))
    }
}

/// Removes a directory and, with `--parents`, those above it that its path names.
fn remove(fs: &dyn FileSystem, args: &Args, path: &[u8], output: &mut Output<'_>) -> Outcome {
    let mut path = trimmed(path);
    loop {
        if args.verbose {
            output.done(&[("removing directory, ", path)])?;
        }
        match remove_one(fs, path) {
            Err(Error::NotEmpty) if args.ignore_fail_on_non_empty => return Ok(()),
            removed => removed.map_err(|error| failed(path, &error))?,
        }
        let above = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash);
        path = trimmed(path.get(..above).unwrap_or_default());
        if !args.parents || path.is_empty() {
            return Ok(());
        }
    }
}

fn remove_one(fs: &dyn FileSystem, path: &[u8]) -> cairn_vfs::Result<()> {
    let (parent, name) = walk::resolve_parent(fs, path)?;
    fs.rmdir(parent.ino, name)
}

/// The path without trailing slashes.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    path.get(..end).unwrap_or(path)
}

fn failed(path: &[u8], error: &Error) -> Failure {
    let advice = match error {
        Error::NotEmpty => "remove its entries first, or use rm -r",
        Error::NotDirectory => "use rm",
        Error::Invalid(_) => "the root directory, . and .. cannot be removed: name a directory",
        _ => return Failure::volume(shown(path), error),
    };
    let path = if path.is_empty() { "/".to_owned() } else { shown(path) };
    let what =
        if matches!(error, Error::Invalid(_)) { String::new() } else { format!("{error}: ") };
    Failure::new(Status::Failed, format!("{path}: {what}{advice}"))
}
