//! The nodes and data pointers of one inode.
//!
//! A node is followed once, so the walk ends on every volume. Nodes below an indirect one are read
//! many at once.

use cairn_base::units::as_index;
use cairn_check::{Finding, Place, Value};

use super::claims::Use;
use super::clusters::Clusters;
use super::context::{Context, Scratch, Totals};
use super::hint::Hint;
use super::kinds;
use super::nodes::{self, NodeState};
use super::owners::{self, Owner};
use crate::error::Result;
use crate::format::node::{self, NodeFooter};
use crate::format::path::{self, NodeKind};
use crate::format::units::{BlockAddr, Nid};
use crate::format::{Inode, Summary};

/// Nodes that are read together.
const PART: usize = 64;

/// The walk through one inode's tree, and what it has found.
pub(super) struct Tree<'w> {
    pub(super) context: &'w Context,
    pub(super) scratch: &'w mut Scratch,
    pub(super) ino: Nid,
    pub(super) record: &'w Inode,
    /// Blocks of the inode, with its own one.
    pub(super) blocks: u64,
    /// The blocks with contents, if they are those of a directory or a quota file.
    pub(super) contents: Option<Vec<(u64, BlockAddr)>>,
    /// The block after the last one that is mapped or reserved.
    pub(super) end: u64,
    /// Pieces that the contents lie in.
    pub(super) pieces: u64,
    last: BlockAddr,
    hint: Hint,
    clusters: Clusters,
}

/// A node with data pointers.
#[derive(Clone, Copy)]
struct Holder {
    nid: Nid,
    version: u8,
}

impl<'w> Tree<'w> {
    pub(super) fn new(
        context: &'w Context,
        scratch: &'w mut Scratch,
        ino: Nid,
        record: &'w Inode,
    ) -> Self {
        let is_quota = context.nodes.get(ino).is_some_and(|node| node.is(nodes::QUOTA));
        let is_read = is_quota || record.kind == cairn_vfs::FileKind::Directory;
        Self {
            context,
            scratch,
            ino,
            record,
            blocks: 1,
            contents: is_read.then(Vec::new),
            end: 0,
            pieces: 0,
            last: BlockAddr::NULL,
            hint: Hint::new(record.ext),
            clusters: Clusters::new(record),
        }
    }

    fn place(&self) -> Place {
        Place::inode(self.ino.get())
    }

