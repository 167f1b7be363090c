//! A model mounted for a test.
//!
//! Tests that need `/dev/fuse` say so and pass where it is missing (a build container), unless `CAIRN_REQUIRE_FUSE` is set.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use cairn_fuse::{MountOptions, Session, Unmounter};
use cairn_testkit::model::Model;
use cairn_vfs::FileSystem;

/// A mounted model, served by a thread of this process. All use of the mount from this process is by threads that do not serve it.
pub struct Mounted {
    pub model: Arc<Model>,
    dir: tempfile::TempDir,
    unmounter: Unmounter,
    server: Option<JoinHandle<cairn_fuse::Result<()>>>,
}

/// Whether this machine can mount; says so if not.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    assert!(can || std::env::var_os("CAIRN_REQUIRE_FUSE").is_none(), "no /dev/fuse, or not root");
    if !can {
        eprintln!("not tested: no /dev/fuse, or not root");
    }
    can
}

impl Mounted {
    pub fn new() -> Self {
        Self::with(&MountOptions::new("model"))
    }

    pub fn with(options: &MountOptions) -> Self {
        Self::of(Arc::new(Model::new()), options)
    }

    pub fn of(model: Arc<Model>, options: &MountOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut session: Session = cairn_fuse::mount(model.clone(), dir.path(), options).unwrap();
        let unmounter = session.unmounter();
        let server = std::thread::spawn(move || session.run());
        Self { model, dir, unmounter, server: Some(server) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts, waits for the server, and checks the model.
    pub fn finish(mut self) {
        self.unmounter.unmount().unwrap();
        self.server.take().unwrap().join().unwrap().unwrap();
        self.model.check();
        self.model.unmount().unwrap();
        self.model.check();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a failure: leave no mount behind.
        if self.server.is_some() {
            let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
        }
    }
}
