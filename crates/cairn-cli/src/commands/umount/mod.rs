//! `cairn umount`.

mod frozen;
pub mod helper;
mod in_use;
mod wait;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use cairn::ImageSpec;
use cairn_block::file::open_image;
use cairn_fuse::control::{self, Client, ControlError};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::mount::table::{self, Mount};
use super::mount::users::{self, Elsewhere};
use super::mount::utab;
use super::{live_mount, stats};
use crate::failure::{Failure, Outcome, Status, each, plain};
use crate::{output, print};
use wait::{Daemon, Patience, Server};

/// How often, and after which pauses, an unmount is repeated if the mount is in use by nothing that
/// can be named.
const BUSY_TRIES: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Arguments of `umount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn umount /mnt /media/disk
  cairn umount -a

Returns when the daemon has written everything and released the image. A mount in use is not \
unmounted: the message names the programs that use it. While the volume is mounted elsewhere too \
(a bind mount, another mount namespace) the daemon goes on, and umount waits; after 2 seconds it \
says for what. In scripts give --timeout 60: umount then ends with status 6. The image may be \
given instead of its mount point.")]
pub struct Args {
    /// Detach the mount now and do not wait. The daemon ends when the last file is closed.
    #[arg(short = 'l', long, conflicts_with = "force")]
    pub lazy: bool,
    /// Unmount although the mount is in use. Everything is written first; then programs with open
    /// files on it get errors.
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Wait at most this many seconds; then end with status 6.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Unmount every Cairn mount of this mount namespace that you may unmount, the latest first.
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Print what was unmounted. -a always does.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// With -a: only mounts of this type, as in umount(8). The only type is cairn.
    #[arg(short = 't', long = "types", value_name = "TYPE", requires = "all",
        value_parser = ["cairn", "fuse.cairn"])]
    pub kind: Option<String>,
    /// Called by umount(8): does not wait where the volume is mounted in another place.
    #[arg(long, hide = true)]
    pub helper: bool,
    /// Where images are mounted.
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "MOUNTPOINT")]
    pub mountpoints: Vec<PathBuf>,
}

/// Unmounts and waits.
///
/// # Errors
/// No Cairn mount is there, or it is in use.
pub fn run(args: &Args) -> Outcome {
    if args.all {
        return all(args);
    }
    each(&args.mountpoints, |point| {
        let (mount, copy) = match live_mount::find(point) {
            Ok(mount) => (mount, None),
            Err(failure) => elsewhere(args, point, failure)?,
        };
        one(args, &Leaving { mount, given: point.clone(), copy, is_last: true })
    })
}

/// A mount to unmount.
struct Leaving {
    mount: Mount,
    /// The path as the caller gave it.
    given: PathBuf,
    /// A path to a copy in another mount namespace, if the mount is no longer in this one.
    copy: Option<PathBuf>,
    /// True if no later mount of the same daemon is to be unmounted: only then its daemon ends.
    is_last: bool,
}

/// Unmounts all Cairn mounts that this user may unmount, the latest first, because it may be on top
/// of an earlier one. Leaves alone a mount that belongs to another mount namespace and is only
/// copied into this one.
fn all(args: &Args) -> Outcome {
    let uid = rustix::process::geteuid();
    let ours = |mount: &Mount| {
        mount.kind.ends_with(".cairn") && (uid.is_root() || mount.owner == uid.as_raw())
    };
    let is_foreign = |mount: &Mount| wait::server(mount) != Server::Here;
    let (foreign, own): (Vec<Mount>, Vec<Mount>) =
        table::all()?.into_iter().filter(ours).rev().partition(is_foreign);
    for mount in foreign {
        output::complain(format_args!(
            "{}: left alone: its daemon belongs to another mount namespace",
            mount.point.display()
        ));
    }
    each(0..own.len(), |at| {
        let mount = own[at].clone();
        // Another program may have unmounted it meanwhile.
        if !users::is_mounted(&mount) {
            return Ok(());
        }
        let is_last = own[at + 1..].iter().all(|later| later.device != mount.device);
        one(args, &Leaving { given: mount.point.clone(), mount, copy: None, is_last })
    })
}

fn one(args: &Args, leaving: &Leaving) -> Outcome {
    let (mount, point) = (&leaving.mount, &leaving.mount.point);
    let left = leave(args, leaving);
    if left.is_ok() && (args.verbose || args.all) {
        let line = format!("cairn: {} unmounted from {}", mount.source, point.display());
        output::with_stdout(|stdout| writeln!(stdout, "{}", print::harmless(&line)))?;
    }
    left
}

fn leave(args: &Args, leaving: &Leaving) -> Outcome {
    let mount = &leaving.mount;
    if args.lazy {
        frozen::end(mount, false)?;
        detach(mount, true)?;
        control::clear(&mount.device, mount.owner);
        return Ok(());
    }
    // If the daemon has a control channel, it reports how it ended.
    let daemon = Daemon::of(mount);
    let is_dead = daemon.is_none() && live_mount::is_dead(&mount.point);
    if args.force {
        frozen::end(mount, true)?;
        end(mount, &leaving.given)?;
        // A daemon that cannot end its own connection does not wake its thread that waits for a
        // request. This request wakes it.
        leaving.copy.clone().map(|path| thread::spawn(move || rustix::fs::statvfs(&path)));
    } else {
        frozen::thaw(mount)?;
        detach(mount, false)?;
    }
    if !leaving.is_last {
        return Ok(());
    }
    if let Some(other) = still_mounted(mount).filter(|_| !args.force) {
        output::complain(format_args!(
            "{}: unmounted; {} is still mounted on {}",
            mount.point.display(),
            mount.source,
            other.display()
        ));
        return Ok(());
    }
    // As after a umount(8) without a helper: the next may be that of the copy.
    if args.helper
        && let Some(copies) = users::listed(&users::copies_of(mount))
    {
        output::complain(format_args!(
            "{}: unmounted here; the daemon goes on, because of {copies}",
            mount.point.display()
        ));
        return Ok(());
    }
    let mut patience = Patience::new(mount, patience(args, mount));
    let Some(daemon) = daemon else {
        control::clear(&mount.device, mount.owner);
        return if is_dead { died(mount) } else { wait_for_lock(mount, &mut patience) };
    };
    let seen_to_its_end = daemon.has_process();
    let last = daemon.wait(&mut patience)?;
    if !seen_to_its_end {
        wait_for_lock(mount, &mut patience)?;
    }
    let point = mount.point.display().to_string();
    match last {
        Some(last) => {
            stats::print_messages(&point, &last);
            stats::check_end(&point, &last)
        }
        None => {
            control::clear(&mount.device, mount.owner);
            died(mount)
        }
    }
}

/// Another place in this mount namespace where the volume is mounted (`mount --bind`). Its daemon
/// goes on until it is unmounted there, too.
fn still_mounted(mount: &Mount) -> Option<PathBuf> {
    let all = table::all().ok()?;
    let same = |other: &Mount| other.device == mount.device && other.source == mount.source;
    all.into_iter().find(same).map(|other| other.point)
}

/// How long to wait for the end of a daemon. `-a` does not wait for copies of a mount, because the
/// caller did not name the mount.
fn patience(args: &Args, mount: &Mount) -> Option<Duration> {
    let given = args.timeout.map(Duration::from_secs);
    let is_held = || args.all && !users::copies_of(mount).is_empty();
    given.or_else(|| is_held().then_some(wait::MOMENT))
}

/// The result for a mount whose daemon died before the unmount.
fn died(mount: &Mount) -> Outcome {
    if mount.read_only {
        output::complain(format_args!("{}: unmounted; its daemon had died", mount.point.display()));
        return Ok(());
    }
    let message = format!(
        "{}: unmounted, but its daemon had died (killed, out of memory, or a fault): fsynced data \
         is there, other data may be missing; mount the volume again, which recovers it",
        mount.point.display()
    );
    Err(Failure::new(Status::Io, message))
}

/// Looks for the daemon of a mount that is gone here, but has a copy in another mount namespace.
/// `--force` ends that daemon.
fn elsewhere(args: &Args, given: &Path, failure: Failure) -> Outcome<(Mount, Option<PathBuf>)> {
    let Some(Elsewhere { mount, user, path }) = users::elsewhere(given) else {
        return Err(failure);
    };
    // A mount without a daemon needs no wait.
    if live_mount::daemon(&mount).is_err() {
        return Err(failure);
    }
    if args.force {
        return Ok((mount, Some(path)));
    }
    let point = given.display();
    let message = format!(
        "{point}: unmounted here, but its daemon goes on for {user}: end it there, or with --force"
    );
    Err(Failure::new(Status::Busy, message))
}

/// Unmounts a mount that may be in use: unmounts normally if that works; otherwise the daemon
/// writes everything and ends, and the mount is detached.
fn end(mount: &Mount, given: &Path) -> Outcome {
    // A normal unmount also makes the kernel write its dirty pages.
    let is_here = live_mount::find(given).is_ok_and(|found| found.device == mount.device);
    if is_here && users::copies_of(mount).len() <= 1 {
        match detach(mount, false) {
            Err(failure) if failure.status == Status::Busy => {}
            done => return done,
        }
    }
    match live_mount::daemon(mount).and_then(Client::end) {
        // The daemon has already ended.
        Ok(()) | Err(ControlError::Gone(_) | ControlError::Unmounted) => {}
        Err(ControlError::NoSocket(_)) if live_mount::is_dead(&mount.point) => {}
        Err(error) => return Err(live_mount::failure(given, &error)),
    }
    match live_mount::find(given) {
        Ok(left) if left.device == mount.device => detach(&left, true),
        _ => Ok(()),
    }
}

/// Unmounts. A call on the mount that is about to end, such as the look-up by another `umount` of
/// the same path, makes the kernel answer EBUSY: with no user to name, the call is repeated for a
/// moment.
fn detach(mount: &Mount, lazy: bool) -> Outcome {
    let as_user = !rustix::process::geteuid().is_root();
    let mut tries = 0;
    loop {
        let detached =
            if as_user { detach_as_user(mount, lazy) } else { detach_as_root(mount, lazy) };
        match detached {
            Err(failure) if failure.status == Status::Busy && tries < BUSY_TRIES => {
                if !in_use::users(mount).is_empty() {
                    return Err(failure);
                }
                thread::sleep(BUSY_PAUSE);
                tries += 1;
            }
            detached => return detached,
        }
    }
}

fn detach_as_root(mount: &Mount, lazy: bool) -> Outcome {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    unmount(&mount.point, flags | UnmountFlags::NOFOLLOW).map_err(|error| match error {
        Errno::BUSY => in_use::failure(mount),
        Errno::INVAL => is_gone(mount),
        error => Failure::host(&mount.point, &error.into()),
    })?;
    utab::forget(&mount.point);
    Ok(())
}

/// Another process has unmounted it at the same time.
fn is_gone(mount: &Mount) -> Failure {
    let point = mount.point.display();
    let message = format!("{point}: not mounted any more: another process has just unmounted it");
    Failure::new(Status::Failed, message)
}

/// Unmounts with fusermount3, the set-user-id helper, because the kernel allows only root to
/// unmount.
fn detach_as_user(mount: &Mount, lazy: bool) -> Outcome {
    let point = &mount.point;
    let mut command = Command::new("fusermount3");
    command
        .env("LC_ALL", "C")
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(point)
        .stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(Status::Failed, "fusermount3 is not installed: install the package fuse3")
        }
        _ => Failure::host("fusermount3", &error),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("busy") {
        return Err(in_use::failure(mount));
    }
    if table::find(point)?.is_none() {
        return Err(is_gone(mount));
    }
    let uid = rustix::process::geteuid().as_raw();
    let why = match mount.owner == uid {
        true => text.trim().to_owned(),
        false => {
            format!("it was mounted by user {}: run as that user or as root", mount.owner)
        }
    };
    Err(Failure::new(Status::Failed, format!("{}: {why}", point.display())))
}

/// Waits for a daemon without a control channel: it holds the image's lock until it has written
/// everything. For a read-only mount a shared lock is enough, so that other read-only mounts of the
/// image do not delay it. An image that another user named is not opened.
fn wait_for_lock(mount: &Mount, patience: &mut Patience<'_>) -> Outcome {
    if mount.owner != rustix::process::geteuid().as_raw() {
        let point = mount.point.display();
        output::complain(format_args!(
            "{point}: unmounted; its daemon cannot be asked whether everything is written"
        ));
        return Ok(());
    }
    let Ok(image) = ImageSpec::parse(mount.source.as_ref()) else { return Ok(()) };
    // The image is deleted, or this user may not read it: there is no lock to wait for.
    let Some(Ok(file)) = image.file().map(open_image) else { return Ok(()) };
    while !lock(&mount.point, &file, mount.read_only)? {
        thread::sleep(Duration::from_millis(20));
        patience.spend("its daemon")?;
    }
    drop(file);
    if mount.read_only { Ok(()) } else { check_clean(&image, &mount.point) }
}

fn lock(point: &Path, file: &File, shared: bool) -> Outcome<bool> {
    match if shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => {
            let message = format!(
                "{}: unmounted, but waiting for the daemon failed: {}: check the image",
                point.display(),
                plain(&error)
            );
            Err(Failure::new(Status::Io, message))
        }
    }
}

/// The daemon is gone and cannot report how it ended. The superblock tells whether the volume was
/// closed properly.
fn check_clean(image: &ImageSpec, point: &Path) -> Outcome {
    match cairn::inspect(image, &[]) {
        Ok(cairn::Info::Ext4(info)) if matches!(info.state, "needs recovery" | "not clean") => {
            let message = format!(
                "{}: unmounted, but the volume is not clean ({}): its daemon died, or its last \
                 writes failed: mount it again, which recovers it",
                point.display(),
                info.state
            );
            Err(Failure::new(Status::Io, message))
        }
        // Another process has opened the image, or it is not readable: the result is unknown.
        _ => Ok(()),
    }
}
