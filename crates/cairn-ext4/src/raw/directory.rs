//! The entries of a directory, whatever its bytes are, and inodes by path.

use std::collections::HashSet;
use std::ops::Range;

use cairn_base::units::as_index;
use cairn_base::{FileBlock, Ino, Pba};
use cairn_check::salvage::Faults;
use cairn_vfs::FileKind;

use super::RawVolume;
use super::map::{Extents, walk};
use crate::checksum::InodeSeed;
use crate::error::{Error, Result};
use crate::format::dir_entry::{DirFormat, Entries, entries_in, verify_leaf};
use crate::format::features::Incompat;
use crate::format::htree::is_spanned_by_free_entry;
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::layout::inodes;
use crate::format::xattr::{self, Value, XattrLocation};

/// Most blocks of a directory that are read: 256 GiB of entries are no directory.
const MOST_BLOCKS: u64 = 1 << 22;
/// Most names of a directory.
const MOST_NAMES: usize = 1 << 24;
/// Bytes of the parent's number in an inline directory.
const INLINE_FROM: usize = 4;
/// Prefix index of `system.`.
const SYSTEM: u8 = 7;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: Ino,
    /// The code of the file type beside it; 0 if there is none.
    pub(crate) code: u8,
}

/// The names of a directory without `.` and `..`, its parent, and what could not be read.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) names: Vec<Named>,
    pub(crate) parent: Option<Ino>,
    pub(crate) faults: Faults,
    /// The blocks of entries.
    pub(crate) blocks: Vec<Pba>,
}

impl RawVolume {
    /// What the entries of a directory's blocks depend on.
    pub(crate) fn dir_format(&self, seed: InodeSeed) -> DirFormat {
        DirFormat {
            block_size: as_index(self.layout.block_size),
            filetype: self.layout.features.incompat(Incompat::FILETYPE),
            seed,
            inodes_count: self.layout.inodes_count,
        }
    }

    /// The bytes that lie in an inode instead of blocks.
    pub(crate) fn inline_bytes(&self, ino: Ino, record: &Record) -> Vec<u8> {
        let mut bytes = record.block.to_vec();
        bytes.extend_from_slice(&self.inline_tail(ino, record));
        bytes
    }

    /// The value of `system.data`.
    pub(crate) fn inline_tail(&self, ino: Ino, record: &Record) -> Vec<u8> {
        let attributes = xattr::decode(&record.extra, XattrLocation::Inode, ino);
        let found = attributes.unwrap_or_default().into_iter().find_map(|one| match one.value {
            Value::Here(value) if one.index == SYSTEM && one.name == b"data" => {
                Some(value.to_vec())
            }
            _ => None,
        });
        found.unwrap_or_default()
    }

    /// All names of a directory that can be read.
    pub(crate) fn list(&self, ino: Ino, record: &Record) -> Listing {
        let mut listing = Listing::default();
        let seed = self.layout.checksum.for_inode(ino, record.generation);
        let format = self.dir_format(seed);
        if record.flags.contains(InodeFlags::INLINE_DATA) {
            let parent = record.block.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
            listing.parent = Some(Ino(parent.into()));
            let format = self.dir_format(InodeSeed(None));
            let head = INLINE_FROM..record.block.len();
            listing.add(&format, entries_in(&record.block, head, &format));
            let tail = self.inline_tail(ino, record);
            listing.add(&format, entries_in(&tail, 0..tail.len(), &format));
            return listing;
        }
        let mut map = Extents::default();
        walk(self, ino, record, &mut map);
        map.faults.into_iter().for_each(|(_, what)| listing.faults.add(what));
        let size = u64::from(self.layout.block_size);
        let end = record.size.div_ceil(size).min(MOST_BLOCKS);
        let mut seen = HashSet::new();
        for extent in map.extents {
            let Some(part) = extent.clip(0, end) else { continue };
            for (at, number) in (part.start..part.end()).zip(part.pba.get()..) {
                if !seen.insert(number) || !self.allowance.structure() {
                    listing
                        .faults
                        .add(format!("directory block {at}: block {number} is read already"));
                    continue;
                }
                listing.blocks.push(Pba(number));
                match self.block(Pba(number)) {
                    Ok(block) => {
                        let names = names_in(&block, at == 0, &format);
                        // An index has no names but the dots.
                        if names.end == format.leaf_len()
                            && let Err(why) = verify_leaf(&block, &format, ino, FileBlock(at))
                        {
                            let what = "what it names may be wrong";
                            listing.faults.add(format!("{why}: {what}"));
                        }
                        listing.add(&format, entries_in(&block, names, &format));
                    }
                    Err(error) => listing.faults.add(format!("directory block {at}: {error}")),
                }
            }
        }
        listing
    }

