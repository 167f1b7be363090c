//! Values of the superblock's fields that nothing but the contents of the volume speaks for, on
//! volumes without a backup.

use cairn_block::BlockDevice;

use super::super::state::State;
use super::candidate::{Candidate, Proof};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::RawSuperblock;

/// The values of which the descriptors and the root are sound.
pub(super) fn candidates(device: &dyn BlockDevice, state: &State) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut guess = |edit: &dyn Fn(&mut RawSuperblock)| {
        found.extend(Candidate::superblock(state, device, Proof::Guess, edit));
    };
    let layout = &state.layout;
    for size in [128, 256, 512, 1024] {
        guess(&|raw| raw.s_inode_size = size.into());
    }
    guess(&|raw| raw.s_desc_size = 64.into());
    guess(&|raw| raw.s_blocks_per_group = layout.block_size.saturating_mul(8).into());
    guess(&|raw| raw.s_creator_os = 0.into());
    guess(&|raw| raw.s_first_meta_bg = 0.into());
    let last = layout.groups.saturating_sub(1);
    for groups in [[1, last], [1, 0], [0, 0]] {
        guess(&|raw| raw.s_backup_bgs = groups.map(Into::into));
    }
    let blocks = device.geometry().size >> layout.block_bits;
    guess(&|raw| {
        let low = u32::try_from(blocks & 0xffff_ffff).unwrap_or(0);
        raw.s_blocks_count_lo = low.into();
    });
    for flag in [
        Incompat::FILETYPE,
        Incompat::META_BG,
        Incompat::EXTENTS,
        Incompat::BITS_64,
        Incompat::FLEX_BG,
        Incompat::CSUM_SEED,
        Incompat::INLINE_DATA,
        Incompat::MMP,
    ] {
        let other = layout.features.incompat ^ flag;
        guess(&|raw| raw.s_feature_incompat = other.bits().into());
    }
    let sparse = layout.features.ro_compat ^ RoCompat::SPARSE_SUPER;
    guess(&|raw| raw.s_feature_ro_compat = sparse.bits().into());
    let sparse = layout.features.compat ^ Compat::SPARSE_SUPER2;
    guess(&|raw| raw.s_feature_compat = sparse.bits().into());
    found
}
