//! What signals do to a daemon. Each signal that would end the process and can be caught (`ENDING`)
//! makes it unmount as `cairn umount` does, and end: no accepted write is lost. SIGXFSZ and SIGPIPE
//! become errors of the call instead (`crate::limits`).
//!
//! If the mount is in use, it cannot be unmounted. Then the daemon writes everything to the disk,
//! so that a kill loses nothing, logs the programs that use the mount, and tries again until they
//! have ended. At the shutdown of a system they end soon after.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cairn::FileSystem;
use cairn_base::thread::spawn;
use cairn_fuse::{Session, Unmounter};
use rustix::process::Signal;
use signal_hook::iterator::{Handle, Signals};

use super::freezing::Freezing;
use super::{table, users};
use crate::failure::plain;

/// Signals that end a process without a handler, except those of its own faults. SIGXCPU comes once
/// a second before the limit (`ulimit -t`) is enforced.
const ENDING: [Signal; 14] = [
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
    Signal::SYS,
];

/// Time between two tries to unmount a mount that is in use.
const PAUSE: Duration = Duration::from_millis(200);

/// Starts the thread that handles the signals, until the handle is closed.
///
/// # Errors
/// A signal handler or the thread could not be made.
pub fn unmount_on_signal(
    session: &Session,
    filesystem: Arc<dyn FileSystem>,
    freezing: Freezing,
) -> std::io::Result<Handle> {
    crate::signals::handled();
    let mut signals = Signals::new(ENDING.map(Signal::as_raw))?;
    let handle = signals.handle();
    let end = End {
        unmounter: session.unmounter(),
        filesystem,
        freezing,
        mountpoint: session.mountpoint().to_owned(),
        device: session.device().unwrap_or_default().to_owned(),
        handle: handle.clone(),
    };
    spawn("signals", move || {
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
    freezing: Freezing,
    mountpoint: std::path::PathBuf,
    device: String,
    handle: Handle,
}

impl End {
    /// Unmounts. False if the mount is in use, which has been logged.
    fn begin(&self) -> bool {
        // Programs that wait for the thaw keep the mount in use.
        drop(self.freezing.end());
        // The users are looked up before the unmount, because an ordinary user's mount is detached
        // although it is in use.
        let users = users::of(&self.mountpoint, &self.device, None);
        let unmounted = self.unmounter.unmount();
        let left = if unmounted.is_ok() { users::copies(&self.device) } else { Vec::new() };
        let point = self.mountpoint.display();
        match (unmounted, users::listed(if left.is_empty() { &users } else { &left })) {
            (Ok(()), None) => return true,
            (Ok(()), Some(users)) => {
                tracing::warn!(
                    "{point} is unmounted, but its daemon ends only when these no longer use it: \
                     {users}"
                );
            }
            (Err(_), Some(users)) => tracing::warn!(
                "{point} is in use and will be unmounted when these have ended (cairn umount \
                 --force ends it now): {users}"
            ),
            (Err(error), None) => {
                tracing::warn!("{point} cannot be unmounted yet: {}", plain(&error))
            }
        }
        self.commit();
        !table_has(&self.mountpoint, &self.device)
    }

    /// Writes everything to the disk, the kernel's pages first.
    fn commit(&self) {
        if table_has(&self.mountpoint, &self.device)
            && let Err(error) =
                std::fs::File::open(&self.mountpoint).and_then(|root| Ok(rustix::fs::syncfs(root)?))
        {
            tracing::warn!("the kernel was not asked for its dirty pages: {}", plain(&error));
        }
        // If the mount has ended meanwhile, the volume may be closed: that has written everything,
        // or says why not.
        if let Err(error) = self.filesystem.sync()
            && !self.handle.is_closed()
        {
            tracing::error!("not everything could be written: {error}");
        }
    }
}

fn table_has(mountpoint: &Path, device: &str) -> bool {
    table::find(mountpoint).ok().flatten().is_some_and(|mount| mount.device == device)
}
