//! `cairn run-stage`: the processes that `cairn run` starts of this program.

use std::path::Path;

use cairn::OpenOptions;
use cairn_build::Leftovers;
use cairn_fuse::Owners;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::arguments::Inside;
use super::host::{VOLUME, leave_host};
use super::{ids, init};
use crate::commands::mount::options::MountOptions;
use crate::commands::mount::serve::{Serving, Told, serve};
use crate::failure::{Failure, Outcome, Status};

/// Arguments of `run-stage`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn run root.img -- sh

cairn run starts this by itself.")]
pub struct StageArgs {
    /// Which process.
    #[command(subcommand)]
    pub stage: Stage,
}

/// The processes.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Stage {
    /// Map the ids of a process's user namespace.
    Map(ids::MapArgs),
    /// Open the volume, and serve it.
    Serve(Inside),
    /// Run the command as process 1 of its namespace.
    Init(Init),
}

/// Arguments of the init.
#[derive(Clone, Debug, clap::Args)]
pub struct Init {
    /// Take the terminal.
    #[arg(long)]
    pub terminal: bool,
    /// Those of all.
    #[command(flatten)]
    pub inside: Inside,
}

/// Runs the process.
///
/// # Errors
/// What the process reports; its starter ends with its status.
pub fn run(args: &StageArgs) -> Outcome {
    match &args.stage {
        Stage::Map(map) => ids::map(map),
        Stage::Serve(inside) => {
            end_with_starter(inside, Signal::TERM)?;
            serve_volume(inside)
        }
        Stage::Init(Init { terminal, inside }) => {
            end_with_starter(inside, Signal::KILL)?;
            init::run(inside, *terminal)
        }
    }
}

/// From now on this process gets the signal when the starter ends.
fn end_with_starter(inside: &Inside, signal: Signal) -> Outcome {
    set_parent_process_death_signal(Some(signal)).map_err(|error| {
        Failure::start("the end of the starter is not seen", &error.into(), "run again")
    })?;
    // It may have ended before. Its number is the one outside, where this /proc is from.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    match parent.and_then(|number| number.trim().parse::<u32>().ok()) {
        Some(parent) if inside.starter == parent => Ok(()),
        _ => Err(Failure::new(Status::Failed, "the starter has ended: run again")),
    }
}

pub(super) fn no_mounts(error: &std::io::Error) -> Failure {
    Failure::start("no mounts", error, "Linux 5.2 or newer is needed; see what `dmesg` says")
}

/// Serves the volume, in the mount namespace that this process has got at its start.
fn serve_volume(Inside { args, .. }: &Inside) -> Outcome {
    let mut options = MountOptions::default();
    options.fuse.read_only = args.ro;
    options.fuse.owners = Owners::of_this_namespace()
        .map_err(|error| Failure::start("the ids are not known", &error, "mount /proc"))?;
    let asked = OpenOptions {
        read_only: args.ro,
        ephemeral: args.ephemeral,
        devices: args.image.devices.clone(),
        ..OpenOptions::default()
    };
    let image = args.image.spec()?;
    serve(&Serving {
        image: &image,
        mountpoint: Path::new(VOLUME),
        options: &options,
        asked,
        told: Told::Run,
        before_mount: &|volume| {
            // On one for reading, what is left stays.
            Leftovers::remove(volume);
            leave_host().map_err(|error| no_mounts(&error))
        },
        before_close: Leftovers::remove_own,
    })
}
