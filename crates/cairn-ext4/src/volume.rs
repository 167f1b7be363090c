//! A mounted volume: it owns the parts. Each part knows only those below it.
//!
//! | part | knows |
//! |---|---|
//! | [`Store`](crate::store::Store) | what is on the device, and how it is changed there |
//! | [`MountState`](crate::mount_state::MountState) | where changes go, options, whether the volume may be written, what an error means for it |
//! | [`Inodes`](crate::inodes::Inodes) | inodes in memory and the caches of their contents |
//! | [`Operations`] | where blocks come from, what happens if there are none |

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cairn_base::Ino;
use cairn_base::ranked_lock::Mutex;
use cairn_base::runtime::DaemonHandle;
use cairn_jbd2::CheckpointParts;

use crate::op::Operations;
use crate::orphan::FoundSlots;

/// A mounted ext2, ext3 or ext4 volume: a [`cairn_vfs::FileSystem`].
pub struct Ext4 {
    pub(crate) ops: Arc<Operations>,
    /// Orphans for which recovery waits, because the volume was mounted read-only.
    pub(crate) unfinished: Mutex<Option<FoundSlots>>,
    /// Write-back and readahead.
    pub(crate) daemons: Mutex<Vec<DaemonHandle>>,
    pub(crate) next_handle: AtomicU64,
}

impl Ext4 {
    /// Why the volume cannot be written; `None` if it can.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        self.ops.read_only_reason()
    }

    /// Leaves out parts of the journal's checkpoints, to measure what each brings. Nothing becomes
    /// unsafe, only slower.
    pub fn set_checkpoint_parts(&self, parts: CheckpointParts) {
        if let Some(journal) = self.ops.journal() {
            journal.set_checkpoint_parts(parts);
        }
    }

    /// Drops all inodes from memory that have no references and no changes.
    pub fn shrink_inodes(&self) {
        self.ops.table.shrink();
    }

    /// True if the inode is in memory.
    #[must_use]
    pub fn has_in_memory(&self, ino: Ino) -> bool {
        self.ops.table.get(ino).is_some()
    }

    /// The byte at which the record of an inode begins on the device.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::Stale`] if the volume has no such inode.
    pub fn record_at(&self, ino: Ino) -> crate::Result<u64> {
        let location = self.ops.locate(ino)?;
        let block = location.block.get() * u64::from(self.ops.layout.block_size);
        Ok(block + location.offset as u64)
    }
}
