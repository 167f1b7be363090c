//! The copies of the superblock.

use std::sync::Arc;

use cairn_base::units::as_u64;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Scope, Step, Steps};
use cairn_check::{Finding, Place};

use super::super::context::Scratch;
use super::super::volume::Volume;
use super::super::{kinds, quota};
use super::edit::Edit;
use crate::disk::SUPERBLOCKS;
use crate::error::Result;
use crate::format::block::put;
use crate::format::superblock::{OFFSET, SIZE, Superblock};
use crate::format::units::BLOCK_BYTES;

impl Edit<'_> {
    /// Writes the copies of the superblock. The record of errors stays as long as there is damage
    /// by which files lose something. True if it names other quota files now: what the walk took
    /// for one may be somebody's file.
    pub(super) fn mend_superblocks(&mut self, findings: &[Finding], loses: bool) -> Result<bool> {
        let is_one = |found: &&Finding| {
            let code = found.kind.code;
            let copies = [&kinds::SUPERBLOCK, &kinds::SUPERBLOCK_COPIES, &kinds::SUPERBLOCK_FIELD];
            let copies = copies.map(|kind| kind.code);
            copies.contains(&code) || (code == kinds::SUPERBLOCK_ERRORS.code && !loses)
        };
        let found: Vec<&Finding> = findings.iter().filter(is_one).collect();
        if found.is_empty() {
            return Ok(false);
        }
        let mut superblock = self.context.volume.superblock.clone();
        if !loses {
            superblock.s_errors.fill(0);
            superblock.s_stop_reason.fill(0);
        }
        let named = superblock.qf_ino;
        superblock.qf_ino = quota::names(&self.context, &mut Scratch::default())?;
        // Only a volume on several devices names them.
        if superblock.device_segments().len() == 1 {
            superblock.devs = Superblock::blank().devs;
        }
        let bytes = superblock.encode();
        for at in SUPERBLOCKS {
            let mut block = self.read(at.get())?;
            put(&mut block, OFFSET, &bytes);
            self.write(at.get(), block)?;
        }
        found.into_iter().for_each(|finding| self.mended(finding));
        Ok(superblock.qf_ino != named)
    }
}

/// Writes the superblock that was made of two damaged copies over both.
pub(super) fn mend_both(
    volume: &Volume,
    (device, scope): (&Arc<dyn BlockDevice>, Scope),
    steps: &mut Steps,
) -> Result<()> {
    if !scope.allows(&kinds::SUPERBLOCK_BOTH) {
        return Ok(());
    }
    let bytes = volume.superblock.encode();
    for at in SUPERBLOCKS {
        let place = at.get().saturating_mul(BLOCK_BYTES).saturating_add(as_u64(OFFSET));
        device.write_at(place, bytes.clone())?;
    }
    let step = Step::new(&kinds::SUPERBLOCK_BOTH, Place::volume());
    steps.add(step.losing(*b"", "fields that neither copy had right, if there are such"));
    Ok(())
}

/// Writes the superblock with other features over both copies. `proved` is the device with it.
pub(super) fn mend_features(
    proved: &Arc<dyn BlockDevice>,
    device: &Arc<dyn BlockDevice>,
    steps: &mut Steps,
) -> Result<()> {
    for at in SUPERBLOCKS {
        let place = at.get().saturating_mul(BLOCK_BYTES).saturating_add(as_u64(OFFSET));
        device.write_at(place, proved.read_at(place, SIZE)?.to_vec())?;
    }
    steps.add(Step::new(&kinds::SUPERBLOCK_FEATURES, Place::field("feature")));
    Ok(())
}

/// Writes the second copy over the first one. `chosen` is the device with the second copy as both.
pub(super) fn mend_first(
    chosen: &Arc<dyn BlockDevice>,
    device: &Arc<dyn BlockDevice>,
    steps: &mut Steps,
) -> Result<()> {
    let [first, _] = SUPERBLOCKS;
    let place = first.get().saturating_mul(BLOCK_BYTES).saturating_add(as_u64(OFFSET));
    device.write_at(place, chosen.read_at(place, SIZE)?.to_vec())?;
    steps.add(Step::new(&kinds::SUPERBLOCK_COPIES, Place::block(first.get())));
    Ok(())
}
