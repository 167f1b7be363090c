//! The tree from the root on, and then the inodes that no directory leads to.

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_base::units::as_index;
use cairn_check::BlockSet;
use cairn_check::salvage::{Loss, Receiver, join};
use cairn_vfs::FileKind;

use super::contents::{contents, describe};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;
use crate::raw::RawVolume;
use crate::raw::directory::{Named, kind_of};

/// Most directories on the way from the root to another. Deeper ones count as without a name.
const DEEPEST: usize = 1000;
/// Most files with several names whose first name is kept.
const MOST_LINKED: usize = 1 << 20;
/// Steps from a directory without a name up to the first of its kind.
const HIGHEST: usize = 1000;
/// Where inodes go that no directory leads to.
const LOST: &[u8] = b"lost";

/// A directory that is being walked.
struct Level {
    path: Vec<u8>,
    names: std::vec::IntoIter<Named>,
}

struct Walk<'a> {
    volume: &'a RawVolume,
    receiver: &'a mut dyn Receiver,
    /// Inodes that were found.
    seen: BlockSet,
    /// The first path of files with several names.
    first: HashMap<u64, Vec<u8>>,
    done: u64,
    goes_on: bool,
}

/// Hands out everything that can be found.
pub(super) fn walk(volume: &RawVolume, receiver: &mut dyn Receiver) {
    let inodes = u64::from(volume.layout.inodes_count).saturating_add(1);
    let Ok(seen) = BlockSet::new(inodes) else {
        let what = "there is no memory for a set of its inodes".into();
        receiver.lost(Loss { path: b"/".to_vec(), ino: 0, what });
        return;
    };
    let mut walk = Walk { volume, receiver, seen, first: HashMap::new(), done: 0, goes_on: true };
    walk.root();
    walk.unnamed();
}

