//! `readdir` and `readdirplus`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{DirEntry, Error, FileKind, FileSystem, Result};
use fuser::{INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use crate::convert;
use crate::core::Core;

/// Entries taken from the filesystem before their attributes are looked up.
const BATCH: usize = 64;

/// Fills a reply with names.
pub(crate) fn read(
    core: &Core,
    fs: &dyn FileSystem,
    node: INodeNo,
    position: u64,
    reply: &mut ReplyDirectory,
) -> Result<()> {
    fs.readdir(core.ino(node), position, &mut |entry| {
        let kind = convert::file_type(entry.kind.unwrap_or(FileKind::Regular));
        !reply.add(INodeNo(entry.ino.get()), entry.next, kind, OsStr::from_bytes(&entry.name))
    })
}

/// Fills a reply with names and attributes. Each entry but `.` and `..` carries a reference, which the kernel will drop.
pub(crate) fn read_plus(
    core: &Core,
    fs: &dyn FileSystem,
    node: INodeNo,
    mut position: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Result<()> {
    // Looked up after the listing, not from within it: the filesystem may hold the directory's lock there.
    loop {
        let mut batch: Vec<DirEntry> = Vec::with_capacity(BATCH);
        fs.readdir(core.ino(node), position, &mut |entry| {
            batch.push(entry);
            batch.len() < BATCH
        })?;
        let complete = batch.len() < BATCH;
        for entry in batch {
            position = entry.next;
            if add(core, fs, node, &entry, reply)? {
                return Ok(());
            }
        }
        if complete {
            return Ok(());
        }
    }
}

/// True if the reply is full (the entry is then not in it, and holds no reference).
fn add(
    core: &Core,
    fs: &dyn FileSystem,
    node: INodeNo,
    entry: &DirEntry,
    reply: &mut ReplyDirectoryPlus,
) -> Result<bool> {
    let referenced = !matches!(entry.name.as_slice(), b"." | b"..");
    let found = if referenced { fs.lookup(core.ino(node), &entry.name) } else { fs.getattr(entry.ino) };
    let found = match found {
        Ok(found) => found,
        // Removed since it was listed.
        Err(Error::NotFound | Error::Stale) => return Ok(false),
        Err(error) => return Err(error),
    };
    let (attributes, generation) = core.entry(&found);
    let name = OsStr::from_bytes(&entry.name);
    let full = reply.add(attributes.ino, entry.next, name, &core.timeout, &attributes, generation);
    if full && referenced {
        fs.forget(found.ino, 1);
    }
    Ok(full)
}
