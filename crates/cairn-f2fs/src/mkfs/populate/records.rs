//! The node blocks of the tree.

use cairn_vfs::FileKind;
use cairn_vfs::new_tree::{Kind, Node, ROOT, read_part};

use super::error::PopulateResult;
use super::nodes::{Below, links, pieces};
use super::places::ino;
use super::plan::{Further, Plan};
use super::survey::is_inline;
use crate::format::checksum::crc32;
use crate::format::inode::{Advise, ExtentHint, FileFlags, InlineFlags, NIDS};
use crate::format::node::{XATTR_OFFSET, set_child, set_data_pointer};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{Inode, Nid, block, inode, xattr};

impl Plan {
    /// The nodes of an inode in its own log, from the `skip`th on.
    pub(super) fn own_nodes(&self, id: u32, skip: u32, out: &mut [u8]) -> PopulateResult<()> {
        let own = self.survey.nodes[id as usize].own_nodes();
        let mut blocks = out.chunks_mut(BLOCK_SIZE);
        for number in skip..own {
            let Some(block) = blocks.next() else { return Ok(()) };
            block.fill(0);
            match number {
                0 => self.inode(id, block)?,
                _ => self.xattr_node(id, block)?,
            }
        }
        self.direct_nodes(id, skip.saturating_sub(own), blocks.collect());
        Ok(())
    }

    /// Direct nodes, from the `first`th on.
    fn direct_nodes(&self, id: u32, first: u32, mut blocks: Vec<&mut [u8]>) {
        if blocks.is_empty() {
            return;
        }
        blocks.iter_mut().for_each(|block| block.fill(0));
        let runs = self.survey.runs(id, &self.survey.source.node(id));
        let mut data = 0;
        for piece in pieces(self.survey.settings.shape, &runs) {
            let at = data;
            data += u32::from(piece.len);
            let Some(number) = piece.direct.filter(|number| *number >= first) else { continue };
            let Some(block) = blocks.get_mut((number - first) as usize) else { break };
            for (slot, index) in (piece.slot..).take(piece.len.into()).zip(at..) {
                set_data_pointer(block, slot.into(), self.data_address(id, index));
            }
            let node = Further::Direct(number);
            let name = (self.nid(id, node), piece.offset);
            self.footer(block, id, name, self.address(id, node));
        }
    }

    /// Indirect nodes, from the `first`th on.
    pub(super) fn indirect_nodes(&self, id: u32, first: u32, out: &mut [u8]) {
        out.fill(0);
        let mut blocks: Vec<&mut [u8]> = out.chunks_mut(BLOCK_SIZE).collect();
        let runs = self.survey.runs(id, &self.survey.source.node(id));
        let place = |number: u32| number.checked_sub(first).map(|place| place as usize);
        for link in links(self.survey.settings.shape, &runs) {
            let node = further(link.node);
            if let Some(block) = link.parent.and_then(place).and_then(|at| blocks.get_mut(at)) {
                set_child(block, link.slot.into(), self.nid(id, node));
            }
            if let Below::Indirect(number) = link.node
                && let Some(block) = place(number).and_then(|at| blocks.get_mut(at))
            {
                let name = (self.nid(id, node), link.offset);
                self.footer(block, id, name, self.address(id, node));
            }
        }
    }

    fn xattr_node(&self, id: u32, out: &mut [u8]) -> PopulateResult<()> {
        let area = self.xattrs(id, &self.survey.source.node(id))?;
        block::put(out, 0, &area[self.survey.settings.inline_xattrs..]);
        let node = Further::Xattr;
        self.footer(out, id, (self.nid(id, node), XATTR_OFFSET), self.address(id, node));
        Ok(())
    }

    /// The area of attributes, of the inode and of the attribute node. Empty without attributes.
    fn xattrs(&self, id: u32, node: &Node<'_>) -> PopulateResult<Vec<u8>> {
        let list = self.survey.attributes(id, node)?;
        if list.is_empty() {
            return Ok(Vec::new());
        }
        let further = match self.survey.nodes[id as usize].has_xattr_node {
            true => xattr::NODE_BYTES,
            false => 0,
        };
        let size = self.survey.settings.inline_xattrs + further;
        Ok(xattr::encode(&list, size).expect("the survey checked their size"))
    }

    fn inode(&self, id: u32, out: &mut [u8]) -> PopulateResult<()> {
        let node = self.survey.source.node(id);
        let mut record = self.record(id, &node);
        let runs = self.survey.runs(id, &node);
        let shape = self.survey.settings.shape;
        if self.survey.nodes[id as usize].directs > 0 {
            for link in links(shape, &runs).iter().filter(|link| link.parent.is_none()) {
                record.nids[usize::from(link.slot) % NIDS] = self.nid(id, further(link.node));
            }
        }
        if record.kind == FileKind::Regular {
            record.ext = self.longest(id, &runs);
        }
        record.encode_into(out);
        let mut data = 0;
        for piece in pieces(shape, &runs).take_while(|piece| piece.direct.is_none()) {
            for slot in (piece.slot..).take(piece.len.into()) {
                record.set_data_pointer(out, slot.into(), self.data_address(id, data));
                data += 1;
            }
        }
        self.inline(id, &node, &record, out)?;
        let area = self.xattrs(id, &node)?;
        let range = record.inline_xattr_range();
        block::put(out, range.start, &area[..range.len().min(area.len())]);
        self.inode_footer(out, id);
        inode::seal(out, &self.volume.layout);
        Ok(())
    }

