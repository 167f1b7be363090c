//! Deleted inodes.
//!
//! Linux clears the size and the map of an inode when it deletes it, and so does Cairn. Their older
//! records are in the copies of inode tables that the log still has. A record that still has its
//! map (`debugfs` leaves it) is used as it is.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba, Tid};
use cairn_cache::block::Image;
use cairn_check::salvage::{Deleted, Receiver, Remains, Whole, safe_name};
use cairn_vfs::FileKind;

use super::contents::{Mapped, bytes_of_inode, describe};
use super::names::Names;
use super::old::Old;
use super::remains::{Free, Left};
use super::tree::{is_system, live};
use crate::format::extent::{Extent, NodeView, Site};
use crate::format::inode::Inode as Record;
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;
use crate::raw::map::{Child, Extents, Seen, Visitor, walk};

/// Most deleted inodes that are listed.
const MOST: usize = 1 << 20;

/// A deleted inode.
pub(super) struct Candidate {
    pub(super) ino: Ino,
    pub(super) record: Record,
    /// The transaction that logged the record; `None` if it is the one in the table.
    pub(super) tid: Option<Tid>,
    /// When the inode was deleted; 0 if that is not known.
    deleted: u32,
    path: Option<Vec<u8>>,
    left: Left,
    /// Parts of the map that are not known.
    faults: Vec<String>,
}

/// Follows the map of a record as it was in a transaction.
struct Past<'a> {
    old: &'a Old,
    ino: Ino,
    tid: Option<Tid>,
    map: Extents,
}

impl Past<'_> {
    /// Is this the node that is meant, with entries?
    fn fits(&self, child: Child, bytes: &[u8]) -> bool {
        let Some(seed) = child.seed else { return true };
        let site = Site { ino: self.ino, pba: child.block };
        let depth = u16::try_from(child.depth).unwrap_or(u16::MAX);
        NodeView::parse(bytes, Some(depth), site)
            .is_ok_and(|view| view.len() > 0 && view.verify_checksum(bytes, seed, site).is_ok())
    }
}

impl Visitor for Past<'_> {
    /// The copy that the transaction had; else what is there, because a block that is freed is not
    /// written again; else any copy.
    fn fetch(&mut self, volume: &RawVolume, child: Child) -> Result<Image, String> {
        let before = |tid: Tid| self.tid.is_some_and(|limit| !tid.is_after(limit));
        let copies = || self.old.of(child.block).filter(|(_, bytes)| self.fits(child, bytes));
        if let Some((_, bytes)) = copies().find(|(tid, _)| before(*tid)) {
            return Ok(bytes.into());
        }
        let here = volume.block(child.block).map_err(|error| error.to_string());
        if let Ok(image) = &here
            && self.fits(child, image)
        {
            return here;
        }
        match copies().next() {
            Some((_, bytes)) => Ok(bytes.into()),
            None => Err(format!("node {} was used for something else", child.block)),
        }
    }

    fn node(&mut self, _: &Seen<'_>) {}

    fn extent(&mut self, extent: Extent) {
        self.map.extent(extent);
    }

    fn fault(&mut self, start: u64, what: String) {
        self.map.fault(start, what);
    }
}

impl Candidate {
    fn new(ino: Ino, record: Record, tid: Option<Tid>, deleted: u32) -> Self {
        let left = Left { blocks: 0, free: 0, extents: Vec::new() };
        Self { ino, record, tid, deleted, path: None, left, faults: Vec::new() }
    }

    /// The blocks that the inode mapped.
    pub(super) fn map(&self, volume: &RawVolume, old: &Old) -> Extents {
        let mut past = Past { old, ino: self.ino, tid: self.tid, map: Extents::default() };
        let has_map = match kind_of(&self.record) {
            Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink) => {
                bytes_of_inode(volume, self.ino, &self.record).is_none()
            }
            _ => false,
        };
        if has_map {
            walk(volume, self.ino, &self.record, &mut past);
        }
        past.map
    }

    fn remains(&self) -> Remains {
        let is_empty = self.record.size == 0 || self.left.blocks == 0;
        match (self.faults.is_empty(), self.left.remains()) {
            // A record without a map says nothing of what the file had.
            (_, Remains::Whole) if self.tid.is_none() && is_empty => Remains::Unknown,
            (false, Remains::Whole) => Remains::Part,
            (_, remains) => remains,
        }
    }

    /// What the list says of it.
    pub(super) fn describe(&self, index: usize) -> Deleted {
        let source = match self.tid {
            Some(tid) => format!("journal, transaction {}", tid.0),
            None => "inode table".to_owned(),
        };
        Deleted {
            index,
            path: self.path.clone(),
            file: describe(self.ino, &self.record, Vec::new()),
            deleted: (self.deleted != 0).then_some(self.deleted.into()),
            remains: self.remains(),
            blocks: self.left.blocks,
            free: self.left.free,
            source,
        }
    }

    /// Hands out what is left.
    pub(super) fn restore(
        &self,
        volume: &RawVolume,
        path: &[u8],
        receiver: &mut dyn Receiver,
    ) -> bool {
        let found = describe(self.ino, &self.record, path.to_vec());
        if let Some(bytes) = bytes_of_inode(volume, self.ino, &self.record) {
            return receiver.found(&found, &mut Whole(bytes));
        }
        let mut faults = self.faults.clone();
        let lost = self.left.blocks.saturating_sub(self.left.free);
        if lost > 0 {
            let blocks = self.left.blocks;
            faults.push(format!("{lost} of {blocks} blocks were used again: they are holes here"));
        }
        if self.remains() == Remains::Unknown && kind_of(&self.record) == Some(FileKind::Regular) {
            faults.push("nothing says where its contents were".to_owned());
        }
        let extents = self.left.extents.clone();
        let mut contents = Mapped::new(volume, self.record.size, extents).with_faults(faults);
        receiver.found(&found, &mut contents)
    }
}

