//! After all inodes were read: links, names, and the way to the root.

use std::sync::atomic::Ordering::Relaxed;

use cairn_check::{Finding, Kind, Place, Severity};
use cairn_vfs::FileKind;

use super::context::{Context, Totals};
use super::kinds;
use super::nodes::{CONNECTED, DAMAGED, MANY_TRACES, NodeState, ON_WAY, ORPHAN, QUOTA, VISITED};
use crate::format::units::Nid;

/// Accounting that goes with names that are lost, or that were not read.
const HIDES: [&Kind; 3] = [&kinds::INODE_UNREACHABLE, &kinds::INODE_TYPE, &kinds::DIRECTORY_DOTS];

/// After all else that may hide names: inodes with fewer names than they count. If nothing else is
/// damaged, and fewer free slots of directories had a name of the inode than are missing, the count
/// is wrong; else names may be lost.
pub(super) fn names(context: &Context) {
    let hides = context.findings.worst() > Some(Severity::Accounting)
        || HIDES.iter().any(|kind| context.findings.count_of(kind) > 0)
        || context.has_blank.load(Relaxed)
        || context.notes.as_ref().is_some_and(|notes| notes.has_lost);
    for (ino, node) in context.nodes.iter().filter(|(nid, node)| node.ino() == *nid) {
        if has_missing_names(ino, node) {
            // A name was removed, or its slot is marked wrongly. More names than there are traces
            // of were not lost in this way.
            let missing = node.other().saturating_sub(node.links());
            let traces = node.traces();
            let is_lost = hides || traces == MANY_TRACES || missing <= traces.into();
            let kind = if is_lost { &kinds::INODE_NAMES } else { &kinds::INODE_LINKS };
            let place = Place::inode(ino.get()).in_field("i_links");
            context.add(Finding::new(kind, place).stored(node.other()).computed(node.links()));
        }
    }
}

/// Does an inode with a name count more than it has?
fn has_missing_names(ino: Nid, node: &NodeState) -> bool {
    let is_file = node.kind().is_some_and(|kind| kind != FileKind::Directory);
    let is_left_out =
        ino == Nid::ROOT || [QUOTA, ORPHAN, DAMAGED].iter().any(|mark| node.is(*mark));
    is_file && !is_left_out && node.links() > 0 && node.other() > node.links()
}

/// Does a step of a repair leave names of other inodes lost?
pub(super) fn hides(kind: &Kind) -> bool {
    let hides = [kinds::INODE_UNREACHABLE.code, kinds::DIRECTORY_DOTS.code];
    kind.severity != Severity::Accounting || hides.contains(&kind.code)
}

/// Checks every node that exists.
pub(super) fn check(context: &Context) {
    check_root(context);
    for (nid, node) in context.nodes.iter() {
        if node.ino() == nid {
            check_inode(context, nid, node);
        } else if !node.is(VISITED) {
            check_unvisited(context, nid, node);
        }
    }
}

fn check_root(context: &Context) {
    let root = context.nodes.inode(Nid::ROOT);
    if root.and_then(NodeState::kind) != Some(FileKind::Directory) {
        context.add(Finding::new(&kinds::ROOT, Place::inode(Nid::ROOT.get())));
    }
}

/// A node that is no inode, and to which the walk did not come.
fn check_unvisited(context: &Context, nid: Nid, node: &NodeState) {
    // Of an inode that could not be read, nothing below was seen.
    let owner = context.nodes.inode(node.ino());
    if owner.is_some_and(|owner| owner.is(DAMAGED)) {
        return;
    }
    let place = Place::node(nid.get()).of_inode(node.ino().get()).at_block(node.addr().get());
    context.add(Finding::new(&kinds::NAT_UNREACHABLE, place));
}

fn check_inode(context: &Context, ino: Nid, node: &NodeState) {
    let place = || Place::inode(ino.get());
    let is_directory = node.kind() == Some(FileKind::Directory);
    let found = node.links();
    if node.is(ORPHAN) && (ino == Nid::ROOT || node.is(QUOTA)) {
        context.add(Finding::new(&kinds::ORPHAN, place()));
    }
    if ino == Nid::ROOT {
        if found > 0 {
            context.add(Finding::new(&kinds::DIRECTORY_LINKED, place()));
        }
        return;
    }
    // A directory's own count, and its entries, were checked with its blocks.
    let stored = if is_directory { found } else { node.other() };
    if node.is(QUOTA) {
        if node.kind() != Some(FileKind::Regular) && !node.is(DAMAGED) {
            context.add(Finding::new(&kinds::QUOTA, place()));
        }
        return;
    }
    match (found, node.is(ORPHAN)) {
        (0, true) if stored == 0 || node.is(DAMAGED) => {}
        (_, true) => {
            context.add(Finding::new(&kinds::ORPHAN, place()).stored(stored).computed(found));
        }
        (0, false) => {
            context.add(Finding::new(&kinds::INODE_UNREACHABLE, place()));
            if has_too_many(context) {
                context.contradicted.add_entry(ino);
            }
        }
        (2.., false) if is_directory => {
            context.add(Finding::new(&kinds::DIRECTORY_LINKED, place()).stored(found));
        }
        _ if has_missing_names(ino, node) => {}
        _ if stored != found && !node.is(DAMAGED) => {
            let place = place().in_field("i_links");
            context.add(Finding::new(&kinds::INODE_LINKS, place).stored(stored).computed(found));
        }
        _ if is_directory => follow(context, ino),
        _ => {}
    }
}

/// Has the NAT more nodes and inodes than the checkpoint counts?
fn has_too_many(context: &Context) -> bool {
    let (totals, checkpoint) = (&context.totals, &context.volume.loaded.checkpoint);
    Totals::get(&totals.nodes) > checkpoint.valid_node_count.into()
        && Totals::get(&totals.inodes) > checkpoint.valid_inode_count.into()
}

/// Goes up from a directory to one whose way is known, and marks all on the way.
fn follow(context: &Context, ino: Nid) {
    let mut way = Vec::new();
    let mut at = ino;
    while let Some(node) = context.nodes.inode(at) {
        // The root, a directory without a name, and one with several end the way.
        if at == Nid::ROOT || node.links() != 1 || node.is(CONNECTED) {
            break;
        }
        if node.mark(ON_WAY) {
            context.add(Finding::new(&kinds::DIRECTORY_CYCLE, Place::inode(at.get())));
            break;
        }
        way.push(at);
        at = Nid(node.other());
    }
    for ino in way {
        context.nodes.inode(ino).map(|node| node.mark(CONNECTED));
    }
}
