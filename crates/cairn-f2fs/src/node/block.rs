//! One node block.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use cairn_base::ranked_lock::{Mutex, Rank, RwLock, RwLockWriteGuard};
use cairn_cache::block::Image;

use crate::format::path::NodeKind;
use crate::format::{BlockAddr, Log, NatEntry, Nid, NodeFooter};

/// The kind of file that a node belongs to, which decides the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A directory: hot nodes.
    Directory,
    /// Anything else: warm nodes, the roll-forward chain.
    Other,
}

/// Dirty nodes by inode and nid.
pub(crate) type DirtyList = Mutex<BTreeMap<(Nid, Nid), Arc<Node>>>;

/// A node in memory.
pub struct Node {
    nid: Nid,
    ino: Nid,
    offset: u32,
    kind: NodeKind,
    owner: Owner,
    /// NAT version: what summaries of its data blocks carry.
    version: u8,
    /// Its last address; 0 before the first write.
    address: AtomicU32,
    image: RwLock<Image>,
    dirty: AtomicBool,
    /// True once it is removed: it is never written again.
    retired: AtomicBool,
    /// True if it was used since the evictor last looked.
    pub(super) used: AtomicBool,
    list: Arc<DirtyList>,
}

/// Write access to a node's bytes. The footer is set when the node is written.
#[must_use = "the lock is released when the guard is dropped"]
pub(crate) struct NodeGuard<'n> {
    image: RwLockWriteGuard<'n, Image>,
}

impl Node {
    pub(super) fn new(
        image: Image,
        footer: NodeFooter,
        kind: NodeKind,
        owner: Owner,
        entry: NatEntry,
        list: Arc<DirtyList>,
    ) -> Self {
        Self {
            nid: footer.nid,
            ino: footer.ino,
            offset: footer.offset,
            kind,
            owner,
            version: entry.version,
            address: AtomicU32::new(entry.block_addr.get()),
            image: RwLock::new_ordered(Rank::Node, footer.nid.get().into(), image),
            dirty: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            used: AtomicBool::new(true),
            list,
        }
    }

    /// Its number.
    #[must_use]
    pub(crate) const fn nid(&self) -> Nid {
        self.nid
    }

    /// The inode it belongs to.
    #[must_use]
    pub(crate) const fn ino(&self) -> Nid {
        self.ino
    }

    /// Its offset in the inode's tree.
    #[must_use]
    pub(crate) const fn offset(&self) -> u32 {
        self.offset
    }

    /// Its kind.
    #[must_use]
    pub(crate) const fn kind(&self) -> NodeKind {
        self.kind
    }

    /// What it belongs to.
    #[must_use]
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// The version that summaries of its data blocks carry.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// The log it is written to.
    #[must_use]
    pub const fn log(&self) -> Log {
        match (self.kind, self.owner) {
            (NodeKind::Indirect | NodeKind::DoubleIndirect, _) => Log::ColdNode,
            (_, Owner::Directory) => Log::HotNode,
            (_, Owner::Other) => Log::WarmNode,
        }
    }

    /// Where it was last written; [`BlockAddr::NULL`] if never.
    #[must_use]
    pub(crate) fn address(&self) -> BlockAddr {
        BlockAddr(self.address.load(Relaxed))
    }

    pub(super) fn set_address(&self, addr: BlockAddr) {
        self.address.store(addr.get(), Relaxed);
    }

    /// A cheap copy of the present bytes. Later changes do not affect it.
    #[must_use]
    pub(crate) fn image(&self) -> Image {
        self.image.read().clone()
    }

    /// The marks and the version it was last written with.
    #[cfg(test)]
    pub(crate) fn footer(&self) -> NodeFooter {
        NodeFooter::read(&self.image.read())
    }

    /// True if it has changed since the last write.
    #[must_use]
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Relaxed)
    }

    /// True if it was removed.
    #[must_use]
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// Write access, which makes the node dirty. The caller holds the operation lock.
    ///
    /// # Panics
    /// The node was removed. A change of it now is a stale reference.
    pub(crate) fn modify(self: &Arc<Self>) -> NodeGuard<'_> {
        let image = self.image.write();
        assert!(!self.is_retired(), "node {} is changed after it was removed", self.nid);
        self.mark_dirty();
        NodeGuard { image }
    }

    /// True if the data pointer at this offset has this address.
    #[must_use]
    pub(crate) fn says(&self, at: usize, addr: BlockAddr) -> bool {
        word(&self.image.read(), at) == Some(&addr.get().to_le_bytes())
    }

    /// Sets the data pointer at this offset to `new` if it is `old`. False if it is not, or if the
    /// node was removed. The caller holds the operation lock.
    #[must_use]
    pub(crate) fn replace(self: &Arc<Self>, at: usize, old: BlockAddr, new: BlockAddr) -> bool {
        let mut image = self.image.write();
        if self.is_retired() || word(&image, at) != Some(&old.get().to_le_bytes()) {
            return false;
        }
        self.mark_dirty();
        if let Some(word) = image.make_mut().get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *word = new.get().to_le_bytes();
        }
        true
    }

    /// Makes the unchanged node dirty, so that it gets a new address, unless it was removed. The
    /// caller holds the operation lock.
    pub(crate) fn redirty(self: &Arc<Self>) {
        let _image = self.image.write();
        if !self.is_retired() {
            self.mark_dirty();
        }
    }

    /// Marks the node as dirty. The caller has locked the image.
    pub(super) fn mark_dirty(self: &Arc<Self>) {
        if !self.dirty.swap(true, Relaxed) {
            self.list.lock().insert((self.ino, self.nid), self.clone());
        }
    }

    /// Write access for the write to the device, which makes the node clean.
    pub(super) fn begin_write(&self) -> NodeGuard<'_> {
        let image = self.image.write();
        if self.dirty.swap(false, Relaxed) {
            self.list.lock().remove(&(self.ino, self.nid));
        }
        NodeGuard { image }
    }

    /// Write access for the removal, after which the node cannot be written.
    pub(super) fn retire(&self) -> NodeGuard<'_> {
        let image = self.image.write();
        self.retired.store(true, Relaxed);
        self.dirty.store(false, Relaxed);
        NodeGuard { image }
    }
}

fn word(image: &[u8], at: usize) -> Option<&[u8; 4]> {
    image.get(at..)?.first_chunk()
}

impl NodeGuard<'_> {
    /// The bytes, pinned as they are now.
    pub(super) fn pin(&self) -> Image {
        self.image.clone()
    }
}

impl Deref for NodeGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.image
    }
}

impl DerefMut for NodeGuard<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.image.make_mut()
    }
}