    /// The inode that a number or a path names.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(&self, word: &[u8]) -> Result<Ino> {
        let number = word.strip_prefix(b"<").and_then(|word| word.strip_suffix(b">"));
        let number = std::str::from_utf8(number.unwrap_or(word)).ok();
        if let Some(number) = number.and_then(|digits| digits.parse::<u64>().ok()) {
            let exists = (1..=u64::from(self.layout.inodes_count)).contains(&number);
            let none = || {
                let last = self.layout.inodes_count;
                Error::Option(format!("no inode {number}: they count from 1 to {last}"))
            };
            return exists.then_some(Ino(number)).ok_or_else(none);
        }
        let mut ino = inodes::ROOT;
        for name in word.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if name == b"." {
                continue;
            }
            let none = |why: &str| {
                let path = String::from_utf8_lossy(word).into_owned();
                Error::Option(format!("{path}: {why}: give a path, or the number of an inode"))
            };
            let record = self.record(ino).ok_or_else(|| none("a directory cannot be read"))?;
            if record.mode & mode::TYPE != mode::DIRECTORY {
                return Err(none("not a directory"));
            }
            let listing = self.list(ino, &record);
            let found = match name {
                b".." => listing.parent,
                name => listing.names.iter().find(|one| one.name == name).map(|one| one.ino),
            };
            ino = found.ok_or_else(|| none("no such name"))?;
        }
        Ok(ino)
    }
}

impl Listing {
    fn add(&mut self, format: &DirFormat, entries: Entries<'_>) {
        for entry in entries {
            match entry {
                Ok(entry) if entry.ino == 0 || entry.name == b"." => {}
                Ok(entry) if entry.name == b".." => self.parent = Some(Ino(entry.ino.into())),
                Ok(_) if self.names.len() >= MOST_NAMES => {
                    self.faults.add("it has too many names");
                }
                Ok(entry) => {
                    let (name, ino) = (entry.name.to_vec(), Ino(entry.ino.into()));
                    let kind = entry.kind(format);
                    let code = kind.map_or(0, FileKind::entry_code);
                    self.names.push(Named { name, ino, code });
                }
                Err(defect) => self.faults.add(format!(
                    "an entry at byte {} is damaged: {}, value {}",
                    defect.offset, defect.what, defect.value
                )),
            }
        }
    }
}

/// The part of a block that has names. An index block has none but the dots: its last entry ends
/// with the block, where a leaf has its checksum.
fn names_in(block: &[u8], is_first: bool, format: &DirFormat) -> Range<usize> {
    if is_spanned_by_free_entry(block, format) {
        return 0..0;
    }
    let dotdot = entries_in(block, 0..block.len(), format).nth(1).and_then(Result::ok);
    let is_root = dotdot.is_some_and(|entry| {
        let end = entry.offset.saturating_add(entry.rec_len);
        is_first && entry.name == b".." && end == block.len()
    });
    if is_root { 0..block.len() } else { 0..format.leaf_len() }
}

/// The kind of an inode, if its mode has one.
pub(crate) fn kind_of(record: &Record) -> Option<FileKind> {
    FileKind::from_mode(record.mode.into())
}
