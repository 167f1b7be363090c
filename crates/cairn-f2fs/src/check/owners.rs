//! Claims blocks, and compares their owners with the summaries.

use cairn_check::{Finding, Place};

use super::claims::Use;
use super::context::{Context, Scratch};
use super::kinds;
use crate::error::Result;
use crate::format::units::BlockAddr;
use crate::format::{Features, Log, Summary};

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
    let checkpoint = &context.volume.loaded.checkpoint;
    let log = Log::ALL.into_iter().find(|log| checkpoint.log(*log).segno == segno);
    let (is_node, entry) = match (log, &context.current) {
        (Some(log), Some(current)) => {
            (Some(log.is_node()), log.of(&current.entries).get(usize::from(offset)).copied())
        }
        // The pack's summaries are damaged, which was found before.
        (Some(_), None) => {
            note(context, addr, owner);
            return Ok(());
        }
        (None, _) => match context.summary(scratch, segno)? {
            Some(block) => (Some(block.is_node), block.entries.get(usize::from(offset)).copied()),
            None => (None, None),
        },
    };
    let place = || Place { block: Some(addr.get().into()), ..owner.place.clone() };
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
