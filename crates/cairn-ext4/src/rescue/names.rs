//! The names that deleted inodes had: in the free space of directory blocks, in blocks of deleted
//! directories, and in the copies of directory blocks that the log still has.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_check::salvage::{DEEPEST, LONGEST_PATH, safe_name};
use cairn_vfs::FileKind;
use zerocopy::FromBytes;

use super::age::Age;
use super::candidate::Candidate;
use super::old::Old;
use super::tree::live;
use crate::checksum::InodeSeed;
use crate::format::dir_entry::{DirFormat, Entry, RawDirEntry, entries, entry_len};
use crate::format::layout::inodes;
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;

/// Most blocks of directories that are remembered.
const MOST_BLOCKS: usize = 1 << 22;

/// A name, and how new it is.
struct Known {
    parent: Ino,
    name: Vec<u8>,
    age: Age,
}

/// A deleted inode, and its newest name.
struct Deleted {
    is_directory: bool,
    /// The ages of its names.
    named: Range<Age>,
    /// When it was logged last.
    last: Age,
    known: Option<Known>,
}

/// The names of deleted inodes, and those of directories.
#[derive(Default)]
pub(super) struct Names {
    /// By number; the last one that had it first.
    deleted: HashMap<u64, Vec<Deleted>>,
    directories: HashMap<u64, (Ino, Vec<u8>)>,
    /// The names that files have now with the numbers of deleted ones.
    used: HashSet<(u64, Ino, Vec<u8>)>,
}

struct Search {
    format: DirFormat,
    names: Names,
}

impl Names {
    /// Looks for the names of deleted inodes.
    pub(super) fn find(volume: &RawVolume, old: &Old, list: &[Candidate]) -> Self {
        let mut names = Self::default();
        for candidate in list {
            let is_directory = kind_of(&candidate.record) == Some(FileKind::Directory);
            let (named, known) = (candidate.named.clone(), None);
            let last = candidate.tid.map_or(named.end, Age::of);
            let lives = names.deleted.entry(candidate.ino.get()).or_default();
            lives.push(Deleted { is_directory, named, last, known });
        }
        for lives in names.deleted.values_mut() {
            lives.sort_by_key(|one| Reverse(one.named.end));
        }
        // Checksums of directory blocks do not cover what is free.
        let format = volume.dir_format(InodeSeed(None));
        let mut search = Search { format, names };
        let mut owners: HashMap<Pba, Ino> = HashMap::new();
        search.live(volume, &mut owners);
        let is_directory = |one: &&Candidate| kind_of(&one.record) == Some(FileKind::Directory);
        for candidate in list.iter().filter(is_directory) {
            for extent in candidate.map(volume, old).extents {
                if owners.len() >= MOST_BLOCKS {
                    break;
                }
                let len = as_index(u32::try_from(extent.len).unwrap_or(0));
                for number in (extent.pba.get()..).take(len) {
                    owners.entry(Pba(number)).or_insert(candidate.ino);
                    if let Ok(block) = volume.block(Pba(number)) {
                        search.whole(candidate.ino, &block, Age::SLACK);
                    }
                }
            }
        }
        for pba in old.blocks() {
            for (tid, block) in old.of(pba) {
                let owner = first_of(&block).or_else(|| owners.get(&pba).copied());
                if let Some(owner) = owner {
                    search.whole(owner, &block, Age::of(tid));
                }
            }
        }
        search.names
    }

    /// The paths of deleted inodes, as far up as they are known.
    pub(super) fn paths(&self, list: &[Candidate]) -> Vec<Option<Vec<u8>>> {
        list.iter().map(|candidate| self.path(candidate)).collect()
    }

    fn path(&self, candidate: &Candidate) -> Option<Vec<u8>> {
        let lives = self.deleted.get(&candidate.ino.get())?;
        let known = lives.iter().find(|one| one.named == candidate.named)?.known.as_ref()?;
        let mut parts = vec![known.name.as_slice()];
        let (mut above, mut age) = (known.parent, known.age);
        let mut length = known.name.len();
        while above != inodes::ROOT && parts.len() < DEEPEST && length < LONGEST_PATH {
            let Some((parent, name, next)) = self.directory(above, age) else { break };
            length = length.saturating_add(name.len());
            parts.push(name);
            (above, age) = (parent, next);
        }
        Some(parts.into_iter().rev().fold(Vec::new(), |path, name| below(&path, name)))
    }

    /// The parent and the name of the directory that had a number then, and the age of that name.
    fn directory(&self, ino: Ino, age: Age) -> Option<(Ino, &[u8], Age)> {
        let lives = self.deleted.get(&ino.get()).map(Vec::as_slice).unwrap_or_default();
        let mut named = lives.iter().filter(|one| one.is_directory);
        let known = |one: &'_ Deleted| one.known.is_some();
        let then = named.clone().find(|one| known(one) && one.named.contains(&age));
        let now = self.directories.get(&ino.get()).filter(|_| then.is_none());
        if let Some((parent, name)) = now {
            return Some((*parent, name, Age::SLACK));
        }
        let one = then.or_else(|| named.find(|one| known(one)))?.known.as_ref()?;
        Some((one.parent, &one.name, one.age))
    }

