//! The tree from the root on, and then the inodes that no directory leads to. F2FS stores a name
//! and a parent in each inode, so that most of these have a path, too.

use std::collections::HashMap;

use cairn_cache::block::Image;
use cairn_check::BlockSet;
use cairn_check::salvage::{Loss, Receiver, join};
use cairn_vfs::FileKind;

use super::contents::{contents, describe};
use super::scan::Version;
use super::source::Source;
use crate::format::Inode;
use crate::format::inode::Advise;
use crate::format::layout::Layout;
use crate::format::units::Nid;
use crate::raw::directory::Named;

/// Most directories on the way from the root to another. Deeper ones count as without a name.
const DEEPEST: usize = 1000;
/// Most files with several names whose first name is kept.
const MOST_LINKED: usize = 1 << 20;
/// Where inodes go of which no path is known.
const LOST: &[u8] = b"lost";

/// A directory that is being walked.
struct Level {
    path: Vec<u8>,
    names: std::vec::IntoIter<Named>,
}

struct Walk<'a> {
    source: &'a Source,
    receiver: &'a mut dyn Receiver,
    seen: BlockSet,
    /// The first path of files with several names.
    first: HashMap<Nid, Vec<u8>>,
    done: u64,
    goes_on: bool,
}

/// Hands out everything that can be found.
pub(super) fn walk(source: &Source, receiver: &mut dyn Receiver) {
    let Ok(seen) = BlockSet::new(source.volume.layout.max_nid().into()) else {
        let what = "there is no memory for a set of its inodes".into();
        receiver.lost(Loss { path: b"/".to_vec(), ino: 0, what });
        return;
    };
    let mut walk = Walk { source, receiver, seen, first: HashMap::new(), done: 0, goes_on: true };
    walk.root();
    walk.unnamed();
}

