//! The parts of a volume on its device: geometry, blocks of metadata, the NAT, nodes; and on a
//! writable volume the store: the parts that writing needs.
//!
//! Locks are the parts' own; see their modules. `superblock` and the layout do not change while the
//! volume is open.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::{BlockDevice, BlockDeviceExt, Durability};
use cairn_cache::block::BufferCache;
use cairn_cache::durability::Flushes;

use crate::checkpoint::Loaded;
use crate::error::Result;
use crate::format::layout::Layout;
use crate::format::superblock::{OFFSET, Superblock};
use crate::format::units::BLOCK_BYTES;
use crate::nat::NatTable;
use crate::node::NodeCache;
use crate::space::Counts;
use crate::store::Store;

/// The addresses of the superblock's copies in the order of writing: the second one first.
pub(crate) const SUPERBLOCKS: [Pba; 2] = [Pba(0), Pba(1)];

/// The parts of a volume on its device, read-only or with a [`Store`].
pub struct Disk {
    /// The device, which counts flushes in [`Disk::flushes`].
    pub device: Arc<dyn BlockDevice>,
    /// Which of its writes are on the medium.
    pub(crate) flushes: Arc<Flushes>,
    /// The superblock as it was read. Only the label and the record of errors may have changed.
    pub superblock: Superblock,
    /// The superblock as it was last written. Held while it is written.
    written: Mutex<Superblock>,
    /// Geometry.
    pub layout: Arc<Layout>,
    /// Blocks of metadata, nodes and directories, by address.
    pub(crate) buffers: Arc<BufferCache>,
    /// The checkpoint that was found at mount.
    pub checkpoint: Loaded,
    /// The NAT.
    pub nat: Arc<NatTable>,
    /// Nodes.
    pub(crate) nodes: NodeCache,
    /// The store, unless the volume was opened read-only.
    pub store: Option<Arc<Store>>,
}

/// The arguments of [`Disk::new`].
pub(crate) struct Parts {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) flushes: Arc<Flushes>,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Arc<Layout>,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) checkpoint: Loaded,
    pub(crate) nat: Arc<NatTable>,
    pub(crate) nodes: NodeCache,
    pub(crate) store: Option<Arc<Store>>,
}

impl Disk {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            device: parts.device,
            flushes: parts.flushes,
            written: Mutex::new(Rank::Buffer, parts.superblock.clone()),
            superblock: parts.superblock,
            layout: parts.layout,
            buffers: parts.buffers,
            checkpoint: parts.checkpoint,
            nat: parts.nat,
            nodes: parts.nodes,
            store: parts.store,
        }
    }

    /// Blocks and nodes in use now.
    pub(crate) fn counts(&self) -> Counts {
        let checkpoint = &self.checkpoint.checkpoint;
        let found = || Counts {
            valid_blocks: checkpoint.valid_block_count,
            valid_nodes: checkpoint.valid_node_count,
            valid_inodes: checkpoint.valid_inode_count,
        };
        self.store.as_ref().map_or_else(found, |store| store.space.counts())
    }

    /// See [`crate::operation_lock::OperationLock::moves`]; on a read-only volume nothing moves.
    pub(crate) fn moves(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.operation_lock.moves())
    }

    /// Version of the last checkpoint.
    pub(crate) fn version(&self) -> u64 {
        let found = self.checkpoint.checkpoint.version;
        self.store.as_ref().map_or(found, |store| store.checkpoints.last().version)
    }

    /// The label.
    pub(crate) fn label(&self) -> String {
        self.written.lock().label()
    }

    /// Sets the label. The caller has checked that the volume is writable.
    ///
    /// # Errors
    /// It is too long, or the device failed.
    pub(crate) fn set_label(&self, label: &str) -> Result<()> {
        let mut fits = true;
        self.change_superblock(|superblock| {
            fits = superblock.set_label(label);
            fits
        })?;
        match fits {
            true => Ok(()),
            false => Err(cairn_vfs::Error::Invalid("a label has at most 511 UTF-16 units").into()),
        }
    }

    /// True if the superblock has a record of errors.
    pub(crate) fn has_errors(&self) -> bool {
        self.written.lock().has_errors()
    }

    /// Changes the superblock: the second one, then the first one. Nothing is written if `change`
    /// returns false.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn change_superblock(
        &self,
        change: impl FnOnce(&mut Superblock) -> bool,
    ) -> Result<()> {
        let mut written = self.written.lock();
        let mut superblock = written.clone();
        if !change(&mut superblock) {
            return Ok(());
        }
        write_superblocks(&*self.device, &superblock)?;
        *written = superblock;
        Ok(())
    }

    /// Replaces the first superblock, which is damaged, by the second one.
    pub(crate) fn restore_first_superblock(&self) -> Result<()> {
        write_superblock(&*self.device, SUPERBLOCKS[0], &self.written.lock().encode())
    }
}

/// Writes the second superblock, then the first one.
///
/// # Errors
/// The device failed.
pub(crate) fn write_superblocks(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    write_second_superblock(device, superblock)?;
    write_first_superblock(device, superblock)
}

/// Writes the second superblock, which counts only where the first one is damaged.
///
/// # Errors
/// The device failed.
pub(crate) fn write_second_superblock(device: &dyn BlockDevice, new: &Superblock) -> Result<()> {
    write_superblock(device, SUPERBLOCKS[1], &new.encode())
}

/// Writes the first superblock: the volume has it from then on. What it leads to is durable.
///
/// # Errors
/// The device failed.
pub(crate) fn write_first_superblock(device: &dyn BlockDevice, new: &Superblock) -> Result<()> {
    write_superblock(device, SUPERBLOCKS[0], &new.encode())
}

/// Writes one of them, durably; the second one only when all that was written before is durable.
fn write_superblock(device: &dyn BlockDevice, at: Pba, bytes: &[u8]) -> Result<()> {
    let mut block = crate::blocks::read(device, at, 1)?.to_vec();
    block[OFFSET..OFFSET + bytes.len()].copy_from_slice(bytes);
    let durability = Durability { preflush: at != SUPERBLOCKS[0], fua: true };
    Ok(device.write_durable(at.get() * BLOCK_BYTES, block, durability)?)
}
