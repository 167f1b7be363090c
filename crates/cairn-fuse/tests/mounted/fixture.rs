//! A model mounted for a test.
//!
//! The tests need root and `/dev/fuse`; without them they fail and say so.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_fuse::{MountOptions, Unmounter};
use cairn_testkit::model::Model;
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
    server: Option<JoinHandle<cairn_fuse::Result<()>>>,
}

/// Mounts. Fails if mounts are impossible.
pub fn require_mounting() {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests need root, to mount: run them with sudo"
    );
    assert!(
        Path::new("/dev/fuse").exists(),
        "/dev/fuse is missing: modprobe fuse; in a container, give it --device /dev/fuse --cap-add SYS_ADMIN"
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
        let session = cairn_fuse::mount(fs.clone(), dir.path(), options).unwrap();
        let unmounter = session.unmounter();
        let server = std::thread::spawn(move || session.run());
        Self { fs, dir, unmounter, server: Some(server) }
    }

    pub fn model(&self) -> &Model {
        &self.fs.model
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts, waits for the server, and checks the model.
    pub fn finish(mut self) {
        let started = Instant::now();
        while let Err(error) = self.unmounter.unmount() {
            // A child process of another test has copies of this process's open files until it
            // calls exec.
            let passing = error.kind() == ErrorKind::ResourceBusy && started.elapsed() < PATIENCE;
            assert!(passing, "unmount: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.server.take().unwrap().join().unwrap().unwrap();
        self.model().check();
        self.model().unmount().unwrap();
        self.model().check();
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