impl Walk<'_> {
    fn lost(&mut self, path: &[u8], ino: Ino, what: impl Into<String>) {
        let loss = Loss { path: path.to_vec(), ino: ino.get(), what: what.into() };
        self.goes_on &= self.receiver.lost(loss);
    }

    fn root(&mut self) {
        self.seen.insert(inodes::ROOT.get());
        match self.volume.record(inodes::ROOT) {
            Some(record) if kind_of(&record) == Some(FileKind::Directory) => {
                self.tree(inodes::ROOT, &record, Vec::new());
            }
            Some(_) => self.lost(b"/", inodes::ROOT, "the root's inode is no directory"),
            None => self.lost(b"/", inodes::ROOT, "the root's inode cannot be read"),
        }
    }

    /// Hands out a directory and everything below it.
    fn tree(&mut self, ino: Ino, record: &Record, path: Vec<u8>) {
        let mut levels = vec![self.level(ino, record, path)];
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
            if let Some(record) = self.named(ino, &path, is_deep) {
                levels.push(self.level(ino, &record, path));
            }
        }
    }

    fn level(&mut self, ino: Ino, record: &Record, path: Vec<u8>) -> Level {
        let listing = self.volume.list(ino, record);
        let shown: &[u8] = if path.is_empty() { b"/" } else { &path };
        for what in listing.faults {
            self.lost(shown, ino, what);
        }
        Level { path, names: listing.names.into_iter() }
    }

    fn progress(&mut self) {
        self.done = self.done.saturating_add(1);
        let total = u64::from(self.volume.layout.inodes_count);
        self.goes_on &= self.receiver.progress("inodes", self.done, total);
    }

    /// A name that leads to an inode. Returns the record of a directory that is to be walked.
    fn named(&mut self, ino: Ino, path: &[u8], is_deep: bool) -> Option<Record> {
        let Some(bytes) = self.volume.record_bytes(ino) else {
            self.lost(path, ino, "its inode cannot be read");
            return None;
        };
        let record = Record::decode_unchecked(&bytes, &self.volume.layout)?;
        let wrong = Record::verify(&bytes, ino, &self.volume.layout).err();
        let Some(kind) = kind_of(&record).filter(|_| record.links > 0 && record.dtime == 0) else {
            let why = wrong.map_or("its inode is not in use".to_owned(), |why| why.to_string());
            self.lost(path, ino, why);
            return None;
        };
        if let Some(why) = wrong {
            self.lost(path, ino, format!("its inode is damaged, and so may be the copy: {why}"));
        }
        if kind == FileKind::Directory {
            if is_deep {
                self.lost(path, ino, "it is too deep in the tree: it is in lost/");
                return None;
            }
            if !self.seen.insert(ino.get()) {
                self.lost(path, ino, "another name leads to the same directory");
                return None;
            }
            self.hand_out(ino, &record, path);
            return Some(record);
        }
        if !self.seen.insert(ino.get()) {
            if let Some(first) = self.first.get(&ino.get()) {
                self.goes_on &= self.receiver.linked(path, ino.get(), &first.clone());
                return None;
            }
        } else if record.links > 1 && self.first.len() < MOST_LINKED {
            self.first.insert(ino.get(), path.to_vec());
        }
        self.hand_out(ino, &record, path);
        None
    }

    fn hand_out(&mut self, ino: Ino, record: &Record, path: &[u8]) {
        self.progress();
        let found = describe(ino, record, path.to_vec());
        let mut contents = contents(self.volume, ino, record);
        self.goes_on &= self.receiver.found(&found, &mut *contents);
    }

    /// Inodes in use that no name led to: directories first, so that their files have names.
    fn unnamed(&mut self) {
        for wants_directories in [true, false] {
            let layout = &self.volume.layout;
            let per_block = layout.block_size.checked_div(layout.inode_size).unwrap_or(1);
            for group in 0..layout.groups {
                let Some(table) = self.volume.table(group) else { continue };
                for index in 0..layout.inode_table_blocks() {
                    if !self.goes_on {
                        return;
                    }
                    let at = cairn_base::Pba(table.get().saturating_add(index.into()));
                    let Ok(block) = self.volume.block(at) else { continue };
                    let first = index.saturating_mul(per_block);
                    let size = as_index(layout.inode_size);
                    for (slot, bytes) in (first..).zip(block.chunks_exact(size)) {
                        if slot < layout.inodes_per_group {
                            let ino = layout.ino(group, slot);
                            self.slot(ino, bytes, wants_directories);
                        }
                    }
                }
            }
        }
    }

    fn slot(&mut self, ino: Ino, bytes: &[u8], wants_directory: bool) {
        if self.seen.contains(ino.get()) || !self.goes_on {
            return;
        }
        let Some(record) = live(self.volume, ino, bytes) else { return };
        let is_directory = kind_of(&record) == Some(FileKind::Directory);
        if is_directory != wants_directory {
            return;
        }
        let (top, record) = match is_directory {
            true => self.top(ino, record),
            false => (ino, record),
        };
        self.seen.insert(top.get());
        let path = [LOST, b"/", top.to_string().as_bytes()].concat();
        self.lost(&path, top, "no directory leads to it");
        self.hand_out(top, &record, &path);
        if is_directory {
            self.tree(top, &record, path);
        }
    }

    /// The highest directory above one that no name leads to, as far as their `..` lead.
    fn top(&self, ino: Ino, record: Record) -> (Ino, Record) {
        let (mut top, mut record) = (ino, record);
        for _ in 0..HIGHEST {
            let parent = self.volume.list(top, &record).parent;
            let Some(parent) = parent.filter(|parent| !self.seen.contains(parent.get())) else {
                break;
            };
            let bytes = self.volume.record_bytes(parent);
            let above = bytes.and_then(|bytes| live(self.volume, parent, &bytes));
            let is_directory = |record: &Record| kind_of(record) == Some(FileKind::Directory);
            let Some(above) = above.filter(is_directory) else { break };
            let leads = self.volume.list(parent, &above).names.iter().any(|one| one.ino == top);
            if parent == ino || !leads {
                break;
            }
            (top, record) = (parent, above);
        }
        (top, record)
    }
}

/// The record of an inode that a user's file may have, if it is in use and sound.
pub(super) fn live(volume: &RawVolume, ino: Ino, bytes: &[u8]) -> Option<Record> {
    let (mode, links) = Record::mode_and_links(bytes);
    if mode == 0 || links == 0 || is_system(volume, ino) {
        return None;
    }
    Record::verify(bytes, ino, &volume.layout).ok()?;
    let record = Record::decode_unchecked(bytes, &volume.layout)?;
    let is_file = kind_of(&record).is_some()
        && record.dtime == 0
        && !record.flags.contains(InodeFlags::EA_INODE);
    // A checksum tells more than a bitmap does.
    let is_sure =
        volume.layout.checksum.seed().is_some() || volume.is_inode_in_use(ino) != Some(false);
    (is_file && is_sure).then_some(record)
}

/// Is the inode one of the volume's own?
pub(super) fn is_system(volume: &RawVolume, ino: Ino) -> bool {
    let raw = &volume.superblock.raw;
    let named = [
        raw.s_journal_inum,
        raw.s_usr_quota_inum,
        raw.s_grp_quota_inum,
        raw.s_prj_quota_inum,
        raw.s_orphan_file_inum,
    ];
    let number = ino.get();
    (number < u64::from(volume.layout.first_ino) && ino != inodes::ROOT)
        || named.iter().any(|word| u64::from(word.get()) == number)
}
