//! What all requests share.
//!
//! FUSE calls the root node 1; a filesystem calls it what it likes (ext4: 2). The two numbers are swapped on the way, so that
//! every inode has a node.
//!
//! A panic in an operation is one of our own invariants broken: the caller gets EIO, the volume is shut down so that
//! nothing wrong reaches the disk, and the session lives on to be unmounted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::Ino;
use cairn_vfs::walk::NAME_MAX;
use cairn_vfs::{Attributes, Error, FileSystem, Result};
use fuser::{Errno, FileAttr, Generation, INodeNo, Notifier};

use crate::convert;
use crate::counters::Counters;
use crate::options::MountOptions;

/// FUSE's number of the root.
const ROOT_NODE: u64 = 1;

/// Shared by the adapter and the jobs it hands to the pool.
pub(crate) struct Core {
    fs: Arc<dyn FileSystem>,
    root: Ino,
    pub(crate) timeout: Duration,
    pub(crate) no_open: bool,
    pub(crate) writeback_cache: bool,
    notifier: OnceLock<Notifier>,
    pub(crate) counters: Arc<Counters>,
}

impl Core {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, options: &MountOptions) -> Self {
        Self {
            root: fs.root(),
            fs,
            timeout: options.timeout,
            no_open: options.no_open,
            writeback_cache: options.writeback_cache,
            notifier: OnceLock::new(),
            counters: Arc::default(),
        }
    }

    /// Runs one operation: its error becomes an errno, its panic EIO.
    pub(crate) fn run<T>(
        &self,
        what: &'static str,
        operation: impl FnOnce(&dyn FileSystem) -> Result<T>,
    ) -> Result<T, Errno> {
        let _counted = self.counters.begin(what);
        match catch_unwind(AssertUnwindSafe(|| operation(&*self.fs))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.counters.count_error();
                if matches!(error, Error::Corrupt(_) | Error::Io(_)) {
                    tracing::error!("{what}: {error}");
                }
                Err(Errno::from_i32(error.errno()))
            }
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                tracing::error!("{what} panicked, the volume is shut down: {text}");
                let stopped = catch_unwind(AssertUnwindSafe(|| self.fs.shutdown(false)));
                if !matches!(stopped, Ok(Ok(()))) {
                    tracing::error!("the volume could not be shut down");
                }
                Err(Errno::EIO)
            }
        }
    }

    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        // Set once, when the session is made.
        drop(self.notifier.set(notifier));
    }

    /// Lets the kernel write its dirty pages of a file to us: what we know of the file is then true. To be called where requests
    /// can be served meanwhile.
    pub(crate) fn collect_dirty_pages(&self, node: INodeNo) {
        if let Some(notifier) = self.notifier.get().filter(|_| self.writeback_cache)
            && let Err(error) = notifier.inval_inode(node, 0, 0)
        {
            tracing::debug!("dirty pages of node {node} stay in the kernel: {error}");
        }
    }

    /// The inode of a node.
    pub(crate) fn ino(&self, node: INodeNo) -> Ino {
        Ino(self.swap(node.0))
    }

    /// The node of an inode.
    pub(crate) fn node(&self, ino: Ino) -> INodeNo {
        INodeNo(self.swap(ino.get()))
    }

    fn swap(&self, number: u64) -> u64 {
        match number {
            ROOT_NODE => self.root.get(),
            number if number == self.root.get() => ROOT_NODE,
            number => number,
        }
    }

    /// Attributes and generation for a reply that hands out a node.
    pub(crate) fn entry(&self, found: &Attributes) -> (FileAttr, Generation) {
        (convert::attributes(found, self.node(found.ino)), Generation(found.generation.into()))
    }
}

/// A name's bytes. The kernel lets 1024 of them through.
pub(crate) fn name(name: &OsStr) -> Result<&[u8]> {
    let name = name.as_bytes();
    if name.len() > NAME_MAX { Err(Error::NameTooLong) } else { Ok(name) }
}
