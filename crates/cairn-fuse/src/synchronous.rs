//! `sync` and `dirsync`: what a call has changed is on the disk when it returns.
//!
//! The kernel asks for an fsync after each write to a mount with `sync`, and leaves names and
//! attributes to us. Names are durable as an fsync of their directory makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::options::MountOptions;

/// Which changes are synchronous; it can be changed while requests are served.
#[derive(Clone, Debug, Default)]
pub struct Synchronous(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    names: AtomicBool,
    attributes: AtomicBool,
}

impl Synchronous {
    /// As these options say, from now on.
    pub fn follow(&self, options: &MountOptions) {
        self.0.names.store(options.sync || options.dirsync, Ordering::Relaxed);
        self.0.attributes.store(options.sync, Ordering::Relaxed);
    }

    /// Names are: those who change them wait for the disk.
    pub(crate) fn names(&self) -> bool {
        self.0.names.load(Ordering::Relaxed)
    }

    /// Attributes are.
    pub(crate) fn attributes(&self) -> bool {
        self.0.attributes.load(Ordering::Relaxed)
    }
}
