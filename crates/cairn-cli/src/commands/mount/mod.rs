//! `cairn mount`.
//!
//! Without `-f` the program starts itself again as the daemon and waits for one byte on a pipe,
//! which says that the mount is live. The daemon prints its own error line and its exit status
//! becomes the starter's, so a failed mount looks the same in both modes. (A new process, unlike a
//! fork, inherits no threads and locks.)

mod closing;
pub mod daemon;
pub mod freezing;
mod handover;
pub mod helper;
pub mod kind;
pub mod live;
pub mod options;
mod resident;
pub mod serve;
pub mod signals;
pub mod table;
pub mod users;
pub mod utab;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cairn::{ImageSpec, OpenOptions};
use cairn_base::names::Escaped;
use cairn_base::system_error;

use crate::failure::{Failure, Outcome, Status};
use crate::session::ImageArg;
use crate::{output, print};
use options::MountOptions;
use serve::{Serving, Told, serve};

/// Arguments of `mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn mount -o ro,cache=512M disk.img#2 /mnt

Options (-o, separated by commas):
  any volume  ro rw noatime relatime cache=SIZE max_folio=SIZE
  the mount   allow_other suid nosuid dev nodev exec noexec sync dirsync idmap
              threads=N spin=MICROSECONDS
              loop (root: through a loop device, which sync(2) reaches)
              transport=auto|ring|dev (ring: FUSE over io_uring, after root's
              echo Y > /sys/module/fuse/parameters/enable_uring;
              auto: ring with build where that is done, otherwise dev)
  fewer requests, at a price
              no_open noxattr private nowriteback_cache
              build (for building images: no_open,private,nowriteback_cache)
  ext4        commit=SECONDS noload sb=KIB discard async_checkpoint[=PERCENT]
  f2fs        checkpoint_interval=SECONDS norecovery mode=adaptive|lfs
              device=PATH (a further device of the volume)
docs/options.md has all options, with the kernel's names.

A mount by root is open to all users. A mount by another user is open to this user only, unless \
allow_other is given. The kernel checks permissions on both: on a volume whose root directory \
belongs to uid 0, a user cannot create files, unless with private or build. cairn put and the \
other commands without a mount check none.
In /etc/fstab, after make install: IMAGE DIRECTORY fuse.cairn OPTIONS 0 0")]
pub struct Args {
    /// Mount options; may be repeated.
    #[arg(short = 'o', value_name = "OPTIONS", action = clap::ArgAction::Append)]
    pub options: Vec<String>,
    /// Stay in the foreground. SIGINT, SIGTERM and other signals that end a program unmount.
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Read-only: the same as -o ro.
    #[arg(short = 'r', long)]
    pub read_only: bool,
    /// The expected filesystem: ext4 (or ext2, ext3) or f2fs. By default it is detected.
    #[arg(short = 't', long = "types", value_name = "TYPE", value_parser = kind::parse)]
    pub kind: Option<kind::Kind>,
    /// Tell the starter through standard output that the mount is live (used by the program
    /// itself).
    #[arg(long, hide = true, requires = "foreground")]
    pub announce: bool,
    /// Standard input has the passphrase of the image (used by the program itself).
    #[arg(long, hide = true, requires = "announce")]
    pub asked: bool,
    /// Check everything and mount nothing (`-f` of mount(8)'s helpers).
    #[arg(long, hide = true)]
    pub fake: bool,
    /// Print what was mounted (`-v` of mount(8)'s helpers).
    #[arg(long, hide = true)]
    pub verbose: bool,
    /// Another mount namespace (`-N` of mount(8)'s helpers).
    #[arg(long, hide = true, value_name = "NAMESPACE")]
    pub namespace: Option<OsString>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// The directory to mount on.
    pub mountpoint: PathBuf,
}

