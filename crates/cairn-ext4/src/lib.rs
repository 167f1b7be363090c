//! The ext4 format: reading, writing, making.
//!
//! Layers inside the crate, downward only: [`volume`] and the `vfs` front wire the parts; `inode`, `dir`, `xattr`,
//! `extent`, `indirect` and `alloc` each know one structure and get only the parts below them; `format` decodes and
//! encodes and does no I/O. Every metadata change goes through a [`txn::Handle`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod alloc;
pub mod checksum;
pub mod corrupt;
pub mod credits;
mod damage;
mod damage_log;
pub mod dir;
pub mod error;
pub mod extent;
mod fast_commit;
pub mod format;
pub mod fsync;
pub mod groups;
pub mod indirect;
pub mod info;
pub mod inode;
pub mod live_options;
pub mod map;
pub mod mkfs;
pub mod mount;
pub mod namespace;
pub mod options;
pub mod orphan;
pub mod probe;
pub mod recovery;
mod remount;
mod report;
pub mod space;
mod stop;
mod stop_cause;
pub mod store;
pub mod superblock;
pub mod symlink;
mod sync;
mod system_file;
pub mod txn;
mod unmount;
mod vfs;
pub mod volume;
pub mod xattr;
pub mod xattr_ops;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;

pub use corrupt::Corrupt;
pub use error::{Error, Result};
pub use info::Info;
pub use options::MountOptions;
pub use probe::{Probe, probe, probe_at, probe_backups};

/// The root directory.
pub use format::layout::inodes::ROOT as ROOT_INO;

/// A mounted ext2, ext3 or ext4 volume: a [`cairn_vfs::FileSystem`].
pub struct Ext4 {
    volume: Arc<volume::Volume>,
    next_handle: AtomicU64,
}

impl Ext4 {
    /// Opens a volume, after replaying its journal if it was not closed properly. With `ro`, where a feature or the device
    /// forbids writing, or where a backup takes the place of a damaged superblock, nothing is written; [`Ext4::read_only_reason`]
    /// says why.
    ///
    /// # Errors
    /// There is no such filesystem, it is damaged, it has features that cannot be read, or the device failed.
    pub fn open(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>, options: &MountOptions) -> Result<Arc<Self>> {
        let volume = mount::open(device, runtime, options)?;
        Ok(Arc::new(Self { volume, next_handle: AtomicU64::new(1) }))
    }

    /// Why nothing can be written, if that is so.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        self.volume.read_only_reason()
    }

    /// The mounted volume's parts, for statistics and tests.
    #[must_use]
    pub fn volume(&self) -> &Arc<volume::Volume> {
        &self.volume
    }
}
