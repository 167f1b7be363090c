//! The changes of the chain as an overlay in memory, for read-only volumes.
//!
//! It keeps the address of a node's block and the differences, not the block, so a chain of any
//! length takes little memory. Indirect nodes are never in the chain; those that are missing get
//! numbers beyond the NAT.

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

use std::collections::{BTreeMap, HashMap};

use cairn_base::Pba;
use cairn_base::units::{as_index, as_u64};
use cairn_cache::block::{BufferCache, Image};
use cairn_vfs::{FileKind, NameBuf};

use super::chain::{self, ChainNode, Recovered};
use super::versions::Versions;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::checkpoint::Checkpoint;
use crate::format::inode::{Advise, InlineFlags, Inode, NIDS};
use crate::format::layout::Layout;
use crate::format::node::{self, NodeFooter};
use crate::format::path::NodeKind;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BlockAddr, Nid};
use crate::nat::NatTable;

/// A node whose image differs from the one in the NAT.
#[derive(Clone, Debug)]
enum Change {
    /// Its block is in the chain.
    Moved(BlockAddr),
    /// An inode: its latest block, with these fields replaced.
    Inode { block: BlockAddr, fields: Fields },
    /// An indirect node: its block, if it had one, with these children.
    Indirect { block: Option<BlockAddr>, footer: NodeFooter, children: BTreeMap<u16, Nid> },
}

/// Fields of an inode that roll-forward does not take from the chain, or computes.
#[derive(Clone, Copy, Debug)]
struct Fields {
    links: u32,
    size: u64,
    xattr_nid: Nid,
    nids: [Nid; NIDS],
}

/// Entries that the chain adds to a directory: name → inode and kind.
pub(crate) type AddedEntries = BTreeMap<NameBuf, (Nid, FileKind)>;

/// The nodes, entries and inodes that roll-forward changed, by nid.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    nodes: HashMap<Nid, Change>,
    entries: HashMap<Nid, AddedEntries>,
    next_synthetic: u32,
}

impl Overlay {
    /// Follows the chain behind a checkpoint.
    ///
    /// # Errors
    /// The chain or what it changes is damaged, or the device failed.
    pub(crate) fn build(
        buffers: &BufferCache,
        layout: &Layout,
        checkpoint: &Checkpoint,
        nat: &NatTable,
    ) -> Result<Self> {
        let chain = chain::scan(buffers, layout, checkpoint)?;
        let mut overlay = Self { next_synthetic: layout.max_nid(), ..Self::default() };
        if chain.is_empty() {
            return Ok(overlay);
        }
        let selected = chain::select(&chain, nat)?;
        Versions { buffers, layout, nat }.check(&chain, &selected)?;
        for (index, entry) in chain.iter().enumerate() {
            let Some(recovered) =
                selected.get(&entry.footer.ino).filter(|found| index <= found.last_fsync)
            else {
                continue;
            };
            let replay = Replay { buffers, layout, nat, chain: &chain, recovered };
            overlay.apply(&replay, index, entry)?;
        }
        tracing::info!(
            nodes = chain.len(),
            inodes = selected.len(),
            "replayed fsynced files in memory"
        );
        Ok(overlay)
    }

    /// Entries added to a directory.
    #[must_use]
    pub(crate) fn entries(&self, directory: Nid) -> Option<&AddedEntries> {
        self.entries.get(&directory)
    }

    /// Does the chain change the node?
    #[must_use]
    pub(crate) fn changes(&self, nid: Nid) -> bool {
        self.nodes.contains_key(&nid)
    }

    /// The image of a node that the chain changes; `None` for other nodes.
    ///
    /// # Errors
    /// The device failed, or the block is damaged.
    pub(crate) fn node(
        &self,
        nid: Nid,
        buffers: &BufferCache,
        layout: &Layout,
    ) -> Result<Option<Image>> {
        let Some(change) = self.nodes.get(&nid) else { return Ok(None) };
        let read =
            |addr: BlockAddr| -> Result<Image> { Ok(buffers.get(Pba(addr.pba().get()))?.image()) };
        Ok(Some(match change {
            Change::Moved(addr) => read(*addr)?,
            Change::Inode { block, fields } => {
                let mut image = read(*block)?.to_vec();
                let mut inode = Inode::decode(&image, nid, layout.features)?;
                fields.put(&mut inode);
                inode.encode_into(&mut image);
                // The chain is read by the right numbers.
                let footer = NodeFooter::read(&image);
                NodeFooter { nid, ino: nid, offset: 0, ..footer }.write(&mut image);
                image.into()
            }
            Change::Indirect { block, footer, children } => {
                let mut image = match block {
                    Some(addr) => read(*addr)?.to_vec(),
                    None => vec![0; BLOCK_SIZE],
                };
                footer.write(&mut image);
                for (index, child) in children {
                    node::set_child(&mut image, usize::from(*index), *child);
                }
                image.into()
            }
        }))
    }

