//! The block of multiple-mount protection, made anew.

use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Severity};

use super::mender::Mender;
use crate::error::Result;
use crate::format::mmp::Mmp;

/// What is lost with an invalid block.
const LOST: &str = "whether another computer uses the volume: make sure that none does";

/// Writes a block that says that nobody uses the volume: in its place, if nothing else is there.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    for finding in findings {
        let is_sound = finding.kind.severity == Severity::Accounting;
        let here = finding.place.block.map(Pba).filter(|pba| is_sound || is_free(mender, *pba));
        let Some(pba) = here.or_else(|| mender.allocate_block()) else { continue };
        let (interval, sums) = {
            let raw = &mender.superblock().raw;
            (raw.s_mmp_update_interval.get(), mender.state.layout.checksum)
        };
        let mut block = mender.empty_block();
        let bytes = Mmp::new(interval, mender.now).encode(sums);
        if let Some(place) = block.get_mut(..bytes.len()) {
            place.copy_from_slice(&bytes);
        }
        mender.write(pba, block)?;
        if mender.superblock().raw.s_mmp_block.get() != pba.get() {
            mender.edit_superblock(|superblock| superblock.raw.s_mmp_block = pba.get().into())?;
        }
        match is_sound {
            true => mender.step(finding),
            false => mender.lose(finding, Ino(0), LOST),
        }
    }
    Ok(())
}

fn is_free(mender: &Mender<'_>, pba: Pba) -> bool {
    mender.state.claimed.count_range(mender.state.cluster(pba.get()), 1) == 0
}
