//! Deleted inodes: versions of inodes in the log that the NAT no longer has.
//!
//! F2FS does not write an inode that it deletes, and does not clear its pointers. A block of it is
//! still there if the SIT has it as free and its summary still names the node that pointed to it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cairn_cache::block::Image;
use cairn_check::salvage::{Deleted, Faults, Inline, Receiver, Remains};
use cairn_vfs::FileKind;

use super::attributes;
use super::contents::{Collect, Mapped, Pointers, blocks_of, bytes_of_inode, describe};
use super::scan::Version;
use super::source::Source;
use super::tree::path_of;
use crate::format::inode::InlineFlags;
use crate::format::units::{BlockAddr, Nid, SegNo};
use crate::format::{Inode, Summary};
use crate::raw::tree::{Below, Pointer, check};

/// Most deleted inodes that are listed.
const MOST: usize = 1 << 20;

/// A deleted inode.
pub(super) struct Candidate {
    ino: Nid,
    version: Version,
    path: Option<Vec<u8>>,
    record: Inode,
    blocks: u64,
    free: u64,
    is_whole: bool,
}

/// The owners of the blocks of one segment.
#[derive(Default)]
struct Owners {
    segno: Option<SegNo>,
    entries: Option<(bool, Vec<Summary>)>,
}

impl Owners {
    /// Is the block free, and does its summary still name this pointer?
    fn is_left(&mut self, source: &Source, pointer: &Pointer) -> bool {
        let volume = &source.volume;
        let Some((segno, offset)) = volume.layout.segment_of(pointer.addr) else { return false };
        if volume.is_valid(pointer.addr) == Some(true) {
            return false;
        }
        if self.segno != Some(segno) {
            let found = volume.summary(segno).ok();
            self.entries = found.map(|(is_node, entries, _)| (is_node, entries));
            self.segno = Some(segno);
        }
        match &self.entries {
            Some((is_node, entries)) => entries.get(usize::from(offset)).is_some_and(|owner| {
                !is_node
                    && owner.nid == pointer.holder
                    && u32::from(owner.ofs_in_node) == pointer.slot
            }),
            None => true,
        }
    }
}

impl Candidate {
    /// Pointers of the version, and what of its nodes is gone.
    fn pointers(&self, source: &Source, image: &[u8]) -> (Vec<Pointers>, Faults) {
        if self.record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY)
            || !matches!(
                self.record.kind,
                FileKind::Regular | FileKind::Directory | FileKind::Symlink
            )
        {
            return (Vec::new(), Faults::default());
        }
        let fetch = |below| old_node(source, below);
        let found = Collect::all(&source.volume, self.ino, (&self.record, image), &fetch);
        (found.pointers, found.faults)
    }

    fn image(&self, source: &Source) -> Option<Image> {
        source.volume.block(self.version.addr.pba()).ok()
    }

    /// Looks at what is left of its blocks.
    fn examine(&mut self, source: &Source) {
        let Some(image) = self.image(source) else { return };
        let (pointers, faults) = self.pointers(source, &image);
        let end = blocks_of(self.record.size);
        let mut owners = Owners::default();
        let all = pointers.into_iter().flat_map(Pointers::iter);
        for pointer in all.filter(|one| one.addr.is_address() && one.block < end) {
            self.blocks = self.blocks.saturating_add(1);
            self.free = self.free.saturating_add(owners.is_left(source, &pointer).into());
        }
        self.is_whole = faults.is_empty();
    }

    fn remains(&self) -> Remains {
        match self.free {
            free if free == self.blocks && self.is_whole => Remains::Whole,
            0 => Remains::Overwritten,
            _ => Remains::Part,
        }
    }

    pub(super) fn describe(&self, index: usize) -> Deleted {
        Deleted {
            index,
            path: self.path.clone(),
            file: describe(self.ino, &self.record, &[0; 4096], Vec::new()),
            deleted: None,
            remains: self.remains(),
            blocks: self.blocks,
            free: self.free,
            source: format!("log, block {}", self.version.addr),
        }
    }

    /// Hands out what is left.
    pub(super) fn restore(
        &self,
        source: &Source,
        path: &[u8],
        receiver: &mut dyn Receiver,
    ) -> bool {
        let Some(image) = self.image(source) else { return true };
        let mut found = describe(self.ino, &self.record, &image, path.to_vec());
        let (record, fetch) = ((&self.record, &image[..]), |below| old_node(source, below));
        if !attributes::add(self.ino, record, &fetch, &mut found, receiver) {
            return false;
        }
        if let Some(bytes) = bytes_of_inode(&self.record, &image) {
            return receiver.found(&found, &mut Inline { bytes, size: self.record.size });
        }
        let (pointers, mut faults) = self.pointers(source, &image);
        let mut owners = Owners::default();
        let left = pointers
            .into_iter()
            .flat_map(Pointers::iter)
            .filter(|one| one.addr == BlockAddr::COMPRESS || owners.is_left(source, one));
        let lost = self.blocks.saturating_sub(self.free);
        if lost > 0 {
            let blocks = self.blocks;
            faults.add(format!("{lost} of {blocks} blocks were used again: they are holes here"));
        }
        let mut contents = Mapped::new(&source.volume, self.ino, &self.record, left, faults);
        receiver.found(&found, &mut contents)
    }
}

