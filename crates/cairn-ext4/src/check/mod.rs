//! The check of a whole volume: every structure, against every other. It writes nothing.
//!
//! Phases: the superblock and the groups (`open`, `groups`); every inode with its block map
//! (`inodes`), which claims blocks; every directory (`directories`), which counts names; the
//! tree and the links (`links`); the bitmaps and counts against what was claimed and counted
//! (`bitmaps`). Inodes and groups are divided among threads.
//!
//! Whatever the bytes are, a check ends: each block of a map is descended from once, and what
//! several files share is read at most as often as the volume has blocks. Memory: one bit a cluster
//! and a block where some are in use, 16 bytes an inode, a name's hash and place for the names of
//! one directory a thread.

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
mod backup;
mod bitmaps;
mod claims;
mod contents;
mod dir_blocks;
mod directories;
mod directory;
mod entries;
mod extents;
mod facts;
mod features;
mod groups;
mod htree;
mod indirect;
mod inodes;
mod kinds;
mod links;
mod map;
mod open;
mod orphans;
mod owners;
mod quota;
mod record;
pub mod repair;
mod resize_inode;
mod source;
mod state;
mod superblock;
mod unsealed;
mod visitor;

pub use kinds::ALL;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_check::{Findings, Observer, Progress, Report, Usage, run};

use crate::error::Result;
use crate::format::features::RoCompat;
use crate::info;
use source::Source;
use state::State;

/// Threads that share a phase.
const THREADS: usize = 2;
/// Phases that an observer hears of.
const PHASES: u32 = 3;

/// Checks the volume on a device, which is only read. A volume that was not unmounted cleanly is
/// recovered in memory first.
///
/// # Errors
/// There is no volume that can be read, its features are unknown, or there is not enough memory.
pub fn check(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
) -> Result<Report> {
    Ok(examine(device, &runtime, observer, Findings::new())?.report)
}

/// What a check has found, and what it knows of the volume.
struct Examined {
    state: Arc<State>,
    report: Report,
}

fn examine(
    device: Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    findings: Findings,
) -> Result<Examined> {
    let opened = open::open(device, runtime)?;
    let source = Source::new(opened.device, opened.layout.block_size);
    let progress = Progress::new(observer, PHASES);
    let mut state = State::new(opened.superblock, opened.layout, source, progress)?;
    state.findings = findings;
    state.is_recovered = opened.is_unclean;
    opened.findings.into_iter().for_each(|finding| state.findings.add(finding));
    superblock::check_fields(&state);
    groups::open(&mut state);
    for ino in state.system_inodes() {
        if let Some(facts) = state.facts(ino) {
            facts.set_system();
        }
    }
    let orphans = orphans::find(&state);
    let state = Arc::new(state);
    walk(&state, &**runtime)?;
    if !state.cancelled.load(Relaxed) {
        quota::check(&state);
        superblock::check_totals(&state);
        superblock::check_errors(&state);
        superblock::check_backups(&state);
        orphans::report(&state, orphans);
    }
    let mut report = Report::new(state.findings.take(), usage(&state));
    report.cancelled = state.cancelled.load(Relaxed);
    if opened.is_unclean && info::has_external_journal(&state.superblock) {
        report.no_repair = Some("its journal is on another device: use e2fsck".into());
    }
    if opened.is_replayed {
        report.recovered.push("journal");
    }
    Ok(Examined { state, report })
}

fn walk(state: &Arc<State>, runtime: &dyn Runtime) -> Result<()> {
    let groups = u64::from(state.layout.groups);
    state.progress.begin("inodes", groups);
    run(inodes::Inodes(state.clone()), THREADS, runtime);
    let is_shared = state.layout.features.ro_compat(RoCompat::SHARED_BLOCKS);
    if state.twice.next(0).is_some() && !is_shared {
        run(owners::Twice(state.clone()), THREADS, runtime);
    }
    attributes::check_references(state);
    state.progress.begin("directories", state.totals.directories.load(Relaxed));
    run(directories::Directories(state.clone()), THREADS, runtime);
    links::check(state)?;
    directories::judge_checksums(state);
    state.progress.begin("bitmaps", groups);
    run(bitmaps::Bitmaps(state.clone()), THREADS, runtime);
    Ok(())
}

fn usage(state: &State) -> Usage {
    let (layout, totals) = (&state.layout, &state.totals);
    let free = totals.free_inodes.load(Relaxed);
    Usage {
        files: u64::from(layout.inodes_count).saturating_sub(free),
        files_most: layout.inodes_count.into(),
        directories: totals.directories.load(Relaxed),
        blocks: (totals.used_clusters.load(Relaxed) << layout.cluster_bits)
            .saturating_add(layout.first_data_block),
        blocks_most: layout.blocks_count,
        block_size: layout.block_size.into(),
        fragmented: totals.fragmented.load(Relaxed),
    }
}
