//! Unmounting a frozen volume. The kernel would wait, without an end, to write its dirty pages. So
//! the volume is thawed first, but only if no program uses the mount: the program that froze it may
//! be copying the image. An unmount that is refused leaves the volume frozen. `--lazy` and
//! `--force` unmount in any case, so they thaw in any case.
//!
//! The end of a copy in another mount namespace than the daemon's ends nothing: the volume stays
//! mounted there, and frozen.

use cairn_base::shell::quoted;
use cairn_base::stats::{Report, Value};
use cairn_fuse::control::Client;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::{in_use, wait};
use crate::commands::live_mount;
use crate::commands::mount::table::Mount;
use crate::commands::mount::users;
use crate::failure::{Failure, Outcome, Status};
use crate::output;

/// Thaws a volume that is about to be unmounted.
///
/// # Errors
/// The mount is in use.
pub(super) fn thaw(mount: &Mount) -> Outcome {
    let client = || live_mount::daemon(mount);
    let Some(stats) = client().and_then(Client::stats).ok().filter(is_frozen) else {
        return Ok(());
    };
    if wait::stays_elsewhere(mount) {
        return Ok(());
    }
    let (point, word) = (mount.point.display(), quoted(&mount.point));
    if let Some(users) = users::listed(&in_use::users(mount)) {
        let message = format!(
            "{point}: in use by {users}, and frozen: end this use, after `cairn thaw {word}` if \
             it waits for that, or give --force (programs get errors) or --lazy (the daemon goes \
             on)"
        );
        return Err(Failure::new(Status::Busy, message));
    }
    if is_in_a_call(mount, &stats) {
        let message = format!(
            "{point}: the volume is frozen, and a call waits for the thaw, which no signal ends: \
             run `cairn thaw {word}` first"
        );
        return Err(Failure::new(Status::Busy, message));
    }
    client().and_then(Client::thaw).map_err(|error| live_mount::failure(&mount.point, &error))
}

/// Thaws a volume before an unmount that does not wait for its users. Afterwards no command could
/// reach the mount to thaw it, and its users would wait for ever. `--force` also ends the daemon of
/// a copy.
///
/// # Errors
/// The daemon did not thaw it.
pub(super) fn end(mount: &Mount, by_force: bool) -> Outcome {
    let client = || live_mount::daemon(mount);
    // Without a daemon that answers, there is no freeze to end.
    if !client().and_then(Client::stats).is_ok_and(|stats| is_frozen(&stats)) {
        return Ok(());
    }
    if !by_force && wait::stays_elsewhere(mount) {
        return Ok(());
    }
    let point = mount.point.display();
    match client().and_then(Client::thaw) {
        Ok(()) => output::complain(format_args!("{point}: it was frozen, and is thawed now")),
        // Another process has thawed it, or it has stopped and is no longer frozen.
        Err(_) if !client().and_then(Client::stats).is_ok_and(|stats| is_frozen(&stats)) => {}
        Err(error) => return Err(live_mount::failure(&mount.point, &error)),
    }
    Ok(())
}

fn is_frozen(stats: &Report) -> bool {
    stats.get("state.frozen") == Some(&Value::Bool(true))
}

/// True if a call is in progress on the mount. A program that waits in a call may have no file open
/// yet. Root asks the kernel: with `MNT_EXPIRE` it unmounts only a mount without a use since the
/// last such question, and answers EBUSY for one in use. Other users ask the daemon how many
/// requests wait for an answer.
fn is_in_a_call(mount: &Mount, stats: &Report) -> bool {
    // Opening the mount point removes the kernel's expiry mark of an earlier question. The daemon
    // gets no request for it.
    let clear_mark = || {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        drop(rustix::fs::open(&mount.point, flags, Mode::empty()));
    };
    clear_mark();
    let told = unmount(&mount.point, UnmountFlags::EXPIRE | UnmountFlags::NOFOLLOW);
    clear_mark();
    match told {
        Err(Errno::BUSY) => true,
        Err(Errno::PERM) => stats.u64("fuse.queue_now").is_some_and(|waiting| waiting > 0),
        _ => false,
    }
}
