//! A model mounted for a test.
//!
//! The tests need root and `/dev/fuse`; without them they fail and say so.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_base::stats::Report;
use cairn_fuse::{Ender, FuseStats, MountOptions, TransportChoice, Unmounter};
use cairn_testkit::model::Model;
use cairn_testkit::uring;
use cairn_vfs::FileSystem;

use crate::hooked::Hooked;

/// Time limit for a mount that a starting child process uses.
const PATIENCE: Duration = Duration::from_secs(20);

/// A mounted model, served by threads of this process. Threads of this process that use the mount
/// are others.
pub struct Mounted {
    fs: Arc<Hooked>,
    dir: tempfile::TempDir,
    unmounter: Unmounter,
    ender: Ender,
    stats: FuseStats,
    server: Option<JoinHandle<cairn_fuse::Result<()>>>,
}

/// The ways to mount that each test of the calls goes through.
pub fn ways() -> Vec<MountOptions> {
    let through = MountOptions {
        writeback_cache: false,
        no_open: true,
        threads: 1,
        ..MountOptions::new("model")
    };
    let private =
        MountOptions { private: true, allow_other: Some(false), ..MountOptions::new("model") };
    [MountOptions::new("model"), through, private].into_iter().chain(ring()).collect()
}

/// Both transports.
pub fn both() -> Vec<MountOptions> {
    [MountOptions::new("model")].into_iter().chain(ring()).collect()
}

/// Through rings, if this machine has them.
pub fn ring() -> Option<MountOptions> {
    uring::allow()
        .map(|_| MountOptions { transport: TransportChoice::Ring, ..MountOptions::new("model") })
}

/// Mounts. Fails if mounts are impossible.
pub fn require_mounting() {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests need root, to mount: run them with sudo"
    );
    assert!(
        Path::new("/dev/fuse").exists(),
        "/dev/fuse is missing: modprobe fuse; in a container, give it --device /dev/fuse --cap-add \
         SYS_ADMIN"
    );
}

impl Mounted {
    pub fn new() -> Self {
        Self::with(&MountOptions::new("model"))
    }

    pub fn with(options: &MountOptions) -> Self {
        Self::of(Model::new(), options)
    }

    pub fn of(model: Model, options: &MountOptions) -> Self {
        Self::hooked(model, options, |_| {})
    }

    /// Runs `before` ahead of each call of the filesystem.
    pub fn hooked(
        model: Model,
        options: &MountOptions,
        before: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Self {
        let fs = Arc::new(Hooked { model, before: Box::new(before) });
        let dir = tempfile::tempdir().unwrap();
        let allowed = (options.transport == TransportChoice::Ring).then(uring::allow);
        let session = cairn_fuse::mount(fs.clone(), dir.path(), options).unwrap();
        drop(allowed);
        let (unmounter, ender, stats) = (session.unmounter(), session.ender(), session.stats());
        let server = std::thread::spawn(move || session.run());
        Self { fs, dir, unmounter, ender, stats, server: Some(server) }
    }

    pub fn model(&self) -> &Model {
        &self.fs.model
    }

    pub fn stats(&self) -> Report {
        self.stats.report()
    }

    /// Ends the connection although the mount is in use.
    pub fn end(&self) {
        self.ender.end();
    }

    /// Detaches the mount; it lives on while it is in use.
    pub fn detach(&self) {
        let done = Command::new("umount").arg("-l").arg(self.dir.path()).status().unwrap();
        assert!(done.success());
    }

    /// Waits for the server; its counters at the end.
    pub fn wait(mut self) -> Report {
        self.server.take().unwrap().join().unwrap().unwrap();
        let _ = Command::new("umount").arg("-ql").arg(self.dir.path()).status();
        self.model().check();
        self.stats()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts, waits for the server, and checks the model.
    pub fn finish(self) {
        self.count();
    }

    /// As [`Mounted::finish`]; its counters at the end.
    pub fn count(self) -> Report {
        let started = Instant::now();
        while let Err(error) = self.unmounter.unmount() {
            // A child process of another test has copies of this process's open files until it
            // calls exec.
            let passing = error.kind() == ErrorKind::ResourceBusy && started.elapsed() < PATIENCE;
            assert!(passing, "unmount: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let fs = self.fs.clone();
        let counted = self.wait();
        fs.model.unmount().unwrap();
        fs.model.check();
        counted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a failure: removes the mount.
        if self.server.is_some() {
            let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
        }
    }
}
