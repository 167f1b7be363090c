//! The daemon's life: open the volume, mount, serve until unmounted or asked to end, leave the
//! image clean.

use std::path::Path;
use std::sync::Arc;

use cairn::{FileSystem, ImageSpec, OpenOptions};
use cairn_base::stats::Report;
use cairn_block::reserve;
use cairn_fuse::control::{Server, Waiting};
use cairn_fuse::{Error as FuseError, MountOptions as FuseOptions, Session};

use super::live::Live;
use super::options::MountOptions;
use super::{daemon, signals};
use crate::failure::{Failure, Outcome, Status};
use crate::session::why_unwritable;
use crate::{log_ring, output};

/// Mounts and serves; returns when the mount is gone and everything is on the disk.
///
/// # Errors
/// The image cannot be opened, the mount fails, or the volume cannot be brought to the disk.
pub fn serve(
    image: &ImageSpec,
    mountpoint: &Path,
    options: &MountOptions,
    announce: bool,
) -> Outcome {
    if announce {
        daemon::leave_session();
    }
    let open = OpenOptions {
        read_only: options.fuse.read_only,
        mount_options: options.volume.clone(),
        devices: options.devices.clone(),
        ..OpenOptions::default()
    };
    reserve::set_aside()
        .map_err(|error| Failure::new(Status::Failed, error.to_string()).in_image(image))?;
    let volume = cairn::open(image, &open)?;
    let notes = cairn::check_options(volume.format(), &open).unwrap_or_default();
    for note in options.notes.iter().chain(&notes) {
        output::complain(format_args!("{image}: {note}"));
    }
    let unwritable =
        if options.fuse.read_only { None } else { why_unwritable(&**volume.filesystem()) };
    // Where a backup is used, opening the volume has said so.
    if let Some(reason) = unwritable.as_ref().filter(|reason| !log_ring::holds(reason)) {
        output::complain(format_args!("{image}: warning: mounted read-only: {reason}"));
    }
    let fuse = FuseOptions {
        source: image.to_string(),
        read_only: options.fuse.read_only || unwritable.is_some(),
        ..options.fuse.clone()
    };
    let (format, words) = (volume.format(), &options.volume);
    tracing::info!(
        "{image}: {format}, to be mounted on {} with {fuse:?}, for the volume `{words}`",
        mountpoint.display()
    );
    let served = mount_and_run(volume.filesystem(), mountpoint, &fuse, announce);
    tracing::info!("{image}: no longer mounted");
    let closed = volume.filesystem().unmount();
    tracing::info!("{image}: closed");
    let (served, waiting) = match served {
        Ok(waiting) => (Ok(()), waiting),
        Err(failure) => (Err(failure), None),
    };
    if let Some(waiting) = waiting {
        waiting.tell(&last_words(closed.as_ref().err()));
    }
    served?;
    closed.map_err(|error| Failure::volume("unmount", &error).in_image(image).on(volume.format()))
}

fn mount_and_run(
    filesystem: &Arc<dyn FileSystem>,
    mountpoint: &Path,
    fuse: &FuseOptions,
    announce: bool,
) -> Outcome<Option<Waiting>> {
    let session =
        cairn_fuse::mount(filesystem.clone(), mountpoint, fuse).map_err(|error| failure(&error))?;
    let signals = signals::unmount_on_signal(session.unmounter(), filesystem.clone(), mountpoint)
        .map_err(|error| Failure::start("waiting for signals", &error, "mount again"))?;
    let control = start_control(filesystem, &session, fuse);
    if announce {
        daemon::announce().map_err(|error| {
            let advice =
                "see that /dev/null is there, and that whoever starts the mount waits for it";
            Failure::start("starting the daemon", &error, advice)
        })?;
    }
    let served = session.run();
    signals.close();
    let waiting = control.map(Server::close);
    served.map_err(|error| failure(&error))?;
    Ok(waiting)
}

/// Without it the mount works as well, but cannot be asked or changed.
fn start_control(
    filesystem: &Arc<dyn FileSystem>,
    session: &Session,
    options: &FuseOptions,
) -> Option<Server> {
    let mountpoint = session.mountpoint();
    let live = Live::new(filesystem.clone(), session, options);
    match Server::start(mountpoint, Arc::new(live)) {
        Ok(server) => Some(server),
        Err(error) => {
            tracing::warn!(
                "cairn stats, remount and freeze will not work on {}: {error}",
                mountpoint.display()
            );
            None
        }
    }
}

/// For a `cairn umount` that waits.
fn last_words(error: Option<&cairn_vfs::Error>) -> Report {
    let mut report = log_ring::report();
    if let Some(error) = error {
        report.set("error", error.to_string());
    }
    report
}

fn failure(error: &FuseError) -> Failure {
    let status = match error {
        FuseError::Busy { .. } | FuseError::DeadMount(_) => Status::Busy,
        FuseError::Connection(_) => Status::Io,
        _ => Status::Failed,
    };
    Failure::new(status, error.to_string())
}
