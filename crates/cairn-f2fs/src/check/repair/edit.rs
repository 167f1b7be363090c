//! [`Edit`]: a volume in memory that is mended in place, and what is known of it.
//!
//! Nodes and blocks of directories keep their places. New ones take blocks that nothing uses. What
//! changes in the tables is collected, and written at the end of a round (`tables`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cairn_base::units::as_index;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Scope, Step, Steps};
use cairn_check::{Finding, Kind, Place, Report};
use cairn_vfs::FileKind;

use super::super::claims::Use;
use super::super::context::Context;
use super::super::nodes::NodeState;
use super::super::notes::Owners;
use crate::error::Result;
use crate::format::inode::InlineFlags;
use crate::format::layout::Side;
use crate::format::node::{self, NodeFooter};
use crate::format::path::NodeKind;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo};
use crate::format::{Inode, Layout, Log, NatEntry, SitEntry, Summary, bits, inode, nat};

/// A volume that is being mended.
pub(super) struct Edit<'r> {
    pub(super) context: Arc<Context>,
    pub(super) layout: Arc<Layout>,
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) scope: Scope,
    pub(super) steps: &'r mut Steps,
    /// Entries of the NAT that change.
    pub(super) nat: BTreeMap<Nid, NatEntry>,
    /// Owners that summaries must get.
    pub(super) owners: Owners,
    /// Free blocks that pointers lead to, and that a repair gave to their files.
    pub(super) accepted: BTreeSet<BlockAddr>,
    /// Free blocks that pointers lead to, and of which nothing is decided yet: the tables must not
    /// hide that.
    pub(super) undecided: BTreeSet<BlockAddr>,
    /// Segments that new blocks go to.
    pub(super) taken: BTreeMap<SegNo, Use>,
    room: HashMap<bool, (SegNo, u16)>,
    /// The next segment that may be free.
    next: u32,
    /// The tables must be written.
    pub(super) has_tables: bool,
    /// The checkpoint keeps its counts, because they say that more is missing.
    pub(super) keeps_counts: bool,
    /// Quota files count something else than there is.
    pub(super) is_quota_wrong: bool,
    /// Paths of the inodes in findings.
    pub(super) paths: HashMap<Nid, Box<[u8]>>,
    /// Where inodes without a name go, once it is known.
    pub(super) lost_found: Option<Nid>,
    /// Inodes without a name that may be deleted ones.
    pub(super) freed: BTreeSet<Nid>,
    /// Names whose wrong byte has been searched for.
    pub(super) searched_names: u32,
}

/// Where a block of a file is, and the pointer to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The inode or direct node with the pointer.
    pub(super) holder: Nid,
    /// The pointer's number in it.
    pub(super) slot: u16,
    pub(super) addr: BlockAddr,
}

impl<'r> Edit<'r> {
    pub(super) fn new(
        context: Arc<Context>,
        (device, scope): (&Arc<dyn BlockDevice>, Scope),
        owners: Owners,
        steps: &'r mut Steps,
    ) -> Self {
        Self {
            layout: context.layout.clone(),
            context,
            device: device.clone(),
            scope,
            steps,
            nat: BTreeMap::new(),
            owners,
            accepted: BTreeSet::new(),
            undecided: BTreeSet::new(),
            taken: BTreeMap::new(),
            room: HashMap::new(),
            next: 0,
            has_tables: false,
            keeps_counts: scope == Scope::Accounting,
            is_quota_wrong: false,
            paths: HashMap::new(),
            lost_found: None,
            freed: BTreeSet::new(),
            searched_names: 0,
        }
    }

    /// Notes that a defect is mended and nothing is lost.
    pub(super) fn mended(&mut self, finding: &Finding) {
        self.steps.add(Step::new(finding.kind, finding.place.clone()));
    }

