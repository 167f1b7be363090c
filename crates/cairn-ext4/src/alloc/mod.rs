//! Allocates blocks and inodes.
//!
//! A block has one of five states:
//! - *free*;
//! - *reserved*: counted for data in memory that has no address yet;
//! - *allocated*: chosen in memory, while its data is written to the device;
//! - *in use*: marked in the bitmap in a handle;
//! - *pending*: freed in the bitmap by a transaction that is not durable. It is allocated again
//!   only after the commit, so that a crash leaves no old map that refers to another file's data.
//!
//! Invariants: an allocated block has one owner. Reservations do not exceed the free blocks, so an
//! allocation from a reservation succeeds.
//!
//! Locking: one group lock at a time. It is held across a caller's code in [`Space::trim`] only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use cairn_base::Pba;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Runtime;
use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::groups::GroupTable;
use crate::space::{BlockSource, Freed};
use crate::txn::Handle;

mod adopt;
mod blocks;
mod close;
pub(crate) mod free_map;
mod inodes;
mod orlov;
pub(crate) mod reservations;
mod stripe;
mod trim;

pub(crate) use reservations::Class;
use reservations::Reservations;
use stripe::Stripes;

/// Blocks chosen for data that will be written. They exist in memory only until [`Space::mark`].
#[derive(Clone, Debug)]
#[must_use = "its blocks stay allocated until it is mapped or cancelled"]
pub(crate) struct Allocation {
    /// First block.
    pub start: Pba,
    /// Number of blocks, all in one group.
    pub len: u32,
    from_reservation: bool,
    marked: Arc<AtomicBool>,
}

/// The allocator of one volume. A clone shares its state.
#[derive(Clone)]
pub(crate) struct Space {
    inner: Arc<Inner>,
}

struct Inner {
    groups: Arc<GroupTable>,
    layout: Arc<Layout>,
    runtime: Arc<dyn Runtime>,
    reservations: Reservations,
    pending_blocks: AtomicU64,
    pending_inodes: AtomicU64,
    /// Spreads large new files over a group.
    stream: AtomicU32,
    stripes: Stripes,
    defect: Mutex<Option<Corrupt>>,
    /// Length of the shortest run that the last [`Space::trim`] discarded.
    least_trimmed: AtomicU32,
    /// No block is allocated from here on; see [`Space::close_from`].
    closed: AtomicU64,
    /// What is freed is not allocated again.
    keeps_freed: AtomicBool,
    /// The device that discards freed blocks before they are allocated again.
    discard: Mutex<Option<Arc<dyn BlockDevice>>>,
}

impl Space {
    /// The first defect for which a group is left out.
    pub(crate) fn defect(&self) -> Option<Corrupt> {
        self.inner.defect.lock().clone()
    }

    /// Creates the allocator of a group table.
    #[must_use]
    pub(crate) fn new(
        groups: Arc<GroupTable>,
        layout: Arc<Layout>,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        let reservations = Reservations::new(
            groups.free_blocks_total(),
            layout.root_reserved_blocks,
            layout.blocks_count,
        );
        let inner = Inner {
            groups,
            layout,
            runtime,
            reservations,
            pending_blocks: AtomicU64::new(0),
            pending_inodes: AtomicU64::new(0),
            stream: AtomicU32::new(0),
            stripes: Stripes::default(),
            defect: Mutex::new(Rank::Leaf, None),
            least_trimmed: AtomicU32::new(0),
            closed: AtomicU64::new(u64::MAX),
            keeps_freed: AtomicBool::new(false),
            discard: Mutex::new(Rank::Leaf, None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reserves `blocks` for data in memory.
    ///
    /// # Errors
    /// No space; see [`Space::pending_free`].
    pub(crate) fn reserve(&self, blocks: u64, class: Class) -> Result<()> {
        if self.inner.reservations.reserve(blocks, class) { Ok(()) } else { Err(no_space()) }
    }

    /// Releases a reservation whose data was truncated.
    pub(crate) fn release(&self, blocks: u64) {
        self.inner.reservations.release(blocks);
    }

    /// Blocks that this class can still get, with those that the next commit frees.
    #[must_use]
    pub(crate) fn available(&self, class: Class) -> u64 {
        let pending = self.inner.pending_blocks.load(Ordering::Relaxed);
        self.inner.reservations.available_with(pending, class)
    }

    /// Blocks that are neither in use nor reserved, including those kept for mapping.
    #[must_use]
    pub(crate) fn unused(&self) -> u64 {
        self.available(Class::Mapping)
    }

    /// Discards freed blocks on this device once the free is durable. `None` ends that.
    pub(crate) fn set_discard(&self, device: Option<Arc<dyn BlockDevice>>) {
        *self.inner.discard.lock() = device;
    }

    /// Keeps at most this many blocks for maps of reserved data; `None` is the default.
    pub(crate) fn set_pool(&self, blocks: Option<u64>) {
        self.inner.reservations.set_pool(blocks);
    }

    /// Aligns large requests to `stripe=BLOCKS`, or to the superblock's RAID geometry without it.
    pub(crate) fn set_stripe(&self, option: Option<u32>) {
        self.inner.stripes.set(option, &self.inner.layout);
    }

    /// Blocks and inodes that the next commit makes available. If space runs out, a caller can
    /// force one.
    #[must_use]
    pub(crate) fn pending_free(&self) -> u64 {
        self.inner.pending_blocks.load(Ordering::Relaxed)
            + self.inner.pending_inodes.load(Ordering::Relaxed)
    }

    /// Allocates blocks for maps of reserved data, from the pool that is kept for them as well.
    #[must_use]
    pub(crate) fn for_mapping(&self) -> MappingBlocks {
        MappingBlocks(self.clone())
    }
}

/// See [`Space::for_mapping`].
#[derive(Clone)]
pub(crate) struct MappingBlocks(Space);

impl BlockSource for MappingBlocks {
    fn allocate_block(&self, handle: &Handle, goal: Pba) -> Result<Pba> {
        self.0.allocate_one(handle, goal, Class::Mapping)
    }

    fn free(&self, handle: &Handle, start: Pba, count: u64, kind: Freed) -> Result<()> {
        self.0.free_blocks(handle, start, count, kind)
    }
}

impl BlockSource for Space {
    fn allocate_block(&self, handle: &Handle, goal: Pba) -> Result<Pba> {
        self.allocate_one(handle, goal, handle.class())
    }

    fn free(&self, handle: &Handle, start: Pba, count: u64, kind: Freed) -> Result<()> {
        self.free_blocks(handle, start, count, kind)
    }
}

impl Inner {
    /// Discards blocks that no one can allocate yet, if that is enabled. True if the device was
    /// told.
    fn discard(&self, start: Pba, blocks: u64) -> bool {
        let Some(device) = self.discard.lock().clone() else { return false };
        let block_size = u64::from(self.layout.block_size);
        let told = device.discard(start.get() * block_size, blocks * block_size);
        if let Err(error) = &told {
            tracing::debug!(%start, blocks, %error, "freed blocks were not discarded");
        }
        told.is_ok()
    }
}

fn no_space() -> Error {
    Error::Vfs(cairn_vfs::Error::NoSpace)
}

#[cfg(test)]
mod tests;
