//! What was fsynced since the last checkpoint is recovered in memory before the walk.
//!
//! A mount writes to blocks that the SIT calls free. So nothing is recovered if the SIT is wrong.
//!
//! The volume is mounted for writing over a device that keeps all writes in memory, so the recovery
//! is that of a mount.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_block::wrap::Overlay;
use cairn_check::{Finding, Findings, Kind, Observer, Place, Value};
use cairn_vfs::FileSystem;

use super::examine::examine;
use super::volume::Volume;
use super::{kinds, packs, report};
use crate::error::{Error, Result};
use crate::format::CheckpointFlags;
use crate::format::node::Marks;
use crate::nat::NatTable;
use crate::options::MountOptions;
use crate::recovery::chain::{self, ChainNode};
use crate::recovery::links::Broken;
use crate::recovery::unknown;
use crate::recovery::versions::Versions;
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
    watch: (&Arc<dyn Runtime>, Arc<dyn Observer>),
    findings: &Findings,
) -> Result<Chain> {
    let pending = match pending(volume, findings) {
        Ok(Pending::Nothing) => return Ok(Chain::Empty),
        Ok(pending) => pending,
        Err(error) => return failed(error, findings),
    };
    let limited = volume.layout.features.read_only_reason().is_some();
    if limited || volume.device.as_zoned().is_some() {
        return Ok(Chain::Pending);
    }
    let runtime = watch.0.clone();
    let is_safe = is_safe(&volume.device, watch, THREADS, (&BEFORE, findings))?;
    if is_safe && pending == Pending::Contradicted {
        waits(findings);
    }
    if !is_safe || pending != Pending::Fsynced {
        return Ok(Chain::Empty);
    }
    let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(volume.device.clone())?);
    packs::give_up(volume, &*overlay)?;
    let options = MountOptions { cache_bytes: CACHE_BYTES, ..MountOptions::default() };
    match recovered(overlay.clone(), runtime, &options) {
        Ok(None) => Ok(Chain::Replayed(overlay)),
        Ok(Some(_)) => Ok(Chain::Pending),
        Err(error) => failed(error, findings),
    }
}

/// Mounts and unmounts a volume, which recovers it, unless it is read-only for the reason that is
/// returned.
///
/// # Errors
/// The volume is damaged, or the device failed.
pub(super) fn recovered(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &MountOptions,
) -> Result<Option<Arc<str>>> {
    let volume = F2fs::open(device, runtime, options)?;
    let reason = volume.read_only_reason();
    volume.unmount()?;
    Ok(reason)
}

/// Threads of the walk that comes before a recovery.
const THREADS: usize = 2;
/// Memory for the caches of the mount.
const CACHE_BYTES: usize = 16 << 20;

/// What lies behind the checkpoint, before it is known whether it can be recovered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing that a mount would recover.
    Nothing,
    /// Nodes of inodes that the NAT does not know, and that the chain does not make: an fsync was
    /// interrupted, or the NAT is wrong.
    Unknown,
    /// Among others an inode whose number is another inode's node in the NAT.
    Contradicted,
    /// Something that a mount would recover.
    Fsynced,
}

/// Looks for something that a mount would recover. Links of the chain that are wrong are findings.
///
/// # Errors
/// The chain is damaged, or the device failed.
pub(super) fn pending(volume: &Volume, findings: &Findings) -> Result<Pending> {
    let Volume { buffers, layout, loaded, journals, .. } = volume;
    if loaded.checkpoint.flags.contains(CheckpointFlags::DISABLED) {
        return Ok(Pending::Nothing);
    }
    let followed = chain::follow(buffers, layout, &loaded.checkpoint)?;
    if let Some((_, fault)) = followed.faults.into_iter().next() {
        return Err(fault.into());
    }
    let nat = NatTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.nat);
    let selected = chain::select(&followed.nodes, &nat)?;
    if !unknown::contradicted(&followed.nodes, &selected, &nat)?.is_empty() {
        return Ok(Pending::Contradicted);
    }
    if selected.is_empty() {
        let is_fsynced = |node: &ChainNode| node.footer.marks.contains(Marks::FSYNC);
        let is_unknown = followed.nodes.iter().any(is_fsynced);
        return Ok(if is_unknown { Pending::Unknown } else { Pending::Nothing });
    }
    Versions { buffers, layout, nat: &nat }.check(&followed.nodes, &selected)?;
    for Broken { addr, field, stored, right } in followed.broken {
        let place = Place::block(addr.get()).in_field(field);
        findings.add(Finding::new(&kinds::RECOVERY_CHAIN, place).hex(stored, right));
    }
    Ok(Pending::Fsynced)
}

/// With these a recovery may write over what is in use.
const HARM: [&Kind; 3] = [&kinds::SIT_BITS, &kinds::SIT_ENTRY, &kinds::BLOCK_SHARED];
/// What is wrong with the list of orphans. A recovery leaves none.
pub(super) const LISTS: [&Kind; 2] = [&kinds::ORPHAN, &kinds::ORPHAN_BLOCK];
/// What a check finds before a recovery in memory, which does not count quota either.
const BEFORE: [&Kind; 3] = [&kinds::ORPHAN, &kinds::ORPHAN_BLOCK, &kinds::QUOTA_COUNTS];

/// Can a mount recover it without harm? It takes the SIT at its word, and writes to blocks that the
/// SIT calls free. If it cannot, that is a finding, and so is what was found of `kept` before the
/// recovery.
///
/// # Errors
/// The device failed.
pub(super) fn is_safe(
    device: &Arc<dyn BlockDevice>,
    watch: (&Arc<dyn Runtime>, Arc<dyn Observer>),
    threads: usize,
    (kept, findings): (&[&Kind], &Findings),
) -> Result<bool> {
    let scratch = Findings::new();
    if let Some(volume) = Volume::open(device.clone(), &scratch)? {
        let context = examine(volume, scratch, watch, threads, None)?;
        let count_of = |kind: &&Kind| context.findings.count_of(kind);
        let is_harmless = HARM.iter().all(|kind| count_of(kind) == 0);
        if kept.iter().any(|kind| count_of(kind) > 0) {
            let (found, _) = context.findings.take().into_lists();
            let is_one = |one: &Finding| kept.iter().any(|kind| kind.code == one.kind.code);
            found.into_iter().filter(is_one).for_each(|one| findings.add(one));
        }
        if is_harmless {
            return Ok(true);
        }
    }
    waits(findings);
    Ok(false)
}

/// What was fsynced waits until something else is right.
pub(super) fn waits(findings: &Findings) {
    findings.add(Finding::new(&kinds::RECOVERY_WAITS, Place::volume()));
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
