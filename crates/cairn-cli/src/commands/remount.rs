//! `cairn remount`.

use std::path::{Path, PathBuf};

use cairn::{Format, OpenOptions};
use cairn_base::stats::Value;
use cairn_fuse::MountOptions;

use super::live_mount;
use super::mount::options::Changes;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Arguments of `remount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn remount -o noatime,commit=30 /mnt
  cairn remount -o ro /mnt

Options that can change. All options of the list change, or none of them:
  any volume  ro (only if no file is open for writing) rw, as root
              suid nosuid dev nodev exec noexec sync async dirsync, as root
              atime relatime noatime cache=SIZE buffered_iomap
              nobuffered_iomap max_folio=SIZE errors=continue|remount-ro|panic
              resuid=UID resgid=GID
  ext4        commit=SECONDS grpid nogrpid discard nodiscard stripe=BLOCKS
              minixdf bsddf async_checkpoint[=PERCENT] noasync_checkpoint
              checkpoint_clean=counted|bail_out|scan reserved_clusters=N
  f2fs        checkpoint_interval=SECONDS checkpoint_merge nocheckpoint_merge
              checkpoint=disable[:N|:N%]|enable
              gc_victim=data_first|greedy|adaptive
              background_gc=on|off|sync gc_merge nogc_merge atgc noatgc
              reserve_root=BLOCKS
docs/options.md explains them. cairn stats shows the options in force.")]
pub struct Args {
    /// Options to change. The others stay as they are. May be repeated.
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',', required = true)]
    pub options: Vec<String>,
    /// Where the image is mounted.
    pub mountpoint: PathBuf,
}

/// Changes options of a live mount; returns when they are in force.
///
/// # Errors
/// No Cairn mount is there, or an option is refused.
pub fn run(args: &Args) -> Outcome {
    for note in change(&args.mountpoint, &args.options.join(","))? {
        output::complain(format_args!("{}: {note}", args.mountpoint.display()));
    }
    Ok(())
}

/// As [`run`]; returns a line for each word that has no effect.
///
/// # Errors
/// As [`run`].
pub fn change(mountpoint: &Path, options: &str) -> Outcome<Vec<String>> {
    let notes = check(mountpoint, options)?;
    let client = live_mount::connect(mountpoint)?;
    client.remount(options).map_err(|error| live_mount::failure(mountpoint, &error))?;
    tell_of_copy(mountpoint, options);
    Ok(notes)
}

/// Prints advice if the mount is a copy (a bind mount, or in another mount namespace): the daemon
/// turns only its own mount writable, and a copy has a flag of its own.
fn tell_of_copy(mountpoint: &Path, options: &str) {
    let mode = options.split(',').rfind(|word| matches!(*word, "ro" | "rw"));
    if mode == Some("rw") && live_mount::find(mountpoint).is_ok_and(|mount| mount.read_only) {
        let point = mountpoint.display();
        output::complain(format_args!(
            "{point}: the volume is writable now, but this copy of the mount is not: run `mount -i \
             -o remount,bind,rw {point}`"
        ));
    }
}

/// Checks a list. A list that no mount of this format takes is wrong usage, as with `mount`.
/// Returns a line for each word that has no effect.
fn check(mountpoint: &Path, list: &str) -> Outcome<Vec<String>> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", mountpoint.display()));
    let Changes { volume, mut notes, .. } =
        Changes::parse(&MountOptions::default(), list).map_err(wrong)?;
    let stats = live_mount::connect(mountpoint)?
        .stats()
        .map_err(|error| live_mount::failure(mountpoint, &error))?;
    let format = match stats.get("state") {
        Some(Value::Section(state)) => state.text("format").and_then(Format::from_name),
        _ => None,
    };
    let options = OpenOptions { mount_options: volume, ..OpenOptions::default() };
    let checked = format.map_or(Ok(Vec::new()), |format| cairn::check_options(format, &options));
    notes.extend(checked.map_err(|cause| wrong(cause.to_string()))?);
    Ok(notes)
}