/// The newest version of a node of a deleted inode.
fn old_node(source: &Source, below: Below) -> Result<(BlockAddr, Image), String> {
    let fits = |version: &Version| version.ino == below.ino && version.offset == below.offset;
    let list = source.newest(below.nid, fits);
    let found = list.into_iter().find_map(|version| {
        let image = source.volume.block(version.addr.pba()).ok()?;
        check(below, version.addr, &image).ok()?;
        Some((version.addr, image))
    });
    found.ok_or_else(|| format!("no version of node {} is left", below.nid))
}

/// Finds deleted inodes, the last written one first.
pub(super) fn find(source: &Source, receiver: &mut dyn Receiver) -> Vec<Candidate> {
    let inodes = source.scan_with(receiver).inodes();
    let mut list = Vec::new();
    for ino in inodes {
        if list.len() >= MOST {
            break;
        }
        versions(source, ino, &mut list);
    }
    list.sort_by_key(|one: &Candidate| Reverse(one.version.age()));
    for candidate in &mut list {
        candidate.examine(source);
        let then = candidate.version.checkpoint;
        let directory = |above| source.directory_at(above, then);
        candidate.path = path_of(candidate.ino, &candidate.record, directory);
    }
    list
}

/// Adds the deleted inodes that had this number: one for each generation.
fn versions(source: &Source, ino: Nid, list: &mut Vec<Candidate>) {
    let volume = &source.volume;
    let now = volume.inode(ino).ok().map(|(_, _, record)| record.generation);
    let mut newest: BTreeMap<u32, Vec<Version>> = BTreeMap::new();
    for version in source.scan().of(ino).iter().filter(|version| version.ino == ino) {
        if Some(version.generation) != now && version.links > 0 {
            newest.entry(version.generation).or_default().push(*version);
        }
    }
    for (_, mut versions) in newest {
        versions.sort_by_key(|version| Reverse(version.age()));
        let sound = versions.into_iter().find_map(|version| {
            let image = volume.block(version.addr.pba()).ok()?;
            Some((version, volume.decode(ino, version.addr, &image).ok()?))
        });
        // A nid that the NAT still has, with a damaged inode, is not deleted.
        let is_free = now.is_some() || volume.nat(ino).is_ok_and(|(_, entry)| entry.is_free());
        if let Some((version, record)) = sound.filter(|_| is_free) {
            let (path, blocks, free) = (None, 0, 0);
            let is_whole = true;
            list.push(Candidate { ino, version, path, record, blocks, free, is_whole });
        }
    }
}