    /// Follows all pointers.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn walk(&mut self, own: &NodeState, image: &[u8]) -> Result<()> {
        let record = self.record;
        let holder = Holder { nid: self.ino, version: own.version() };
        self.pointers(holder, 0, record.data_pointers(image))?;
        let below: Vec<_> = record.nids.into_iter().zip(path::INODE_NODES).collect();
        self.nodes(&below)?;
        self.clusters.end_of_node();
        self.clusters.finish(self.context, self.ino, record);
        self.clusters.check_size(self.context, (self.ino, record))?;
        self.clusters.check_flag(self.context, self.scratch, (self.ino, record))
    }

    /// The end of the inode, with or without pointers.
    pub(super) fn finish(&self) {
        self.hint.finish(self.context, self.ino);
    }

    /// Follows nodes, each with its offset in the tree. The depth of the calls is at most three,
    /// that of the tree.
    fn nodes(&mut self, list: &[(Nid, u32)]) -> Result<()> {
        for part in list.chunks(PART) {
            let mut found: Vec<_> = Vec::with_capacity(part.len());
            for (nid, offset) in part.iter().filter(|(nid, _)| !nid.is_none()) {
                if let Some((addr, version)) = self.accept(*nid)? {
                    found.push((addr, *nid, *offset, version));
                }
            }
            if found.is_empty() {
                continue;
            }
            found.sort_unstable();
            let addrs: Vec<BlockAddr> = found.iter().map(|(addr, ..)| *addr).collect();
            let blocks = self.context.read(self.scratch, &addrs)?;
            let mut images: Vec<_> = found.iter().zip(blocks.iter()).collect();
            // In the order of the file again.
            images.sort_unstable_by_key(|((_, _, offset, _), _)| *offset);
            for ((addr, nid, offset, version), image) in images {
                if self.check_footer(*nid, *offset, *addr, image) {
                    self.node(Holder { nid: *nid, version: *version }, *offset, image)?;
                }
            }
            self.scratch.recycle(blocks);
        }
        Ok(())
    }

    fn node(&mut self, holder: Holder, offset: u32, image: &[u8]) -> Result<()> {
        match (NodeKind::at(offset), path::children(offset)) {
            (Some(NodeKind::Direct), _) => {
                let shape = self.record.shape();
                let first = shape.first_block(offset).unwrap_or(u64::MAX);
                self.clusters.end_of_node();
                let used = node::data_pointers(image).take(as_index(shape.node_slots));
                self.pointers(holder, first, used)
            }
            (_, Some((first, step))) => {
                let offsets =
                    (0..).map(|index: u32| first.saturating_add(step.saturating_mul(index)));
                let children = (0..node::POINTERS).map(|index| node::child(image, index));
                let children: Vec<_> = children.zip(offsets).collect();
                self.nodes(&children)
            }
            _ => Ok(()),
        }
    }

    /// Looks a node up and claims its block. `None` if it does not exist or is not this inode's.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn accept(&mut self, nid: Nid) -> Result<Option<(BlockAddr, u8)>> {
        let context = self.context;
        let place = Place { node: Some(nid.get().into()), ..self.place() };
        let Some(node) = context.nodes.get(nid) else {
            context.add(Finding::new(&kinds::NODE_MISSING, place));
            return Ok(None);
        };
        if node.ino() != self.ino {
            let what = format!("the NAT says that it is of inode {}", node.ino());
            context.add(Finding::new(&kinds::NODE_FOOTER, place).stored(&*what));
            return Ok(None);
        }
        if nid == self.ino || node.mark(nodes::VISITED) {
            context.add(Finding::new(&kinds::NODE_SHARED, place));
            return Ok(None);
        }
        self.blocks = self.blocks.saturating_add(1);
        Totals::add(&context.totals.nodes, 1);
        let owner =
            Owner { what: Use::Node, summary: Summary { nid, ..Summary::default() }, place };
        owners::claim(context, self.scratch, node.addr(), &owner)?;
        Ok(Some((node.addr(), node.version())))
    }

    /// Checks that a block is the node that a pointer names.
    pub(super) fn check_footer(
        &self,
        nid: Nid,
        offset: u32,
        addr: BlockAddr,
        image: &[u8],
    ) -> bool {
        let footer = NodeFooter::read(image);
        let place = Place { node: Some(nid.get().into()), ..self.place() }.at_block(addr.get());
        let text = match footer.check(nid, self.ino, addr) {
            Err(error) => error.to_string(),
            Ok(()) if footer.offset != offset => {
                format!("the footer has the offset {}, not {offset}", footer.offset)
            }
            Ok(()) => return true,
        };
        self.context.add(Finding::new(&kinds::NODE_FOOTER, place).stored(Value::text(text)));
        // What only this node leads to was not seen.
        if let Some(own) = self.context.nodes.get(self.ino) {
            own.mark(nodes::DAMAGED);
        }
        false
    }

    /// Sees the pointers of a node, of which the first one is that of a file block.
    fn pointers(
        &mut self,
        holder: Holder,
        first: u64,
        pointers: impl Iterator<Item = BlockAddr>,
    ) -> Result<()> {
        // Most pointers are holes. Only clusters need to see them.
        let all = self.clusters.is_active();
        for (slot, addr) in (0_u32..).zip(pointers) {
            if all || addr != BlockAddr::NULL {
                self.pointer(holder, slot, first.saturating_add(slot.into()), addr)?;
            }
        }
        Ok(())
    }

    fn pointer(&mut self, holder: Holder, slot: u32, block: u64, addr: BlockAddr) -> Result<()> {
        self.hint.see(block, addr);
        if let Some(wrong) = self.clusters.see(block, addr) {
            let place = self.place().at_file_block(block);
            self.context.add(Finding::new(&kinds::INODE_COMPRESSION, place).stored(wrong));
        }
        self.clusters.check_mark(self.context, self.scratch, (self.ino, self.record))?;
        if addr == BlockAddr::NULL {
            return Ok(());
        }
        if addr != BlockAddr::COMPRESS || self.clusters.marks_count() {
            self.blocks = self.blocks.saturating_add(1);
        }
        self.end = block.saturating_add(1);
        if !addr.is_address() {
            return Ok(());
        }
        let place = self.place().at_file_block(block);
        if !self.context.layout.in_main(addr) {
            let finding = Finding::new(&kinds::BLOCK_ADDRESS, place).stored(addr.get());
            self.context.add(finding);
            return Ok(());
        }
        if Some(self.last.get()) != addr.get().checked_sub(1) {
            self.pieces = self.pieces.saturating_add(1);
        }
        self.last = addr;
        let ofs_in_node = u16::try_from(slot).unwrap_or(u16::MAX);
        let summary = Summary { nid: holder.nid, version: holder.version, ofs_in_node };
        let owner = Owner { what: Use::Data, summary, place };
        let first = owners::claim(self.context, self.scratch, addr, &owner)?;
        // A block is read once, however many pointers a hostile volume has for it.
        if let Some(contents) = self.contents.as_mut().filter(|_| first) {
            contents.push((block, addr));
        }
        Ok(())
    }
}
