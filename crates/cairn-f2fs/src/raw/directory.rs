//! The entries of a directory, whatever its bytes are, and inodes by path.

use std::collections::HashSet;

use cairn_base::Ino;
use cairn_cache::block::Image;
use cairn_check::salvage::Faults;
use cairn_vfs::FileKind;

use super::RawVolume;
use super::tree::{Below, Pointer, Visitor, walk};
use crate::error::{Error, Result};
use crate::format::Inode;
use crate::format::dentry::Dentries;
use crate::format::inode::InlineFlags;
use crate::format::units::{BlockAddr, Nid};

/// Most blocks of a directory that are read.
const MOST_BLOCKS: usize = 1 << 22;
/// Most names of a directory.
const MOST_NAMES: usize = 1 << 24;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: Nid,
    /// The hash that is stored with it.
    pub(crate) hash: u32,
}

/// The names of a directory without `.` and `..`, its parent, and what could not be read.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) names: Vec<Named>,
    pub(crate) parent: Option<Nid>,
    pub(crate) faults: Faults,
}

/// Where the nodes of a directory come from.
pub(crate) type Fetch<'f> = &'f dyn Fn(Below) -> Result<(BlockAddr, Image), String>;

/// The blocks of a directory.
struct Blocks<'f> {
    fetch: Fetch<'f>,
    blocks: Vec<(u64, BlockAddr)>,
    faults: Faults,
}

impl Visitor for Blocks<'_> {
    fn fetch(&mut self, _: &RawVolume, below: Below) -> Result<(BlockAddr, Image), String> {
        (self.fetch)(below)
    }

    fn node(&mut self, _: Below, _: BlockAddr) {}

    fn pointer(&mut self, pointer: Pointer) {
        if pointer.addr.is_address() && self.blocks.len() < MOST_BLOCKS {
            self.blocks.push((pointer.block, pointer.addr));
        }
    }

    fn fault(&mut self, below: Below, what: String) {
        self.faults.add(format!("node {}: {what}", below.nid));
    }
}

impl RawVolume {
    /// All names of a directory that can be read.
    pub(crate) fn list(&self, ino: Nid, record: &Inode, image: &[u8]) -> Listing {
        self.list_by(ino, record, image, &|below| self.node_below(below))
    }

    /// As [`RawVolume::list`], with nodes from elsewhere.
    pub(crate) fn list_by(
        &self,
        ino: Nid,
        record: &Inode,
        image: &[u8],
        fetch: Fetch<'_>,
    ) -> Listing {
        let mut listing = Listing::default();
        if record.inline.contains(InlineFlags::DENTRY) {
            listing.add(image.get(record.inline_data_range()).unwrap_or_default());
            return listing;
        }
        let mut found = Blocks { fetch, blocks: Vec::new(), faults: Faults::default() };
        walk(self, ino, (record, image), &mut found);
        listing.faults = found.faults;
        let mut seen = HashSet::new();
        for (at, addr) in found.blocks {
            if !seen.insert(addr) || !self.allowance.structure() {
                listing.faults.add(format!("directory block {at}: block {addr} is read already"));
                continue;
            }
            let block = match self.layout.in_main(addr) {
                true => self.block(addr.pba()).map_err(|error| error.to_string()),
                false => Err(format!("address {addr} is not in the main area")),
            };
            match block {
                Ok(block) => listing.add(&block),
                Err(why) => listing.faults.add(format!("directory block {at}: {why}")),
            }
        }
        listing
    }

    /// The inode that a number or a path names.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(&self, word: &[u8]) -> Result<Nid> {
        if let Some(number) = number(word) {
            let nid = Nid::of(Ino(number)).filter(|nid| self.layout.is_nid(*nid));
            let none = || {
                let end = self.layout.max_nid().saturating_sub(1);
                Error::Option(format!("no nid {number}: they count from 1 to {end}"))
            };
            return nid.ok_or_else(none);
        }
        let mut ino = Nid::ROOT;
        let mut above = vec![ino];
        for name in word.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let none = |why: &str| {
                let path = String::from_utf8_lossy(word).into_owned();
                Error::Option(format!("{path}: {why}: give a path, or the number of an inode"))
            };
            let (_, image, record) = self.inode(ino).map_err(|why| none(&why))?;
            if record.kind != FileKind::Directory {
                return Err(none("not a directory"));
            }
            match name {
                b"." => continue,
                b".." => {
                    above.pop();
                    ino = above.last().copied().unwrap_or(Nid::ROOT);
                }
                name => {
                    let listing = self.list(ino, &record, &image);
                    let found = listing.names.iter().find(|one| one.name == name);
                    ino = found.ok_or_else(|| none("no such name"))?.ino;
                    above.push(ino);
                }
            }
        }
        Ok(ino)
    }
}

/// A word that is a number, or one in angle brackets, as debugfs has it.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    let inner = word.strip_prefix(b"<").and_then(|word| word.strip_suffix(b">"));
    std::str::from_utf8(inner.unwrap_or(word)).ok()?.parse().ok()
}

impl Listing {
    fn add(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        for entry in Dentries::new(bytes).iter() {
            match entry {
                Ok(entry) if entry.ino.is_none() || entry.name == b"." => {}
                Ok(entry) if entry.name == b".." => self.parent = Some(entry.ino),
                Ok(_) if self.names.len() >= MOST_NAMES => {
                    self.faults.add("it has too many names");
                }
                Ok(entry) => {
                    let (name, ino, hash) = (entry.name.to_vec(), entry.ino, entry.hash);
                    self.names.push(Named { name, ino, hash });
                }
                Err(bad) => {
                    self.faults.add(format!("slot {}: a name of {} bytes", bad.slot, bad.name_len));
                }
            }
        }
    }
}
