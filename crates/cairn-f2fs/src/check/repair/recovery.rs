//! What was fsynced since the last checkpoint is recovered before a repair, as a mount does it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::{Finding, Findings, Observer, Place, Value};

use super::super::volume::Volume;
use super::super::{kinds, replay, report};
use super::edit::Edit;
use crate::error::{Error, Result};
use crate::format::{Inode, NodeFooter};
use crate::options::MountOptions;
use crate::recovery::chain;

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
    let recovered = match replay::recovered(above.clone(), runtime, &options) {
        Ok(Some(reason)) => {
            return Err(Error::Feature(format!("this volume is not repaired: {reason}")));
        }
        Ok(None) => {
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

impl Edit<'_> {
    /// Lists the files of the chain, which a new checkpoint drops.
    pub(super) fn list_chain(&mut self) -> Result<()> {
        let volume = &self.context.volume;
        let nodes = chain::scan(&volume.buffers, &self.layout, &volume.loaded.checkpoint);
        let mut files = BTreeMap::new();
        // A chain that is a loop has no end to list.
        for node in nodes.unwrap_or_default() {
            let NodeFooter { ino, .. } = node.footer;
            let name: &mut Vec<u8> = files.entry(ino).or_default();
            if node.footer.is_inode() {
                let image = self.read(node.addr.get().into())?;
                let record = Inode::decode(&image, ino, self.layout.features);
                *name = record.map(|record| record.name.to_vec()).unwrap_or_default();
            }
        }
        files.retain(|ino, _| self.layout.is_nid(*ino));
        for (ino, name) in files {
            let name = if name.is_empty() { &b"the file"[..] } else { name.as_slice() };
            let what = format!("what was fsynced of {}", String::from_utf8_lossy(name));
            self.lost((&kinds::RECOVERY, Place::inode(ino.get())), ino, &what);
        }
        Ok(())
    }
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
