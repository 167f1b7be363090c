//! The checkpoint pack that is not used: it must not be a newer one that was damaged later.

use cairn_check::{Finding, Findings, Place, Value};

use super::kinds;
use super::volume::Volume;
use crate::checkpoint::newer;
use crate::error::Result;

/// Looks for a newer pack that is damaged.
///
/// # Errors
/// The device's.
pub(super) fn check(volume: &Volume, findings: &Findings) -> Result<()> {
    let found = newer::damaged(&volume.buffers, &volume.layout, &volume.loaded)?;
    if let Some((start, version)) = found {
        findings.add(
            Finding::new(&kinds::CHECKPOINT_PACK, Place::block(start.get()))
                .stored(Value::Hex(version))
                .computed(Value::Hex(volume.loaded.checkpoint.version)),
        );
    }
    Ok(())
}
