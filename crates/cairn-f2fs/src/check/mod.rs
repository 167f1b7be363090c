//! `check`: everything that a volume says about itself is compared with everything else. Nothing is
//! written.
//!
//! 1. The superblocks (`choice`, `features`) and the checkpoint (`volume`). What was fsynced since
//!    the checkpoint is recovered in memory (`replay`); the rest is about the result.
//! 2. The NAT is read (`nat`): which nodes exist, and where (`nodes`).
//! 3. Two threads go through the inodes in the order of the NAT (`walk`): each inode's block,
//!    form (`shape`), type (`types`), fields (`inode`), nodes and pointers (`tree`), targets
//!    (`symlink`), attributes, and entries (`directory`).
//!    Each block is claimed once (`claims`) and must have its owner's summary (`owners`); which
//!    pointers that names, and what is a node, tell `slots`.
//! 4. Types of inodes against their names (`types`); links and the ways to the root (`links`);
//!    nodes that are counted, and missing (`missing`); then the SIT, the logs and the counts of the
//!    checkpoint against the blocks in use (`segments`), blocks that lost their pointers
//!    (`unlinked`), old versions of nodes (`older`), and zones (`zones`).
//!    Which names inodes without one had tells `nameless`.
//! 5. Nodes that nothing leads to may be of deleted files (`deleted`): then the volume is walked
//!    again without them.
//!
//! Memory: 20 bytes for each nid of the NAT's pieces in use, one bit for each block of regions in
//! use, 16 bytes for each entry of the two directories that are walked, and at most 16 MiB.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod attributes;
mod choice;
mod claims;
mod clusters;
mod context;
mod contradicted;
mod cycles;
mod deleted;
mod directory;
mod examine;
mod features;
mod hint;
mod inode;
mod journals;
pub mod kinds;
mod lacking;
mod last_names;
mod links;
mod missing;
mod named;
mod nameless;
mod nat;
mod nat_bits;
mod nodes;
mod notes;
mod older;
mod owners;
mod packs;
mod paths;
mod quota;
mod quota_walk;
pub mod repair;
mod replay;
mod report;
mod segments;
mod shape;
mod slots;
mod superblocks;
mod symlink;
mod tree;
mod types;
mod unlinked;
mod volume;
mod walk;
mod zones;

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_block::wrap::ReadAhead;
use cairn_check::{Findings, Observer, Report, Usage};

pub use kinds::ALL;

use crate::error::Result;
use crate::sizes::is_between;
use examine::{examine, usage};
use replay::Chain;
use volume::Volume;

/// Threads of the walk.
const THREADS: usize = 2;

/// Can a volume be checked although neither copy of its superblock is sound? One is then made of
/// both.
///
/// # Errors
/// The device failed.
pub fn has_superblock(device: &Arc<dyn BlockDevice>) -> Result<bool> {
    Ok(superblocks::merged(device)?.is_some())
}

/// Checks the volume on a device, which is only read.
///
/// # Errors
/// There is no such filesystem, or the device failed. Damage of the volume is no error, but a
/// finding.
pub fn check(
    device: Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
) -> Result<Report> {
    let device: Arc<dyn BlockDevice> = Arc::new(ReadAhead::new(device));
    let findings = Findings::new();
    let chosen = choice::second(&device, (runtime, &observer), THREADS, &findings)?;
    let device = chosen.unwrap_or(device);
    let newest = packs::mended(&device, (runtime, &observer), THREADS, &findings)?;
    let device = newest.map_or(device, |newest| newest.device);
    let proved = features::proved(&device, &findings)?;
    let Some(volume) = Volume::open(proved.unwrap_or(device), &findings)? else {
        return Ok(Report::new(findings, Usage::default()));
    };
    volume.check_superblocks(&findings)?;
    volume.check_flags(&findings);
    packs::check(&volume, &findings)?;
    let mut recovered = Vec::new();
    if is_between(&volume.loaded.checkpoint, &volume.layout) {
        recovered.push("change of the size");
    }
    let watch = (runtime, observer.clone());
    let volume = match replay::replay(&volume, watch, &findings)? {
        Chain::Empty => volume,
        Chain::Pending => volume,
        Chain::Replayed(device) => {
            recovered.push("chain of fsynced nodes");
            match Volume::open(device, &findings)? {
                Some(mut volume) => {
                    volume.is_recovered = true;
                    volume
                }
                None => return Ok(Report::new(findings, Usage::default())),
            }
        }
    };
    let early = findings.copy();
    let context = examine(volume, findings, (runtime, observer.clone()), THREADS, None)?;
    let without = deleted::proved(&context, (runtime, &observer), THREADS, early)?;
    let context = without.map_or(context, |without| without.context);
    let usage = usage(&context);
    let cancelled = context.progress.is_cancelled();
    let mut report = Report { recovered, cancelled, ..Report::new(context.findings.take(), usage) };
    context.step(|scratch| paths::add(&context, scratch, &mut report.findings));
    context.failure()?;
    report.no_repair = repair::refusal(&context.volume);
    Ok(report)
}
