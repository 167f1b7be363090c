//! Runs a program as an ordinary user, from a test that is root.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cairn_testkit::judge;
use cairn_testkit::place::Place;

/// `nobody`, everywhere.
pub const USER: u32 = 65534;
const SETPRIV: [&str; 5] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
/// Makes `/dev/fuse` open to all users, as on most machines, in its own mount namespace. The first
/// argument is a directory.
const OPENS_FUSE: &str = "set -e; mount -t tmpfs -o mode=755 device \"$0\"; \
    mknod \"$0/fuse\" c 10 229; chmod 666 \"$0/fuse\"; mount --bind \"$0/fuse\" /dev/fuse; \
    exec \"$@\"";

/// A program where an ordinary user can reach it, which may not be where cargo builds.
#[derive(Debug)]
pub struct Reachable {
    /// The program.
    pub program: PathBuf,
    device: PathBuf,
    opens_fuse: String,
    _place: Place,
}

impl Reachable {
    /// A copy of a program.
    pub fn copy(program: &Path) -> Self {
        let place = Place::new();
        set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let device = place.path().join("device");
        std::fs::create_dir(&device).unwrap();
        let copy = place.path().join("cairn");
        judge::copy_program(program, &copy);
        let opens_fuse = [judge::FORGET_MOUNTS, OPENS_FUSE].concat();
        Self { program: copy, device, opens_fuse, _place: place }
    }

    /// The words before a command that the user runs, who may mount if that is asked for.
    pub fn words(&self, mounts: bool) -> Vec<&str> {
        let run = ["sh", "-c", &self.opens_fuse, self.device.to_str().unwrap()];
        let apart = ["unshare", "--mount", "--propagation", "private"].into_iter().chain(run);
        apart.filter(|_| mounts).chain(SETPRIV).collect()
    }
}
