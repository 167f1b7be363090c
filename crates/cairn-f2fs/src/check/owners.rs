//! Claims blocks, and compares their owners with the summaries.

use cairn_check::{Finding, Place};

use super::claims::Use;
use super::context::{Context, Scratch};
use super::contradicted::Turned;
use super::nodes::NodeState;
use super::{cycles, kinds, slots};
use crate::error::Result;
use crate::format::units::{BlockAddr, Nid, SegNo};
use crate::format::{Features, Log, NodeFooter, Summary, bits};

/// Who uses a block, and where that is said.
pub(super) struct Owner {
    pub(super) what: Use,
    /// Of a node only the nid counts.
    pub(super) summary: Summary,
    /// The pointer.
    pub(super) place: Place,
}

/// Claims a block of the main area for its owner, and checks what the summary says. False if the
/// block is another's.
///
/// # Errors
/// The device's.
pub(super) fn claim(
    context: &Context,
    scratch: &mut Scratch,
    addr: BlockAddr,
    owner: &Owner,
) -> Result<bool> {
    // A volume that is never cleaned has no summaries.
    let place = context.layout.segment_of(addr);
    let place = place.filter(|_| !context.layout.features.contains(Features::RO));
    let stated = match place {
        Some(place) => Some((place, stated(context, scratch, place)?)),
        None => None,
    };
    let known = stated.as_ref().map(|(_, stated)| stated);
    let first = !is_of_other(context, scratch, (addr, known), owner)?
        && context.claims.claim(&context.layout, addr, owner.what);
    if !first {
        let place = owner.place.clone().at_block(addr.get());
        context.add(Finding::new(&kinds::BLOCK_SHARED, place));
    } else if let Some((place, stated)) = stated {
        check_summary(context, scratch, (addr, place, stated), owner)?;
    }
    Ok(first)
}

/// Does a data pointer lead to a node, also to one of which the NAT has an older version, or to a
/// block that the summary gives to another pointer, which leads to it?
fn is_of_other(
    context: &Context,
    scratch: &mut Scratch,
    (addr, stated): (BlockAddr, Option<&Stated>),
    owner: &Owner,
) -> Result<bool> {
    if owner.what != Use::Data {
        return Ok(false);
    }
    if slots::is_node(context, scratch, addr)? {
        return Ok(true);
    }
    if let Some(Stated::Owner(true, _)) = stated {
        return Ok(node_at(context, scratch, addr)?.is_some());
    }
    let Some(Stated::Owner(false, Some(named))) = stated else { return Ok(false) };
    if *named == owner.summary {
        return Ok(false);
    }
    let named = slots::named(context, scratch, *named)?;
    Ok(named.is_some_and(|named| named.pointer == addr))
}

fn check_summary(
    context: &Context,
    scratch: &mut Scratch,
    (addr, (segno, offset), stated): (BlockAddr, (SegNo, u16), Stated),
    owner: &Owner,
) -> Result<()> {
    let (is_node, entry) = match stated {
        Stated::Unknown => {
            note(context, addr, owner);
            return Ok(());
        }
        Stated::NoType => (None, None),
        Stated::Owner(is_node, entry) => (Some(is_node), entry),
    };
    let place = || Place { block: Some(addr.get().into()), ..owner.place.clone() };
    let is_named = is_node == Some(false) && entry == Some(owner.summary);
    if owner.what == Use::Data && !is_named && is_free(context, (segno, offset))? {
        note(context, addr, owner);
        let named = entry.map_or_else(|| "no owner".to_owned(), text);
        let finding = Finding::new(&kinds::BLOCK_FREE, place());
        context.add(finding.stored(&*named).computed(&*text(owner.summary)));
        return Ok(());
    }
    if is_node != Some(owner.what == Use::Node) {
        // The log's own type was checked against the segment's before.
        let place = Place { segment: Some(segno.get().into()), ..place() };
        note(context, addr, owner);
        context.add(Finding::new(&kinds::SUMMARY_TYPE, place));
        return Ok(());
    }
    let entry = entry.unwrap_or_default();
    let right = match owner.what {
        Use::Node => entry.nid == owner.summary.nid,
        Use::Data => entry == owner.summary,
    };
    if right {
        return Ok(());
    }
    let summary = Finding::new(&kinds::SUMMARY_OWNER, place())
        .stored(&*text(entry))
        .computed(&*text(owner.summary));
    if owner.what == Use::Data {
        context.contradicted.add(segno, owner.summary.nid);
        if let Some(pointer) = turned(context, scratch, (addr, entry), owner)? {
            let owner = (owner.what, owner.summary);
            context.contradicted.keep(Turned { segno, pointer, summary, addr, owner });
            return Ok(());
        }
    }
    note(context, addr, owner);
    context.add(summary);
    Ok(())
}