    /// Notes what an inode loses by a repair.
    pub(super) fn lost(&mut self, (kind, place): (&'static Kind, Place), ino: Nid, what: &str) {
        let path = self.paths.get(&ino).cloned().unwrap_or_default();
        let node = self.context.nodes.inode(ino).filter(|_| !path.is_empty());
        let is_file = |node: &&NodeState| node.kind() != Some(FileKind::Directory);
        let others = node.filter(is_file).map_or(0, |node| node.links().saturating_sub(1));
        let what = match others {
            0 => what.into(),
            1 => format!("{what}; the file has 1 more name"),
            others => format!("{what}; the file has {others} more names"),
        };
        self.steps.add(Step::new(kind, place).losing(path, &*what));
    }

    pub(super) const fn may_lose(&self) -> bool {
        matches!(self.scope, Scope::All)
    }

    // --- blocks ---

    pub(super) fn read(&self, at: u64) -> Result<Vec<u8>> {
        Ok(self.device.read_at(at.saturating_mul(BLOCK_BYTES), BLOCK_SIZE)?.to_vec())
    }

    pub(super) fn write(&self, at: u64, block: Vec<u8>) -> Result<()> {
        Ok(self.device.write_at(at.saturating_mul(BLOCK_BYTES), block)?)
    }

    // --- the NAT ---

    /// The entry of a nid as it is now, possible or not.
    pub(super) fn entry(&self, nid: Nid) -> Result<NatEntry> {
        if let Some(entry) = self.nat.get(&nid) {
            return Ok(*entry);
        }
        let journal = &self.context.volume.journals.nat.0;
        if let Some((_, entry)) = journal.iter().find(|(known, _)| *known == nid) {
            return Ok(*entry);
        }
        if !self.layout.is_nid(nid) {
            return Ok(NatEntry::default());
        }
        let (block, index) = Layout::nat_place(nid);
        let bitmap = &self.context.volume.loaded.checkpoint.nat_bitmap;
        let side = Side::of_bit(bits::test(bitmap, as_index(block)));
        Ok(nat::entry(&self.read(self.layout.nat_address(block, side).get())?, index))
    }

    /// Where a node is, if it is.
    pub(super) fn node_addr(&self, nid: Nid) -> Result<Option<BlockAddr>> {
        let entry = self.entry(nid)?;
        Ok(entry.validate(nid, &self.layout).ok().filter(|e| !e.is_free()).map(|e| e.block_addr))
    }

    pub(super) fn set_entry(&mut self, nid: Nid, entry: NatEntry) {
        self.has_tables = true;
        // What does not change needs no new tables, which would end a chain of fsynced nodes.
        let is_same = self.layout.is_nid(nid) && self.entry(nid).ok() == Some(entry);
        if !is_same {
            self.nat.insert(nid, entry);
        }
    }

    /// Makes a nid free.
    pub(super) fn free_nid(&mut self, nid: Nid) -> Result<()> {
        let version = self.entry(nid)?.version.wrapping_add(1);
        self.set_entry(nid, NatEntry { version, ..NatEntry::default() });
        Ok(())
    }

    /// A nid that nothing uses; `None` if there is none.
    pub(super) fn new_nid(&self) -> Result<Option<Nid>> {
        for nid in (Nid::ROOT.get()..self.layout.max_nid()).map(Nid) {
            if self.context.nodes.get(nid).is_none() && self.entry(nid)?.is_free() {
                return Ok(Some(nid));
            }
        }
        Ok(None)
    }

    // --- nodes ---

    /// The block of a node whose footer names it.
    pub(super) fn node(&self, nid: Nid) -> Result<Option<(BlockAddr, Vec<u8>)>> {
        let Some(addr) = self.node_addr(nid)? else { return Ok(None) };
        let image = self.read(addr.get().into())?;
        Ok((NodeFooter::read(&image).nid == nid).then_some((addr, image)))
    }

    /// An inode and its block.
    pub(super) fn inode(&self, ino: Nid) -> Result<Option<(Inode, Vec<u8>)>> {
        let Some((_, image)) = self.node(ino)? else { return Ok(None) };
        let record = Inode::decode(&image, ino, self.layout.features).ok();
        Ok(record.map(|record| (record, image)))
    }

    /// Writes a node to its place.
    pub(super) fn put_node(&self, nid: Nid, mut image: Vec<u8>) -> Result<()> {
        let Some(addr) = self.node_addr(nid)? else { return Ok(()) };
        if NodeFooter::read(&image).is_inode() {
            inode::seal(&mut image, &self.layout);
        }
        self.write(addr.get().into(), image)
    }

    /// Changes the fields of an inode. False if it cannot be read.
    pub(super) fn change(&self, ino: Nid, change: impl FnOnce(&mut Inode)) -> Result<bool> {
        let Some((mut record, mut image)) = self.inode(ino)? else { return Ok(false) };
        change(&mut record);
        record.encode_into(&mut image);
        self.put_node(ino, image)?;
        Ok(true)
    }

    /// The pointer to a block of a file; `None` if the node for it is missing.
    pub(super) fn slot(&self, ino: Nid, block: u64) -> Result<Option<Slot>> {
        let Some((record, image)) = self.inode(ino)? else { return Ok(None) };
        let Some(path) = record.shape().locate(block) else { return Ok(None) };
        if path.depth == 0 {
            let slot = path.slot(0);
            let addr = record.data_pointer(&image, slot.into());
            return Ok(Some(Slot { holder: ino, slot, addr }));
        }
        let mut nid = record.nids.get(usize::from(path.slot(0))).copied().unwrap_or_default();
        for depth in 1..path.depth {
            let Some((_, image)) = self.node(nid)? else { return Ok(None) };
            nid = node::child(&image, path.slot(depth).into());
        }
        let Some((_, image)) = self.node(nid)? else { return Ok(None) };
        let slot = path.slot(path.depth);
        Ok(Some(Slot { holder: nid, slot, addr: node::data_pointer(&image, slot.into()) }))
    }

    /// Sets a data pointer.
    pub(super) fn set_pointer(&self, slot: Slot, addr: BlockAddr) -> Result<()> {
        let Some((_, mut image)) = self.node(slot.holder)? else { return Ok(()) };
        match NodeFooter::read(&image).is_inode() {
            true => {
                let Ok(record) = Inode::decode(&image, slot.holder, self.layout.features) else {
                    return Ok(());
                };
                record.set_data_pointer(&mut image, slot.slot.into(), addr);
            }
            false => node::set_data_pointer(&mut image, slot.slot.into(), addr),
        }
        self.put_node(slot.holder, image)
    }

    /// Writes a block of a file to a place that nothing uses, and points to it. False if there is
    /// no room, or no node for the pointer.
    pub(super) fn put_new(&mut self, ino: Nid, block: u64, bytes: Vec<u8>) -> Result<bool> {
        let Some(slot) = self.slot(ino, block)? else { return Ok(false) };
        let version = self.entry(slot.holder)?.version;
        let summary = Summary { nid: slot.holder, version, ofs_in_node: slot.slot };
        let Some(addr) = self.allocate(Use::Data, summary)? else { return Ok(false) };
        self.write(addr.get().into(), bytes)?;
        self.set_pointer(slot, addr)?;
        Ok(true)
    }

    /// Every node below an inode that can be reached: its nid, where the nid stands, and the offset
    /// that its place gives it. The walk ends on every volume: no node is followed twice.
    pub(super) fn tree(&self, ino: Nid) -> Result<Vec<Child>> {
        let mut found = Vec::new();
        let Some((record, _)) = self.inode(ino)? else { return Ok(found) };
        let mut seen = std::collections::HashSet::from([ino]);
        let nids = record.nids.into_iter().zip(crate::format::path::INODE_NODES);
        let mut waiting: Vec<Child> = (0_u16..)
            .zip(nids)
            .map(|(slot, (nid, offset))| Child { nid, parent: ino, slot, offset })
            .collect();
        waiting.reverse();
        while let Some(child) = waiting.pop() {
            if child.nid.is_none() {
                continue;
            }
            found.push(child);
            let below = crate::format::path::children(child.offset);
            let Some((first, step)) = below.filter(|_| seen.insert(child.nid)) else { continue };
            let Some((_, image)) = self.node(child.nid)? else { continue };
            for slot in (0_u16..).take(node::POINTERS) {
                let offset = first.saturating_add(step.saturating_mul(slot.into()));
                let nid = node::child(&image, slot.into());
                waiting.push(Child { nid, parent: child.nid, slot, offset });
            }
        }
        if !record.xattr_nid.is_none() {
            let offset = node::XATTR_OFFSET;
            found.push(Child { nid: record.xattr_nid, parent: ino, slot: u16::MAX, offset });
        }
        Ok(found)
    }

    /// Clears a pointer to a node.
    pub(super) fn clear_child(&self, ino: Nid, child: &Child) -> Result<()> {
        self.set_child(ino, child, Nid::NONE)
    }

    /// Sets a pointer to a node.
    pub(super) fn set_child(&self, ino: Nid, child: &Child, to: Nid) -> Result<()> {
        if child.parent != ino {
            let Some((_, mut image)) = self.node(child.parent)? else { return Ok(()) };
            node::set_child(&mut image, child.slot.into(), to);
            return self.put_node(child.parent, image);
        }
        self.change(ino, |record| match record.nids.get_mut(usize::from(child.slot)) {
            Some(nid) => *nid = to,
            None => record.xattr_nid = to,
        })?;
        Ok(())
    }

    /// The blocks of a file that have an address: file block and address.
    pub(super) fn data_blocks(&self, ino: Nid) -> Result<Vec<(u64, BlockAddr)>> {
        let Some((record, image)) = self.inode(ino)? else { return Ok(Vec::new()) };
        if record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY) {
            return Ok(Vec::new());
        }
        let mut found: Vec<_> = (0_u64..).zip(record.data_pointers(&image)).collect();
        for child in self.tree(ino)? {
            if NodeKind::at(child.offset) != Some(NodeKind::Direct) {
                continue;
            }
            let Some((_, image)) = self.node(child.nid)? else { continue };
            let first = record.shape().first_block(child.offset).unwrap_or(u64::MAX);
            let slots = as_index(record.shape().node_slots);
            found.extend((first..).zip(node::data_pointers(&image).take(slots)));
        }
        found.retain(|(_, addr)| self.layout.in_main(*addr));
        Ok(found)
    }

