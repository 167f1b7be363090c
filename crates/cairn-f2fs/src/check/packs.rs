//! The checkpoint pack that is not used: it must not be a newer one that was damaged later.
//!
//! If only one end of such a pack is damaged, the pack with the other end in its place is used, as
//! long as the volume does not speak against it more than against the older one.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::runtime::Runtime;
use cairn_base::units::stored;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_check::repair::{Step, Steps};
use cairn_check::{Finding, Findings, Observer, Place, Value};

use super::choice::{Seen, see};
use super::kinds;
use super::volume::Volume;
use crate::checkpoint::{self, newer};
use crate::error::{Error, Result};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::probe::probe;

/// Memory for the blocks of the packs.
const BUDGET: u64 = 4 << 20;

/// Looks for a newer pack that is damaged.
///
/// # Errors
/// The device's.
pub(super) fn check(volume: &Volume, findings: &Findings) -> Result<()> {
    let found = newer::damaged(&volume.buffers, &volume.layout, &volume.loaded)?;
    if let Some(found) = found {
        findings.add(
            Finding::new(&kinds::CHECKPOINT_PACK, Place::block(found.start.get()))
                .stored(Value::Hex(found.version))
                .computed(Value::Hex(volume.loaded.checkpoint.version)),
        );
    }
    Ok(())
}

/// The blocks of a newer pack that are damaged: their addresses, and their right contents.
pub(super) struct Mended {
    pub(super) blocks: Vec<(Pba, Vec<u8>)>,
    /// The device with them.
    pub(super) device: Arc<dyn BlockDevice>,
}

/// The newer pack with its damaged end mended, if the volume agrees with it. That is a finding.
///
/// # Errors
/// The device failed.
pub(super) fn mended(
    device: &Arc<dyn BlockDevice>,
    watch: (&Arc<dyn Runtime>, &Arc<dyn Observer>),
    threads: usize,
    findings: &Findings,
) -> Result<Option<Mended>> {
    // Of a device with zones no copy in memory is made.
    if device.as_zoned().is_some() {
        return Ok(None);
    }
    let volume = match Volume::open(device.clone(), &Findings::new()) {
        Ok(volume) => volume,
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Err(_) => return Ok(None),
    };
    let found = match &volume {
        Some(volume) => newer::damaged(&volume.buffers, &volume.layout, &volume.loaded)?,
        None => beside_none(device)?,
    };
    let is_doubtful = found.as_ref().is_some_and(|found| found.is_doubtful);
    let blocks = found.map(|found| found.mended).unwrap_or_default();
    let Some((at, _)) = blocks.first() else { return Ok(None) };
    let above: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device.clone())?);
    for (at, image) in &blocks {
        above.write_at(bytes_of(*at), image.to_vec())?;
    }
    let version_of = |volume: &Volume| volume.loaded.checkpoint.version;
    let newest = Volume::open(above.clone(), &Findings::new())?.as_ref().map(version_of);
    let used = volume.as_ref().map(version_of);
    drop(volume);
    let Some(version) = newest.filter(|newest| Some(*newest) != used) else { return Ok(None) };
    let loses = |seen: &Seen| (seen.weight.fatal, seen.weight.losing);
    if used.is_some() || is_doubtful {
        let newest = see(above.clone(), watch, threads)?;
        let most = match used {
            Some(_) => loses(&see(device.clone(), watch, threads)?),
            None => (0, 0),
        };
        if loses(&newest) > most {
            return Ok(None);
        }
    }
    let finding = Finding::new(&kinds::CHECKPOINT_END, Place::block(at.get()));
    findings.add(finding.computed(Value::Hex(version)));
    let blocks = blocks.iter().map(|(at, image)| (*at, image.to_vec())).collect();
    Ok(Some(Mended { blocks, device: above }))
}

/// The damaged pack of a volume of which no pack can be used.
fn beside_none(device: &Arc<dyn BlockDevice>) -> Result<Option<newer::Damaged>> {
    let layout = match probe(&**device) {
        Ok(Some(probe)) => probe.layout,
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Ok(None) | Err(_) => return Ok(None),
    };
    let buffers = BufferCache::new(device.clone(), stored(BLOCK_SIZE), Budget::new(BUDGET));
    match checkpoint::load(&buffers, &layout) {
        Err(Error::Corrupt(_)) => newer::damaged_beside_none(&buffers, &layout),
        Ok(_) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Clears both ends of a newer pack that is damaged: a recovery, which is wanted in spite of it,
/// writes over it.
///
/// # Errors
/// The device's.
pub(super) fn give_up(volume: &Volume, device: &dyn BlockDevice) -> Result<()> {
    let found = newer::damaged(&volume.buffers, &volume.layout, &volume.loaded)?;
    for at in found.into_iter().flat_map(|found| [found.start, found.end]) {
        device.write_at(bytes_of(at), vec![0; BLOCK_SIZE])?;
    }
    Ok(())
}

impl Mended {
    /// Writes the blocks.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write(self, device: &Arc<dyn BlockDevice>, steps: &mut Steps) -> Result<()> {
        for (at, bytes) in self.blocks {
            device.write_at(bytes_of(at), bytes)?;
            steps.add(Step::new(&kinds::CHECKPOINT_END, Place::block(at.get())));
        }
        Ok(())
    }
}

const fn bytes_of(at: Pba) -> u64 {
    at.get().saturating_mul(BLOCK_BYTES)
}
