//! Mounting, and the life of a mount.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::system_error;
use cairn_vfs::FileSystem;
use fuser::InitFlags;
use rustix::io::Errno;

use crate::block::{self, BlockDevice};
use crate::core::{Closing, Core};
use crate::counters::FuseStats;
use crate::error::{Error, Result};
use crate::guard::{Keeper, Mounted};
use crate::handshake::Handshake;
use crate::mounts;
use crate::operations::Operations;
use crate::options::{MountOptions, TransportChoice};
use crate::ring::{self, Connection, NoRing, Rings};
use crate::servers::Servers;
use crate::synchronous::Synchronous;
use crate::transport::{DevFuse, Ender, Transport, Unmounter, Unserved};
use crate::wire::{BufferPool, Device};

/// A mounted filesystem that is served by [`Session::run`]. Dropped, it unmounts.
pub struct Session {
    transport: Box<dyn Transport>,
    mountpoint: PathBuf,
    device: Option<String>,
    stats: FuseStats,
    synchronous: Synchronous,
    keeper: Keeper,
    closing: Closing,
}

/// Mounts a filesystem. The kernel's requests wait until [`Session::run`].
///
/// # Errors
/// The options contradict each other, the mountpoint is not a directory, `/dev/fuse` cannot be
/// opened, the kernel refuses the mount, or the system has no memory for a request.
pub fn mount(
    fs: Arc<dyn FileSystem>,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Session> {
    mount_anywhere(fs, mountpoint, options, None)
}

/// Mounts the filesystem of a block device, which the kernel claims (`fuseblk`). Without root, or
/// on a kernel without such mounts, as [`mount`].
///
/// # Errors
/// As [`mount`], or the block device is in use.
pub fn mount_on(
    fs: Arc<dyn FileSystem>,
    device: BlockDevice<'_>,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Session> {
    let device = Some(device).filter(|device| block::is_possible(options, *device));
    mount_anywhere(fs, mountpoint, options, device)
}

fn mount_anywhere(
    fs: Arc<dyn FileSystem>,
    mountpoint: &Path,
    options: &MountOptions,
    on: Option<BlockDevice<'_>>,
) -> Result<Session> {
    options.check().map_err(Error::Options)?;
    let mountpoint = check_mount_point(mountpoint)?;
    check_device()?;
    match options.transport {
        TransportChoice::Dev => {}
        TransportChoice::Ring => ring::probe().map_err(Error::NoRing)?,
        TransportChoice::Auto => {
            if ring::pays(options) {
                match mount_through(fs.clone(), &mountpoint, options, true, on) {
                    Err(Error::NoRing(reason)) => tracing::debug!("/dev/fuse is used: {reason}"),
                    done => return done,
                }
            }
        }
    }
    mount_through(fs, &mountpoint, options, options.transport == TransportChoice::Ring, on)
}

fn mount_through(
    fs: Arc<dyn FileSystem>,
    mountpoint: &Path,
    options: &MountOptions,
    ring: bool,
    on: Option<BlockDevice<'_>>,
) -> Result<Session> {
    let mountpoint = mountpoint.to_owned();
    let root = rustix::process::geteuid().is_root();
    let time_granularity = fs.time_granularity();
    let core = Arc::new(Core::new(fs, options));
    let (writeback_cache, no_open) = (options.writeback_cache, options.no_open);
    let handshake = Handshake {
        writeback_cache,
        no_open,
        idmap: options.idmap,
        lists: !options.private && !options.noxattr,
        ring,
        time_granularity,
        agreed: core.agreed.clone(),
    };
    let buffers = BufferPool::new();
    let first = buffers.take().map_err(Error::NoMemory)?;
    let mounted = match on {
        None => fuser::Session::new(handshake, &mountpoint, &options.to_fuser(root)),
        Some(device) => block::mount(handshake, &mountpoint, options, device),
    };
    let mounted = mounted.map_err(|error| refused(&mountpoint, &error))?;
    core.kernel.set_notifier(mounted.notifier());
    let number = mounts::connection(&mounted)
        .or_else(|| mounts::mounted_on(&mountpoint).map(|mount| mount.device));
    if root && let Some(number) = &number {
        mounts::tune(number);
    }
    let unserved = on.map(|_| Unserved::new(&mountpoint, number.as_deref().unwrap_or_default()));
    let device = mounted.as_fd().try_clone_to_owned().map_err(Error::Connection)?;
    let operations = Arc::new(Operations::new(core.clone()));
    let device = Arc::new(Device::new(device).map_err(|error| Error::Connection(error.into()))?);
    // Through the device then come only requests that nobody waits for.
    let spin = if ring { Duration::ZERO } else { options.spin };
    let threads = options.threads.max(1);
    let servers = Servers::new(device.clone(), operations.clone(), (buffers, first), threads, spin);
    let rings = if ring {
        let connection = Connection {
            fuse: device,
            number: number.clone().unwrap_or_default(),
            mountpoint: mountpoint.clone(),
        };
        Some(start_rings(&core, connection, operations, &servers)?)
    } else {
        None
    };
    let synchronous = core.synchronous.clone();
    let mounted_at = Mounted { point: mountpoint.clone(), device: number.clone(), root };
    let keeper = Keeper::start(core.clone(), mounted_at);
    let stats = FuseStats::new(core.counters.clone(), {
        let (servers, rings) = (servers.clone(), rings.clone());
        move || rings.as_ref().map_or_else(|| servers.load(), |rings| rings.load(servers.load()))
    });
    Ok(Session {
        transport: Box::new(DevFuse {
            mounted: Some(mounted),
            unserved,
            servers,
            rings,
            device: number.clone().unwrap_or_default(),
        }),
        mountpoint,
        device: number,
        stats,
        synchronous,
        keeper,
        closing: core.closing.clone(),
    })
}

/// Registers the rings that the kernel was told of. Without them, every caller would wait for ever.
fn start_rings(
    core: &Core,
    connection: Connection,
    operations: Arc<Operations>,
    servers: &Arc<Servers>,
) -> Result<Arc<Rings>> {
    if !core.agreed(InitFlags::FUSE_OVER_IO_URING) {
        return Err(Error::NoRing(NoRing::NotOffered));
    }
    let number = connection.number.clone();
    let servers = servers.clone();
    Rings::start(connection, operations, move |error| servers.end(Some(error)))
        .map(Arc::new)
        .map_err(|error| {
            // Nobody waits any longer, not even the unmount.
            let _ = mounts::abort(&number);
            Error::NoRing(NoRing::Failed(error))
        })
}

impl Session {
    /// Serves requests until the filesystem is unmounted and all requests are answered. Then it is
    /// time for [`FileSystem::unmount`], also after an error.
    ///
    /// # Errors
    /// [`Error::Connection`] if the connection to the kernel failed, or the system has no thread
    /// that serves it.
    pub fn run(self) -> Result<()> {
        let served = self.transport.serve().map_err(Error::Connection);
        drop(self.keeper);
        served
    }

    /// What is called before the unmount of a mount on a block device returns: it closes the
    /// volume.
    pub fn before_unmounted(&self, close: impl Fn() + Send + Sync + 'static) {
        self.closing.set(Box::new(close));
    }

    /// Something that unmounts from another thread.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.transport.unmounter(&self.mountpoint)
    }

    /// Something that ends it from another thread although it is in use.
    #[must_use]
    pub fn ender(&self) -> Ender {
        self.transport.ender()
    }

    /// Its counters; they stay readable while and after it runs.
    #[must_use]
    pub fn stats(&self) -> FuseStats {
        self.stats.clone()
    }

    /// Which of its changes are synchronous: to follow options that change.
    #[must_use]
    pub fn synchronous(&self) -> Synchronous {
        self.synchronous.clone()
    }

    /// The device number of the mount (`major:minor`). `None` if neither `/proc/self/fdinfo` nor
    /// the mount table can be read.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Where it is mounted (absolute, no symbolic links).
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }
}