    fn apply(&mut self, replay: &Replay<'_>, index: usize, entry: &ChainNode) -> Result<()> {
        let ino = entry.footer.ino;
        self.prepare(replay, ino)?;
        let image = replay.buffers.get(entry.addr.pba())?.image();
        match NodeKind::at(entry.footer.offset) {
            Some(NodeKind::Inode) if entry.footer.is_inode() => {
                self.apply_inode(replay, index, entry, &image)
            }
            Some(NodeKind::Xattr) => {
                self.place(entry)?;
                self.fields(ino).xattr_nid = entry.footer.nid;
                Ok(())
            }
            Some(NodeKind::Direct) => self.apply_direct(replay, entry, &image),
            _ => Err(bad(entry, "no such node belongs to the chain", entry.footer.offset)),
        }
    }

    /// Adds the inode as it is in the checkpoint, or in the block that creates it.
    fn prepare(&mut self, replay: &Replay<'_>, ino: Nid) -> Result<()> {
        if matches!(self.nodes.get(&ino), Some(Change::Inode { .. })) {
            return Ok(());
        }
        let change = match replay.recovered.created_by.and_then(|index| replay.chain.get(index)) {
            Some(creator) => {
                let fields =
                    Fields { links: 1, size: 0, xattr_nid: Nid::NONE, nids: [Nid::NONE; NIDS] };
                Change::Inode { block: creator.addr, fields }
            }
            None => {
                let block = replay.nat.lookup(ino)?.block_addr;
                let image = replay.buffers.get(block.pba())?.image();
                NodeFooter::read(&image).check(ino, ino, block)?;
                let inode = Inode::decode(&image, ino, replay.layout.features)?;
                Change::Inode { block, fields: Fields::of(&inode) }
            }
        };
        self.nodes.insert(ino, change);
        Ok(())
    }

    fn fields(&mut self, ino: Nid) -> &mut Fields {
        match self.nodes.get_mut(&ino) {
            Some(Change::Inode { fields, .. }) => fields,
            _ => unreachable!("the inode was prepared"),
        }
    }

    /// The latest block of the inode, decoded.
    fn inode(&mut self, replay: &Replay<'_>, ino: Nid) -> Result<Inode> {
        let Some(Change::Inode { block, .. }) = self.nodes.get(&ino) else {
            unreachable!("the inode was prepared")
        };
        let image = replay.buffers.get(block.pba())?.image();
        Ok(Inode::decode(&image, ino, replay.layout.features)?)
    }

