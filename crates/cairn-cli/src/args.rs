//! The whole command line, as `clap` sees it.

use clap::{Parser, Subcommand};

use crate::commands::{
    cat, chmod, chown, freeze, generate, get, info, lab, ln, ls, mkdir, mkfs, mount, mv, put, remount, rm,
    serve_nothing, stat, stats, umount,
};
use crate::failure::Outcome;

/// Reads, writes and mounts ext4 and F2FS images without the kernel's drivers and without root.
///
/// IMAGE is a file or block device; IMAGE#2 is its partition 2 (GPT or MBR); IMAGE?offset=N starts at byte N.
/// Paths on an image start at its root, with or without a slash.
#[derive(Debug, Parser)]
#[command(name = "cairn", version, max_term_width = 100, after_help = EXIT_STATUSES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUSES: &str = "\
Exit status: 0 done, 1 the operation failed, 2 wrong usage, 3 the image cannot be opened, 4 not a known filesystem \
or corrupt, 5 unsupported feature, 6 in use, 7 input/output error.
CAIRN_LOG=debug in the environment shows what happens inside.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a filesystem in an image.
    Mkfs(mkfs::Args),
    /// Mount an image through FUSE.
    Mount(mount::Args),
    /// Unmount, and return when the image is clean on disk.
    Umount(umount::Args),
    /// Change options of a live mount.
    Remount(remount::Args),
    /// Bring a live mount to its image and hold it there, for a copy.
    Freeze(freeze::FreezeArgs),
    /// Let a frozen mount go on.
    Thaw(freeze::ThawArgs),
    /// Show counters, state and options of a live mount.
    Stats(stats::Args),
    /// Write manual pages and shell completions (for `make install`).
    #[command(hide = true)]
    Generate(generate::Args),
    /// Show what an image holds: type, features, sizes, state.
    Info(info::Args),
    /// List files on an image.
    Ls(ls::Args),
    /// Print files of an image.
    Cat(cat::Args),
    /// Show the attributes of files on an image.
    Stat(stat::Args),
    /// Copy files and trees out of an image.
    Get(get::Args),
    /// Copy files and trees into an image.
    Put(put::Args),
    /// Make directories on an image.
    Mkdir(mkdir::Args),
    /// Remove files and trees from an image.
    Rm(rm::Args),
    /// Make links on an image.
    Ln(ln::Args),
    /// Rename or move on an image.
    Mv(mv::Args),
    /// Change permissions on an image.
    Chmod(chmod::Args),
    /// Change owners on an image.
    Chown(chown::Args),
    /// Measure what the improvements of the write path bring.
    Lab(lab::Args),
    /// Serve a filesystem that stores nothing, to be measured against.
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
            Self::Mount(args) => mount::run(args),
            Self::Umount(args) => umount::run(args),
            Self::Remount(args) => remount::run(args),
            Self::Freeze(args) => freeze::freeze(args),
            Self::Thaw(args) => freeze::thaw(args),
            Self::Stats(args) => stats::run(args),
            Self::Generate(args) => generate::run(args),
            Self::Info(args) => info::run(args),
            Self::Ls(args) => ls::run(args),
            Self::Cat(args) => cat::run(args),
            Self::Stat(args) => stat::run(args),
            Self::Get(args) => get::run(args),
            Self::Put(args) => put::run(args),
            Self::Mkdir(args) => mkdir::run(args),
            Self::Rm(args) => rm::run(args),
            Self::Ln(args) => ln::run(args),
            Self::Mv(args) => mv::run(args),
            Self::Chmod(args) => chmod::run(args),
            Self::Chown(args) => chown::run(args),
            Self::Lab(args) => lab::run(args),
            Self::ServeNothing(args) => serve_nothing::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

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