/// Finds deleted inodes, the last deleted one first.
pub(super) fn find(volume: &RawVolume, receiver: &mut dyn Receiver) -> Vec<Candidate> {
    let old = Old::load(volume);
    let mut list = scan(volume, &old, receiver);
    let newest = |one: &Candidate| (one.deleted, one.tid.map_or(0, |tid| tid.0));
    list.sort_by_key(|one| Reverse(newest(one)));
    let mut free = Free::new(volume);
    let mut extents = 0_usize;
    for candidate in &mut list {
        if extents >= MOST {
            candidate.faults.push("too many deleted files: it was not looked at".to_owned());
            continue;
        }
        let map = candidate.map(volume, &old);
        let end = candidate.record.size.div_ceil(volume.layout.block_size.into());
        let within = map.extents.iter().filter_map(|extent| extent.clip(0, end));
        candidate.left = free.left(&within.collect::<Vec<_>>());
        extents = extents.saturating_add(candidate.left.extents.len());
        candidate.faults = map.faults.into_iter().map(|(_, what)| what).collect();
    }
    let wanted: HashSet<u64> = list.iter().map(|one| one.ino.get()).collect();
    let names = Names::find(volume, &old, &wanted, &list);
    for candidate in &mut list {
        candidate.path = names.path(candidate.ino);
    }
    list
}

fn scan(volume: &RawVolume, old: &Old, receiver: &mut dyn Receiver) -> Vec<Candidate> {
    let layout = &volume.layout;
    let mut list = Vec::new();
    let per_block = layout.block_size.checked_div(layout.inode_size).unwrap_or(1);
    let size = as_index(layout.inode_size);
    for group in 0..layout.groups {
        if !receiver.progress("groups", u64::from(group), layout.groups.into()) {
            break;
        }
        let Some(table) = volume.table(group) else { continue };
        for index in 0..layout.inode_table_blocks() {
            let at = Pba(table.get().saturating_add(index.into()));
            let Ok(now) = volume.block(at) else { continue };
            let versions: Vec<(Tid, Vec<u8>)> = old.of(at).collect();
            let first = index.saturating_mul(per_block);
            for (slot, bytes) in (first..).zip(now.chunks_exact(size)) {
                let ino = layout.ino(group, slot.min(layout.inodes_per_group.saturating_sub(1)));
                if slot >= layout.inodes_per_group || is_system(volume, ino) {
                    continue;
                }
                let within = slot.saturating_sub(first);
                let from = as_index(within).saturating_mul(size);
                let past = versions.iter().filter_map(|(tid, block)| {
                    Some((*tid, block.get(from..from.saturating_add(size))?))
                });
                inode(volume, ino, bytes, past, &mut list);
            }
        }
        if list.len() >= MOST {
            break;
        }
    }
    list
}

/// Adds the deleted inodes that had this number.
fn inode<'b>(
    volume: &RawVolume,
    ino: Ino,
    now: &[u8],
    past: impl Iterator<Item = (Tid, &'b [u8])>,
    list: &mut Vec<Candidate>,
) {
    let current = Record::decode_unchecked(now, &volume.layout);
    let is_sound = Record::verify(now, ino, &volume.layout).is_ok();
    let mut generations: HashMap<u32, ()> = HashMap::new();
    if let Some(record) = live(volume, ino, now) {
        generations.insert(record.generation, ());
    }
    let deleted_at = |generation: u32| {
        let same = current.as_ref().filter(|record| is_sound && record.generation == generation);
        same.map_or(0, |record| record.dtime)
    };
    for (tid, bytes) in past {
        let Some(record) = live_once(volume, ino, bytes) else { continue };
        if generations.insert(record.generation, ()).is_none() {
            let deleted = deleted_at(record.generation);
            list.push(Candidate::new(ino, record, Some(tid), deleted));
        }
    }
    let Some(record) = current.filter(|_| is_sound) else { return };
    let is_deleted = record.dtime != 0 && record.links == 0 && kind_of(&record).is_some();
    if is_deleted && !generations.contains_key(&record.generation) {
        let deleted = record.dtime;
        list.push(Candidate::new(ino, record, None, deleted));
    }
}

/// The record of an inode that was in use when this copy was logged.
fn live_once(volume: &RawVolume, ino: Ino, bytes: &[u8]) -> Option<Record> {
    let (mode, links) = Record::mode_and_links(bytes);
    if mode == 0 || links == 0 {
        return None;
    }
    Record::verify(bytes, ino, &volume.layout).ok()?;
    let record = Record::decode_unchecked(bytes, &volume.layout)?;
    (kind_of(&record).is_some() && record.dtime == 0).then_some(record)
}

/// The path of a name below another, safe for a host.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => safe_name(name),
        directory => [directory, b"/", &safe_name(name)].concat(),
    }
}
