//! [`Candidate`]: other values of fields, and what they must explain.

use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::{Finding, Place};

use super::super::state::State;
use super::super::{kinds, unsealed};
use super::fields;
use crate::error::Result;
use crate::format::layout::Layout;
use crate::format::superblock::{OFFSET, RawSuperblock};

/// A guess leaves one in so many findings.
const MOST: u64 = 8;

/// How much a candidate must explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Another structure says so: it must explain something.
    Witness,
    /// Nothing says so: it must explain nearly all.
    Guess,
}

/// Other values of one or several fields.
#[derive(Clone, Debug)]
pub(in crate::check) struct Candidate {
    /// What is wrong with the stored ones.
    pub(in crate::check) findings: Vec<Finding>,
    /// What lies where, with the other values.
    pub(super) edits: Vec<(u64, Vec<u8>)>,
    pub(super) proof: Proof,
}

impl Candidate {
    /// A superblock with other values of fields. `None` if it describes no possible volume, or if
    /// no value is another one.
    pub(super) fn superblock(
        state: &State,
        device: &dyn BlockDevice,
        proof: Proof,
        edit: impl FnOnce(&mut RawSuperblock),
    ) -> Option<Self> {
        let old = &state.superblock;
        let mut new = old.clone();
        edit(&mut new.raw);
        let layout = Layout::new(&new, device.geometry().size).ok()?;
        let is_plausible = proof == Proof::Witness || unsealed::agrees(device, &layout).ok()?;
        let findings: Vec<Finding> = fields::differences(&old.raw, &new.raw)
            .map(|(field, stored, computed)| {
                let finding = Finding::new(&kinds::SUPERBLOCK_CONTRADICTED, Place::field(field));
                match field.starts_with("s_feature_") || field == "s_uuid" {
                    true => finding.hex(stored, computed),
                    false => finding.stored(stored).computed(computed),
                }
            })
            .collect();
        let edits = vec![(OFFSET, new.encode().to_vec())];
        (is_plausible && !findings.is_empty()).then_some(Self { findings, edits, proof })
    }

    /// Writes the other values.
    ///
    /// # Errors
    /// The device failed.
    pub(in crate::check) fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        for (at, bytes) in &self.edits {
            device.write_at(*at, bytes.clone())?;
        }
        Ok(())
    }

    /// Does it explain enough, if so much is found without it, and so much with it?
    pub(in crate::check) const fn is_proved(&self, without: u64, with: u64) -> bool {
        match self.proof {
            Proof::Witness => with < without,
            Proof::Guess => with.saturating_mul(MOST) <= without,
        }
    }
}