    /// The longest extent. The blocks of each run follow each other.
    fn longest(&self, id: u32, runs: &[std::ops::Range<u64>]) -> ExtentHint {
        let (mut longest, mut before) = (ExtentHint::default(), 0);
        for run in runs {
            let len = (run.end - run.start) as u32;
            if len > longest.len {
                let blk_addr = self.data_address(id, before);
                longest = ExtentHint { fofs: run.start as u32, blk_addr, len };
            }
            before += len;
        }
        longest
    }

    /// The record of an inode, without pointers.
    fn record(&self, id: u32, node: &Node<'_>) -> Inode {
        let survey = &*self.survey;
        let (need, settings) = (&survey.nodes[id as usize], &survey.settings);
        let kind = node.kind.file_kind();
        let mut record = settings.record(kind, (node.permissions & 0o7777) as u16);
        (record.uid, record.gid, record.links) = (node.uid, node.gid, need.named.links);
        (record.atime, record.mtime, record.ctime) = (node.atime, node.mtime, node.ctime);
        if let Some(extra) = &mut record.extra {
            extra.crtime = node.crtime;
        }
        let seed = crc32(!0, &self.volume.layout.uuid);
        record.generation = crc32(seed, &ino(id).get().to_le_bytes());
        record.blocks = need.all_blocks();
        if need.has_xattr_node {
            record.xattr_nid = self.nid(id, Further::Xattr);
        }
        let name = survey.name(id, &need.named);
        record.name = name.into();
        let has_parent = id != ROOT && !survey.is_hidden(id);
        record.pino = if has_parent { ino(need.named.parent) } else { Nid::NONE };
        record.flags.set(FileFlags::IMMUTABLE, survey.is_hidden(id));
        if !need.is_directory && need.named.links > 1 {
            // Roll-forward must not take the first of several names for the only one.
            record.advise |= Advise::LOST_PINO;
        }
        self.size_and_form(id, node, &mut record);
        record
    }

    /// Sets the size, and what is inline.
    fn size_and_form(&self, id: u32, node: &Node<'_>, record: &mut Inode) {
        let survey = &*self.survey;
        let inline = survey.settings.inline;
        match node.kind {
            Kind::Directory { .. } => {
                record.flags |= FileFlags::INDEX;
                record.current_depth = 1;
                record.size = inline as u64;
                match survey.levels.get(&id) {
                    Some(levels) => {
                        record.current_depth = levels.depth;
                        let blocks = levels.runs.last().map_or(0, |run| run.end);
                        record.size = blocks * BLOCK_BYTES;
                    }
                    None => record.inline.insert(InlineFlags::DENTRY),
                }
            }
            Kind::Regular { size, data } => {
                record.size = size;
                record.advise |= survey.settings.advise(&record.name);
                if is_inline(size, data, inline as u64) {
                    record.inline.insert(InlineFlags::DATA);
                    record.inline.set(InlineFlags::DATA_EXIST, !data.is_empty());
                }
            }
            Kind::Symlink(target) => {
                record.size = target.len() as u64;
                if target.len() <= inline {
                    record.inline.insert(InlineFlags::DATA | InlineFlags::DATA_EXIST);
                }
            }
            _ => {}
        }
    }

    /// Writes what is in the inode beside pointers and attributes.
    fn inline(
        &self,
        id: u32,
        node: &Node<'_>,
        record: &Inode,
        out: &mut [u8],
    ) -> PopulateResult<()> {
        let range = record.inline_data_range();
        match node.kind {
            Kind::Directory { .. } if record.inline.contains(InlineFlags::DENTRY) => {
                let entries = self.survey.entries(id).expect("a directory");
                let dots = (ino(id), ino(self.survey.nodes[id as usize].named.parent));
                entries.encode_inline(block::part_mut(out, range), dots, ino);
            }
            Kind::Regular { size, .. } if record.inline.contains(InlineFlags::DATA) => {
                let contents = range.start..range.start + size as usize;
                read_part(&*self.survey.source, id, 0, block::part_mut(out, contents))?;
            }
            Kind::Symlink(target) if record.inline.contains(InlineFlags::DATA) => {
                block::put(out, range.start, target);
            }
            Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                record.set_device(out, encoded_device(major, minor));
            }
            _ => {}
        }
        Ok(())
    }

    /// All blocks of a directory's entries.
    pub(super) fn directory(&self, id: u32, out: &mut [u8]) {
        let entries = self.survey.entries(id).expect("a directory");
        let most = self.survey.settings.shape.max_blocks();
        let placement = super::directory::Placement::new(&entries, most);
        let placement = placement.expect("the survey placed the same names");
        let dots = (ino(id), ino(self.survey.nodes[id as usize].named.parent));
        placement.encode(&entries, out, dots, ino);
    }
}

fn further(node: Below) -> Further {
    match node {
        Below::Direct(number) => Further::Direct(number),
        Below::Indirect(number) => Further::Indirect(number),
    }
}

/// Linux's `new_encode_dev`.
fn encoded_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | major << 8 | (minor & !0xff) << 12
}
