//! The whole command line, as `clap` sees it.

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::volume_command::VolumeCommand;
use crate::commands::{
    build, check, diff, dump, export, freeze, generate, info, lab, mkfs, mount, pool, remount,
    rescue, resize, run, serve, serve_nothing, shell, sparse, stats, sync, top, tune, umount,
};
use crate::failure::Outcome;

/// Reads, writes and mounts ext4 and F2FS images without the kernel's drivers and without root.
///
/// IMAGE is a file, a block device or an address (nbd://HOST/EXPORT, s3://BUCKET/PREFIX@NAME,
/// file-store:///DIR@NAME); IMAGE#2 is its partition 2 (GPT or MBR); IMAGE?offset=N starts at byte
/// N. qcow2, zstd and LUKS (IMAGE?key-file=FILE) are recognised. Paths on an image start at its
/// root, with or without a slash.
///
/// Behind ? the name of an image also says how it is opened, with & between the items:
/// format=raw, qcow2 or zstd; key-file=FILE or key-fd=N (the key of LUKS); of a file or a block
/// device io=auto, direct or buffered; of a volume in an object store cache=DIR, cache-size=SIZE,
/// memory=SIZE, log=FILE, log-size=SIZE, discard-log, export-log=FILE and take-over; of an export
/// socket=PATH, tls-certificates=FILE and tls-hostname=NAME. docs/commands.md (Images) says what
/// each does, docs/object-volumes.md and docs/nbd.md have more.
#[derive(Debug, Parser)]
#[command(
    name = "cairn",
    version,
    long_version = crate::version::long(),
    max_term_width = 100,
    after_help = EXIT_STATUSES
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUSES: &str = "\
Exit status: 0 done, 1 the operation failed, 2 wrong usage, 3 the image cannot be opened, 4 not a \
known filesystem or corrupt, 5 unsupported feature, 6 in use, 7 input/output error; `check` has \
those of e2fsck.
CAIRN_LOG=debug in the environment shows what happens inside.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a filesystem in an image.
    Mkfs(mkfs::Args),
    /// Make an image of directories, archives and other images.
    Build(build::Args),
    /// Write what an image holds as a tar archive, a directory or a container image.
    Export(export::Args),
    /// Make an image hold what its sources do, and change only what differs.
    Sync(sync::Args),
    /// Compare two images, or an image with a directory or an archive.
    Diff(diff::Args),
    /// Make a sparse image of Android of an image.
    Sparse(sparse::PackArgs),
    /// Make an image of a sparse image of Android.
    Unsparse(sparse::UnpackArgs),
    /// Change label, UUID, features, journal and settings of a volume.
    Tune(tune::Args),
    /// Make a volume larger or smaller.
    Resize(resize::Args),
    /// Find the defects of a volume, and repair them if asked to.
    Check(check::Args),
    /// Show a structure of a volume, which need not mount, as debugfs and dump.f2fs do.
    Dump(dump::Args),
    /// Show the journal of a volume, and what the next mount replays.
    Journal(dump::JournalArgs),
    /// Copy what can be read out of a damaged volume, and deleted files.
    Rescue(rescue::Args),
    /// Run a program on an image, as an ordinary user.
    Run(run::Args),
    /// The processes that `run` starts.
    #[command(hide = true)]
    RunStage(run::stage::StageArgs),
    /// Mount an image through FUSE.
    Mount(mount::Args),
    /// Unmount, and return when the image is clean on disk.
    Umount(umount::Args),
    /// Give an image to other programs, as a network block device.
    Serve(serve::Args),
    /// Change options of a live mount.
    Remount(remount::Args),
    /// Write a live mount to its image and hold back changes while the image is copied.
    Freeze(freeze::FreezeArgs),
    /// Let a frozen mount write again.
    Thaw(freeze::ThawArgs),
    /// Show counters, state and options of a live mount.
    Stats(stats::Args),
    /// Watch a live mount: requests, latencies, commits, cleaning.
    Top(top::Args),
    /// Write manual pages and shell completions (for `make install`).
    #[command(hide = true)]
    Generate(generate::Args),
    /// Show what an image holds: type, features, sizes, state.
    Info(info::Args),
    /// Keep a volume of an object store as it is now, under another name.
    Snapshot(pool::SnapshotArgs),
    /// Copy a volume of an object store under another name, to be written.
    Clone(pool::CloneArgs),
    /// Remove volumes of an object store, and objects that none needs.
    Gc(pool::GcArgs),
    /// The commands that work on an image without mounting it.
    #[command(flatten)]
    OnVolume(VolumeCommand),
    /// Run many commands on an image that is opened once.
    Shell(shell::Args),
    /// Measure each improvement of the write path, on and off.
    Lab(lab::Args),
    /// Serve a filesystem that stores nothing, as a baseline for measurements.
    #[command(hide = true)]
    ServeNothing(serve_nothing::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// What the command reports.
    pub fn run(&self) -> Outcome {
        match self {
            Self::Mkfs(args) => mkfs::run(args),
            Self::Build(args) => build::run(args),
            Self::Export(args) => export::run(args),
            Self::Sync(args) => sync::run(args),
            Self::Diff(args) => diff::run(args),
            Self::Sparse(args) => sparse::pack(args),
            Self::Unsparse(args) => sparse::unpack(args),
            Self::Tune(args) => tune::run(args),
            Self::Resize(args) => resize::run(args),
            Self::Check(args) => check::run(args),
            Self::Dump(args) => dump::run(args),
            Self::Journal(args) => dump::run_journal(args),
            Self::Rescue(args) => rescue::run(args),
            Self::Run(args) => run::run(args),
            Self::RunStage(args) => run::stage::run(args),
            Self::Mount(args) => mount::run(args),
            Self::Umount(args) => umount::run(args),
            Self::Serve(args) => serve::run(args),
            Self::Remount(args) => remount::run(args),
            Self::Freeze(args) => freeze::freeze(args),
            Self::Thaw(args) => freeze::thaw(args),
            Self::Stats(args) => stats::run(args),
            Self::Top(args) => top::run(args),
            Self::Generate(args) => generate::run(args, &Cli::command()),
            Self::Info(args) => info::run(args),
            Self::Snapshot(args) => pool::snapshot(args),
            Self::Clone(args) => pool::clone(args),
            Self::Gc(args) => pool::gc(args),
            Self::OnVolume(command) => command.run_alone(),
            Self::Shell(args) => shell::run(args),
            Self::Lab(args) => lab::run(args),
            Self::ServeNothing(args) => serve_nothing::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_gives_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }
}
