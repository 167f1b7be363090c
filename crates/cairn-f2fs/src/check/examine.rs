//! The walk over a whole volume, from its parts on.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_check::{Findings, Observer, Progress, Usage};

use super::context::{Context, Totals};
use super::nat::{self, ReadNat};
use super::nat_bits::NatBits;
use super::notes::Notes;
use super::volume::{Volume, is_no_quota};
use super::walk::Inodes;
use super::{kinds, links, missing, nameless, nodes, owners, quota, segments, types, zones};
use crate::error::Result;
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT};

/// Phases of a check.
const PHASES: u32 = 3;

/// Compares everything below the parts of a volume. With `notes` for a repair.
///
/// # Errors
/// The device failed, or there is no memory.
pub(super) fn examine(
    volume: Volume,
    findings: Findings,
    (runtime, observer): (&Arc<dyn Runtime>, Arc<dyn Observer>),
    threads: usize,
    notes: Option<Notes>,
) -> Result<Arc<Context>> {
    let current = volume.current(&findings)?;
    let progress = Progress::new(observer, PHASES);
    let context = Arc::new(Context::new(volume, current, findings, progress, notes)?);
    walk_all(&context, runtime, threads)?;
    Ok(context)
}

fn walk_all(context: &Arc<Context>, runtime: &Arc<dyn Runtime>, threads: usize) -> Result<()> {
    let (layout, findings) = (&context.layout, &context.findings);
    let bits = NatBits::read(&context.volume)?;
    let nat = ReadNat::new(context.clone(), bits);
    context.progress.begin("node addresses", cairn_check::Work::steps(&nat));
    nat.add_journal();
    drop(cairn_check::run(nat, threads, &**runtime));
    context.failure()?;
    let orphans = context.volume.orphans(findings)?;
    nat::mark(context, &orphans, nodes::ORPHAN, &kinds::ORPHAN);
    if layout.features.contains(crate::format::Features::QUOTA_INO) {
        let quota = layout.quota_inodes.into_iter();
        let quota = quota.filter(|ino| !ino.is_none() && !is_no_quota(*ino, &context.volume));
        nat::mark(context, &quota.collect::<Vec<_>>(), nodes::QUOTA, &kinds::QUOTA);
    }
    context.progress.begin("inodes", layout.nat_blocks().into());
    drop(cairn_check::run(Inodes(context.clone()), threads, &**runtime));
    context.failure()?;
    if context.progress.is_cancelled() {
        return Ok(());
    }
    owners::judge_summaries(context);
    context.step(|scratch| types::check(context, scratch));
    context.failure()?;
    links::check(context);
    if context.notes.as_ref().is_none_or(|notes| notes.seeks) {
        context.step(|scratch| missing::check(context, scratch));
        context.failure()?;
    }
    links::names(context);
    context.step(|scratch| quota::check(context, scratch));
    context.failure()?;
    context.progress.begin("segments", segments::steps(layout));
    context.step(|scratch| segments::check(context, scratch));
    context.failure()?;
    context.step(|scratch| nameless::check(context, scratch));
    context.failure()?;
    zones::check(context)
}

/// What the volume holds.
pub(super) fn usage(context: &Context) -> Usage {
    let (layout, totals) = (&context.layout, &context.totals);
    Usage {
        files: Totals::get(&totals.inodes),
        files_most: layout.max_nid().into(),
        directories: Totals::get(&totals.directories),
        blocks: Totals::get(&totals.blocks),
        blocks_most: u64::from(layout.main_segments).saturating_mul(BLOCKS_PER_SEGMENT.into()),
        block_size: BLOCK_BYTES,
        fragmented: Totals::get(&totals.fragmented),
    }
}
