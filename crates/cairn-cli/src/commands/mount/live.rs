//! The daemon's answers on the control channel: the report about the mount, changes of options,
//! freezing.
//!
//! The mount, the volume and (for `ro`) the kernel check a change before any of them applies it.
//! The kernel turns read-only before the volume and writable after it, so that the volume never
//! gets a write that it must refuse.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cairn::FileSystem;
use cairn_base::stats::Report;
use cairn_fuse::control::{Control, Hold};
use cairn_fuse::{Ender, FuseStats, MountOptions as FuseOptions, Session, Synchronous};

use super::freezing::Freezing;
use super::options::Changes;
use super::resident;
use super::table::{self, Mount};
use crate::failure::plain;
use crate::log_ring;

/// How long a freeze waits for requests. Later requests wait for the thaw.
const SETTLING: Duration = Duration::from_secs(2);

/// A live mount, as the control channel sees it.
pub struct Live {
    filesystem: Arc<dyn FileSystem>,
    freezing: Freezing,
    stats: FuseStats,
    image: String,
    mountpoint: PathBuf,
    /// `major:minor` of the mount.
    device: Option<String>,
    ender: Ender,
    synchronous: Synchronous,
    started: Instant,
    root: bool,
    /// The mount's own options. The mutex is held from reading the old options to applying the new
    /// ones.
    options: Mutex<FuseOptions>,
}

impl Live {
    /// A mount that has just been made with these options.
    #[must_use]
    pub fn new(
        filesystem: Arc<dyn FileSystem>,
        freezing: Freezing,
        session: &Session,
        options: &FuseOptions,
    ) -> Self {
        let root = rustix::process::geteuid().is_root();
        let image = options.source.clone();
        let options = Mutex::new(options.settled(root));
        let mountpoint = session.mountpoint().to_owned();
        Self {
            filesystem,
            freezing,
            stats: session.stats(),
            image,
            mountpoint,
            device: session.device().map(ToOwned::to_owned),
            ender: session.ender(),
            synchronous: session.synchronous(),
            started: Instant::now(),
            root,
            options,
        }
    }

    /// Takes over options that were changed without the daemon (`mount -i -o remount,ro`): the
    /// volume gets no request for that. Without `/proc` the options stay as they were.
    fn follow_kernel(&self, options: &mut FuseOptions) {
        let is_ours = |mount: &Mount| {
            Some(&mount.device) == self.device.as_ref() && mount.point == self.mountpoint
        };
        let Some(mount) = table::all().ok().and_then(|all| all.into_iter().find(is_ours)) else {
            return;
        };
        let has = |flag: &str| mount.flags.iter().any(|set| set == flag);
        options.read_only = mount.read_only;
        options.suid = Some(!has("nosuid"));
        options.dev = Some(!has("nodev"));
        options.exec = !has("noexec");
        if self.root {
            options.noatime = has("noatime");
        }
        options.sync = has("sync");
        options.dirsync = has("dirsync");
    }

    fn apply(&self, old: &FuseOptions, new: &FuseOptions, volume: &str) -> Result<(), String> {
        let to_volume =
            |list: &str| self.filesystem.remount(list).map_err(|error| error.to_string());
        let to_kernel = |options: &FuseOptions| match self.needs_kernel(old, new) {
            true => {
                cairn_fuse::remount(&self.mountpoint, options).map_err(|error| error.to_string())
            }
            false => Ok(()),
        };
        let opens = old.read_only && !new.read_only;
        if opens {
            to_volume(volume)?;
        }
        to_kernel(new).inspect_err(|_| {
            if opens && let Err(error) = self.filesystem.remount("ro") {
                tracing::error!("the volume could not be turned read-only again: {error}");
            }
        })?;
        if opens {
            return Ok(());
        }
        to_volume(volume).inspect_err(|_| {
            if let Err(error) = to_kernel(old) {
                tracing::error!("the flags of the mount could not be restored: {error}");
            }
        })
    }

    /// Makes the kernel send its dirty pages. The kernel does not wait until they have arrived, but
    /// it waits for those that are on their way already: without an end if the volume is frozen.
    fn take_dirty_pages(&self) {
        if let Err(error) =
            File::open(&self.mountpoint).and_then(|root| Ok(rustix::fs::syncfs(root)?))
        {
            tracing::warn!("the kernel was not asked for its dirty pages: {}", plain(&error));
        }
        self.stats.settle(SETTLING);
    }

    /// True if the kernel's flags must change. `noatime` of a user's mount is not among them.
    fn needs_kernel(&self, old: &FuseOptions, new: &FuseOptions) -> bool {
        let mut old = old.clone();
        if !self.root {
            old.noatime = new.noatime;
        }
        old.changes_kernel(new)
    }
}

impl Control for Live {
    fn stats(&self) -> Report {
        let mut report = Report::new();
        report
            .section("mount")
            .set("image", self.image.as_str())
            .set("mountpoint", &*self.mountpoint.to_string_lossy())
            .set("pid", std::process::id())
            .set("version", env!("CARGO_PKG_VERSION"))
            .set("uptime_s", self.started.elapsed().as_secs());
        resident::report(report.section("mount"));
        report.merge(self.filesystem.report());
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.follow_kernel(&mut options);
        let options = options.report(self.root);
        report.section("options").set("mount", options);
        report.set("fuse", self.stats.report());
        for (number, volume) in (1..).zip(cairn::objects::reports()) {
            let further = if number == 1 { String::new() } else { number.to_string() };
            report.set(&format!("object_volume{further}"), volume);
        }
        report.set("log", log_ring::report());
        report
    }

    fn remount(&self, list: &str) -> Result<(), String> {
        let _alone = self.freezing.alone();
        let mut current = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        self.follow_kernel(&mut current);
        let Changes { fuse, volume, .. } = Changes::parse(&current, list)?;
        if let Some(name) = current.fixed_change(&fuse) {
            return Err(format!(
                "{name} cannot be changed on a live mount: unmount and mount again"
            ));
        }
        if !self.root && self.needs_kernel(&current, &fuse) {
            return Err(cairn_fuse::Error::RemountAsUser.to_string());
        }
        self.filesystem.check_remount(&volume).map_err(|error| error.to_string())?;
        self.apply(&current, &fuse, &volume)?;
        self.synchronous.follow(&fuse);
        *current = fuse;
        tracing::info!("options changed: {list}");
        Ok(())
    }

    fn freeze(&self, limit: Option<Duration>, is_awaited: &dyn Fn() -> bool) -> Result<(), String> {
        self.freezing.freeze(limit, is_awaited, || self.take_dirty_pages())
    }

    fn hold(&self, is_awaited: &dyn Fn() -> bool) -> Result<Box<dyn Hold>, String> {
        let held = self.freezing.hold(is_awaited, || self.take_dirty_pages())?;
        Ok(Box::new(held))
    }

    fn thaw(&self) -> Result<(), String> {
        self.freezing.thaw()
    }

    fn end(&self) -> Result<(), String> {
        let _alone = self.freezing.end();
        self.take_dirty_pages();
        tracing::info!("the mount is ended by force, as asked: programs that use it get errors");
        self.ender.end();
        Ok(())
    }
}
