//! The journals of the checkpoint, as far as they are possible: a wrong entry is a finding, and the
//! others are used. What the SIT's area says of the segment of a wrong entry is older than that.

use cairn_base::Pba;
use cairn_cache::block::BufferCache;
use cairn_check::{Finding, Findings, Place, Value};

use super::{kinds, report};
use crate::checkpoint::Loaded;
use crate::checkpoint::summaries::{self, Journals};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::format::summary::{NatJournal, SitJournal};
use crate::format::units::{Nid, SegNo};
use crate::format::{NatEntry, NodeFooter};

/// Reads the journals. Of the segments that come with them nothing is known.
///
/// # Errors
/// The summaries in which they lie are damaged, or the device failed.
pub(super) fn read(
    loaded: &Loaded,
    buffers: &BufferCache,
    layout: &Layout,
    findings: &Findings,
) -> Result<(Journals, Vec<SegNo>)> {
    match summaries::journals(loaded, buffers, layout) {
        Err(Error::Corrupt(_)) => {}
        found => return found.map(|journals| (journals, Vec::new())),
    }
    let (nat, sit) = summaries::journal_areas(loaded, buffers, layout)?;
    let mut unknown = Vec::new();
    let mut sit = SitJournal::possible(&sit, layout, &mut |error, segno| {
        findings.add(report::of(&kinds::SIT_ENTRY, &error));
        unknown.extend(segno);
    });
    sit.0.retain(|(segno, _)| !unknown.contains(segno));
    let mut wrong = Vec::new();
    let nat = NatJournal::possible(&nat, layout, &mut |error, entry| wrong.push((error, entry)));
    let mut journals = Journals { nat, sit };
    for (error, entry) in wrong {
        let known = &mut journals.nat.0;
        match entry {
            Some((nid, entry)) if known.contains(&(nid, entry)) => {
                findings.add(found(&kinds::CHECKPOINT_JOURNAL, &error));
            }
            Some((_, entry)) => match named(entry, buffers, layout)? {
                Some(nid) if known.iter().all(|(other, _)| *other != nid) => {
                    known.push((nid, entry));
                    findings.add(found(&kinds::CHECKPOINT_JOURNAL, &error));
                }
                _ => findings.add(found(&kinds::CHECKPOINT_JOURNAL_LOST, &error)),
            },
            None => findings.add(found(&kinds::CHECKPOINT_JOURNAL_LOST, &error)),
        }
    }
    Ok((journals, unknown))
}

/// The number of the node to which an entry leads, as its footer has it.
fn named(entry: NatEntry, buffers: &BufferCache, layout: &Layout) -> Result<Option<Nid>> {
    if !layout.in_main(entry.block_addr) {
        return Ok(None);
    }
    let image = buffers.get(Pba(entry.block_addr.get().into()))?.image();
    let footer = NodeFooter::read(&image);
    Ok((footer.ino == entry.ino && footer.is_possible(layout)).then_some(footer.nid))
}

/// No place is that of a node: the number is what is wrong.
fn found(kind: &'static cairn_check::Kind, error: &Corrupt) -> Finding {
    Finding::new(kind, Place::field("nat_j")).stored(Value::text(error.to_string()))
}