    /// Adds a name of a number.
    fn add(&mut self, parent: Ino, ino: u32, name: &[u8], age: Age) {
        let Some(lives) = self.deleted.get_mut(&u64::from(ino)) else { return };
        let one = match age {
            Age::SLACK => lives.first_mut(),
            age => lives.iter_mut().find(|one| one.named.contains(&age)),
        };
        let Some(one) = one else { return };
        let is_newer = one.known.as_ref().is_none_or(|known| known.age < age);
        // A file that has the number now.
        let is_used = (age == Age::SLACK || age > one.last)
            && self.used.contains(&(ino.into(), parent, name.to_vec()));
        if is_newer && !is_used {
            one.known = Some(Known { parent, name: name.to_vec(), age });
        }
    }
}

/// The path of a name below another, safe for a host.
fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => safe_name(name),
        directory => [directory, b"/", &safe_name(name)].concat(),
    }
}

/// The directory whose first block this is.
fn first_of(block: &[u8]) -> Option<Ino> {
    let (dot, rest) = RawDirEntry::ref_from_prefix(block).ok()?;
    let (dotdot, names) = RawDirEntry::ref_from_prefix(rest.get(4..)?).ok()?;
    let is_first = dot.rec_len.get() == 12
        && dot.name_len == 1
        && rest.first() == Some(&b'.')
        && dotdot.name_len == 2
        && names.starts_with(b"..");
    is_first.then_some(Ino(dot.inode.get().into()))
}

impl Search {
    /// Goes through all directories in use.
    fn live(&mut self, volume: &RawVolume, owners: &mut HashMap<Pba, Ino>) {
        let layout = &volume.layout;
        let per_block = layout.block_size.checked_div(layout.inode_size).unwrap_or(1);
        let size = as_index(layout.inode_size);
        for group in 0..layout.groups {
            let Some(table) = volume.table(group) else { continue };
            for index in 0..layout.inode_table_blocks() {
                let at = Pba(table.get().saturating_add(index.into()));
                let Ok(block) = volume.block(at) else { continue };
                let first = index.saturating_mul(per_block);
                for (slot, bytes) in (first..).zip(block.chunks_exact(size)) {
                    if slot < layout.inodes_per_group {
                        self.directory(volume, layout.ino(group, slot), bytes, owners);
                    }
                }
            }
        }
    }

    fn directory(
        &mut self,
        volume: &RawVolume,
        ino: Ino,
        bytes: &[u8],
        owners: &mut HashMap<Pba, Ino>,
    ) {
        let Some(record) = live(volume, ino, bytes) else { return };
        if kind_of(&record) != Some(FileKind::Directory) || owners.len() >= MOST_BLOCKS {
            return;
        }
        let listing = volume.list(ino, &record);
        for one in listing.names {
            let number = one.ino.get();
            if self.names.deleted.contains_key(&number) {
                self.names.used.insert((number, ino, one.name.clone()));
            }
            let (mode, _) = volume
                .record_bytes(one.ino)
                .map_or((0, 0), |bytes| crate::format::inode::Inode::mode_and_links(&bytes));
            if FileKind::from_mode(mode.into()) == Some(FileKind::Directory) {
                self.names.directories.insert(one.ino.get(), (ino, one.name));
            }
        }
        for pba in listing.blocks {
            owners.insert(pba, ino);
            if let Ok(block) = volume.block(pba) {
                self.slack(ino, &block, Age::SLACK);
            }
        }
    }

    /// All entries of a block of a directory, with those that were removed.
    fn whole(&mut self, directory: Ino, block: &[u8], age: Age) {
        let format = self.format;
        for entry in entries(block, &format) {
            match entry {
                Ok(entry) => self.entry(directory, &entry, age),
                // No block of a directory.
                Err(_) => return,
            }
        }
        self.slack(directory, block, age);
    }

    fn entry(&mut self, directory: Ino, entry: &Entry<'_>, age: Age) {
        if entry.ino != 0 && entry.name != b"." && entry.name != b".." {
            self.names.add(directory, entry.ino, entry.name, age);
        }
    }

    /// Entries in the free space behind others.
    fn slack(&mut self, directory: Ino, block: &[u8], age: Age) {
        let format = self.format;
        for entry in entries(block, &format).flatten() {
            let end = entry.offset.saturating_add(entry.rec_len);
            let mut at = entry.offset.saturating_add(entry.used());
            while at.saturating_add(entry_len(1)) <= end {
                let Some((ino, name)) = removed(block, at, end, &format) else {
                    at = at.saturating_add(4);
                    continue;
                };
                self.names.add(directory, ino, name, age);
                at = at.saturating_add(entry_len(name.len()));
            }
        }
    }
}

/// An entry that was removed, if the bytes look like one.
fn removed<'b>(
    block: &'b [u8],
    at: usize,
    end: usize,
    format: &DirFormat,
) -> Option<(u32, &'b [u8])> {
    let rest = block.get(at..end)?;
    let (raw, names) = RawDirEntry::ref_from_prefix(rest).ok()?;
    let ino = raw.inode.get();
    let len = usize::from(raw.name_len);
    let fits = ino != 0 && ino <= format.inodes_count && len > 0 && raw.file_type <= 7;
    let name = names.get(..len).filter(|_| fits)?;
    let is_name = !name.contains(&0) && !name.contains(&b'/') && name != b"." && name != b"..";
    is_name.then_some((ino, name))
}
