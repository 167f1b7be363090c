//! Quota files that count something else than there is: made anew in their places, with the limits
//! that they have.

use std::collections::BTreeSet;

use cairn_base::Ino;
use cairn_base::units::{as_index, as_u64};
use cairn_check::{Finding, Severity};
use cairn_vfs::Timestamp;

use super::super::map::has_map;
use super::super::quota;
use super::mender::Mender;
use super::{rebuild, runs};
use crate::error::Result;
use crate::format::inode::{Inode as Record, mode};

/// Makes the files anew that findings name.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let state = mender.state;
    if state.usage.is_none() {
        return Ok(());
    }
    let wrong: BTreeSet<u64> = findings.iter().filter_map(|found| found.place.inode).collect();
    for (kind, ino) in quota::files(state) {
        if !wrong.contains(&ino.get()) {
            continue;
        }
        let file = quota::read(state, kind, ino).with_usage(&quota::without_links(state, kind));
        if !write(mender, ino, &file.encode(kind))? {
            continue;
        }
        for finding in findings.iter().filter(|found| found.place.inode == Some(ino.get())) {
            match finding.kind.severity {
                Severity::Accounting => mender.step(finding),
                _ => {
                    let what =
                        format!("limits of a {} that were in its damaged parts", kind.name());
                    mender.lose(finding, ino, &what);
                }
            }
        }
    }
    Ok(())
}

/// Writes the contents of a file of the volume to its own blocks, and to new ones. False if there
/// is no room.
fn write(mender: &Mender<'_>, ino: Ino, bytes: &[u8]) -> Result<bool> {
    let (state, layout) = (mender.state, mender.state.layout);
    let old = state.record(ino).filter(|record| record.is_regular() && has_map(record));
    let own = old.as_ref().map(|record| runs::collect(state, ino, record).runs);
    let mut record = old.unwrap_or_else(|| fresh(mender));
    let size = as_index(layout.block_size);
    let blocks: Vec<Vec<u8>> = bytes
        .chunks(size)
        .map(|part| {
            let mut block = part.to_vec();
            block.resize(size, 0);
            block
        })
        .collect();
    let own = own.unwrap_or_default();
    let Some(places) = rebuild::places(mender, &own, blocks.len()) else { return Ok(false) };
    let runs = rebuild::write_blocks(mender, places, blocks)?;
    if !runs::store(mender, ino, &mut record, &runs)? {
        return Ok(false);
    }
    record.size = as_u64(bytes.len());
    mender.edit_bytes(ino, |bytes| record.encode(ino, &layout, bytes))
}

/// A file in place of an inode that is none.
fn fresh(mender: &Mender<'_>) -> Record {
    let mut record = Record::new(0, &mender.state.layout);
    record.mode = mode::REGULAR | 0o600;
    record.links = 1;
    let now = Timestamp { seconds: mender.now.into(), nanoseconds: 0 };
    (record.atime, record.mtime, record.ctime) = (now, now, now);
    crate::inode::init_block_map(&mender.state.layout, &mut record);
    record
}
