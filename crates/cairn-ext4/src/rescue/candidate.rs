//! A deleted inode: its map as it was, what the list says of it, and its restoration.

use std::ops::Range;

use cairn_base::{Ino, Tid};
use cairn_cache::block::Image;
use cairn_check::salvage::{Deleted, Receiver, Remains};
use cairn_vfs::FileKind;

use super::age::Age;
use super::attributes;
use super::contents::{describe, held_by_inode, runs};
use super::old::Old;
use super::remains::Left;
use crate::format::extent::{Extent, NodeView, Site};
use crate::format::inode::Inode as Record;
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;
use crate::raw::map::{Child, Extents, Seen, Visitor, walk};

/// A deleted inode.
pub(super) struct Candidate {
    pub(super) ino: Ino,
    pub(super) record: Record,
    /// The transaction that logged the record; `None` if it is the one in the table.
    pub(super) tid: Option<Tid>,
    /// When the inode was deleted; 0 if that is not known.
    pub(super) deleted: u32,
    pub(super) path: Option<Vec<u8>>,
    /// The ages of its names. Others are those of another inode with its number.
    pub(super) named: Range<Age>,
    pub(super) left: Left,
    /// Parts of the map that are not known.
    pub(super) faults: Vec<String>,
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
    pub(super) fn new(
        ino: Ino,
        record: Record,
        tid: Option<Tid>,
        deleted: u32,
        named: Range<Age>,
    ) -> Self {
        let left = Left { blocks: 0, free: 0, extents: Vec::new() };
        Self { ino, record, tid, deleted, path: None, named, left, faults: Vec::new() }
    }

    /// The blocks that the inode mapped.
    pub(super) fn map(&self, volume: &RawVolume, old: &Old) -> Extents {
        let mut past = Past { old, ino: self.ino, tid: self.tid, map: Extents::default() };
        let has_map = match kind_of(&self.record) {
            Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink) => {
                held_by_inode(volume, self.ino, &self.record).is_none()
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
        let mut found = describe(self.ino, &self.record, path.to_vec());
        if !attributes::add(volume, &self.record, true, &mut found, receiver) {
            return false;
        }
        if let Some(mut inline) = held_by_inode(volume, self.ino, &self.record) {
            return receiver.found(&found, &mut inline);
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
        let mut contents = runs(volume, self.record.size, &self.left.extents, faults);
        receiver.found(&found, &mut contents)
    }
}