impl Walk<'_> {
    fn lost(&mut self, path: &[u8], ino: Nid, what: impl Into<String>) {
        let loss = Loss { path: path.to_vec(), ino: ino.get().into(), what: what.into() };
        self.goes_on &= self.receiver.lost(loss);
    }

    fn root(&mut self) {
        self.seen.insert(Nid::ROOT.get().into());
        match self.source.inode(Nid::ROOT) {
            Ok((image, record, why)) if record.kind == FileKind::Directory => {
                if let Some(why) = why {
                    self.lost(b"/", Nid::ROOT, format!("an old version is used: {why}"));
                }
                self.tree(Nid::ROOT, &record, &image, Vec::new());
            }
            Ok(_) => self.lost(b"/", Nid::ROOT, "the root's inode is no directory"),
            Err(why) => self.lost(b"/", Nid::ROOT, why),
        }
    }

    /// Hands out a directory and everything below it.
    fn tree(&mut self, ino: Nid, record: &Inode, image: &[u8], path: Vec<u8>) {
        let mut levels = vec![self.level(ino, record, image, path)];
        while self.goes_on {
            let Some(level) = levels.last_mut() else { break };
            let Some(Named { name, ino }) = level.names.next() else {
                levels.pop();
                continue;
            };
            let Some(path) = join(&level.path, &name) else {
                let path = level.path.clone();
                self.lost(&path, ino, "a path below it is too long: it is in lost/");
                continue;
            };
            let is_deep = levels.len() >= DEEPEST;
            if let Some((image, record)) = self.named(ino, &path, is_deep) {
                levels.push(self.level(ino, &record, &image, path));
            }
        }
    }

    fn level(&mut self, ino: Nid, record: &Inode, image: &[u8], path: Vec<u8>) -> Level {
        let fetch = |below| self.source.fetch(below);
        let listing = self.source.volume.list_by(ino, record, image, &fetch);
        let shown: &[u8] = if path.is_empty() { b"/" } else { &path };
        for what in listing.faults {
            self.lost(shown, ino, what);
        }
        if record.advise.contains(Advise::ENCRYPT) {
            self.lost(shown, ino, "its names are encrypted");
        }
        Level { path, names: listing.names.into_iter() }
    }

    /// A name that leads to an inode. Returns a directory that is to be walked.
    fn named(&mut self, ino: Nid, path: &[u8], is_deep: bool) -> Option<(Image, Inode)> {
        if !self.source.volume.layout.is_nid(ino) {
            self.lost(path, ino, "the name leads to an impossible inode");
            return None;
        }
        if self.seen.contains(ino.get().into()) {
            match self.first.get(&ino).cloned() {
                Some(first) => {
                    self.goes_on &= self.receiver.linked(path, ino.get().into(), &first);
                }
                None => self.lost(path, ino, "another name leads to the same inode"),
            }
            return None;
        }
        let (image, record, why) = match self.source.inode(ino) {
            Ok(found) => found,
            Err(why) => {
                self.lost(path, ino, why);
                return None;
            }
        };
        if let Some(why) = why {
            self.lost(path, ino, format!("the newest version that is left was copied: {why}"));
        }
        let is_directory = record.kind == FileKind::Directory;
        if is_directory && is_deep {
            self.lost(path, ino, "it is too deep in the tree: it is in lost/");
            return None;
        }
        self.hand_out(ino, &record, &image, path);
        is_directory.then_some((image, record))
    }

    fn hand_out(&mut self, ino: Nid, record: &Inode, image: &[u8], path: &[u8]) {
        self.seen.insert(ino.get().into());
        if record.links > 1 && record.kind != FileKind::Directory && self.first.len() < MOST_LINKED
        {
            self.first.insert(ino, path.to_vec());
        }
        self.done = self.done.saturating_add(1);
        let checkpoint = self.source.volume.loaded.as_ref().map(|loaded| &loaded.checkpoint);
        let total = checkpoint.map_or(0, |checkpoint| u64::from(checkpoint.valid_inode_count));
        self.goes_on &= self.receiver.progress("inodes", self.done, total);
        let found = describe(ino, record, image, path.to_vec());
        let fetch = |below| self.source.fetch(below);
        let mut contents = contents(&self.source.volume, ino, record, image, &fetch);
        self.goes_on &= self.receiver.found(&found, &mut *contents);
    }

    /// Inodes that the NAT has, or that are newer, and no name led to. Without a checkpoint, all
    /// inodes of the log.
    fn unnamed(&mut self) {
        let volume = &self.source.volume;
        if volume.loaded.is_none() {
            for ino in self.source.scan().inodes() {
                self.one(ino);
            }
            return;
        }
        let mut newer: Vec<Nid> = volume.newer.keys().copied().collect();
        newer.sort_unstable();
        newer.into_iter().for_each(|ino| self.one(ino));
        let journal: Vec<Nid> = volume.journals.nat.0.iter().map(|(nid, _)| *nid).collect();
        journal.into_iter().for_each(|ino| self.one(ino));
        for block in 0..volume.layout.nat_blocks() {
            if !self.goes_on {
                return;
            }
            let pba = volume.layout.nat_address(block, volume.nat_side(block));
            let Ok(image) = volume.block(pba) else { continue };
            if image.iter().all(|byte| *byte == 0) {
                continue;
            }
            let first = Layout::first_nid(block);
            let entries = (first.get()..).map(Nid).zip(crate::format::nat::entries(&image));
            for (nid, entry) in entries {
                if !entry.is_free() && entry.ino == nid {
                    self.one(nid);
                }
            }
        }
        if volume.has_lost_pack {
            self.later();
        }
    }

    /// Inodes that were written after the checkpoint, which another one followed that is damaged.
    fn later(&mut self) {
        let Some(loaded) = &self.source.volume.loaded else { return };
        let now = u32::try_from(loaded.checkpoint.version & 0xffff_ffff).unwrap_or(0);
        for ino in self.source.scan().inodes() {
            let is_later = |version: &Version| {
                version.ino == ino && version.checkpoint.wrapping_sub(now).cast_signed() >= 0
            };
            if self.source.scan().of(ino).iter().any(is_later) {
                self.one(ino);
            }
        }
    }

    fn one(&mut self, ino: Nid) {
        let volume = &self.source.volume;
        let is_hidden = ino < Nid::ROOT || volume.layout.quota_inodes.contains(&ino);
        if !self.goes_on || is_hidden || self.seen.contains(ino.get().into()) {
            return;
        }
        let (image, record) = if volume.loaded.is_some() && !volume.has_lost_pack {
            match volume.inode(ino) {
                Ok((_, image, record)) => (image, record),
                Err(_) => return,
            }
        } else {
            match self.source.inode(ino) {
                Ok((image, record, _)) => (image, record),
                Err(_) => return,
            }
        };
        // An inode without links was being deleted.
        if record.links == 0 {
            return;
        }
        let path = path_of(self.source, ino, &record)
            .unwrap_or_else(|| [LOST, b"/", ino.to_string().as_bytes()].concat());
        self.lost(&path, ino, "no directory leads to it");
        self.hand_out(ino, &record, &image, &path);
        if record.kind == FileKind::Directory {
            self.tree(ino, &record, &image, path);
        }
    }
}

/// The path that an inode and the directories above it say they have. A directory that is gone is
/// one in `lost/`.
pub(super) fn path_of(source: &Source, ino: Nid, record: &Inode) -> Option<Vec<u8>> {
    let knows = |record: &Inode| {
        !record.advise.intersects(Advise::LOST_PINO | Advise::ENC_NAME) && !record.name.is_empty()
    };
    if !knows(record) || ino == Nid::ROOT {
        return None;
    }
    let mut names = vec![record.name.to_vec()];
    let mut above = record.pino;
    while above != Nid::ROOT {
        let found = source.volume.inode(above).ok().map(|(_, _, record)| record);
        match found.filter(|record| record.kind == FileKind::Directory && knows(record)) {
            Some(record) if names.len() < DEEPEST => {
                names.push(record.name.to_vec());
                above = record.pino;
            }
            _ => {
                names.push(above.to_string().into_bytes());
                names.push(LOST.to_vec());
                break;
            }
        }
    }
    names.iter().rev().try_fold(Vec::new(), |path, name| join(&path, name))
}