fn check_mount_point(path: &Path) -> Result<PathBuf> {
    // A dead FUSE mount answers ENOTCONN to everything.
    let dead = |error: &io::Error| error.kind() == ErrorKind::NotConnected;
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => Error::NoMountPoint(path.to_owned()),
        _ if dead(&error) => Error::DeadMount(path.to_owned()),
        _ => Error::MountPoint { path: path.to_owned(), source: error },
    };
    let absolute = path.canonicalize().map_err(failed)?;
    // Asked first: a live FUSE server may be slow to answer, and need not.
    if let Some(mount) =
        mounts::mounted_on(&absolute).filter(|mount| mount.kind.starts_with("fuse"))
    {
        if fs::metadata(&absolute).is_err_and(|error| dead(&error)) {
            return Err(Error::DeadMount(path.to_owned()));
        }
        return Err(Error::Busy { path: path.to_owned(), source_name: mount.source });
    }
    if fs::metadata(&absolute).map_err(failed)?.is_dir() {
        Ok(absolute)
    } else {
        Err(Error::NotDirectory(path.to_owned()))
    }
}

fn check_device() -> Result<()> {
    match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Ok(()),
        Err(error) => Err(match Errno::from_io_error(&error) {
            Some(Errno::ACCESS | Errno::PERM) => Error::NoPermission,
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Error::NoDevice,
            _ => Error::Device(error),
        }),
    }
}

