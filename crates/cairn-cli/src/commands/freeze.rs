//! `cairn freeze` and `cairn thaw`.

use std::path::PathBuf;

use super::live_mount;
use crate::failure::Outcome;

/// Arguments of `freeze`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn freeze /mnt && cp --sparse=always disk.img copy.img; cairn thaw /mnt

Returns when all that was written is in the image, as after an unmount. Until cairn thaw (or the end of the mount) reading goes on, and
whoever changes something waits. A program that waits cannot be killed: cairn thaw lets it go on. What a program has written to a file
that it has neither closed nor synced may be missing.
fsfreeze does not work on mounts of FUSE.")]
pub struct FreezeArgs {
    /// Thaw it after so many seconds, if nobody has done so by then: for scripts that may end
    /// early.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: Option<u64>,
    /// Where the image is mounted.
    pub mountpoint: PathBuf,
}

/// Arguments of `thaw`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn thaw /mnt")]
pub struct ThawArgs {
    /// Where the image is mounted.
    pub mountpoint: PathBuf,
}

/// Brings a live mount to its image and holds it there.
///
/// # Errors
/// Nothing of ours is mounted there, it is frozen, or it cannot be brought to the image.
pub fn freeze(args: &FreezeArgs) -> Outcome {
    let client = live_mount::connect(&args.mountpoint)?;
    client.freeze(args.timeout).map_err(|error| live_mount::failure(&args.mountpoint, &error))
}

/// Lets it go on.
///
/// # Errors
/// Nothing of ours is mounted there, it is not frozen, or it cannot be written any more.
pub fn thaw(args: &ThawArgs) -> Outcome {
    let client = live_mount::connect(&args.mountpoint)?;
    client.thaw().map_err(|error| live_mount::failure(&args.mountpoint, &error))
}