/// What is wrong with a pointer that was exchanged with another one, or moved.
fn turned(
    context: &Context,
    scratch: &mut Scratch,
    (addr, entry): (BlockAddr, Summary),
    owner: &Owner,
) -> Result<Option<Finding>> {
    if let Some(ino) = exchanged(context, scratch, (addr, entry), owner)? {
        return Ok(Some(unlinked(addr, entry, ino, None)));
    }
    let ino = slots::moved_from(context, scratch, (addr, entry), owner.summary)?;
    Ok(ino.map(|ino| unlinked(addr, entry, ino, owner.place.file_block)))
}

/// When all pointers are known: those that contradict a summary are wrong, unless it is an old one.
pub(super) fn judge_summaries(context: &Context) {
    for Turned { segno, pointer, summary, addr, owner: (what, named) } in
        context.contradicted.take()
    {
        if !context.contradicted.is_old(segno) {
            context.add(pointer);
            continue;
        }
        if let Some(notes) = &context.notes {
            notes.add_owner(addr, what, named);
        }
        context.add(summary);
    }
}

/// The inode whose pointer was exchanged with this one, or with this and others in a circle: the
/// summary of each block names the pointer to the next one.
fn exchanged(
    context: &Context,
    scratch: &mut Scratch,
    (addr, entry): (BlockAddr, Summary),
    owner: &Owner,
) -> Result<Option<Nid>> {
    let Some(first) = slots::named(context, scratch, entry)? else { return Ok(None) };
    if context.cycles.has(owner.summary) {
        return Ok(Some(first.ino));
    }
    let (mut named, mut passed) = (first, vec![entry]);
    while named.pointer != addr && context.layout.in_main(named.pointer) && context.cycles.step() {
        let Some((false, next)) = stored(context, scratch, named.pointer)? else { break };
        if next == owner.summary {
            passed.push(next);
            context.cycles.close(&passed);
            return Ok(Some(first.ino));
        }
        // A block at its own place ends the way.
        if passed.last() == Some(&next) || passed.len() >= cycles::LONGEST {
            break;
        }
        passed.push(next);
        let Some(following) = slots::named(context, scratch, next)? else { break };
        named = following;
    }
    Ok(None)
}

/// A block in use whose pointer may have none.
pub(super) fn doubted(addr: BlockAddr, named: Summary, ino: Nid) -> Finding {
    Finding { kind: &kinds::BLOCK_DOUBT, ..unlinked(addr, named, ino, None) }
}

/// A block that another pointer should lead to, and the file block whose pointer leads there
/// although it should lead nowhere, if there is one.
pub(super) fn unlinked(addr: BlockAddr, named: Summary, ino: Nid, instead: Option<u64>) -> Finding {
    let Summary { nid, ofs_in_node, .. } = named;
    let place = Place::node(nid.get()).of_inode(ino.get()).at_block(addr.get());
    let place = Place { file_block: instead, ..place };
    Finding::new(&kinds::BLOCK_UNLINKED, place).stored(&*format!("pointer {ofs_in_node}"))
}

