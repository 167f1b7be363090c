//! Pointers to nodes and to data: those that lead nowhere are cleared, and of a block with two
//! owners the second one gets a copy, unless the summary shows that its pointer is wrong.

use std::collections::BTreeSet;

use cairn_check::Finding;

use super::super::claims::Use;
use super::super::context::Scratch;
use super::super::slots::{self, has_pointers};
use super::super::{kinds, owners, unlinked};
use super::edit::{Child, Edit, Slot, ino_of, nid_of};
use crate::error::{Error, Result};
use crate::format::node::{self, NodeFooter};
use crate::format::path;
use crate::format::units::{BlockAddr, Nid, SegNo};
use crate::format::{Inode, NatEntry, Summary, inode};

impl Edit<'_> {
    /// Points to a block in use again, as its summary says. A pointer that it was moved to is empty
    /// again.
    pub(super) fn link_block(&mut self, finding: &Finding) -> Result<bool> {
        let addr = finding.place.block.and_then(|block| u32::try_from(block).ok());
        let Some(addr) = addr.map(BlockAddr) else { return Ok(false) };
        let scratch = &mut Scratch::default();
        let owner = unlinked::pointer_to(&self.context, scratch, addr)?;
        let Some((owner, pointer)) = owner else { return Ok(false) };
        let doubted =
            ino_of(&finding.place).filter(|_| finding.kind.code == kinds::BLOCK_DOUBT.code);
        if let Some(ino) = doubted.filter(|_| pointer.is_address()) {
            let place = finding.place.clone();
            self.lost((&kinds::BLOCK_DOUBT, place), ino, "its contents, if the pointer is wrong");
            self.has_tables = true;
            return Ok(true);
        }
        // The summary of the block that the pointer leads to now says which one led there.
        if let Some(named) = slots::named(&self.context, scratch, owner)? {
            self.owners.remove(&named.pointer);
        }
        self.set_pointer(Slot { holder: owner.nid, slot: owner.ofs_in_node, addr }, addr)?;
        if let Some((ino, block)) = ino_of(&finding.place).zip(finding.place.file_block)
            && let Some(slot) = self.slot(ino, block)?.filter(|slot| slot.addr == addr)
        {
            self.set_pointer(slot, BlockAddr::NULL)?;
        }
        // Beside losses, what shows that a summary is an old one may be gone.
        let has_losses = self.steps.losing().any(|step| step.loss.is_some());
        let what = match doubted {
            Some(_) => "zeros, if there was no block: it may have old contents",
            None => "its contents, if the summary is an old one",
        };
        match doubted.or_else(|| ino_of(&finding.place).filter(|_| has_losses)) {
            None => self.mended(finding),
            Some(ino) => self.lost((&kinds::BLOCK_DOUBT, finding.place.clone()), ino, what),
        }
        Ok(true)
    }

    /// Points to a node that nothing leads to again, if its footer says whose it is and where, and
    /// no right node is there.
    pub(super) fn link_node(&mut self, finding: &Finding) -> Result<bool> {
        let Some(nid) = nid_of(&finding.place) else { return Ok(false) };
        let Some((_, image)) = self.node(nid)? else { return Ok(false) };
        let NodeFooter { ino, offset, .. } = NodeFooter::read(&image);
        let named = self.entry(nid)?.ino;
        let Some((record, _)) = self.inode(ino)?.filter(|_| named == ino && nid != ino) else {
            return Ok(false);
        };
        let is_attributes = offset == node::XATTR_OFFSET;
        if !is_attributes && !has_pointers(&record) {
            return Ok(false);
        }
        let Some(place) = self.place_of(ino, &record, offset)? else { return Ok(false) };
        if self.is_node_of(place.nid, ino, offset)? {
            return Ok(false);
        }
        self.set_child(ino, &place, nid)?;
        self.mended(finding);
        Ok(true)
    }

    /// Is it a node of the inode with this offset?
    fn is_node_of(&self, nid: Nid, ino: Nid, offset: u32) -> Result<bool> {
        if nid.is_none() || self.entry(nid)?.ino != ino {
            return Ok(false);
        }
        let footer = self.node(nid)?.map(|(_, image)| NodeFooter::read(&image));
        Ok(footer.is_some_and(|footer| (footer.ino, footer.offset) == (ino, offset)))
    }

    /// The pointer to the node with an offset in an inode's tree, as it is now. `None` if the node
    /// with the pointer is missing.
    fn place_of(&self, ino: Nid, record: &Inode, offset: u32) -> Result<Option<Child>> {
        if offset == node::XATTR_OFFSET {
            let nid = record.xattr_nid;
            return Ok(Some(Child { nid, parent: ino, slot: u16::MAX, offset }));
        }
        let nids = (0_u16..).zip(record.nids).zip(path::INODE_NODES);
        for ((slot, nid), own) in nids {
            if own == offset {
                return Ok(Some(Child { nid, parent: ino, slot, offset }));
            }
        }
        for parent in self.tree(ino)? {
            let Some((first, step)) = path::children(parent.offset) else { continue };
            let Some(ahead) = offset.checked_sub(first) else { continue };
            let slot = ahead.checked_div(step).and_then(|slot| u16::try_from(slot).ok());
            let is_below = ahead.checked_rem(step) == Some(0);
            let Some(slot) = slot.filter(|slot| is_below && usize::from(*slot) < node::POINTERS)
            else {
                continue;
            };
            if self.is_node_of(parent.nid, ino, parent.offset)?
                && let Some((_, image)) = self.node(parent.nid)?
            {
                let nid = node::child(&image, slot.into());
                return Ok(Some(Child { nid, parent: parent.nid, slot, offset }));
            }
        }
        Ok(None)
    }

    /// Mends a finding about nodes and pointers. False if it stays.
    pub(super) fn mend_pointer(&mut self, finding: &Finding) -> Result<bool> {
        let code = finding.kind.code;
        if code == kinds::NAT_ENTRY.code || code == kinds::NAT_UNREACHABLE.code {
            let Some(nid) = nid_of(&finding.place) else { return Ok(false) };
            let ino = ino_of(&finding.place).unwrap_or(nid);
            self.free_nid(nid)?;
            self.lost((finding.kind, finding.place.clone()), ino, "a node");
            return Ok(true);
        }
        let Some(ino) = ino_of(&finding.place) else { return Ok(false) };
        if code == kinds::NODE_FOOTER.code {
            return self.mend_footer(finding, ino);
        }
        if code == kinds::NODE_MISSING.code || code == kinds::NODE_SHARED.code {
            let Some(nid) = nid_of(&finding.place) else { return Ok(false) };
            return self.cut_node(finding, ino, nid);
        }
        if code == kinds::BLOCK_SHARED.code {
            return self.copy(finding, ino);
        }
        let Some(block) = finding.place.file_block else { return Ok(false) };
        let Some(slot) = self.slot(ino, block)? else { return Ok(false) };
        if code == kinds::BLOCK_FREE.code && !self.is_anothers(slot.addr)? {
            // Its summary is written with the tables.
            self.has_tables = true;
            self.accepted.insert(slot.addr);
            let what = format!("block {block}, if it was none of the file");
            self.lost((finding.kind, finding.place.clone()), ino, &what);
            return Ok(true);
        }
        self.owners.remove(&slot.addr);
        self.set_pointer(slot, BlockAddr::NULL)?;
        let what = format!("block {block}");
        self.lost((finding.kind, finding.place.clone()), ino, &what);
        Ok(true)
    }

    /// Is the block of a pointer a node, or does the summary give it to another pointer, which
    /// leads to it?
    fn is_of_other(&self, slot: Slot) -> Result<bool> {
        let scratch = &mut Scratch::default();
        if slots::is_node(&self.context, scratch, slot.addr)? {
            return Ok(true);
        }
        let owner = owners::stored(&self.context, scratch, slot.addr)?;
        let Some((false, owner)) = owner else { return Ok(false) };
        if (owner.nid, owner.ofs_in_node) == (slot.holder, slot.slot) {
            return Ok(false);
        }
        let Some((_, image)) = self.node(owner.nid)? else { return Ok(false) };
        Ok(slots::pointer(self.layout.features, &image, owner) == Some(slot.addr))
    }

    /// Leaves the summaries of blocks as they are to which a wrong pointer may lead, and free what
    /// is free of them: a later round sees by that which pointer is right.
    pub(super) fn decide_later(&mut self, findings: &[Finding]) {
        let wrong = [&kinds::BLOCK_FREE, &kinds::BLOCK_SHARED];
        for finding in findings {
            let Some(kind) = wrong.iter().find(|kind| kind.code == finding.kind.code) else {
                continue;
            };
            let addr = finding.place.block.and_then(|block| u32::try_from(block).ok());
            let Some(addr) = addr.map(BlockAddr).filter(|addr| !self.accepted.contains(addr))
            else {
                continue;
            };
            self.owners.remove(&addr);
            if kind.code == kinds::BLOCK_FREE.code {
                self.undecided.insert(addr);
            }
        }
    }

    /// Does the summary give the block to somebody?
    fn is_anothers(&self, addr: BlockAddr) -> Result<bool> {
        let owner = owners::stored(&self.context, &mut Scratch::default(), addr)?;
        Ok(owner.is_some_and(|(_, owner)| self.layout.is_nid(owner.nid)))
    }

    /// Clears pointers to a node. If one of them is where the node's footer says, it stays.
    fn cut_node(&mut self, finding: &Finding, ino: Nid, nid: Nid) -> Result<bool> {
        let offset = self.node(nid)?.map(|(_, image)| NodeFooter::read(&image));
        let is_right = |footer: &NodeFooter| footer.ino == ino && nid != ino;
        let right = offset.filter(is_right).map(|footer| footer.offset);
        let is_missing = finding.kind.code == kinds::NODE_MISSING.code;
        let mut kept = false;
        let mut cut = None;
        for child in self.tree(ino)?.into_iter().filter(|child| child.nid == nid) {
            if !is_missing && !kept && right == Some(child.offset) {
                kept = true;
                continue;
            }
            self.clear_child(ino, &child)?;
            cut = match child.offset {
                node::XATTR_OFFSET => cut.or(Some("attributes in a node of their own")),
                _ => Some("the blocks below a node"),
            };
        }
        if let Some(what) = cut {
            self.lost((finding.kind, finding.place.clone()), ino, what);
        }
        Ok(cut.is_some())
    }

    /// A footer that contradicts the NAT. If all but one of its fields are right, the other one is
    /// set; else the node is given up.
    fn mend_footer(&mut self, finding: &Finding, ino: Nid) -> Result<bool> {
        let nid = nid_of(&finding.place).unwrap_or(ino);
        let children: Vec<_> =
            self.tree(ino)?.into_iter().filter(|child| child.nid == nid).collect();
        let offset = match children.as_slice() {
            _ if nid == ino => Some(0),
            [child] => Some(child.offset),
            _ => None,
        };
        let addr = self.node_addr(nid)?;
        if let (Some(addr), Some(offset)) = (addr, offset) {
            let mut image = self.read(addr.get().into())?;
            let footer = NodeFooter::read(&image);
            let named = self.entry(nid)?.ino;
            if footer.nid == nid && footer.ino == named && named != ino {
                // The NAT and the node agree: the pointer is what is wrong.
                return self.cut_node(finding, ino, nid);
            }
            let right = [footer.nid == nid, footer.ino == ino, footer.offset == offset];
            let is_named = self.owner_of(addr)?.is_none_or(|owner| owner == nid);
            let is_right = right.into_iter().filter(|right| *right).count() >= 2 && is_named;
            let is_proved = named == ino
                && footer.offset == offset
                && self.is_summarys((nid, ino), addr, &image)?;
            if is_right || is_proved {
                NodeFooter { nid, ino, offset, ..footer }.write(&mut image);
                let entry = self.entry(nid)?;
                self.set_entry(nid, NatEntry { ino, ..entry });
                self.put_node(nid, image)?;
                self.mended(finding);
                return Ok(true);
            }
        }
        if nid == ino {
            return self.drop_inode(finding, ino);
        }
        self.cut_node(finding, ino, nid)
    }

    /// Does the summary name the node for a block whose footer names none that is possible, and
    /// whose version is? What was written over the node by mistake has no such version.
    fn is_summarys(&self, (nid, ino): (Nid, Nid), addr: BlockAddr, image: &[u8]) -> Result<bool> {
        let footer = NodeFooter::read(image);
        let now = self.context.volume.loaded.checkpoint.version;
        let [now, then] = [now, footer.cp_ver].map(|version| version & u64::from(u32::MAX));
        if self.layout.is_nid(footer.nid) || self.layout.is_nid(footer.ino) {
            return Ok(false);
        }
        let stored = owners::stored(&self.context, &mut Scratch::default(), addr)?;
        let is_its = stored.is_some_and(|(is_node, owner)| is_node && owner.nid == nid);
        let mut image = image.to_vec();
        NodeFooter { nid, ino, ..footer }.write(&mut image);
        let is_read = || {
            inode::verify(&image, ino, &self.layout).is_ok()
                && Inode::decode(&image, ino, self.layout.features).is_ok()
        };
        Ok(is_its && (1..=now).contains(&then) && (nid != ino || is_read()))
    }

    /// The node that the summary names for a block of nodes.
    fn owner_of(&self, addr: BlockAddr) -> Result<Option<Nid>> {
        let Some((segno, offset)) = self.layout.segment_of(addr) else { return Ok(None) };
        if self.is_current(segno) {
            return Ok(None);
        }
        let image = self.read(self.layout.summary_address(segno).get())?;
        let block = crate::format::summary::SummaryBlock::decode(&image).ok();
        let entry = block.and_then(|block| block.entries.get(usize::from(offset)).copied());
        Ok(entry.map(|entry| entry.nid))
    }

    /// Gives an inode up: its nodes are free then, and what was in a directory has no name.
    pub(super) fn drop_inode(&mut self, finding: &Finding, ino: Nid) -> Result<bool> {
        if !self.may_lose() || ino == Nid::ROOT {
            return Ok(false);
        }
        // Nothing reaches the nodes below it then. The next round frees them.
        self.free_nid(ino)?;
        self.lost((finding.kind, finding.place.clone()), ino, "the file");
        Ok(true)
    }

    /// Copies a block that has another owner, too.
    fn copy(&mut self, finding: &Finding, ino: Nid) -> Result<bool> {
        let place = &finding.place;
        let Some(addr) = place.block.and_then(|block| u32::try_from(block).ok()) else {
            return Ok(false);
        };
        if let Some(block) = place.file_block
            && let Some(slot) = self.slot(ino, block)?
            && self.is_of_other(slot)?
        {
            self.set_pointer(slot, BlockAddr::NULL)?;
            let what = format!("block {block}, whose pointer led to a block of another owner");
            self.lost((finding.kind, place.clone()), ino, &what);
            return Ok(true);
        }
        let image = self.read(addr.into())?;
        let done = match place.file_block {
            Some(block) => self.put_new(ino, block, image)?,
            None => {
                let nid = nid_of(place).unwrap_or(ino);
                // Only the node's own block is worth a copy.
                if NodeFooter::read(&image).nid != nid {
                    self.free_nid(nid)?;
                    self.lost((finding.kind, place.clone()), ino, "a node");
                    return Ok(true);
                }
                self.move_node(nid, BlockAddr(addr))?;
                true
            }
        };
        if done {
            self.mended(finding);
        }
        Ok(done)
    }

    /// Moves the nodes of segments that have data, too. False if there are none.
    pub(super) fn divide(&mut self, findings: &[Finding]) -> Result<bool> {
        let mut mixed = BTreeSet::new();
        for finding in findings.iter().filter(|found| found.kind.code == kinds::SIT_TYPE.code) {
            let segment = finding.place.segment.and_then(|segno| u32::try_from(segno).ok());
            let Some(segno) = segment.map(SegNo) else { continue };
            let claims = &self.context.claims;
            if claims.has(segno, Use::Node) && claims.has(segno, Use::Data) {
                mixed.insert(segno);
                self.mended(finding);
            }
        }
        let context = self.context.clone();
        let is_within =
            |addr| self.layout.segment_of(addr).is_some_and(|(segno, _)| mixed.contains(&segno));
        let nodes = context.nodes.iter().map(|(nid, node)| (nid, node.addr()));
        let within: Vec<_> = nodes.filter(|(_, addr)| is_within(*addr)).collect();
        for (nid, addr) in within {
            self.move_node(nid, addr)?;
        }
        Ok(!mixed.is_empty())
    }

    /// Copies a node's block to a place that nothing uses, which is its place then.
    fn move_node(&mut self, nid: Nid, from: BlockAddr) -> Result<()> {
        let image = self.read(from.get().into())?;
        let owner = Summary { nid, ..Summary::default() };
        let to = self.allocate(Use::Node, owner)?.ok_or(Error::NO_SPACE)?;
        self.write(to.get().into(), image)?;
        let entry = self.entry(nid)?;
        self.set_entry(nid, NatEntry { block_addr: to, ..entry });
        Ok(())
    }
}
