//! `sync` and `dirsync`: the changes of a call are on the disk when it returns.
//!
//! The kernel asks for an fsync after each write to a mount with `sync`, and leaves names and
//! attributes to the server. An fsync of the directory makes a name durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::options::MountOptions;

/// Which changes are synchronous. Can be changed while requests are served.
#[derive(Clone, Debug, Default)]
pub struct Synchronous(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    names: AtomicBool,
    attributes: AtomicBool,
}

impl Synchronous {
    /// Sets it from these options.
    pub fn follow(&self, options: &MountOptions) {
        self.0.names.store(options.sync || options.dirsync, Ordering::Relaxed);
        self.0.attributes.store(options.sync, Ordering::Relaxed);
    }

    /// Changes of names wait for the disk.
    pub(crate) fn names(&self) -> bool {
        self.0.names.load(Ordering::Relaxed)
    }

    /// Changes of attributes wait for the disk.
    pub(crate) fn attributes(&self) -> bool {
        self.0.attributes.load(Ordering::Relaxed)
    }
}
