//! The UUID, by the older checksums of descriptors, which begin with it.
//!
//! Such a checksum has 16 bits. That of one group is right by chance with one of 65,536 UUIDs, so
//! that only single bits are tried then.

use cairn_base::units::as_index;
use cairn_block::BlockDevice;

use super::super::state::State;
use super::candidate::{Candidate, Proof};
use crate::format::features::RoCompat;
use crate::format::group_desc::GroupDesc;

/// Bytes of a UUID.
const UUID: usize = 16;

/// The UUIDs by which all descriptors have the right checksums, if most have wrong ones.
pub(super) fn candidates(device: &dyn BlockDevice, state: &State) -> Vec<Candidate> {
    let features = &state.layout.features;
    let wrong = state.groups.iter().filter(|group| !group.is_sealed).count();
    if features.ro_compat(RoCompat::METADATA_CSUM)
        || !features.ro_compat(RoCompat::GDT_CSUM)
        || wrong == 0
        || wrong.saturating_mul(2) < state.groups.len()
    {
        return Vec::new();
    }
    let Some(descriptors) = descriptors(state) else { return Vec::new() };
    let most = if descriptors.len() > 1 { u8::MAX } else { 0 };
    let changes = (1..=u8::MAX).filter(|change| *change <= most || change.is_power_of_two());
    let changes = changes.flat_map(|change| (0..UUID).map(move |at| (at, change)));
    let found = changes.filter(|(at, change)| {
        let mut layout = state.layout;
        layout.uuid.iter_mut().skip(*at).take(1).for_each(|byte| *byte ^= change);
        let mut all = (0_u32..).zip(&descriptors);
        all.all(|(group, bytes)| GroupDesc::verify(bytes, group, &layout).is_ok())
    });
    let with = |(at, change): (usize, u8)| {
        Candidate::superblock(state, device, Proof::Guess, |raw| {
            raw.s_uuid.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= change);
        })
    };
    found.filter_map(with).collect()
}

/// The descriptors of all groups.
fn descriptors(state: &State) -> Option<Vec<Vec<u8>>> {
    let layout = &state.layout;
    let mut found = Vec::new();
    for first in (0..layout.groups).step_by(as_index(layout.descs_per_block())) {
        let block = state.source.block(layout.descriptor_block(first)).ok()?;
        let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
        for group in first..end {
            let at = layout.descriptor_offset(group);
            let bytes = block.get(at..at.checked_add(as_index(layout.desc_size))?)?;
            found.push(bytes.to_vec());
        }
    }
    Some(found)
}