fn refused(mountpoint: &Path, error: &io::Error) -> Error {
    let text = error.to_string();
    if text.contains("user_allow_other") {
        return Error::AllowOther;
    }
    // Only starting `fusermount3` fails like this once the mount point and the device are known to
    // be there.
    if error.kind() == ErrorKind::NotFound {
        return Error::NoHelper;
    }
    let reason = text.trim().lines().last().unwrap_or("refused without a reason");
    let reason = reason.split(" (os error").next().unwrap_or(reason).to_owned();
    let advice = system_error::remedy(error).unwrap_or_else(|| advice(&reason));
    Error::Refused { path: mountpoint.to_owned(), reason, advice }
}

/// What helps, by the words of the kernel and of `fusermount3`.
const ADVICE: [(&str, &str); 6] = [
    ("write access", "mount on a directory that belongs to you, or run as root"),
    ("not owner", "mount on a directory that belongs to you, or run as root"),
    ("over filesystem type", "mount on a directory of another filesystem, or run as root"),
    ("mount_max", "unmount others first, or raise mount_max in /etc/fuse.conf"),
    ("ermission denied", "give a directory that you may enter, or run as root"),
    ("not permitted", "run as root, and in a container with `--cap-add SYS_ADMIN`"),
];

fn advice(reason: &str) -> &'static str {
    let known = ADVICE.iter().find(|(words, _)| reason.contains(words));
    known.map_or("see what `dmesg` says, or try another mount point", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_mount_points_are_named_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        let missing = check_mount_point(&dir.path().join("none")).unwrap_err();
        assert!(matches!(missing, Error::NoMountPoint(_)) && missing.to_string().contains("mkdir"));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(check_mount_point(&file), Err(Error::NotDirectory(_))));
        assert_eq!(check_mount_point(dir.path()).unwrap(), dir.path().canonicalize().unwrap());
    }

    #[test]
    fn refusals_are_one_line() {
        let path = Path::new("/mnt");
        let error = refused(
            path,
            &io::Error::other(
                "fusermount3: option allow_other only allowed if 'user_allow_other' is set",
            ),
        );
        assert!(matches!(error, Error::AllowOther));
        let error = refused(path, &io::Error::other("first\nfusermount3: no access to /mnt\n"));
        assert!(
            error
                .to_string()
                .starts_with("cannot mount on /mnt: fusermount3: no access to /mnt: see what"),
            "{error}"
        );
    }

    #[test]
    fn refusals_say_what_to_do() {
        let said =
            |text: &str| refused(Path::new("/mnt"), &io::Error::other(text.to_owned())).to_string();
        for (text, advice) in [
            ("fusermount3: user has no write access to mountpoint /mnt", "belongs to you"),
            (
                "fusermount3: mounting over filesystem type 0x00009fa0 is forbidden",
                "another filesystem",
            ),
            (
                "fusermount3: too many FUSE filesystems mounted; mount_max=N can be set in \
                 /etc/fuse.conf",
                "unmount others",
            ),
            ("fusermount3: mount failed: Operation not permitted", "SYS_ADMIN"),
            ("fusermount3: bad mount point /mnt: Permission denied", "may enter"),
        ] {
            assert!(said(text).contains(advice), "{}", said(text));
        }
        let many = refused(Path::new("/mnt"), &Errno::MFILE.into()).to_string();
        assert_eq!(many, "cannot mount on /mnt: Too many open files: raise `ulimit -n`");
    }
}
