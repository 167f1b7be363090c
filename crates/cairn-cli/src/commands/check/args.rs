//! The options of `cairn check`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn check disk.img
  cairn check --json 'disk.img#2'
  cairn check /mnt
  cairn check --repair disk.img
  cairn check --repair=all --undo disk.undo disk.img
  cairn check --take-back disk.undo disk.img

Reads all structures of a volume that nobody has mounted, compares each with the others, and \
without --repair writes nothing. A mount of Cairn is frozen for the time of the check. A volume \
that was not unmounted cleanly is recovered in memory first. Each line says what is wrong, by a \
code that docs/check.md explains. A repair is planned in memory, shown, and applied as one step; \
a volume that it would not make sound is not touched. Exit status, as e2fsck's: 0 the volume is \
sound, 1 it was repaired (9 if its undo file could not be removed), 4 it has defects, also after \
-n, 5 some were repaired, 8 it cannot be checked, 16 wrong usage, 32 ended by a signal (36 with \
defects found before).")]
pub struct Args {
    /// Print the findings as one JSON document.
    #[arg(long)]
    pub(super) json: bool,
    /// Repair what loses nothing; with =all, also what loses a part of a file or a name.
    #[arg(
        long,
        value_name = "SCOPE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "accounting"
    )]
    pub(super) repair: Option<Wish>,
    /// Do not ask before something is lost.
    #[arg(short = 'y', long, requires = "repair")]
    pub(super) yes: bool,
    /// Show what would be repaired, and write nothing.
    #[arg(short = 'n', long = "no-change", requires = "repair", conflicts_with = "yes")]
    pub(super) no_change: bool,
    /// Keep what the repair overwrites in this new file, for --take-back.
    #[arg(long, value_name = "FILE", requires = "repair")]
    pub(super) undo: Option<PathBuf>,
    /// Undo a repair whose --undo file this is, whether it was ended or interrupted.
    #[arg(long, value_name = "FILE", conflicts_with = "repair")]
    pub(super) take_back: Option<PathBuf>,
    /// f2fs: a further device of the volume. May be repeated.
    #[arg(long = "device", value_name = "DEVICE")]
    pub(super) devices: Vec<PathBuf>,
    /// The image; for a check without repair also a mount point of Cairn.
    pub(super) image: OsString,
}

/// What `--repair` repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Wish {
    /// What loses nothing: counts, bitmaps, checksums, links, orphans, files without a name.
    Accounting,
    /// Everything: broken parts of files and names are cut off.
    All,
}
