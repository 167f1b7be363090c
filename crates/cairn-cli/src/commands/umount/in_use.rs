//! What is said of a mount that is in use.

use crate::commands::mount::table::Mount;
use crate::commands::mount::users;
use crate::failure::{Failure, Status};

/// It cannot be unmounted, because of these users.
pub fn failure(mount: &Mount) -> Failure {
    let users = users::listed(&users::of(&mount.point, &mount.device));
    let users = users.unwrap_or_else(|| unseen().to_owned());
    let point = mount.point.display();
    let message = format!(
        "{point}: in use by {users}: end that, or use --force (they get errors) or --lazy (the daemon goes on)"
    );
    Failure::new(Status::Busy, message)
}

/// Somebody who is not found.
fn unseen() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "what /proc does not show (a call on its way, an NFS export, a process of another container)"
    } else {
        "somebody whom only root can see"
    }
}
