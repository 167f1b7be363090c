//! What the NAT says of each node, and what the walk has found out about it: 20 bytes a nid, in
//! pieces of 2048 nids that are made where the NAT has nodes.
//!
//! The fields are atomics, because two threads walk. Each is written by whoever comes first; see
//! the methods.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};

use cairn_base::memory::NoMemory;
use cairn_check::{BlockSet, Sparse};
use cairn_vfs::FileKind;

use crate::format::NatEntry;
use crate::format::layout::Layout;
use crate::format::units::{BlockAddr, Nid};

/// The walk has come to the node.
pub(super) const VISITED: u16 = 1;
/// Its block, or what is below it, could not be read: what only it reaches is not reported.
pub(super) const DAMAGED: u16 = 1 << 1;
/// It is in the list of orphan inodes.
pub(super) const ORPHAN: u16 = 1 << 2;
/// It is a hidden quota inode.
pub(super) const QUOTA: u16 = 1 << 3;
/// Its way to the root was followed.
pub(super) const CONNECTED: u16 = 1 << 4;
/// The way to the root that is being followed leads over it.
pub(super) const ON_WAY: u16 = 1 << 5;
/// Its contents are impossible with the type in `i_mode`, and show another one.
pub(super) const TYPED: u16 = 1 << 6;
/// The inode's type, and the type that its first entry has.
const KIND_SHIFT: u16 = 8;
const ENTRY_SHIFT: u16 = 11;
const KIND_MASK: u16 = 7;
/// How many slots of directories that are free now had a name of it, up to [`MANY_TRACES`].
const TRACES_SHIFT: u16 = 14;
/// As many, or more.
pub(super) const MANY_TRACES: u16 = 3;

/// A nid.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    addr: AtomicU32,
    ino: AtomicU32,
    version: AtomicU8,
    state: AtomicU16,
    links: AtomicU32,
    /// A directory's parent; any other inode's count of links.
    other: AtomicU32,
}

const _: () = assert!(size_of::<NodeState>() == 20);

impl NodeState {
    /// Where the node is.
    pub(super) fn addr(&self) -> BlockAddr {
        BlockAddr(self.addr.load(Relaxed))
    }

    /// The inode that it belongs to, as the NAT says.
    pub(super) fn ino(&self) -> Nid {
        Nid(self.ino.load(Relaxed))
    }

    /// The NAT's version of the nid.
    pub(super) fn version(&self) -> u8 {
        self.version.load(Relaxed)
    }

    /// Sets a mark. True if it was set before.
    pub(super) fn mark(&self, mark: u16) -> bool {
        self.state.fetch_or(mark, Relaxed) & mark != 0
    }

    /// Is the mark set?
    pub(super) fn is(&self, mark: u16) -> bool {
        self.state.load(Relaxed) & mark != 0
    }

    /// The inode's type, once the inode was read.
    pub(super) fn kind(&self) -> Option<FileKind> {
        kind_of(self.state.load(Relaxed) >> KIND_SHIFT)
    }

    /// Sets the inode's type. Returns that of an entry that was read before.
    pub(super) fn set_kind(&self, kind: FileKind) -> Option<FileKind> {
        let before = self.state.fetch_or(u16::from(kind.entry_code()) << KIND_SHIFT, Relaxed);
        kind_of(before >> ENTRY_SHIFT)
    }

    /// Notes an entry with this type. Returns the inode's type, if the inode was read before; else
    /// that of the first entry, if this is another one.
    pub(super) fn add_entry(&self, kind: FileKind) -> Option<FileKind> {
        self.links.fetch_add(1, Relaxed);
        let mut before = self.state.load(Relaxed);
        // Only the first entry's type is kept.
        while before >> ENTRY_SHIFT & KIND_MASK == 0 {
            let after = before | u16::from(kind.entry_code()) << ENTRY_SHIFT;
            match self.state.compare_exchange_weak(before, after, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        kind_of(before >> KIND_SHIFT).or_else(|| kind_of(before >> ENTRY_SHIFT))
    }

    /// The type that the first entry has.
    pub(super) fn entry_kind(&self) -> Option<FileKind> {
        kind_of(self.state.load(Relaxed) >> ENTRY_SHIFT)
    }

    /// Notes that a slot that is free now had a name of it.
    pub(super) fn add_trace(&self) {
        let _ = self.state.fetch_update(Relaxed, Relaxed, |state| {
            let known = state >> TRACES_SHIFT;
            (known < MANY_TRACES).then(|| state.wrapping_add(1 << TRACES_SHIFT))
        });
    }

    /// How many such slots there are, up to [`MANY_TRACES`].
    pub(super) fn traces(&self) -> u16 {
        self.state.load(Relaxed) >> TRACES_SHIFT
    }

    /// Entries found.
    pub(super) fn links(&self) -> u32 {
        self.links.load(Relaxed)
    }

    /// A directory's parent, or any other inode's count of links.
    pub(super) fn other(&self) -> u32 {
        self.other.load(Relaxed)
    }

    /// Sets [`NodeState::other`] and returns the former value.
    pub(super) fn set_other(&self, value: u32) -> u32 {
        self.other.swap(value, Relaxed)
    }

    /// Sets [`NodeState::other`] unless it is set, and returns the former value.
    pub(super) fn offer_other(&self, value: u32) -> u32 {
        self.other.compare_exchange(0, value, Relaxed, Relaxed).unwrap_or_else(|found| found)
    }
}

fn kind_of(bits: u16) -> Option<FileKind> {
    FileKind::of_entry_code(u8::try_from(bits & KIND_MASK).ok()?)
}

/// All nids.
pub(super) struct Nodes {
    by_nid: Sparse<NodeState>,
    /// The blocks of the main area to which the NAT leads.
    blocks: BlockSet,
    main: u32,
}

impl Nodes {
    /// No node.
    ///
    /// # Errors
    /// There is no memory for the table.
    pub(super) fn new(layout: &Layout) -> Result<Self, NoMemory> {
        Ok(Self {
            by_nid: Sparse::new(layout.max_nid().into())?,
            blocks: BlockSet::new(layout.main_blocks())?,
            main: layout.main,
        })
    }

    /// Adds an entry of the NAT that is in use.
    pub(super) fn add(&self, nid: Nid, entry: NatEntry) {
        if let Some(node) = self.by_nid.at(nid.get().into()) {
            node.ino.store(entry.ino.get(), Relaxed);
            node.version.store(entry.version, Relaxed);
            node.addr.store(entry.block_addr.get(), Relaxed);
        }
        if let Some(block) = entry.block_addr.get().checked_sub(self.main) {
            self.blocks.insert(block.into());
        }
    }

    /// A node that exists.
    pub(super) fn get(&self, nid: Nid) -> Option<&NodeState> {
        self.by_nid.get(nid.get().into()).filter(|node| node.addr() != BlockAddr::NULL)
    }

    /// Does the NAT lead to a block?
    pub(super) fn has_block(&self, addr: BlockAddr) -> bool {
        let block = addr.get().checked_sub(self.main);
        block.is_some_and(|block| self.blocks.contains(block.into()))
    }

    /// An inode that exists.
    pub(super) fn inode(&self, ino: Nid) -> Option<&NodeState> {
        self.get(ino).filter(|node| node.ino() == ino)
    }

    /// All nodes that exist.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Nid, &NodeState)> {
        let exist = self.by_nid.iter().filter(|(_, node)| node.addr() != BlockAddr::NULL);
        exist.filter_map(|(nid, node)| Some((Nid(u32::try_from(nid).ok()?), node)))
    }
}