    fn apply_inode(
        &mut self,
        replay: &Replay<'_>,
        index: usize,
        entry: &ChainNode,
        image: &[u8],
    ) -> Result<()> {
        let ino = entry.footer.ino;
        let inode = Inode::decode(image, ino, replay.layout.features)?;
        let mut fields = *self.fields(ino);
        fields.size = inode.size;
        if !inode.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY) && has_blocks(&inode) {
            let last = (0..inode.address_slots())
                .rev()
                .find(|slot| inode.data_pointer(image, *slot) != BlockAddr::NULL);
            fields.grow(&inode, last.map(u64::from));
        }
        self.nodes.insert(ino, Change::Inode { block: entry.addr, fields });
        if replay.recovered.last_dent == Some(index) && !inode.advise.contains(Advise::ENC_NAME) {
            let name = inode.entry_name(ino)?.to_buf();
            self.entries.entry(inode.pino).or_default().insert(name, (ino, inode.kind));
        }
        Ok(())
    }

    fn apply_direct(&mut self, replay: &Replay<'_>, entry: &ChainNode, image: &[u8]) -> Result<()> {
        let ino = entry.footer.ino;
        let inode = self.inode(replay, ino)?;
        let shape = inode.shape();
        let first = shape.first_block(entry.footer.offset);
        let first = first
            .ok_or_else(|| bad(entry, "no direct node has this offset", entry.footer.offset))?;
        let path = shape
            .locate(first)
            .ok_or_else(|| bad(entry, "the node is beyond the file", entry.footer.offset))?;
        self.place(entry)?;
        // Goes down from the inode. Each step yields the slot of the next node.
        let mut parent = Nid::NONE;
        for depth in 1..path.depth {
            parent = self.indirect(
                replay,
                ino,
                parent,
                path.slot(depth.strict_sub(1)),
                path.offset(depth),
            )?;
        }
        self.set_slot(ino, parent, path.slot(path.depth.saturating_sub(1)), entry.footer.nid);
        let pointers = node::data_pointers(image).take(as_index(shape.node_slots));
        let last = pointers.enumerate().filter(|(_, addr)| *addr != BlockAddr::NULL).last();
        self.fields(ino).grow(&inode, last.map(|(slot, _)| first.saturating_add(as_u64(slot))));
        Ok(())
    }

    /// Records the node's address in the chain.
    fn place(&mut self, entry: &ChainNode) -> Result<()> {
        let nid = entry.footer.nid;
        match self.nodes.get(&nid) {
            None | Some(Change::Moved(_)) if !nid.is_none() => {
                self.nodes.insert(nid, Change::Moved(entry.addr));
                Ok(())
            }
            _ => Err(bad(entry, "another kind of node has this number", nid.get())),
        }
    }

    /// The indirect node in a slot of the inode (`parent` is none) or of another indirect node;
    /// made if it is missing.
    fn indirect(
        &mut self,
        replay: &Replay<'_>,
        ino: Nid,
        parent: Nid,
        slot: u16,
        offset: u32,
    ) -> Result<Nid> {
        let known = self.slot(replay, ino, parent, slot)?;
        if self.nodes.contains_key(&known) {
            return Ok(known);
        }
        let block = if known.is_none() { None } else { replay.nat.address(known)? };
        let nid = if block.is_some() { known } else { self.synthetic() };
        let mut footer = NodeFooter { nid, ino, offset, ..NodeFooter::default() };
        if let Some(addr) = block {
            footer = NodeFooter::read(&replay.buffers.get(addr.pba())?.image());
            footer.check(nid, ino, addr)?;
        }
        self.nodes.insert(nid, Change::Indirect { block, footer, children: BTreeMap::new() });
        self.set_slot(ino, parent, slot, nid);
        Ok(nid)
    }

    fn synthetic(&mut self) -> Nid {
        let nid = Nid(self.next_synthetic);
        // There are fewer blocks, and so fewer nodes in the chain, than numbers beyond the NAT.
        self.next_synthetic = self.next_synthetic.wrapping_add(1);
        nid
    }

    fn slot(&mut self, replay: &Replay<'_>, ino: Nid, parent: Nid, slot: u16) -> Result<Nid> {
        if parent.is_none() {
            return Ok(self.fields(ino).nids.get(usize::from(slot)).copied().unwrap_or(Nid::NONE));
        }
        let image = self.node(parent, replay.buffers, replay.layout)?;
        Ok(image.map_or(Nid::NONE, |image| node::child(&image, usize::from(slot))))
    }

    fn set_slot(&mut self, ino: Nid, parent: Nid, slot: u16, nid: Nid) {
        if parent.is_none() {
            if let Some(place) = self.fields(ino).nids.get_mut(usize::from(slot)) {
                *place = nid;
            }
        } else if let Some(Change::Indirect { children, .. }) = self.nodes.get_mut(&parent) {
            children.insert(slot, nid);
        }
    }
}

/// What a step of the replay reads.
struct Replay<'a> {
    buffers: &'a BufferCache,
    layout: &'a Layout,
    nat: &'a NatTable,
    chain: &'a [ChainNode],
    recovered: &'a Recovered,
}

impl Fields {
    fn of(inode: &Inode) -> Self {
        Self { links: inode.links, size: inode.size, xattr_nid: inode.xattr_nid, nids: inode.nids }
    }

    fn put(&self, inode: &mut Inode) {
        inode.links = self.links;
        inode.size = self.size;
        inode.xattr_nid = self.xattr_nid;
        inode.nids = self.nids;
        // The extent hint may name blocks that the file no longer has.
        inode.ext = Default::default();
    }

    /// Extends the file to data after its end, unless the inode's flag says that the data belongs
    /// there.
    fn grow(&mut self, inode: &Inode, last_block: Option<u64>) {
        let Some(last) = last_block.filter(|_| !inode.advise.contains(Advise::KEEP_SIZE)) else {
            return;
        };
        if self.size <= last.saturating_mul(BLOCK_BYTES) {
            self.size = last.saturating_add(1).saturating_mul(BLOCK_BYTES);
        }
    }
}

fn has_blocks(inode: &Inode) -> bool {
    matches!(inode.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}

fn bad(entry: &ChainNode, what: &'static str, value: u32) -> crate::Error {
    Corrupt::Node { nid: entry.footer.nid, addr: entry.addr, what, value: value.into() }.into()
}
