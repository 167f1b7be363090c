//! `cairn serve`: gives an image to other programs.

mod nbd;

use clap::Subcommand;

use crate::failure::Outcome;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn serve nbd disk.img
  cairn serve nbd --read-only --listen 127.0.0.1:10809 'disk.img#2'

Each way of serving has its own --help.")]
pub struct Args {
    /// How it is served.
    #[command(subcommand)]
    how: How,
}

#[derive(Debug, Subcommand)]
enum How {
    /// As a network block device, for qemu, nbd-client, nbdcopy and others.
    Nbd(nbd::Args),
}

/// Serves until a signal ends it.
///
/// # Errors
/// What the way of serving reports.
pub fn run(args: &Args) -> Outcome {
    match &args.how {
        How::Nbd(args) => nbd::run(args),
    }
}
