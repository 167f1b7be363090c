//! The daemon's life: open the volume, mount, serve until the unmount or a request to end, close
//! the volume.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use cairn::{Cause, FileSystem, ImageSpec, OpenOptions, Volume};
use cairn_base::memory::NoMemory;
use cairn_base::stats::Report;
use cairn_block::file::LoopDevice;
use cairn_block::{ErrorKind, reserve};
use cairn_fuse::control::{Server, Waiting};
use cairn_fuse::{BlockDevice, Error as FuseError, MountOptions as FuseOptions, Session};

use super::closing::Closing;
use super::freezing::Freezing;
use super::handover::{BLOCK_SIZE, Handover};
use super::live::Live;
use super::options::MountOptions;
use super::{daemon, signals, utab};
use crate::commands::stats;
use crate::failure::{Failure, Outcome, Status};
use crate::session::why_unwritable;
use crate::{log_ring, output, session};

/// Stacks and buffers of the first threads that serve requests, in bytes.
const SERVING: u64 = 16 << 20;

/// Who is told that the mount is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nobody.
    Nobody,
    /// The starter of a daemon, which then leaves the starter's session.
    Starter,
    /// `cairn run`, which waits for the end.
    Run,
}

/// What is served, and how.
pub struct Serving<'a> {
    /// The image.
    pub image: &'a ImageSpec,
    /// Where it is mounted.
    pub mountpoint: &'a Path,
    /// Options of the mount.
    pub options: &'a MountOptions,
    /// How the volume is opened.
    pub asked: OpenOptions,
    /// Who is told.
    pub told: Told,
    /// Called when the volume is open.
    pub before_mount: &'a dyn Fn(&dyn FileSystem) -> Outcome,
    /// Called when the mount is gone, before the volume is closed.
    pub before_close: fn(&dyn FileSystem),
}

/// Mounts and serves; returns when the mount is gone and everything is on the disk.
///
/// # Errors
/// The image cannot be opened, the mount fails, or the volume cannot be brought to the disk.
pub fn serve(serving: &Serving<'_>) -> Outcome {
    let Serving { mountpoint, options, asked, told, before_mount, before_close, .. } = serving;
    if *told == Told::Starter {
        daemon::leave_session();
    }
    reserve::set_aside().map_err(|error| refused(&error).in_image(serving.image))?;
    let attached = attach(serving)?;
    let on_loop = attached.as_ref().map(|device| ImageSpec::whole(device.path()));
    let image = on_loop.as_ref().unwrap_or(serving.image);
    let (mut volume, host) = open_volume(image, asked)?;
    cairn::forget_passphrases();
    session::tell_of_interrupted(image);
    session::tell_of_check(image, volume.needs_check());
    let notes = cairn::check_options(volume.format(), asked).unwrap_or_default();
    for note in options.notes.iter().chain(&notes) {
        output::complain(format_args!("{image}: {note}"));
    }
    let unwritable = match options.fuse.read_only {
        true => None,
        false => host.or_else(|| why_unwritable(&**volume.filesystem())),
    };
    // If a backup superblock is used, opening the volume has logged this reason already.
    if let Some(reason) = unwritable.as_ref().filter(|reason| !log_ring::holds(reason)) {
        output::complain(format_args!("{image}: warning: mounted read-only: {reason}"));
    }
    let fuse = FuseOptions {
        source: image.to_os_string().to_string_lossy().into_owned(),
        read_only: options.fuse.read_only || unwritable.is_some(),
        ..options.fuse.clone()
    };
    say_what_begins(&fuse, mountpoint, &volume, &options.volume);
    let handover = Handover::of(image, &mut volume);
    let closing = Arc::new(Closing::new(volume.filesystem().clone()));
    let served = before_mount(&**closing.filesystem())
        .and_then(|()| mount(&closing, handover.as_ref(), mountpoint, &fuse));
    let served = served.and_then(|session| run(session, &closing, &fuse, *told));
    tracing::info!("{image}: no longer mounted");
    before_close(&**closing.filesystem());
    let closed = closing.outcome();
    // A volume that has stopped has been told already why.
    if let (Ok(()), Err(error)) = (&closed, cairn::objects::release_all()) {
        tracing::warn!("{image}: another machine may take it for open: {error}");
    }
    tracing::info!("{image}: closed");
    let (served, waiting) = match served {
        Ok(waiting) => (Ok(()), waiting),
        Err(failure) => (Err(failure), None),
    };
    if let Some(waiting) = waiting {
        waiting.tell(&last_words(closed.as_ref().err()));
    }
    served?;
    closed
        .map_err(|error| match error.stop_reason() {
            Some(_) => Failure::new(Status::Io, format!("unmounted, but {}", end_words(&error))),
            None => Failure::volume("unmount", &error),
        })
        .map_err(|failure| failure.in_image(image))
}

