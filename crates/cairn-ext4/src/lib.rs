//! The ext4 format: reading, writing and creating volumes.
//!
//! Layers inside the crate, downward only: `volume` and `vfs` connect the parts. `inode`, `dir`,
//! `xattr`, `extent`, `indirect` and `alloc` each know one structure and use only the layers below.
//! `format` decodes and encodes without I/O. Every change of metadata goes through a
//! [`txn::Handle`].

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod alloc;
mod checksum;
mod corrupt;
mod credits;
mod damage;
mod damage_log;
mod dir;
mod error;
mod extent;
mod fast_commit;
pub mod format;
mod fsync;
mod groups;
mod indirect;
mod info;
mod inode;
mod live_options;
pub mod map;
pub mod mkfs;
mod mount;
mod mount_state;
mod namespace;
mod options;
mod orphan;
mod probe;
mod recovery;
mod remount;
mod report;
pub mod space;
mod stop;
mod stop_cause;
mod store;
mod superblock;
mod sync;
mod system_file;
mod trim;
pub mod txn;
mod unmount;
mod vfs;
mod volume;
mod xattr;
mod xattr_ops;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;

pub use corrupt::Corrupt;
pub use error::{Error, Result};
pub use info::Info;
pub use options::MountOptions;
pub use probe::{Probe, probe, probe_at, probe_backups};

/// The inode number of the root directory.
pub use format::layout::inodes::ROOT as ROOT_INO;

/// A mounted ext2, ext3 or ext4 volume: a [`cairn_vfs::FileSystem`].
pub struct Ext4 {
    volume: Arc<volume::Volume>,
    next_handle: AtomicU64,
}

impl Ext4 {
    /// Opens a volume, and replays its journal if it was not unmounted cleanly. Nothing is written
    /// with `ro`, if a feature or the device forbids it, or if a backup replaces a damaged
    /// superblock; [`Ext4::read_only_reason`] gives the reason.
    ///
    /// # Errors
    /// The device has no such filesystem, it is damaged, it has unknown features, an option is
    /// unsuitable, or the device failed.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        options: &MountOptions,
    ) -> Result<Arc<Self>> {
        let volume = mount::open(device, runtime, options)?;
        Ok(Arc::new(Self { volume, next_handle: AtomicU64::new(1) }))
    }

    /// Why the volume cannot be written; `None` if it can.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        self.volume.read_only_reason()
    }

    /// The parts of the volume, for statistics and tests.
    #[must_use]
    pub fn volume(&self) -> &Arc<volume::Volume> {
        &self.volume
    }
}
