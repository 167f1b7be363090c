//! The F2FS format: reading, writing, making.
//!
//! Layers inside the crate, downward only: [`volume`] and the `vfs` front wire the parts; `inode`,
//! `dir`, `xattr` and `compress` know files and directories; below them is the write core
//! ([`store`]): `node`, `nat`, `segment`, `space`, `operation_lock` and `checkpoint`; `format`
//! decodes and encodes and does no I/O.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod blocks;
pub mod checkpoint;
pub mod compress;
pub mod corrupt;
pub mod devices;
pub mod dir;
pub mod dirty;
pub mod disable;
pub mod error;
pub mod flush;
pub mod format;
pub mod fsync;
pub mod gc;
pub mod info;
pub mod inode;
pub mod mkfs;
pub mod mount;
pub mod namespace;
pub mod nat;
pub mod node;
pub mod op;
pub mod operation_lock;
pub mod options;
pub mod recovery;
pub mod remount;
pub mod segment;
pub mod space;
mod stop;
pub mod store;
pub mod sync;
pub mod trim;
pub mod unmount;
mod vfs;
pub mod volume;
pub mod xattr;
mod zones;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cairn_base::Ino;
use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_cache::writeback::WritebackMode;

use format::units::BLOCK_BYTES;

pub use corrupt::Corrupt;
pub use error::{Error, Result};
pub use info::Info;
pub use mount::{Probe, inspect, probe};
pub use options::MountOptions;

/// The root directory.
pub const ROOT_INO: Ino = format::units::Nid::ROOT.ino();

/// A mounted F2FS volume: a [`cairn_vfs::FileSystem`].
pub struct F2fs {
    volume: Arc<volume::Volume>,
    next_handle: AtomicU64,
}

impl F2fs {
    /// Opens a volume, for writing if options, features and device allow it: [`F2fs::read_only_reason`] says why not. On one
    /// that is only read, what was fsynced since the last checkpoint is replayed in memory.
    ///
    /// # Errors
    /// There is no such filesystem, it is damaged, or the device failed.
    pub fn open(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>, options: &MountOptions) -> Result<Arc<Self>> {
        let volume = mount::open(device, runtime, options)?;
        Ok(Arc::new(Self { volume, next_handle: AtomicU64::new(1) }))
    }

    /// Why nothing can be written, if that is so.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        self.volume.read_only_reason()
    }

    /// Writes the dirty data of a byte range to the device, as sync_file_range(2) does: it is not durable for that.
    ///
    /// # Errors
    /// There is no such inode, no room can be made, or the device failed.
    pub fn write_back(&self, ino: Ino, bytes: Range<u64>) -> Result<()> {
        let inode = self.volume.inode(ino)?;
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let _data = inode.data.read();
        inode::sync::write_back(&self.volume, &inode, blocks, WritebackMode::Background)
    }

    /// The mounted volume's parts, for statistics and tests.
    #[must_use]
    pub fn volume(&self) -> &Arc<volume::Volume> {
        &self.volume
    }
}
