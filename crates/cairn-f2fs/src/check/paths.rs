//! The paths of the inodes in findings, as far as their names are known: each inode has its name
//! and its parent's number. Of those that do not record them, the entries are looked for.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use cairn_check::Finding;
use cairn_vfs::FileKind;

use super::context::{Context, Scratch};
use super::{named, types};
use crate::error::Result;
use crate::format::Inode;
use crate::format::inode::Advise;
use crate::format::units::Nid;

/// Most directories on the way of a path.
const DEPTH: usize = 100;
/// Most walks over all directories, the last of which is not made.
const SEARCHES: usize = 4;

/// The name and the parent of each inode on the way.
type Known = HashMap<Nid, Option<(Vec<u8>, Nid)>>;

/// Adds paths to findings.
///
/// # Errors
/// The device's.
pub(super) fn add(
    context: &Context,
    scratch: &mut Scratch,
    findings: &mut [Finding],
) -> Result<()> {
    let mut known = Known::new();
    let mut sought = BTreeSet::new();
    // A directory on the way may be what has no name.
    for _ in 0..SEARCHES {
        if add_known(context, scratch, &mut known, findings)? == 0 {
            break;
        }
        let nameless = known.iter().filter(|(_, name)| name.is_none()).map(|(ino, _)| *ino);
        let wanted: BTreeSet<Nid> = nameless.filter(|ino| sought.insert(*ino)).collect();
        if wanted.is_empty() {
            break;
        }
        for (ino, name) in named::find(context, scratch, &wanted)? {
            known.insert(ino, Some(name));
        }
    }
    Ok(())
}

/// Adds the paths that are known. Returns how many are not.
fn add_known(
    context: &Context,
    scratch: &mut Scratch,
    known: &mut Known,
    findings: &mut [Finding],
) -> Result<usize> {
    let mut missing = 0_usize;
    for finding in findings.iter_mut().filter(|finding| finding.place.path.is_none()) {
        let ino = finding.place.inode.and_then(|ino| u32::try_from(ino).ok()).map(Nid);
        let Some(ino) = ino else { continue };
        match path(context, scratch, known, ino)? {
            Some(path) => finding.place = finding.place.clone().with_path(&path),
            None => missing = missing.saturating_add(1),
        }
    }
    Ok(missing)
}

fn path(
    context: &Context,
    scratch: &mut Scratch,
    known: &mut Known,
    ino: Nid,
) -> Result<Option<Vec<u8>>> {
    let (mut names, mut at) = (Vec::new(), ino);
    while at != Nid::ROOT {
        let found = match known.entry(at) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => place.insert(name(context, scratch, at)?),
        };
        let Some((name, parent)) = found else { return Ok(None) };
        names.push(name.clone());
        at = *parent;
        if names.len() > DEPTH {
            return Ok(None);
        }
    }
    names.push(Vec::new());
    names.reverse();
    let path = names.join(&b'/');
    Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
}

/// The name of an inode and its parent, if the inode says them.
fn name(context: &Context, scratch: &mut Scratch, ino: Nid) -> Result<Option<(Vec<u8>, Nid)>> {
    let Some(node) = context.nodes.inode(ino) else { return Ok(None) };
    let decoded = |image: &[u8]| Inode::decode(image, ino, context.layout.features).ok();
    // Of an inode without a possible type, the name is known nevertheless.
    let record = context.with_block(scratch, node.addr(), |image| {
        let kinds = [FileKind::Regular, FileKind::Directory];
        let others = || kinds.into_iter().find_map(|kind| decoded(&types::with(image, kind)));
        decoded(image).or_else(others)
    })?;
    let Some(record) = record.flatten() else { return Ok(None) };
    // A directory's parent is that of its entry; other inodes may have lost theirs.
    let is_directory = record.kind == FileKind::Directory;
    let lost = record.advise.intersects(Advise::ENC_NAME | Advise::ENCRYPT)
        || (record.advise.contains(Advise::LOST_PINO) && !is_directory);
    if lost || record.entry_name(ino).is_err() {
        return Ok(None);
    }
    // Entries of another type do not count as those of a directory.
    let is_misnamed = node.links() > 0 && node.entry_kind() != Some(FileKind::Directory);
    let is_of_entry = is_directory && !is_misnamed;
    let parent = if is_of_entry { Nid(node.other()) } else { record.pino };
    Ok(Some((record.name.to_vec(), parent)))
}
