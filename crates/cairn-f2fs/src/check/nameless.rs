//! Inodes without a name: the name that each had last, and whether something proves it.
//!
//! An inode records one name. A writer marks the record (`LOST_PINO`) when it links or renames the
//! file, until an fsync of the file finds its only name. A directory keeps an entry in slots that
//! are free, until they are used again. So a record without the mark is the last name, unless a
//! free slot says otherwise; and if nothing else is damaged, the name of an inode without one is in
//! a free slot.
//!
//! Linux also removes the mark if the file was renamed over another one, or if the link that it
//! records was removed, and keeps the former name. Then that one is in a free slot.
//!
//! Memory: at most [`MOST`] inodes with [`MOST_SLOTS`] names each.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use cairn_check::{Finding, Kind, Place, Severity};
use cairn_vfs::{FileKind, Name};

use super::context::{Context, Scratch};
use super::last_names::{Freed, Last};
use super::named::{self, Part};
use super::nodes::{DAMAGED, NodeState, ORPHAN, QUOTA};
use super::{kinds, owners};
use crate::error::Result;
use crate::form::names::Names;
use crate::format::Inode;
use crate::format::dentry::{Dentries, Dentry, is_in_bucket};
use crate::format::inode::Advise;
use crate::format::units::Nid;

/// Most inodes.
const MOST: usize = 1 << 16;
/// Most names of an inode in free slots that are told apart.
const MOST_SLOTS: usize = 8;

/// Accounting that goes with names that are lost without a trace.
const HIDES: [&Kind; 3] = [&kinds::DIRECTORY_DOTS, &kinds::INODE_TYPE, &kinds::INODE_BLOCKS];
/// Accounting after whose repair an inode may have its name again.
const WAITS: [&Kind; 5] = [
    &kinds::BLOCK_UNLINKED,
    &kinds::CHECKPOINT_JOURNAL,
    &kinds::INODE_TYPE,
    &kinds::INODE_INLINE,
    &kinds::DIRECTORY_TYPE,
];

/// The parent and the name that an inode records, if the record is not marked.
pub(super) fn recorded(record: &Inode) -> Option<(Nid, Vec<u8>)> {
    let is_lost = record.advise.intersects(Advise::LOST_PINO | Advise::ENC_NAME);
    let is_name = Name::check(&record.name).is_ok_and(|name| !name.is_dots());
    (!is_lost && is_name).then(|| (record.pino, record.name.to_vec()))
}

/// Looks for the last names of inodes without one.
///
/// # Errors
/// The device's.
pub(super) fn check(context: &Context, scratch: &mut Scratch) -> Result<()> {
    if context.findings.count_of(&kinds::INODE_UNREACHABLE) == 0 {
        return Ok(());
    }
    let mut slots: BTreeMap<Nid, Vec<Freed>> = BTreeMap::new();
    for (ino, node) in context.nodes.iter().filter(|(ino, node)| is_nameless(*ino, node)) {
        if slots.len() < MOST && !is_deleted(context, ino, node)? {
            slots.insert(ino, Vec::new());
        }
    }
    let is_any_lost = slots.keys().any(|ino| !has_traces(context, *ino));
    let is_lost = |kinds: &[&Kind]| kinds.iter().any(|kind| context.findings.count_of(kind) > 0);
    let hides = is_any_lost
        || is_lost(&HIDES)
        || context.findings.worst() > Some(Severity::Accounting)
        || context.has_blank.load(Relaxed)
        || context.notes.as_ref().is_some_and(|notes| notes.has_lost);
    let waits = is_lost(&WAITS) || has_excess(context);
    if slots.keys().any(|ino| has_traces(context, *ino)) {
        find(context, scratch, &mut slots)?;
        drop_replaced(context, scratch, &mut slots)?;
    }
    for (ino, found) in slots {
        let Some(node) = context.nodes.inode(ino) else { continue };
        let decode = |image: &[u8]| Inode::decode(image, ino, context.layout.features).ok();
        let record = context.with_block(scratch, node.addr(), decode)?.flatten();
        let last = record.map_or_else(Last::default, |record| last(&record, found, hides));
        if last.is_lost && !waits {
            context.add(Finding::new(&kinds::INODE_NAME, Place::inode(ino.get())));
        }
        if last.is_lost || last.slot.is_some() {
            context.last_names.keep(ino, last);
        }
    }
    Ok(())
}

/// An inode that was read, and to which no entry leads.
fn is_nameless(ino: Nid, node: &NodeState) -> bool {
    let is_left_out = [ORPHAN, QUOTA, DAMAGED].iter().any(|mark| node.is(*mark));
    let is_inode = node.ino() == ino && ino != Nid::ROOT && node.kind().is_some();
    is_inode && !is_left_out && node.links() == 0
}