/// Does the SIT call the block free?
///
/// # Errors
/// The device's.
pub(super) fn is_free(context: &Context, (segno, offset): (SegNo, u16)) -> Result<bool> {
    let entry = context.volume.sit_entry(segno)?;
    Ok(entry.is_some_and(|entry| !bits::test(&entry.valid_map, offset.into())))
}

/// What a summary says of a block.
enum Stated {
    /// The pack's summaries are damaged, which was found before.
    Unknown,
    /// The summary block is of no known type.
    NoType,
    /// Of a node or not, and the owner.
    Owner(bool, Option<Summary>),
}

fn stated(
    context: &Context,
    scratch: &mut Scratch,
    (segno, offset): (SegNo, u16),
) -> Result<Stated> {
    let checkpoint = &context.volume.loaded.checkpoint;
    let log = Log::ALL.into_iter().find(|log| checkpoint.log(*log).segno == segno);
    let at = |entries: &Vec<Summary>| entries.get(usize::from(offset)).copied();
    Ok(match (log, &context.current) {
        (Some(log), Some(current)) => Stated::Owner(log.is_node(), at(log.of(&current.entries))),
        (Some(_), None) => Stated::Unknown,
        (None, _) => match context.summary(scratch, segno)? {
            Some(block) => Stated::Owner(block.is_node, at(&block.entries)),
            None => Stated::NoType,
        },
    })
}

/// What the summary says of a block: whether it is a node, and whose.
///
/// # Errors
/// The device's.
pub(super) fn stored(
    context: &Context,
    scratch: &mut Scratch,
    addr: BlockAddr,
) -> Result<Option<(bool, Summary)>> {
    let Some(place) = context.layout.segment_of(addr) else { return Ok(None) };
    Ok(match stated(context, scratch, place)? {
        Stated::Owner(is_node, entry) => entry.map(|entry| (is_node, entry)),
        Stated::Unknown | Stated::NoType => None,
    })
}

/// The node in a block, if the NAT leads to an older version of it that the SIT calls free, or that
/// is from before the last checkpoint at which the node was written.
///
/// # Errors
/// The device's.
pub(super) fn node_at(
    context: &Context,
    scratch: &mut Scratch,
    addr: BlockAddr,
) -> Result<Option<NodeFooter>> {
    let Some((true, owner)) = stored(context, scratch, addr)? else { return Ok(None) };
    let known = context.nodes.get(owner.nid).map(NodeState::addr);
    let Some((known, place)) =
        known.and_then(|known| Some((known, context.layout.segment_of(known)?)))
    else {
        return Ok(None);
    };
    if known == addr {
        return Ok(None);
    }
    let is_freed = is_free(context, place)?;
    let mut footers = Vec::new();
    for addr in [known, addr] {
        footers.extend(context.with_block(scratch, addr, NodeFooter::read)?);
    }
    let [old, new] = footers[..] else { return Ok(None) };
    let age = |footer: &NodeFooter| footer.cp_ver & u64::from(u32::MAX);
    let now = context.volume.loaded.checkpoint.version & u64::from(u32::MAX);
    // The number may have been given away since to another inode.
    let is_newer = match new.ino == old.ino {
        true => age(&old) <= age(&new),
        false => age(&old) < age(&new),
    };
    let is_node = new.nid == owner.nid && new.is_possible(&context.layout);
    let is_proved = old.nid == new.nid && age(&old) < age(&new) && age(&new) < now;
    let is_known = is_newer && age(&new) <= now && (is_freed || is_proved);
    Ok((is_known && is_node).then_some(new))
}

/// A repair sets the summary.
fn note(context: &Context, addr: BlockAddr, owner: &Owner) {
    if let Some(notes) = &context.notes {
        notes.add_owner(addr, owner.what, owner.summary);
    }
}

fn text(summary: Summary) -> String {
    let Summary { nid, version, ofs_in_node } = summary;
    format!("node {nid}, version {version}, pointer {ofs_in_node}")
}
