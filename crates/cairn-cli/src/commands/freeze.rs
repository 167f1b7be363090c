//! `cairn freeze` and `cairn thaw`.

use std::path::PathBuf;

use super::live_mount;
use crate::failure::Outcome;

/// Arguments of `freeze`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn freeze /mnt && cp --sparse=always disk.img copy.img; cairn thaw /mnt

Returns when the image is complete, as after an unmount: a copy of it needs no recovery. Until \
cairn thaw, or the end of the mount, programs can read the mount. A program that changes something \
waits, and cannot be killed before cairn thaw. Data that a program has written to a file and \
neither closed nor synced may be missing in the image. fsfreeze(8) does not work on FUSE mounts.")]
pub struct FreezeArgs {
    /// Thaw it after this many seconds, for scripts that may end early.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<u64>,
    /// Where the image is mounted.
    pub mountpoint: PathBuf,
}

fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.ok_or_else(|| "give seconds, 1 to 86400".to_owned())
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

/// Writes everything to the image of a live mount, and blocks further changes.
///
/// # Errors
/// No Cairn mount is there, it is frozen already, or its data cannot be written.
pub fn freeze(args: &FreezeArgs) -> Outcome {
    let client = live_mount::connect(&args.mountpoint)?;
    client.freeze(args.timeout).map_err(|error| live_mount::failure(&args.mountpoint, &error))
}

/// Lets a frozen mount write again.
///
/// # Errors
/// No Cairn mount is there, it is not frozen, or it cannot be written any more.
pub fn thaw(args: &ThawArgs) -> Outcome {
    let client = live_mount::connect(&args.mountpoint)?;
    client.thaw().map_err(|error| live_mount::failure(&args.mountpoint, &error))
}