    // --- blocks that nothing uses ---

    /// The SIT's entry of a segment, if it is possible.
    pub(super) fn sit_entry(&self, segno: SegNo) -> Result<Option<SitEntry>> {
        self.context.volume.sit_entry(segno)
    }

    pub(super) fn is_current(&self, segno: SegNo) -> bool {
        let checkpoint = &self.context.volume.loaded.checkpoint;
        Log::ALL.into_iter().any(|log| checkpoint.log(log).segno == segno)
    }

    /// Is the segment free in the SIT, and for the walk?
    pub(super) fn is_free(&self, segno: SegNo) -> Result<bool> {
        let claims = &self.context.claims;
        let is_used = claims.has(segno, Use::Data) || claims.has(segno, Use::Node);
        if is_used || self.is_current(segno) || self.taken.contains_key(&segno) {
            return Ok(false);
        }
        let whole = u32::from(self.layout.usable_blocks(segno)) == BLOCKS_PER_SEGMENT;
        Ok(whole && self.sit_entry(segno)?.is_some_and(|entry| entry.valid_blocks() == 0))
    }

    /// Takes a free segment.
    pub(super) fn take_segment(&mut self, what: Use) -> Result<Option<SegNo>> {
        while self.next < self.layout.main_segments {
            let segno = SegNo(self.next);
            self.next = self.next.saturating_add(1);
            if self.is_free(segno)? {
                self.taken.insert(segno, what);
                return Ok(Some(segno));
            }
        }
        Ok(None)
    }