/// The loop device that is asked for, if one is. The kernel removes it after the daemon's end.
fn attach(serving: &Serving<'_>) -> Outcome<Option<LoopDevice>> {
    if !serving.options.on_loop {
        return Ok(None);
    }
    let image = serving.image;
    if !rustix::process::geteuid().is_root() {
        let why = "loop: only root makes loop devices: leave it out, the mount needs none";
        return Err(Failure::usage(why).in_image(image));
    }
    let write = !serving.asked.read_only && !serving.asked.ephemeral;
    Ok(Some(cairn::attach(image, write)?))
}

/// Opens the volume. If the host allows only reading, opens it for reading and returns the reason.
fn open_volume(image: &ImageSpec, asked: &OpenOptions) -> Outcome<(Volume, Option<String>)> {
    match cairn::open(image, asked) {
        Err(error) => {
            let protected = write_protection(error.cause()).filter(|_| !asked.read_only);
            let Some(why) = protected else { return Err(error.into()) };
            let mut reading = OpenOptions { read_only: true, ..asked.clone() };
            // mount(8) adds `rw` by itself; the last word wins.
            reading.mount_options.push_str(",ro");
            Ok((cairn::open(image, &reading)?, Some(why)))
        }
        Ok(volume) => Ok((volume, None)),
    }
}

/// Why the host allows no writing, if that is the error.
fn write_protection(cause: &Cause) -> Option<String> {
    let Cause::Open(error) = cause else { return None };
    let why = match error.kind {
        ErrorKind::ReadOnly if error.source.is_some() => {
            "the filesystem that the image lies on is read-only"
        }
        // A snapshot, a compressed disk, an export: the error says what, and what to do instead.
        ErrorKind::ReadOnly => error.detail.split(": ").next().unwrap_or_default(),
        ErrorKind::PermissionDenied => "you may not write the image: see its permissions",
        _ => return None,
    };
    Some(why.to_owned())
}

fn say_what_begins(fuse: &FuseOptions, mountpoint: &Path, volume: &Volume, words: &str) {
    let (image, format, point) = (&fuse.source, volume.format(), mountpoint.display());
    let of_mount = stats::inline(&fuse.report(rustix::process::geteuid().is_root()), "options");
    let of_volume = if words.is_empty() { "no options" } else { words };
    tracing::info!(
        "{image}: {format}, to be mounted on {point}; the mount: {of_mount}; the volume: \
         {of_volume}"
    );
}

fn mount(
    closing: &Arc<Closing>,
    handover: Option<&Handover<'_>>,
    mountpoint: &Path,
    fuse: &FuseOptions,
) -> Outcome<Session> {
    let filesystem = closing.filesystem();
    let session = match handover {
        None => cairn_fuse::mount(filesystem.clone(), mountpoint, fuse),
        Some(handover) => {
            let release = || handover.release();
            let (path, block_size) = (handover.path, BLOCK_SIZE);
            let device = BlockDevice { path, block_size, release: &release };
            cairn_fuse::mount_on(filesystem.clone(), device, mountpoint, fuse)
                .inspect_err(|_| handover.take_back(&**filesystem))
        }
    };
    let session = session.map_err(|error| failure(&error))?;
    session.before_unmounted({
        let closing = closing.clone();
        move || closing.close()
    });
    Ok(session)
}

