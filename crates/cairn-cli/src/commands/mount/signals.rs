//! What signals do to a daemon. Whatever would end the process and can be caught ([`ENDING`]) makes
//! it unmount as `cairn umount` does, and end: nothing that it has accepted is lost. What says that
//! a file or a pipe is at its end is an error of the call instead (`crate::limits`).
//!
//! While somebody uses the mount it cannot: then everything is brought to the disk, so that nothing
//! is lost whatever comes next, who uses it is said, and it is tried again until they have gone. At
//! the shutdown of a system the users end a moment later.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cairn::FileSystem;
use cairn_fuse::Unmounter;
use rustix::process::Signal;
use signal_hook::iterator::{Handle, Signals};

use super::{table, users};
use crate::failure::plain;

/// Signals that end a process that does not know them, but for those of its own faults. SIGXCPU
/// comes once a second before the limit (`ulimit -t`) is enforced.
const ENDING: [Signal; 13] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
];

/// Between two tries to unmount what is in use.
const PAUSE: Duration = Duration::from_millis(200);

/// Starts the thread that takes the signals, until the handle is closed.
///
/// # Errors
/// The system does not allow a signal handler or has no thread.
pub fn unmount_on_signal(
    unmounter: Unmounter,
    filesystem: Arc<dyn FileSystem>,
    mountpoint: &Path,
) -> std::io::Result<Handle> {
    let mut signals = Signals::new(ENDING.map(Signal::as_raw))?;
    let handle = signals.handle();
    let device =
        table::find(mountpoint).ok().flatten().map(|mount| mount.device).unwrap_or_default();
    let end = End { unmounter, filesystem, mountpoint: mountpoint.to_owned(), device };
    thread::Builder::new().name("signals".into()).spawn(move || {
        while !signals.is_closed() {
            if signals.wait().next().is_none() {
                continue;
            }
            let mut left = end.begin();
            while !left && !signals.is_closed() {
                thread::sleep(PAUSE);
                left = if signals.pending().next().is_some() {
                    end.begin()
                } else {
                    end.unmounter.unmount().is_ok()
                };
            }
        }
    })?;
    Ok(handle)
}

struct End {
    unmounter: Unmounter,
    filesystem: Arc<dyn FileSystem>,
    mountpoint: std::path::PathBuf,
    device: String,
}

impl End {
    /// Unmounts; false if it is in use, which has been said.
    fn begin(&self) -> bool {
        // Whoever waits for the volume to be thawed would be in the way. Mostly it is not frozen;
        // that it cannot be written any more shows at its end.
        let _ = self.filesystem.thaw();
        // Before it is detached: an ordinary user's mount is detached although it is in use.
        let users = users::of(&self.mountpoint, &self.device);
        let unmounted = self.unmounter.unmount();
        let left = if unmounted.is_ok() { users::copies(&self.device) } else { Vec::new() };
        let point = self.mountpoint.display();
        match (unmounted, users::listed(if left.is_empty() { &users } else { &left })) {
            (Ok(()), None) => return true,
            (Ok(()), Some(users)) => {
                tracing::warn!(
                    "{point} is unmounted, but its daemon ends only when it is used by nobody: {users}"
                );
            }
            (Err(_), Some(users)) => tracing::warn!(
                "{point} is in use, it is unmounted as soon as it is not (cairn umount --force ends it now): {users}"
            ),
            (Err(error), None) => {
                tracing::warn!("{point} cannot be unmounted yet: {}", plain(&error))
            }
        }
        self.commit();
        !table_has(&self.mountpoint, &self.device)
    }

    /// Brings what there is to the disk, the kernel's pages first.
    fn commit(&self) {
        if table_has(&self.mountpoint, &self.device)
            && let Err(error) =
                std::fs::File::open(&self.mountpoint).and_then(|root| Ok(rustix::fs::syncfs(root)?))
        {
            tracing::warn!("the kernel was not asked for its dirty pages: {}", plain(&error));
        }
        if let Err(error) = self.filesystem.sync() {
            tracing::error!("not everything could be written: {error}");
        }
    }
}

fn table_has(mountpoint: &Path, device: &str) -> bool {
    table::find(mountpoint).ok().flatten().is_some_and(|mount| mount.device == device)
}
