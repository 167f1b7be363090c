//! Single wrong bits that checksums tell.

use std::collections::BTreeSet;

use cairn_base::Pba;
use cairn_check::Finding;

use super::mender::Mender;
use crate::error::Result;

/// Writes the bytes that the check has corrected in memory.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let blocks: BTreeSet<u64> = findings.iter().filter_map(|finding| finding.place.block).collect();
    // What a file has, too, may be its contents.
    let is_free = |pba: &Pba| !mender.state.twice.contains(mender.state.cluster(pba.get()));
    let blocks: BTreeSet<Pba> = blocks.into_iter().map(Pba).filter(is_free).collect();
    for pba in blocks.iter().copied() {
        let mut block = mender.read(pba)?;
        for (at, right) in mender.state.source.corrected(pba) {
            if let Some(byte) = block.get_mut(at) {
                *byte = right;
            }
        }
        mender.write(pba, block)?;
    }
    let is_done =
        |finding: &&&Finding| finding.place.block.is_none_or(|pba| blocks.contains(&Pba(pba)));
    findings.iter().filter(is_done).for_each(|finding| mender.step(finding));
    Ok(())
}