    /// Takes a block for this owner; `None` if there is no free segment.
    pub(super) fn allocate(&mut self, what: Use, owner: Summary) -> Result<Option<BlockAddr>> {
        let key = what == Use::Node;
        let place = match self.room.get(&key) {
            Some(place) if u32::from(place.1) < BLOCKS_PER_SEGMENT => *place,
            _ => match self.take_segment(what)? {
                Some(segno) => (segno, 0),
                None => return Ok(None),
            },
        };
        self.room.insert(key, (place.0, place.1.saturating_add(1)));
        let addr = self.layout.address(place.0, place.1);
        self.owners.insert(addr, (what, owner));
        self.has_tables = true;
        Ok(Some(addr))
    }
}

/// A pointer to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) nid: Nid,
    /// The inode or indirect node with the pointer.
    pub(super) parent: Nid,
    /// The pointer's number in it. In the inode, one beyond the others is that of the attributes.
    pub(super) slot: u16,
    /// The offset in the tree.
    pub(super) offset: u32,
}

/// The nid that a finding names as a node, or else as an inode.
pub(super) fn nid_of(place: &Place) -> Option<Nid> {
    u32::try_from(place.node.or(place.inode)?).ok().map(Nid)
}

/// Is a finding of one of these kinds?
pub(super) fn is_one(finding: &Finding, kinds: &[&Kind]) -> bool {
    kinds.iter().any(|kind| kind.code == finding.kind.code)
}

/// The inode that a finding names.
pub(super) fn ino_of(place: &Place) -> Option<Nid> {
    u32::try_from(place.inode?).ok().map(Nid)
}

/// Paths of the inodes that findings name.
pub(super) fn paths_of(report: &Report) -> HashMap<Nid, Box<[u8]>> {
    let known = report.findings.iter();
    known.filter_map(|found| Some((ino_of(&found.place)?, found.place.path.clone()?))).collect()
}
