//! INIT: the settings that are agreed with the kernel before the first request. fuser sends the
//! messages; all policy is here.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::{Filesystem, InitFlags, KernelConfig, Request};

use crate::wire::MAX_WRITE;

/// Background requests of the kernel (readahead, write-back, asynchronous direct I/O) in flight at
/// the same time.
pub(crate) const MAX_BACKGROUND: u16 = 64;

/// The part of a session that fuser asks.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    pub(crate) writeback_cache: bool,
    pub(crate) no_open: bool,
    pub(crate) idmap: bool,
    /// The kernel checks access control lists.
    pub(crate) lists: bool,
    /// Rings can be made. Only then may the kernel be told of them: it waits for them.
    pub(crate) ring: bool,
    /// The granularity of the times that the kernel keeps itself.
    pub(crate) time_granularity: Duration,
    /// Set to the features of both sides.
    pub(crate) agreed: Arc<OnceLock<InitFlags>>,
}

impl Handshake {
    fn flags(&self) -> InitFlags {
        let mut flags = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_SETXATTR_EXT
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            // We apply default lists and the umask.
            | InitFlags::FUSE_DONT_MASK;
        // It implies `default_permissions`.
        flags.set(InitFlags::FUSE_POSIX_ACL, self.lists);
        flags.set(InitFlags::FUSE_WRITEBACK_CACHE, self.writeback_cache);
        flags.set(InitFlags::FUSE_NO_OPEN_SUPPORT, self.no_open);
        flags.set(InitFlags::FUSE_ALLOW_IDMAP, self.idmap);
        flags.set(InitFlags::FUSE_OVER_IO_URING, self.ring);
        flags
    }
}

impl Filesystem for Handshake {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = self.flags() & config.capabilities();
        let refused =
            |error: InitFlags| io::Error::other(format!("the kernel takes {error:?} back"));
        config.add_capabilities(wanted).map_err(refused)?;
        // The kernel sends INIT once.
        let _ = self.agreed.set(wanted);
        // Where the kernel does not allow the value, the nearest one is used, or its own.
        let _ = config.set_time_granularity(self.time_granularity);
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_readahead(MAX_WRITE).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }
}
