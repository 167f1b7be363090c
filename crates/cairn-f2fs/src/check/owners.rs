//! Claims blocks, and compares their owners with the summaries.

use cairn_check::{Finding, Place};

use super::claims::Use;
use super::context::{Context, Scratch};
use super::kinds;
use crate::error::Result;
use crate::format::units::{BlockAddr, SegNo};
use crate::format::{Features, Log, Summary, bits};

/// Who uses a block, and where that is said.
pub(super) struct Owner {
    pub(super) what: Use,
    /// Of a node only the nid counts.
    pub(super) summary: Summary,
    /// The pointer.
    pub(super) place: Place,
}

/// Claims a block of the main area for its owner, and checks what the summary says. False if the
/// block has another owner, too.
///
/// # Errors
/// The device's.
pub(super) fn claim(
    context: &Context,
    scratch: &mut Scratch,
    addr: BlockAddr,
    owner: &Owner,
) -> Result<bool> {
    let first = context.claims.claim(&context.layout, addr, owner.what);
    if first {
        check_summary(context, scratch, addr, owner)?;
    } else {
        let place = owner.place.clone().at_block(addr.get());
        context.add(Finding::new(&kinds::BLOCK_SHARED, place));
    }
    Ok(first)
}

fn check_summary(
    context: &Context,
    scratch: &mut Scratch,
    addr: BlockAddr,
    owner: &Owner,
) -> Result<()> {
    let layout = &context.layout;
    // A volume that is never cleaned has no summaries.
    let Some((segno, offset)) =
        layout.segment_of(addr).filter(|_| !layout.features.contains(Features::RO))
    else {
        return Ok(());
    };
    let (is_node, entry) = match stated(context, scratch, (segno, offset))? {
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
    if !right {
        note(context, addr, owner);
        context.add(
            Finding::new(&kinds::SUMMARY_OWNER, place())
                .stored(&*text(entry))
                .computed(&*text(owner.summary)),
        );
    }
    Ok(())
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
