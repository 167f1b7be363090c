//! The names that deleted inodes had: in the free space of directory blocks, in blocks of deleted
//! directories, and in the copies of directory blocks that the log still has.

use std::collections::{HashMap, HashSet};

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_check::salvage::{LONGEST_PATH, safe_name};
use cairn_vfs::FileKind;
use zerocopy::FromBytes;

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
/// Most directories above an inode.
const DEEPEST: usize = 1000;
/// A name in free space counts less than one in a copy of any transaction.
const SLACK: u64 = 0;

/// A name, and how new it is.
struct Known {
    parent: Ino,
    name: Vec<u8>,
    age: u64,
}

/// The names of deleted inodes, and those of directories.
pub(super) struct Names {
    deleted: HashMap<u64, Known>,
    directories: HashMap<u64, (Ino, Vec<u8>)>,
}

struct Search<'a> {
    format: DirFormat,
    wanted: &'a HashSet<u64>,
    names: Names,
}

impl Names {
    /// Looks for the names of the wanted inodes.
    pub(super) fn find(
        volume: &RawVolume,
        old: &Old,
        wanted: &HashSet<u64>,
        list: &[Candidate],
    ) -> Self {
        let names = Self { deleted: HashMap::new(), directories: HashMap::new() };
        // Checksums of directory blocks do not cover what is free.
        let format = volume.dir_format(InodeSeed(None));
        let mut search = Search { format, wanted, names };
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
                        search.whole(candidate.ino, &block, SLACK);
                    }
                }
            }
        }
        for pba in old.blocks() {
            for (tid, block) in old.of(pba) {
                let age = u64::from(tid.0).saturating_add(1);
                let owner = first_of(&block).or_else(|| owners.get(&pba).copied());
                if let Some(owner) = owner {
                    search.whole(owner, &block, age);
                }
            }
        }
        search.names
    }

    /// The path of a deleted inode, as far up as it is known.
    pub(super) fn path(&self, ino: Ino) -> Option<Vec<u8>> {
        let known = self.deleted.get(&ino.get())?;
        let mut parts = vec![known.name.as_slice()];
        let mut above = known.parent;
        let mut length = known.name.len();
        while above != inodes::ROOT && parts.len() < DEEPEST && length < LONGEST_PATH {
            let number = above.get();
            let next = match (self.directories.get(&number), self.deleted.get(&number)) {
                (Some((parent, name)), _) => (*parent, name.as_slice()),
                (None, Some(known)) => (known.parent, known.name.as_slice()),
                (None, None) => break,
            };
            length = length.saturating_add(next.1.len());
            parts.push(next.1);
            above = next.0;
        }
        Some(parts.into_iter().rev().fold(Vec::new(), |path, name| below(&path, name)))
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

impl Search<'_> {
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
                self.slack(ino, &block, SLACK);
            }
        }
    }

    /// All entries of a block of a directory, with those that were removed.
    fn whole(&mut self, directory: Ino, block: &[u8], age: u64) {
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

    fn entry(&mut self, directory: Ino, entry: &Entry<'_>, age: u64) {
        if entry.ino != 0 && entry.name != b"." && entry.name != b".." {
            self.add(directory, entry.ino, entry.name, age);
        }
    }

    fn add(&mut self, parent: Ino, ino: u32, name: &[u8], age: u64) {
        if !self.wanted.contains(&u64::from(ino)) {
            return;
        }
        let known = self.names.deleted.get(&u64::from(ino));
        if known.is_none_or(|known| known.age < age) {
            let known = Known { parent, name: name.to_vec(), age };
            self.names.deleted.insert(ino.into(), known);
        }
    }

    /// Entries in the free space behind others.
    fn slack(&mut self, directory: Ino, block: &[u8], age: u64) {
        let format = self.format;
        for entry in entries(block, &format).flatten() {
            let end = entry.offset.saturating_add(entry.rec_len);
            let mut at = entry.offset.saturating_add(entry.used());
            while at.saturating_add(entry_len(1)) <= end {
                let Some((ino, name)) = removed(block, at, end, &format) else {
                    at = at.saturating_add(4);
                    continue;
                };
                self.add(directory, ino, name, age);
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
