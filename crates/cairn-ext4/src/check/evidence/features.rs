//! Features that one wrong bit has set or taken away, where all that is found follows from that.

use cairn_block::BlockDevice;
use cairn_check::{Kind, Report};

use super::super::kinds;
use super::super::state::State;
use super::candidate::{Candidate, Proof};
use crate::format::features::{Compat, Incompat};
use crate::format::layout::inodes;
use crate::format::superblock::RawSuperblock;

/// Entries with another type than their inodes from which on the feature is likely to be wrong: the
/// root and `lost+found` have so many.
const MANY: u64 = 4;

/// The superblock without the bit, or with it.
pub(super) fn candidates(
    device: &dyn BlockDevice,
    state: &State,
    report: &Report,
) -> Vec<Candidate> {
    let count = |kind: &Kind| {
        let found = report.counts.iter().find(|(found, _)| found.code == kind.code);
        found.map_or(0, |(_, count)| *count)
    };
    let (features, raw) = (&state.layout.features, &state.superblock.raw);
    let guess = |edit: &dyn Fn(&mut RawSuperblock)| {
        Candidate::superblock(state, device, Proof::Guess, edit)
    };
    let incompat = |flag: Incompat| {
        let other = (features.incompat ^ flag).bits();
        guess(&|raw| raw.s_feature_incompat = other.into())
    };
    let mut found = Vec::new();
    if count(&kinds::ENTRY_TYPE) >= MANY {
        found.extend(incompat(Incompat::FILETYPE));
    }
    let has_no_log = !features.compat(Compat::HAS_JOURNAL) && count(&kinds::JOURNAL_REPLAY) > 0;
    if has_no_log && u64::from(raw.s_journal_inum.get()) == inodes::JOURNAL.get() {
        let other = (features.compat | Compat::HAS_JOURNAL).bits();
        found.extend(guess(&|raw| raw.s_feature_compat = other.into()));
    } else if has_no_log && raw.s_journal_inum.get() == 0 && raw.s_journal_dev.get() == 0 {
        found.extend(incompat(Incompat::RECOVER));
    }
    let has_no_block = raw.s_mmp_block.get() == 0 && raw.s_mmp_update_interval.get() == 0;
    if has_no_block && count(&kinds::MMP_INVALID) > 0 {
        found.extend(incompat(Incompat::MMP));
    }
    if features.incompat(Incompat::META_BG) && count(&kinds::INODE_RESIZE) > 0 {
        found.extend(incompat(Incompat::META_BG));
    }
    found
}