fn run(
    session: Session,
    closing: &Closing,
    fuse: &FuseOptions,
    told: Told,
) -> Outcome<Option<Waiting>> {
    let filesystem = closing.filesystem();
    let freezing = Freezing::new(filesystem.clone());
    let signals = signals::unmount_on_signal(&session, filesystem.clone(), freezing.clone())
        .map_err(|error| Failure::start("waiting for signals", &error, "mount again"))?;
    // A run has a mount that nobody else sees.
    let control = match told {
        Told::Run => None,
        Told::Nobody | Told::Starter => start_control(filesystem, freezing, &session, fuse),
    };
    expect_memory().map_err(|error| refused(&error))?;
    let announced = match told {
        Told::Nobody => Ok(()),
        Told::Starter => daemon::announce(),
        Told::Run => daemon::report().map(drop),
    };
    announced.map_err(|error| {
        let advice = "check that /dev/null exists, and that the program that starts the mount \
                      waits for it";
        Failure::start("starting the daemon", &error, advice)
    })?;
    let point = session.mountpoint().to_owned();
    let served = serve_at(&point, session, told);
    signals.close();
    let waiting = control.map(Server::close);
    served.map_err(|error| failure(&error))?;
    Ok(waiting)
}

/// Serves until the mount is gone. The starter of a daemon adds the entry for umount(8) itself.
fn serve_at(point: &Path, session: Session, told: Told) -> Result<(), FuseError> {
    if told == Told::Nobody {
        let point = point.to_owned();
        let name = "umount(8)'s entry".to_owned();
        // Without the thread the mount has no entry, which is no reason to end.
        let _ = thread::Builder::new().name(name).spawn(move || utab::record(&point));
    }
    let served = session.run();
    if told != Told::Run {
        utab::forget(point);
    }
    served
}

/// What has been started has taken its share of the address space (`ulimit -v`). Without the whole
/// reserve and room for the first threads, the first requests would use the reserve up, and the
/// daemon would abort.
fn expect_memory() -> Result<(), NoMemory> {
    reserve::set_aside()?;
    reserve::expect_room("the threads that serve requests", SERVING)
}

fn refused(error: &NoMemory) -> Failure {
    Failure::new(Status::Failed, error.to_string())
}

/// Starts the control channel. Without it the mount works, but `stats`, `remount` and the like
/// fail.
fn start_control(
    filesystem: &Arc<dyn FileSystem>,
    freezing: Freezing,
    session: &Session,
    options: &FuseOptions,
) -> Option<Server> {
    let live = Live::new(filesystem.clone(), freezing, session, options);
    let started = match session.device() {
        Some(device) => Server::start(device, Arc::new(live)).map_err(|error| error.to_string()),
        None => Err("/proc cannot be read: mount it".to_owned()),
    };
    let unavailable = |why: &String| {
        let point = session.mountpoint().display();
        tracing::warn!("cairn stats, remount and freeze will not work on {point}: {why}");
    };
    started.inspect_err(unavailable).ok()
}

/// The last report, for a `cairn umount` that waits.
fn last_words(error: Option<&cairn_vfs::Error>) -> Report {
    let mut report = log_ring::trouble();
    if let Some(error) = error {
        report.set("error", end_words(error));
    }
    report
}

/// The message for a volume that could not be closed properly: what happened, and what to do.
fn end_words(error: &cairn_vfs::Error) -> String {
    match error.stop_reason() {
        // It says itself what is lost, and what is left of it.
        Some(reason) if cairn::objects::is_taken_over(reason) => {
            format!("the volume has stopped: {reason}")
        }
        Some(reason) => {
            format!(
                "the volume has stopped: {reason}: mount it again, which recovers it, or, if it is \
                 damaged, run `cairn check` on it"
            )
        }
        None => format!("{error}: mount it again, and check which files are missing"),
    }
}

fn failure(error: &FuseError) -> Failure {
    let status = match error {
        FuseError::Busy { .. } | FuseError::DeadMount(_) => Status::Busy,
        FuseError::Connection(_) => Status::Io,
        _ => Status::Failed,
    };
    Failure::new(status, error.to_string())
}
