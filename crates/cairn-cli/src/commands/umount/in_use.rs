//! The error of a mount that is in use.

use crate::commands::live_mount;
use crate::commands::mount::table::Mount;
use crate::commands::mount::users::{self, User};
use crate::failure::{Failure, Status};

/// What uses the mount, apart from its own daemon.
pub(super) fn users(mount: &Mount) -> Vec<User> {
    let client = live_mount::daemon(mount).ok();
    users::of(&mount.point, &mount.device, client.and_then(|client| client.daemon()))
}

/// `umount` fails, because these programs use the mount.
pub(super) fn failure(mount: &Mount) -> Failure {
    let users = users::listed(&users(mount));
    let users = users.unwrap_or_else(|| unseen().to_owned());
    let point = mount.point.display();
    let message = format!(
        "{point}: in use by {users}: end this use, or give --force (programs get errors) or --lazy \
         (the daemon goes on)"
    );
    Failure::new(Status::Busy, message)
}

/// What to say if the mount is in use and no user is found.
fn unseen() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "what /proc does not show (a call on its way, an NFS export, a process of another \
         container)"
    } else {
        "a program that only root can see"
    }
}
