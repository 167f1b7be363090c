//! What was fsynced since the last checkpoint is recovered in memory before the walk.
//!
//! The volume is mounted for writing over a device that keeps all writes in memory, so the recovery
//! is that of a mount.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_block::wrap::Overlay;
use cairn_check::{Finding, Findings, Place, Value};
use cairn_vfs::FileSystem;

use super::volume::Volume;
use super::{kinds, report};
use crate::error::{Error, Result};
use crate::format::CheckpointFlags;
use crate::nat::NatTable;
use crate::options::MountOptions;
use crate::recovery::chain;
use crate::volume::F2fs;

/// What lies behind the checkpoint.
pub(super) enum Chain {
    /// Nothing that a mount would recover.
    Empty,
    /// The volume after the recovery.
    Replayed(Arc<dyn BlockDevice>),
    /// Something that Cairn does not recover on this device, or with these features: the last
    /// checkpoint is checked.
    Pending,
}

/// Recovers what follows the checkpoint.
///
/// # Errors
/// The device failed.
pub(super) fn replay(
    volume: &Volume,
    runtime: &Arc<dyn Runtime>,
    findings: &Findings,
) -> Result<Chain> {
    match is_pending(volume) {
        Ok(false) => return Ok(Chain::Empty),
        Ok(true) => {}
        Err(error) => return failed(error, findings),
    }
    let limited = volume.layout.features.read_only_reason().is_some();
    if limited || volume.device.as_zoned().is_some() {
        return Ok(Chain::Pending);
    }
    let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(volume.device.clone())?);
    let options = MountOptions { cache_bytes: CACHE_BYTES, ..MountOptions::default() };
    let mounted = F2fs::open(overlay.clone(), runtime.clone(), &options)
        .and_then(|volume| Ok(volume.unmount()?));
    match mounted {
        Ok(()) => Ok(Chain::Replayed(overlay)),
        Err(error) => failed(error, findings),
    }
}

/// Memory for the caches of the mount.
const CACHE_BYTES: usize = 16 << 20;

/// Is there something that a mount would recover?
///
/// # Errors
/// The chain is damaged, or the device failed.
pub(super) fn is_pending(volume: &Volume) -> Result<bool> {
    let Volume { buffers, layout, loaded, journals, .. } = volume;
    if loaded.checkpoint.flags.contains(CheckpointFlags::DISABLED) {
        return Ok(false);
    }
    let nodes = chain::scan(buffers, layout, &loaded.checkpoint)?;
    let nat = NatTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.nat);
    Ok(!chain::select(&nodes, &nat)?.is_empty())
}

/// Damage is a finding.
fn failed(error: Error, findings: &Findings) -> Result<Chain> {
    let finding = match error {
        Error::Device(_) | Error::Data(_) => return Err(error),
        Error::Corrupt(error) => report::of(&kinds::RECOVERY, &error),
        error => {
            Finding::new(&kinds::RECOVERY, Place::volume()).stored(Value::text(error.to_string()))
        }
    };
    findings.add(finding);
    Ok(Chain::Empty)
}
