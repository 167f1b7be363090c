//! The block of multiple-mount protection, which says whether another computer uses the volume.

use cairn_base::Pba;
use cairn_check::{Finding, Place, Value};

use super::state::State;
use super::{kinds, one_bit};
use crate::corrupt::Corrupt;
use crate::format::features::Incompat;
use crate::format::mmp::Mmp;

/// Checks the block, claims it, and notes who uses the volume.
pub(super) fn check(state: &mut State) {
    if !state.layout.features.incompat(Incompat::MMP) {
        return;
    }
    let pba = Pba(state.superblock.raw.s_mmp_block.get());
    let place = || Place::field("s_mmp_block");
    if !state.layout.contains(pba, 1) {
        let finding = Finding::new(&kinds::MMP_INVALID, place()).stored(pba.get());
        return state.findings.add(finding);
    }
    let place = || place().at_block(pba.get());
    let bytes = match state.source.block(pba) {
        Ok(bytes) => bytes,
        Err(error) => return state.unreadable(place(), &error),
    };
    let sums = state.layout.checksum;
    let found = match Mmp::decode(&bytes, sums) {
        Ok(found) => found,
        Err(why) => {
            let corrected = one_bit::mmp(state, pba, &bytes, &why);
            match corrected.and_then(|right| Mmp::decode(&right, sums).ok()) {
                Some(found) => found,
                None => {
                    let is_clean = Mmp::says_clean(&bytes);
                    report(state, place(), &why, is_clean);
                    if is_clean {
                        state.claim_system(pba, 1);
                    }
                    return;
                }
            }
        }
    };
    if !found.is_possible() {
        let finding = Finding::new(&kinds::MMP_INVALID, place().in_field("mmp_seq"));
        return state.findings.add(finding.stored(Value::Hex(found.sequence().into())));
    }
    state.claim_system(pba, 1);
    state.user = (!found.is_clean()).then(|| found.user());
}

fn report(state: &State, place: Place, why: &Corrupt, is_clean: bool) {
    let finding = match (why, is_clean) {
        (Corrupt::Checksum { stored, computed, .. }, true) => {
            Finding::new(&kinds::MMP_CHECKSUM, place).hex(*stored, *computed)
        }
        _ => Finding::new(&kinds::MMP_INVALID, place).stored(Value::text(why.to_string())),
    };
    state.findings.add(finding);
}