/// May the inode be a deleted one? Then it gets no name in a directory.
fn is_deleted(context: &Context, ino: Nid, node: &NodeState) -> Result<bool> {
    let is_known = context.notes.as_ref().is_some_and(|notes| notes.freed.contains(&ino));
    let place = context.layout.segment_of(node.addr());
    Ok(is_known || place.map_or(Ok(false), |place| owners::is_free(context, place))?)
}

fn has_traces(context: &Context, ino: Nid) -> bool {
    context.nodes.inode(ino).is_some_and(|node| node.traces() > 0)
}

/// Does an inode have more names than it counts? Then the number of an entry may be wrong.
fn has_excess(context: &Context) -> bool {
    context.nodes.iter().filter(|(nid, node)| node.ino() == *nid).any(|(_, node)| {
        let is_left_out = [ORPHAN, QUOTA, DAMAGED].iter().any(|mark| node.is(*mark));
        let most = match node.kind() {
            Some(FileKind::Directory) => 1,
            Some(_) => node.other(),
            None => u32::MAX,
        };
        !is_left_out && node.links() > most
    })
}

/// The last name of an inode. `hides` if names were lost without a trace.
fn last(record: &Inode, mut slots: Vec<Freed>, hides: bool) -> Last {
    let is_directory = record.kind == FileKind::Directory;
    slots.retain(|slot| !is_directory || slot.dir == record.pino);
    let is_own = |slot: &Freed| slot.dir == record.pino && slot.name == *record.name;
    let own = slots.iter().position(is_own);
    let is_only = slots.len() == 1 && !hides;
    if recorded(record).is_some() {
        let is_proved = match own {
            Some(_) => is_only,
            None => slots.is_empty() || hides,
        };
        return Last { slot: None, is_lost: !is_proved };
    }
    let is_proved = is_only && (is_directory || record.links == 1);
    let chosen = if is_proved { Some(0) } else { own.filter(|_| !hides) };
    let slot = chosen.filter(|at| *at < slots.len()).map(|at| slots.swap_remove(at));
    Last { slot, is_lost: !is_proved }
}

/// Finds the names of these inodes in free slots.
fn find(
    context: &Context,
    scratch: &mut Scratch,
    slots: &mut BTreeMap<Nid, Vec<Freed>>,
) -> Result<()> {
    named::each(context, scratch, &|_| true, &mut |part, bytes| {
        let entries = Dentries::new(bytes);
        for entry in entries.freed() {
            let Some(found) = slots.get_mut(&entry.ino) else { continue };
            if let Some(freed) = freed(context, part, (&entries, &entry))
                && found.len() < MOST_SLOTS
                && !found.contains(&freed)
            {
                found.push(freed);
            }
        }
    })
}

/// The name in free slots, if it can have been one of its inode.
fn freed(
    context: &Context,
    part: &Part<'_>,
    (entries, entry): (&Dentries<'_>, &Dentry<'_>),
) -> Option<Freed> {
    let record = part.record;
    let names = Names::of(record, context.layout.features);
    let node = context.nodes.inode(entry.ino)?;
    let is_name = Name::check(entry.name).is_ok_and(|name| !name.is_dots());
    let is_right = names.hash(entry.name).is_none_or(|hash| hash == entry.hash);
    let levels = (record.current_depth, record.dir_level);
    let is_found = part.block.is_none_or(|block| is_in_bucket(levels, block, entry.hash));
    let is_right = is_name && is_right && is_found && entries.is_free(entry);
    (is_right && entry.kind == node.kind()).then(|| Freed {
        dir: part.dir,
        name: entry.name.to_vec(),
        hash: entry.hash,
    })
}

/// Drops the names that entries have now.
fn drop_replaced(
    context: &Context,
    scratch: &mut Scratch,
    slots: &mut BTreeMap<Nid, Vec<Freed>>,
) -> Result<()> {
    let all = slots.iter().flat_map(|(ino, found)| found.iter().map(|freed| (*ino, freed)));
    let mut sought: BTreeMap<Nid, BTreeMap<Vec<u8>, Vec<Nid>>> = BTreeMap::new();
    for (ino, freed) in all {
        sought.entry(freed.dir).or_default().entry(freed.name.clone()).or_default().push(ino);
    }
    let mut taken = Vec::new();
    named::each(context, scratch, &|dir| sought.contains_key(&dir), &mut |part, bytes| {
        let Some(names) = sought.get(&part.dir) else { return };
        for entry in Dentries::new(bytes).iter().flatten() {
            let owners = names.get(entry.name).into_iter().flatten();
            taken.extend(owners.map(|ino| (*ino, part.dir, entry.name.to_vec())));
        }
    })?;
    for (ino, dir, name) in taken {
        let found = slots.get_mut(&ino).into_iter();
        found.for_each(|found| found.retain(|freed| (freed.dir, &freed.name) != (dir, &name)));
    }
    Ok(())
}
