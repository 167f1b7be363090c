//! What was fsynced since the last checkpoint is recovered before a repair, as a mount does it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Scope, Step, Steps};
use cairn_check::{Finding, Findings, Observer, Place, Value};

use super::super::replay::{self, Pending};
use super::super::volume::Volume;
use super::super::{kinds, packs, report};
use super::edit::Edit;
use crate::error::{Error, Result};
use crate::format::node::Marks;
use crate::format::units::{BLOCK_SIZE, Nid};
use crate::format::{Inode, NodeFooter, inode};
use crate::nat::NatTable;
use crate::options::MountOptions;
use crate::recovery::chain::{self, ChainNode};
use crate::recovery::unknown;
use crate::recovery::versions::Versions;

/// One thread, so that of two owners of a block the second one is always the same.
pub(super) const THREADS: usize = 1;
/// Memory for the caches of the mount.
pub(super) const CACHE_BYTES: usize = 16 << 20;

/// The volume after its recovery, and what was recovered. What cannot be is a finding.
///
/// # Errors
/// The device failed.
pub(super) fn recover(
    volume: Volume,
    (device, scope): (&Arc<dyn BlockDevice>, Scope),
    watch: (&Arc<dyn Runtime>, Arc<dyn Observer>),
    (findings, steps): (&Findings, &mut Steps),
) -> Result<(Option<Volume>, Option<&'static str>)> {
    let mended = Findings::new();
    let pending = match replay::pending(&volume, &mended) {
        Ok(Pending::Nothing) => return Ok((Some(volume), None)),
        Ok(pending) => pending,
        Err(error) => {
            if scope.allows(&kinds::RECOVERY) && drop_damaged(&volume, device, steps)? {
                fails(error, findings)?;
                return Ok((None, None));
            }
            fails(error, findings)?;
            return Ok((Some(volume), None));
        }
    };
    let runtime = watch.0.clone();
    let is_safe = replay::is_safe(device, watch, THREADS, (&replay::LISTS, findings))?;
    if is_safe && pending == Pending::Contradicted {
        replay::waits(findings);
    }
    if !is_safe || pending != Pending::Fsynced {
        return Ok((Some(volume), None));
    }
    // A recovery that fails must leave nothing.
    let above = Arc::new(Overlay::new(device.clone())?);
    packs::give_up(&volume, &*above)?;
    drop(volume);
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
            for finding in mended.into_lists().0 {
                steps.add(Step::new(finding.kind, finding.place.clone()));
                findings.add(finding);
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

/// Takes the marks from the nodes of damaged inodes in the chain, so that the others can be
/// recovered, and lists what is lost. False if the chain is a loop.
fn drop_damaged(volume: &Volume, device: &Arc<dyn BlockDevice>, steps: &mut Steps) -> Result<bool> {
    let layout = &volume.layout;
    let mut followed = chain::follow(&volume.buffers, layout, &volume.loaded.checkpoint)?;
    if followed.faults.is_empty() {
        let Volume { buffers, loaded, journals, .. } = volume;
        let nat = NatTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.nat);
        let selected = chain::select(&followed.nodes, &nat)?;
        let versions = Versions { buffers, layout, nat: &nat };
        followed.faults = versions.faults(&followed.nodes, &selected)?;
    }
    let damaged: Option<Vec<ChainNode>> =
        followed.faults.iter().map(|(index, _)| followed.nodes.get(*index).copied()).collect();
    let Some(damaged) = damaged.filter(|damaged| !damaged.is_empty()) else { return Ok(false) };
    let inodes: BTreeSet<Nid> =
        damaged.iter().flat_map(|node| [node.footer.nid, node.footer.ino]).collect();
    unmark(volume, (device, steps), &followed.nodes, (&inodes, &damaged))?;
    Ok(true)
}

/// Takes the marks from the nodes of inodes whose numbers are nodes of other inodes, as
/// [`drop_damaged`]. False if there are none.
pub(super) fn drop_contradicted(
    volume: &Volume,
    device: &Arc<dyn BlockDevice>,
    steps: &mut Steps,
) -> Result<bool> {
    let Volume { buffers, layout, loaded, journals, .. } = volume;
    let followed = chain::follow(buffers, layout, &loaded.checkpoint)?;
    let nat = NatTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.nat);
    let selected = chain::select(&followed.nodes, &nat)?;
    let found = unknown::contradicted(&followed.nodes, &selected, &nat)?;
    let inodes: BTreeSet<Nid> = found.into_keys().collect();
    unmark(volume, (device, steps), &followed.nodes, (&inodes, &[]))?;
    Ok(!inodes.is_empty())
}

/// Takes the marks from nodes of inodes, and lists what is lost. Damaged nodes become others.
fn unmark(
    volume: &Volume,
    (device, steps): (&Arc<dyn BlockDevice>, &mut Steps),
    nodes: &[ChainNode],
    (inodes, damaged): (&BTreeSet<Nid>, &[ChainNode]),
) -> Result<()> {
    let layout = &volume.layout;
    let mut lost: BTreeMap<Nid, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| inodes.contains(&node.footer.ino)) {
        let at = node.addr.bytes();
        let mut image = device.read_at(at, BLOCK_SIZE)?.to_vec();
        let record = Inode::decode(&image, node.footer.ino, layout.features);
        let name = record.ok().filter(|_| node.footer.offset == 0).map(|one| one.name.to_vec());
        // Two files may claim one number.
        lost.entry(node.footer.ino).or_default().extend(name.filter(|name| !name.is_empty()));
        let footer = match damaged.contains(node) {
            // The root is a directory, and has no nodes in the chain.
            true => NodeFooter { nid: Nid::ROOT, ino: Nid::ROOT, offset: 0, ..node.footer },
            false => node.footer,
        };
        NodeFooter { marks: Marks::COLD, ..footer }.write(&mut image);
        if footer.is_inode() {
            inode::seal(&mut image, layout);
        }
        device.write_at(at, image)?;
    }
    for (ino, mut names) in lost {
        if names.is_empty() {
            names.insert(Vec::new());
        }
        for name in names {
            let step = Step::new(&kinds::RECOVERY, Place::inode(ino.get()));
            steps.add(step.losing(*b"", &*what_of(&name)));
        }
    }
    Ok(())
}

/// What is lost of a file with this name.
fn what_of(name: &[u8]) -> String {
    let name = if name.is_empty() { b"the file" } else { name };
    format!("what was fsynced of {}", String::from_utf8_lossy(name))
}

impl Edit<'_> {
    /// Lists the files of the chain, which a new checkpoint drops.
    pub(super) fn list_chain(&mut self) -> Result<()> {
        let volume = &self.context.volume;
        let followed = chain::follow(&volume.buffers, &self.layout, &volume.loaded.checkpoint)?;
        let mut files = BTreeMap::new();
        for node in followed.nodes {
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
            self.lost((&kinds::RECOVERY, Place::inode(ino.get())), ino, &what_of(&name));
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
