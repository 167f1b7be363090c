//! How requests arrive and answers go back.
//!
//! fuser mounts. [`Servers`] reads `/dev/fuse`: everything, or what does not come through
//! [`Rings`]. All else sees a [`Transport`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::handshake::Handshake;
use crate::mounts;
use crate::ring::Rings;
use crate::servers::Servers;

/// A mounted connection.
pub(crate) trait Transport: Send {
    /// Serves requests until unmounted.
    fn serve(self: Box<Self>) -> io::Result<()>;

    /// Something that unmounts from another thread.
    fn unmounter(&self, mountpoint: &Path) -> Unmounter;

    /// Something that ends it from another thread although it is in use.
    fn ender(&self) -> Ender;
}

/// Unmounts a session from another thread, such as a signal handler's.
///
/// Not fuser's own, which tries once: after that it reports success without doing anything.
#[derive(Clone)]
pub struct Unmounter {
    mountpoint: PathBuf,
    device: String,
}

impl Unmounter {
    /// Of the mount with this number (`major:minor`).
    pub(crate) fn new(mountpoint: &Path, device: String) -> Self {
        Self { mountpoint: mountpoint.to_owned(), device }
    }

    /// Unmounts if the mount still exists; [`crate::Session::run`] then returns. Refused while the
    /// mount is in use.
    ///
    /// # Errors
    /// The mount is in use, something is mounted over it, or the process may not unmount it.
    pub fn unmount(&self) -> io::Result<()> {
        mounts::unmount(&self.mountpoint, &self.device)
    }
}

/// Ends a session from another thread although it is mounted and in use: programs with open files
/// on it get errors.
#[derive(Clone)]
pub struct Ender {
    servers: Arc<Servers>,
    rings: Option<Arc<Rings>>,
    device: String,
}

impl Ender {
    /// Serves no further request; [`crate::Session::run`] then returns. What the kernel has not
    /// written is lost: it is asked for that before.
    pub fn end(&self) {
        // Requests that wait in the kernel fail now, or when this process ends.
        if let Err(error) = mounts::abort(&self.device) {
            tracing::debug!("the connection is not aborted: {error}");
            self.rings.iter().for_each(|rings| rings.end());
        }
        self.servers.end(None);
    }

    /// A ring fails.
    #[cfg(test)]
    pub(crate) fn fail_ring(&self, may_abort: bool) {
        self.rings.iter().for_each(|rings| rings.fail(may_abort));
    }
}

/// Dropped, it unmounts a mount on a block device: it was made, and never served.
pub(crate) struct Unserved(Option<Unmounter>);

impl Unserved {
    pub(crate) fn new(mountpoint: &Path, device: &str) -> Self {
        Self(Some(Unmounter::new(mountpoint, device.to_owned())))
    }

    /// It was served, and is unmounted.
    pub(crate) fn was_served(mut self) {
        self.0 = None;
    }
}

impl Drop for Unserved {
    fn drop(&mut self) {
        let Some(mount) = &self.0 else { return };
        // The unmount would wait for an answer.
        if let Err(error) = mounts::abort(&mount.device).and_then(|()| mount.unmount()) {
            tracing::warn!("a mount that nobody serves stays: {error}: unmount it");
        }
    }
}

/// `/dev/fuse`, with or without rings.
pub(crate) struct DevFuse {
    /// Dropped, it unmounts whatever is mounted on its path, unless that is a block device's.
    pub(crate) mounted: Option<fuser::Session<Handshake>>,
    pub(crate) unserved: Option<Unserved>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) rings: Option<Arc<Rings>>,
    /// `major:minor`.
    pub(crate) device: String,
}

impl Transport for DevFuse {
    fn serve(mut self: Box<Self>) -> io::Result<()> {
        self.rings.iter().for_each(|rings| rings.serve());
        let served = self.servers.serve();
        if let Some(rings) = &self.rings {
            if served.is_err() {
                rings.end();
            }
            rings.finish()?;
        }
        served?;
        // After `serve` it is unmounted. Dropping fuser's session would unmount the path once more:
        // it would fail with a warning, or unmount another filesystem that was mounted there
        // meanwhile. The cost is one descriptor of a dead connection.
        std::mem::forget(self.mounted.take());
        if let Some(unserved) = self.unserved.take() {
            unserved.was_served();
        }
        Ok(())
    }

    fn unmounter(&self, mountpoint: &Path) -> Unmounter {
        Unmounter::new(mountpoint, self.device.clone())
    }

    fn ender(&self) -> Ender {
        Ender {
            servers: self.servers.clone(),
            rings: self.rings.clone(),
            device: self.device.clone(),
        }
    }
}

impl Drop for DevFuse {
    fn drop(&mut self) {
        // Threads that have never served, too, end with the connection.
        self.rings.iter().for_each(|rings| rings.end());
    }
}
