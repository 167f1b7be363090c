//! `readdir` and `readdirplus`.

use cairn_vfs::{DirEntry, Error, FileSystem, Result};

use crate::core::Core;
use crate::listing::Listing;
use crate::wire::abi::EntryOut;

/// Entries taken from the filesystem before their attributes are looked up.
const BATCH: usize = 64;

/// Fills a listing with names.
pub(crate) fn read(
    core: &Core,
    fs: &dyn FileSystem,
    node: u64,
    position: u64,
    listing: &mut Listing,
) -> Result<()> {
    fs.readdir(core.ino(node), position, &mut |entry| listing.add(&(), &entry, entry.ino.get()))
}

/// Fills a listing with names and attributes. Each entry but `.` and `..` carries a reference,
/// which the kernel will drop.
pub(crate) fn read_plus(
    core: &Core,
    fs: &dyn FileSystem,
    node: u64,
    mut position: u64,
    listing: &mut Listing,
) -> Result<()> {
    // Looked up after the listing, not from within it: the filesystem may hold the directory's lock
    // there.
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
fn add(
    core: &Core,
    fs: &dyn FileSystem,
    node: u64,
    entry: &DirEntry,
    listing: &mut Listing,
) -> bool {
    let referenced = !entry.name.name().is_dots();
    let found =
        if referenced { fs.lookup(core.ino(node), &entry.name) } else { fs.getattr(entry.ino) };
    let found = match found {
        Ok(found) => found,
        // Removed since it was listed.
        Err(Error::NotFound | Error::Stale) => return true,
        // Its attributes cannot be read: it is listed by its name (node 0), and a look-up of it
        // returns the error.
        Err(_) => return listing.add(&EntryOut::default(), entry, entry.ino.get()),
    };
    let out = core.entry_in(fs, core.ino(node), &found);
    let entry = DirEntry { kind: Some(found.kind), ..entry.clone() };
    let added = listing.add(&out, &entry, out.attr.ino);
    if !added && referenced {
        fs.forget(found.ino, 1);
    }
    added
}
