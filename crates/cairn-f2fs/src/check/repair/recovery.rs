//! What was fsynced since the last checkpoint is recovered before a repair, as a mount does it.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::{Finding, Findings, Observer, Place, Value};
use cairn_vfs::FileSystem;

use super::super::volume::Volume;
use super::super::{kinds, replay, report};
use crate::error::{Error, Result};
use crate::options::MountOptions;
use crate::volume::F2fs;

/// One thread, so that of two owners of a block the second one is always the same.
pub(super) const THREADS: usize = 1;
/// Memory for the caches of the mount.
const CACHE_BYTES: usize = 16 << 20;

/// The volume after its recovery, and what was recovered. What cannot be is a finding.
///
/// # Errors
/// The device failed.
pub(super) fn recover(
    volume: Volume,
    device: &Arc<dyn BlockDevice>,
    watch: (&Arc<dyn Runtime>, Arc<dyn Observer>),
    findings: &Findings,
) -> Result<(Option<Volume>, Option<&'static str>)> {
    match replay::is_pending(&volume) {
        Ok(false) => return Ok((Some(volume), None)),
        Ok(true) => {}
        Err(error) => {
            fails(error, findings)?;
            return Ok((Some(volume), None));
        }
    }
    let runtime = watch.0.clone();
    if !replay::is_safe(device, watch, THREADS, findings)? {
        return Ok((Some(volume), None));
    }
    drop(volume);
    // A recovery that fails must leave nothing.
    let above = Arc::new(Overlay::new(device.clone())?);
    let options = MountOptions { cache_bytes: CACHE_BYTES, ..MountOptions::default() };
    let mounted =
        F2fs::open(above.clone(), runtime, &options).and_then(|volume| Ok(volume.unmount()?));
    let recovered = match mounted {
        Ok(()) => {
            for range in above.touched() {
                let len = range.end.saturating_sub(range.start);
                let len = as_index(u32::try_from(len).unwrap_or_default());
                let bytes = above.read_at(range.start, len)?.to_vec();
                if *device.read_at(range.start, len)? != *bytes {
                    device.write_at(range.start, bytes)?;
                }
            }
            Some("chain of fsynced nodes")
        }
        Err(error) => {
            fails(error, findings)?;
            None
        }
    };
    Ok((Volume::open(device.clone(), findings)?, recovered))
}

fn fails(error: Error, findings: &Findings) -> Result<()> {
    findings.add(match error {
        Error::Device(_) | Error::Data(_) => return Err(error),
        Error::Corrupt(error) => report::of(&kinds::RECOVERY, &error),
        error => {
            Finding::new(&kinds::RECOVERY, Place::volume()).stored(Value::text(error.to_string()))
        }
    });
    Ok(())
}
