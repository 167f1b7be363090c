//! `readdir` and `readdirplus`.
//!
//! Damage hides no entry that can be listed: the error of a listing is its end, not its beginning.

use std::collections::HashMap;

use cairn_vfs::{DirEntry, Error, FileKind, FileSystem, Result};
use parking_lot::Mutex;
use zerocopy::{Immutable, IntoBytes};

use crate::convert;
use crate::core::Core;
use crate::wire::abi::{Dirent, EntryOut};

/// Entries taken from the filesystem before their attributes are looked up.
const BATCH: usize = 64;
/// The largest answer that is made room for at once.
const ROOM: usize = 32 << 10;
/// Directories of which it is known at a time that something in them is damaged.
const MAX_DAMAGED: usize = 1024;

/// Damage that listings have met: told where their entries end. Locking: nothing else is taken under it.
#[derive(Default)]
pub(crate) struct Damaged(Mutex<HashMap<u64, Error>>);

impl Damaged {
    /// The answer to a request that filled a listing from `position` on.
    pub(crate) fn answer(&self, node: u64, position: u64, listing: &Listing, filled: Result<()>) -> Result<()> {
        let at_end = listing.bytes.is_empty();
        match filled {
            Err(error) if at_end => Err(error),
            Err(error) => {
                let mut damaged = self.0.lock();
                if damaged.len() < MAX_DAMAGED {
                    damaged.entry(node).or_insert(error);
                }
                Ok(())
            }
            Ok(()) if at_end => self.0.lock().remove(&node).map_or(Ok(()), Err),
            Ok(()) => {
                if position == 0 {
                    self.0.lock().remove(&node);
                }
                Ok(())
            }
        }
    }
}

/// Entries as the kernel reads them, up to the size it asked for.
pub(crate) struct Listing {
    bytes: Vec<u8>,
    limit: usize,
}

impl Listing {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: Vec::with_capacity(limit.min(ROOM)), limit }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds an entry behind `before` (what `readdirplus` puts there). False if there is no room for it.
    fn add<T: IntoBytes + Immutable>(&mut self, before: &T, entry: &DirEntry, ino: u64) -> bool {
        // At most 255 bytes of name.
        let kind = convert::entry_type(entry.kind.unwrap_or(FileKind::Regular));
        let head = Dirent { ino, off: entry.next, namelen: entry.name.len() as u32, kind };
        let size = size_of::<T>() + (size_of::<Dirent>() + entry.name.len()).next_multiple_of(8);
        if self.bytes.len() + size > self.limit {
            return false;
        }
        let end = self.bytes.len() + size;
        self.bytes.extend_from_slice(before.as_bytes());
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(&entry.name);
        self.bytes.resize(end, 0);
        true
    }
}

/// Fills a listing with names.
pub(crate) fn read(core: &Core, fs: &dyn FileSystem, node: u64, position: u64, listing: &mut Listing) -> Result<()> {
    fs.readdir(core.ino(node), position, &mut |entry| listing.add(&(), &entry, entry.ino.get()))
}

/// Fills a listing with names and attributes. Each entry but `.` and `..` carries a reference, which the kernel will drop.
pub(crate) fn read_plus(
    core: &Core,
    fs: &dyn FileSystem,
    node: u64,
    mut position: u64,
    listing: &mut Listing,
) -> Result<()> {
    // Looked up after the listing, not from within it: the filesystem may hold the directory's lock there.
    let mut answer = Ok(());
    loop {
        let mut batch: Vec<DirEntry> = Vec::with_capacity(BATCH);
        let read = fs.readdir(core.ino(node), position, &mut |entry| {
            batch.push(entry);
            batch.len() < BATCH
        });
        answer = answer.and(read);
        let complete = batch.len() < BATCH;
        for entry in batch {
            position = entry.next;
            if !add(core, fs, node, &entry, listing) {
                return answer;
            }
        }
        if complete {
            return answer;
        }
    }
}

/// False if the listing is full (the entry is then not in it, and holds no reference).
fn add(core: &Core, fs: &dyn FileSystem, node: u64, entry: &DirEntry, listing: &mut Listing) -> bool {
    let referenced = !entry.name.name().is_dots();
    let found = if referenced { fs.lookup(core.ino(node), &entry.name) } else { fs.getattr(entry.ino) };
    let found = match found {
        Ok(found) => found,
        // Removed since it was listed.
        Err(Error::NotFound | Error::Stale) => return true,
        // Its attributes cannot be read: it is listed by its name (node 0), and whoever looks at it hears why.
        Err(_) => return listing.add(&EntryOut::default(), entry, entry.ino.get()),
    };
    let out = core.entry(&found);
    let entry = DirEntry { kind: Some(found.kind), ..entry.clone() };
    let added = listing.add(&out, &entry, out.attr.ino);
    if !added && referenced {
        fs.forget(found.ino, 1);
    }
    added
}

#[cfg(test)]
mod tests {
    use cairn_base::Ino;

    use cairn_vfs::NameBuf;

    use super::*;

    #[test]
    fn entries_are_aligned_and_a_full_listing_takes_no_more() {
        let entry = DirEntry {
            ino: Ino(12),
            kind: Some(FileKind::Directory),
            name: NameBuf::try_from(b"abc".to_vec()).unwrap(),
            next: 7,
        };
        let mut listing = Listing::new(63);
        assert!(listing.add(&(), &entry, 12));
        assert!(!listing.add(&(), &entry, 12), "32 bytes each");
        let bytes = listing.into_bytes();
        assert_eq!(bytes.len(), 32);
        let head = Dirent { ino: 12, off: 7, namelen: 3, kind: 4 };
        assert_eq!(&bytes[..24], head.as_bytes());
        assert_eq!(&bytes[24..], b"abc\0\0\0\0\0");
    }
}
