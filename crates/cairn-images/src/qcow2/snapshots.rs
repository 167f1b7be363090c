//! [`list`]: the internal snapshots of an image. They are kept, and never read as disks.

use super::error::{Damage, Error, Result, What};
use super::format::header::{Header, MOST_L1};
use super::format::snapshot::{self, FIXED, Snapshot};
use super::host::Host;

/// Bytes of the largest table; one of QEMU's has some hundred for each snapshot.
const MOST: u64 = 64 << 20;

/// The snapshots, and the length of their table.
pub(super) fn list(host: &Host, header: &Header) -> Result<(Vec<Snapshot>, u64)> {
    let (start, end) = (header.snapshots_offset, host.len());
    let mut found = Vec::new();
    let mut at = start;
    for _ in 0..header.snapshots {
        let (what, offset) = (What::Snapshots, at);
        if at.checked_add(FIXED as u64).is_none_or(|to| to > end) || at - start > MOST {
            return Err(Damage::Beyond { what, offset, len: FIXED as u64, end }.into());
        }
        let bytes = host.read(at, FIXED as u64)?;
        let Some(fixed) = bytes.first_chunk::<FIXED>() else {
            return Err(Damage::Beyond { what, offset, len: FIXED as u64, end }.into());
        };
        let one = snapshot::decode(fixed);
        check(&one, header, end)?;
        at = at.saturating_add(one.len);
        found.push(one);
    }
    Ok((found, at - start))
}

fn check(one: &Snapshot, header: &Header, end: u64) -> Result<(), Error> {
    let (what, offset, len) = (What::SnapshotL1, one.l1_offset, u64::from(one.l1_entries) * 8);
    if !offset.is_multiple_of(header.cluster()) {
        return Err(Damage::Unaligned { what, offset, unit: header.cluster() }.into());
    }
    if len > MOST_L1 || offset.checked_add(len).is_none_or(|to| to > end) {
        return Err(Damage::Beyond { what, offset, len, end }.into());
    }
    Ok(())
}
