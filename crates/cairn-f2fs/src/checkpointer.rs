//! The parts of a checkpoint that come from inodes and directories, and the daemon that requests
//! checkpoints at intervals.
//!
//! While the operation lock is held exclusively, no entries or records change. So dirty blocks of
//! directories get their addresses, and records are put into their nodes, with no other lock of an
//! inode than `state`. The blocks are written after the operation lock is released. Until then they
//! and their inodes stay in memory.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Daemon, Progress};
use cairn_cache::block::Image;
use cairn_vfs::FileKind;

use crate::checkpoint::{Hook, Reason};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::{BlockAddr, Log};
use crate::inode::{Inode, tree};
use crate::inodes::Inodes;
use crate::mount_state::MountState;
use crate::operation_lock::CheckpointGuard;
use crate::segment::{self, Kept};
use crate::store::{Store, live};

/// A postponed checkpoint is due again after this long.
const POSTPONED: Duration = Duration::from_secs(1);

/// Writes inodes and directories into checkpoints, and asks for one at intervals.
pub(crate) struct Checkpointer {
    mount: Arc<MountState>,
    inodes: Arc<Inodes>,
    /// Inodes with blocks of entries that have their addresses and are not on the device yet.
    placed: Mutex<Vec<Arc<Inode>>>,
    /// What was found in the snapshot, and is reported when it is written.
    found: Mutex<Option<Corrupt>>,
    /// When the last periodic checkpoint was written.
    last: Mutex<Option<Duration>>,
}

impl Checkpointer {
    pub(crate) fn new(inodes: Arc<Inodes>) -> Self {
        Self {
            mount: inodes.mount.clone(),
            inodes,
            placed: Mutex::new(Rank::Leaf, Vec::new()),
            found: Mutex::new(Rank::Leaf, None),
            last: Mutex::new(Rank::Leaf, None),
        }
    }

    /// The daemon that writes a checkpoint when the last one is old.
    pub(crate) fn daemon(self: &Arc<Self>) -> Arc<dyn Daemon> {
        Arc::new(Ticker(Arc::downgrade(self)))
    }

    fn write_when_due(&self) -> Progress {
        if self.mount.is_closed() {
            return Progress::Done;
        }
        let runtime = &self.inodes.runtime;
        let interval = Duration::from_secs(self.mount.options().checkpoint_interval.into());
        let now = runtime.monotonic();
        let last = *self.last.lock().get_or_insert(now);
        if let Some(left) =
            interval.checked_sub(now.saturating_sub(last)).filter(|left| !left.is_zero())
        {
            return Progress::Idle(Some(left));
        }
        // A checkpoint would find no room, either, and stop the volume.
        if self.inodes.pages.lacks_room() {
            return Progress::Idle(Some(POSTPONED));
        }
        if self.mount.check_writable().is_ok()
            && let Err(error) = self.mount.store().and_then(|store| {
                store.checkpoints.request(Reason::Sync, store.checkpoints.announce())
            })
        {
            tracing::error!(%error, "the periodic checkpoint failed");
        }
        *self.last.lock() = Some(runtime.monotonic());
        Progress::Idle(Some(interval))
    }
}

struct Ticker(Weak<Checkpointer>);

impl Hook for Checkpointer {
    fn prepare(&self) {
        let Ok(store) = self.mount.store() else { return };
        for inode in self.inodes.dirty.list() {
            // Errors are ignored: an inode may be about to be deleted, and the purpose is only to
            // read blocks into memory.
            let mut blocks = inode.entries.dirty().into_iter();
            let found = store.nodes.inode(inode.nid).is_ok()
                && blocks.all(|(block, _)| read_place(store, &inode, block).is_ok());
            if !found {
                tracing::trace!(nid = %inode.nid, "not all nodes of a dirty inode could be read \
                    ahead");
            }
        }
    }

    fn snapshot(&self, _guard: &CheckpointGuard<'_>) -> Result<Vec<(BlockAddr, Image)>> {
        let store = self.mount.store()?.clone();
        *self.found.lock() = confirm_kept(&store)?.or_else(|| store.nat.take_damaged());
        let mut placed = Vec::new();
        let mut inodes = self.inodes.dirty.list();
        for inode in &inodes {
            place_entries(&self.inodes, &store, inode, &mut placed)?;
            inode.write_inode(&self.inodes)?;
        }
        inodes.retain(|inode| inode.kind == FileKind::Directory || inode.kind == FileKind::Symlink);
        *self.placed.lock() = inodes;
        Ok(placed)
    }

    fn written(&self) {
        let inodes = std::mem::take(&mut *self.placed.lock());
        inodes.iter().for_each(|inode| inode.entries.written());
        let found = self.found.lock().take();
        if let Some(found) = found {
            let _ = self.mount.observe(Err::<(), _>(found.into()));
        }
    }
}

/// Counts only those blocks as in use to which something leads, of those that the SIT has called
/// free. Returns what is wrong with the SIT.
fn confirm_kept(store: &Store) -> Result<Option<Corrupt>> {
    let mut found = None;
    for kept in store.segments.take_kept() {
        if is_led_to(store, kept) {
            let what = "a block in use is called free";
            let place = store.layout.segment_of(kept.addr);
            let wrong =
                place.map(|(segno, block)| Corrupt::Sit { segno, what, value: block.into() });
            found = found.or(wrong);
        } else if store.segments.is_valid(kept.addr) {
            store.segments.invalidate(kept.addr)?;
        }
    }
    Ok(found)
}

/// Does a pointer lead to a data block, or the NAT to a node? What cannot be read may.
fn is_led_to(store: &Store, kept: Kept) -> bool {
    let Kept { addr, is_node, owner } = kept;
    match is_node {
        true => store.nat.address(owner.nid).map_or(true, |found| found == Some(addr)),
        false => live::find(store, addr, owner).map_or(true, |found| found.is_some()),
    }
}

/// Reads what leads to a block of a directory, and whose the block is.
fn read_place(store: &Store, inode: &Inode, block: u64) -> Result<()> {
    if let Ok(pointer) = tree::find(store, inode, block)? {
        let addr = pointer.get();
        addr.is_address().then(|| store.segments.owner_of(addr)).transpose()?;
    }
    Ok(())
}

/// Gives the changed blocks of a directory their addresses.
fn place_entries(
    inodes: &Inodes,
    store: &Store,
    inode: &Arc<Inode>,
    all: &mut Vec<(BlockAddr, Image)>,
) -> Result<()> {
    let dirty = inode.entries.dirty();
    let mut pointers = Vec::with_capacity(dirty.len());
    for (block, _) in &dirty {
        let found = tree::find(store, inode, *block)?;
        pointers.push(found.expect("a changed block of a directory has a pointer"));
    }
    let owners: Vec<segment::Owner> = pointers.iter().map(tree::Pointer::owner).collect();
    // Targets of symbolic links wait here, too.
    let log = if inode.kind == FileKind::Directory { Log::HotData } else { Log::WarmData };
    let mut at = 0;
    while at < dirty.len() {
        let placed = store.segments.place(log, &owners[at..])?;
        for index in 0..placed.count {
            let addr = BlockAddr(placed.address.get() + index as u32);
            let (block, image) = &dirty[at + index];
            pointers[at + index].moved(&inodes.mount, inode, addr)?;
            all.push((addr, image.clone()));
            inode.entries.placed(*block, &inodes.dirty_entries);
        }
        at += placed.count;
    }
    Ok(())
}

impl Daemon for Ticker {
    fn step(&self) -> Progress {
        let Some(checkpointer) = self.0.upgrade() else { return Progress::Done };
        checkpointer.write_when_due()
    }
}