/// Mounts.
///
/// # Errors
/// The image or the mount point does not allow it.
pub fn run(args: &Args) -> Outcome {
    if args.namespace.is_some() {
        return Err(Failure::usage(
            "-N: cairn does not change its mount namespace: nsenter --mount=NAMESPACE mount … does",
        ));
    }
    let mut words: Vec<&str> = args.options.iter().flat_map(|list| options::split(list)).collect();
    if args.read_only {
        words.push("ro");
    }
    if words.contains(&"remount") {
        // mount(8) starts its helpers for a remount, too. It repeats the whole line of fstab, so
        // notes about options without effect are left out: they were printed at the mount.
        return super::remount::change(&args.mountpoint, &words.join(",")).map(drop);
    }
    let mut options = MountOptions::parse(&words).map_err(|why| {
        let image = args.image.image.escaped();
        Failure::usage(format!("{image}: {}", why.replace("IMAGE?", &format!("{image}?"))))
    })?;
    options.devices = further_devices(args, &options)?;
    // The path is absolute from here on: the daemon works in another directory, and `umount` finds
    // the image by this name.
    let image = args.image.spec()?.canonical()?;
    let mountpoint = check_mountpoint(&args.mountpoint)?;
    kind::check(args.kind, &image, &options.devices)?;
    if args.fake {
        return look(&image, &options);
    }
    if args.asked {
        let told = crate::passphrase::from_starter();
        let told = told.map_err(|error| Failure::host("the passphrase", &error))?;
        told.into_iter().for_each(|passphrase| cairn::remember_passphrase(&image, passphrase));
    }
    if args.foreground {
        let told = if args.announce { Told::Starter } else { Told::Nobody };
        let (asked, mountpoint) = (open_options(&options), &*mountpoint);
        serve(&Serving {
            image: &image,
            mountpoint,
            options: &options,
            asked,
            told,
            before_mount: &|_| Ok(()),
            before_close: |_| {},
        })
    } else {
        words.retain(|word| !word.starts_with("device="));
        daemon::start(&image, &options.devices, &mountpoint, &words.join(","))?;
        utab::record(&mountpoint);
        if args.verbose {
            let line = format!("cairn: {image} mounted on {}", mountpoint.escaped());
            output::with_stdout(|stdout| writeln!(stdout, "{}", print::harmless(&line)))?;
        }
        Ok(())
    }
}

/// The further devices that were named, as arguments or as options. The paths are absolute, like
/// the image's.
fn further_devices(args: &Args, options: &MountOptions) -> Outcome<Vec<PathBuf>> {
    let named = args.image.devices.iter().chain(&options.devices);
    let canonical =
        |path: &PathBuf| std::fs::canonicalize(path).map_err(|error| Failure::host(path, &error));
    named.map(canonical).collect()
}

fn open_options(options: &MountOptions) -> OpenOptions {
    OpenOptions {
        read_only: options.fuse.read_only,
        hand_over: rustix::process::geteuid().is_root(),
        mount_options: options.volume.clone(),
        devices: options.devices.clone(),
        ..OpenOptions::default()
    }
}

/// Checks what can be checked without mounting.
fn look(image: &ImageSpec, options: &MountOptions) -> Outcome {
    let format = cairn::inspect(image, &options.devices)?.format();
    let open = open_options(options);
    cairn::check_options(format, &open).map_err(|cause| cairn::Error::new(image, cause))?;
    Ok(())
}

fn check_mountpoint(path: &Path) -> Outcome<PathBuf> {
    let failed = |status, why: &str| Failure::new(status, format!("{}: {why}", path.escaped()));
    let canonical = std::fs::canonicalize(path).map_err(|error| match error.raw_os_error() {
        Some(107) => {
            failed(Status::Busy, "a dead FUSE mount is there: run cairn umount on it first")
        }
        Some(2) => failed(Status::Failed, "no such mount point: create the directory first"),
        _ => failed(
            Status::Failed,
            &system_error::with_remedy(&error, "give a directory that you may enter"),
        ),
    })?;
    if super::live_mount::is_dead(&canonical) {
        return Err(failed(
            Status::Busy,
            "a dead FUSE mount is there: run cairn umount on it first",
        ));
    }
    if !canonical.is_dir() {
        return Err(failed(Status::Failed, "the mount point is not a directory: give one"));
    }
    match table::find(&canonical)? {
        Some(mount) => {
            let why = format!(
                "the mount point is in use: {} is mounted there: unmount it first",
                mount.source
            );
            Err(failed(Status::Busy, &why))
        }
        None => Ok(canonical),
    }
}
