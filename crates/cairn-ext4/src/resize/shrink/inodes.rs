//! Inodes of the groups that go get other numbers.
//!
//! Checksums of what belongs to an inode (its directory blocks, its map) begin with a seed that
//! follows from number and generation. An inode that moves gets the generation with which the seed
//! stays the same, so that only its record, and the entries that name it, change: one transaction.

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_vfs::FileKind;

use super::raw_dir::RawDir;
use super::session::Session;
use crate::checksum::MetadataChecksum;
use crate::corrupt::Corrupt;
use crate::dir;
use crate::error::{Error, Result};
use crate::format::inode::{Inode as Record, mode};
use crate::format::layout::inodes::ROOT;

/// Blocks that a move changes beside entries: two records, two bitmaps and descriptors, a part of
/// an inode table.
const CREDITS: u32 = 16;

/// Who names the inodes that move.
#[derive(Default)]
struct Names {
    /// Directory and name of each link.
    links: HashMap<Ino, Vec<(Ino, Vec<u8>)>>,
    /// Subdirectories of directories that move.
    children: HashMap<Ino, Vec<Ino>>,
}

/// Moves all inodes whose numbers the smaller volume does not have.
///
/// # Errors
/// The volume is damaged or has no free inodes, an inode has too many names, or the device failed.
pub(super) fn move_all(session: &Session) -> Result<()> {
    let goes = |ino: Ino| ino.get() > u64::from(session.inodes);
    let moving: Vec<Ino> = session.used_inodes()?.into_iter().filter(|ino| goes(*ino)).collect();
    if moving.is_empty() {
        return Ok(());
    }
    let names = collect(session, goes)?;
    let mut moved = HashMap::new();
    for ino in moving {
        let new = move_one(session, ino, &names, &moved)?;
        moved.insert(ino, new);
    }
    session.commit()
}

fn is_directory(record: &Record) -> bool {
    record.file_type() == mode::DIRECTORY
}

/// Walks all directories.
fn collect(session: &Session, goes: impl Fn(Ino) -> bool) -> Result<Names> {
    let mut names = Names::default();
    let mut pending = vec![ROOT];
    let mut seen = 0;
    while let Some(directory) = pending.pop() {
        seen += 1;
        if seen > session.layout.inodes_count {
            return Err(damaged(directory, "in a loop of directories"));
        }
        let mut found = Vec::new();
        let open = RawDir::open(session, directory)?;
        open.for_each(|name, ino| found.push((name.to_vec(), ino)))?;
        for (name, ino) in found {
            if is_directory(&session.record(ino)?) {
                pending.push(ino);
                if goes(directory) {
                    names.children.entry(directory).or_default().push(ino);
                }
            }
            if goes(ino) {
                names.links.entry(ino).or_default().push((directory, name));
            }
        }
    }
    Ok(names)
}

fn damaged(ino: Ino, problem: &'static str) -> Error {
    Corrupt::Inode { ino, field: "number", value: ino.get(), problem }.into()
}

fn move_one(session: &Session, old: Ino, names: &Names, moved: &HashMap<Ino, Ino>) -> Result<Ino> {
    let record = session.record(old)?;
    let is_directory = is_directory(&record);
    let links = names.links.get(&old).map_or(&[][..], Vec::as_slice);
    let children = names.children.get(&old).map_or(&[][..], Vec::as_slice);
    let now = |ino: Ino| moved.get(&ino).copied().unwrap_or(ino);
    let Some((parent, _)) = links.first() else {
        return Err(damaged(old, "in use, although no directory names it"));
    };
    let entries = u32::try_from(links.len() + children.len() + 1).unwrap_or(u32::MAX);
    let handle = session.begin(CREDITS.saturating_add(entries)).map_err(|error| match error {
        Error::Journal(cairn_jbd2::Error::Device(_)) | Error::Device(_) => error,
        error => Error::Refused(format!(
            "inode {old} has {entries} names and subdirectories, which cannot change at once \
             ({error}): make the journal larger"
        )),
    })?;
    let new = session.space.allocate_inode(&handle, now(*parent), is_directory)?;
    let mut copy = record.clone();
    copy.generation = generation(session.layout.checksum, old, record.generation, new);
    assert_eq!(
        copy.seed(new, &session.layout),
        record.seed(old, &session.layout),
        "the checksums of what belongs to the inode stay"
    );
    session.put(&handle, new, Some(&copy))?;
    session.put(&handle, old, None)?;
    session.space.free_inode(&handle, old, is_directory)?;
    let kind = FileKind::from_mode(record.mode.into()).unwrap_or(FileKind::Regular);
    for (directory, name) in links {
        let directory = RawDir::open(session, now(*directory))?;
        dir::set_target(&directory, &handle, name, new, kind)?;
    }
    if is_directory {
        let own = RawDir::open(session, new)?;
        dir::set_target(&own, &handle, b".", new, FileKind::Directory)?;
        for child in children {
            let child = RawDir::open(session, now(*child))?;
            dir::set_target(&child, &handle, b"..", new, FileKind::Directory)?;
        }
    }
    handle.finish();
    Ok(new)
}

/// The generation with which the inode's seed stays as it is. The seed is crc32c over number and
/// generation; a sum over four bytes begins with the exclusive or of these bytes and the sum
/// before.
fn generation(checksum: MetadataChecksum, old: Ino, generation: u32, new: Ino) -> u32 {
    let Some(seed) = checksum.seed() else { return generation };
    let sum = |ino: Ino| {
        let number = u32::try_from(ino.get()).unwrap_or(u32::MAX);
        cairn_base::checksum::crc32c(seed, &number.to_le_bytes())
    };
    generation ^ sum(old) ^ sum(new)
}
