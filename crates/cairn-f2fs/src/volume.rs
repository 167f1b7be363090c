//! A mounted volume: it owns the parts. Each part knows only those below it.
//!
//! | part | knows |
//! |---|---|
//! | [`Disk`] | what is on the device, and how it is changed there |
//! | [`MountState`] | options, whether the volume may be written, what an error means for it |
//! | [`Inodes`] | inodes in memory and the caches of their contents |
//! | [`Cleaner`] | how sections become free |
//! | [`Operations`] | how a change begins: space, room, the operation lock |
//! | [`Checkpointer`] | what a checkpoint takes from inodes, and when one is due |

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cairn_base::Ino;
use cairn_base::ranked_lock::Mutex;
use cairn_base::runtime::DaemonHandle;
use cairn_cache::writeback::WritebackMode;

use crate::checkpointer::Checkpointer;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::units::BLOCK_BYTES;
use crate::fsync::FsyncStats;
use crate::gc::{Cleaner, GcStats};
use crate::inode::writeback;
use crate::inodes::Inodes;
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::store::Store;

/// A mounted F2FS volume: a [`cairn_vfs::FileSystem`].
pub struct F2fs {
    pub(crate) disk: Arc<Disk>,
    pub(crate) mount: Arc<MountState>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) cleaner: Arc<Cleaner>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) checkpointer: Arc<Checkpointer>,
    /// Checkpoints, cleaning, write-back and readahead.
    pub(crate) daemons: Mutex<Vec<DaemonHandle>>,
    pub(crate) next_handle: AtomicU64,
}

impl F2fs {
    /// Why the volume is read-only, if it is.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        self.mount.read_only_reason()
    }

    /// Writes the dirty data of a byte range to the device, as sync_file_range(2) does: this does
    /// not make it durable.
    ///
    /// # Errors
    /// There is no such inode, no room can be made, or the device failed.
    pub fn write_back(&self, ino: Ino, bytes: Range<u64>) -> Result<()> {
        let inode = self.inodes.inode(ino)?;
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let _data = inode.data.read();
        writeback::write_back(&self.operations, &inode, blocks, WritebackMode::Background)
    }

    /// What is on the device.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The store, unless the volume was opened read-only.
    #[must_use]
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.disk.store.as_ref()
    }

    /// The inodes.
    #[must_use]
    pub fn inodes(&self) -> &Inodes {
        &self.inodes
    }

    /// Counters of cleaning.
    #[must_use]
    pub fn gc_stats(&self) -> &GcStats {
        &self.cleaner.stats
    }

    /// Counters of fsyncs.
    #[must_use]
    pub fn fsync_stats(&self) -> &FsyncStats {
        &self.operations.fsyncs.stats
    }
}
