//! An empty server: what FUSE itself costs.
//!
//! It answers requests from a tree of names. It uses no filesystem and no cache. The kernel sends
//! it what it sends to Cairn, or as few requests as possible ([`Requests`]). One thread reads
//! `/dev/fuse`, or one thread for each processor serves a ring: then a lock guards the tree.

mod answer;
mod device;
mod ring;
mod tree;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::MountOption;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::handshake::Handshake;
use crate::mounts;
use crate::options::MountOptions;
use answer::Answerer;
pub use answer::{Empty, Requests};

/// Mounts the empty server and serves until it is unmounted. `statfs` tells how many requests there
/// were so far, as the number of free inodes.
///
/// # Errors
/// The kernel refuses the mount or the rings, or the connection breaks.
pub fn serve_empty(mountpoint: &Path, empty: Empty) -> Result<()> {
    if empty.ring {
        crate::ring::probe().map_err(Error::NoRing)?;
    }
    let root = rustix::process::geteuid().is_root();
    let options = MountOptions {
        source: "empty".into(),
        writeback_cache: true,
        no_open: empty.requests == Requests::Fewest,
        ..MountOptions::default()
    };
    let handshake = Handshake {
        writeback_cache: options.writeback_cache,
        no_open: options.no_open,
        // They imply `default_permissions`.
        lists: empty.requests == Requests::AsCairn,
        ring: empty.ring,
        time_granularity: Duration::from_nanos(1),
        agreed: Arc::new(OnceLock::new()),
        ..Handshake::default()
    };
    let mut config = options.to_fuser(root);
    if empty.requests == Requests::Fewest {
        config.mount_options.retain(|option| *option != MountOption::DefaultPermissions);
    }
    let session = fuser::Session::new(handshake, mountpoint, &config).map_err(Error::Connection)?;
    if root && let Some(number) = mounts::connection(&session) {
        mounts::tune(&number);
    }
    let device = session.as_fd().try_clone_to_owned().map_err(Error::Connection)?;
    let answerer = Mutex::new(Answerer::new(empty));
    let served = if empty.ring {
        ring::serve(&device, &answerer)
    } else {
        device::serve(&device, &answerer).map_err(Into::into)
    };
    served.map_err(Error::Connection)?;
    // Unmounted already: see `DevFuse`.
    std::mem::forget(session);
    Ok(())
}
