//! Examines a volume: all phases of a check, and once more with another value of a field that
//! contradicts the rest of the volume ([`evidence`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_block::wrap::Overlay;
use cairn_check::{Findings, Kind, Observer, Phase, Progress, Report, Severity, Usage, run};

use super::evidence::{self, Candidate};
use super::source::Source;
use super::state::State;
use super::{
    attributes, bitmaps, directories, disputes, file_type, groups, inodes, kinds, links, list_bit,
    named, open, orphans, owners, quota, strays, superblock,
};
use crate::error::Result;
use crate::format::features::RoCompat;
use crate::info;

/// Threads that share a phase.
const THREADS: usize = 2;
/// Phases that an observer hears of.
const PHASES: u32 = 3;

/// What a check has found, and what it knows of the volume.
pub(super) struct Examined {
    pub(super) state: Arc<State>,
    pub(super) report: Report,
    /// The volume was read with this, because what it has contradicts the rest of it.
    pub(super) correction: Option<Candidate>,
}

/// Examines the volume. Where a field that says where everything else is contradicts its backup or
/// the rest of the volume, it is examined with another value, if it `tries` others.
///
/// # Errors
/// As [`super::check()`].
pub(super) fn examine(
    device: Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    observer: &Arc<dyn Observer>,
    findings: fn() -> Findings,
    tries: bool,
) -> Result<Examined> {
    let best = once(device.clone(), runtime, observer.clone(), findings())?;
    // What a device does not give looks damaged, or is not missed: then nothing is proved.
    if best.report.cancelled || !tries || evidence::is_partial(&best.report) {
        return Ok(best);
    }
    let trial = Trial { device, runtime, observer, findings };
    let best = match evidence::weight(&best.report) {
        0 => best,
        before => trial.fields(best, before)?,
    };
    if best.correction.is_some() || best.report.cancelled {
        return Ok(best);
    }
    let mut best = trial.bits(best)?;
    if best.correction.is_none() && !best.report.cancelled && is_accounting(&best.report) {
        let mut doubts = bitmaps::left(&best.state);
        doubts.extend(links::owners(&best.state, &best.report));
        doubts.into_iter().for_each(|finding| best.report.add(finding));
    }
    Ok(best)
}

/// Is nothing found by which blocks may be those of no file? The resize inode and the journal have
/// blocks, too.
fn is_accounting(report: &Report) -> bool {
    let other = |kind: &Kind| {
        kind.severity != Severity::Accounting
            || kind.code == kinds::INODE_RESIZE.code
            || kind.code.starts_with("ext4.journal.")
    };
    !report.counts.iter().any(|(kind, _)| other(kind))
}

/// Checks with other values.
struct Trial<'a> {
    device: Arc<dyn BlockDevice>,
    runtime: &'a Arc<dyn Runtime>,
    observer: &'a Arc<dyn Observer>,
    findings: fn() -> Findings,
}

impl Trial<'_> {
    /// The volume with the values of a candidate. `None` if nothing can be read then.
    fn with(&self, candidate: &Candidate) -> Result<Option<Examined>> {
        let quiet: Arc<dyn Observer> = Arc::new(Quiet(self.observer.clone()));
        let Ok(overlay) = Overlay::new(self.device.clone()) else { return Ok(None) };
        let overlay: Arc<dyn BlockDevice> = Arc::new(overlay);
        candidate.write(&*overlay)?;
        let found = (self.findings)();
        candidate.findings.iter().for_each(|finding| found.add(finding.clone()));
        Ok(once(overlay, self.runtime, quiet, found).ok())
    }

    /// With another value of a field, if that explains what was found.
    fn fields(&self, mut best: Examined, before: u64) -> Result<Examined> {
        let mut least = before;
        for candidate in evidence::candidates(&*self.device, &best.state, &best.report) {
            let Some(mut other) = self.with(&candidate)? else { continue };
            if other.report.cancelled {
                best.report.cancelled = true;
                return Ok(best);
            }
            let weight = evidence::weight(&other.report);
            if !evidence::is_partial(&other.report)
                && weight < least
                && evidence::is_proved(&candidate, before, &other.report)
            {
                other.correction = Some(candidate);
                (best, least) = (other, weight);
            }
            if least == 0 {
                break;
            }
        }
        Ok(best)
    }

    /// With a single bit right, if less is found then.
    fn bits(&self, mut best: Examined) -> Result<Examined> {
        for candidate in evidence::single_bits(&*self.device, &best.state, &best.report) {
            let Some(mut other) = self.with(&candidate)? else { continue };
            if other.report.cancelled {
                best.report.cancelled = true;
                return Ok(best);
            }
            if evidence::explains(&candidate, &best.report, &other.report) {
                other.correction = Some(candidate);
                return Ok(other);
            }
        }
        Ok(best)
    }
}

/// An observer that hears nothing of a trial, and can end it.
struct Quiet(Arc<dyn Observer>);

impl Observer for Quiet {
    fn begin(&self, _: Phase) {}

    fn done(&self, _: u64) {}

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

fn once(
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
    named::check(&mut state);
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
    if let Some(user) = &state.user {
        report.in_use = Some(user.clone());
        report.no_repair = Some(format!(
            "{user} uses it, or went down while it did (multiple-mount protection): unmount it \
             there, or clear the mark with `tune2fs -f -E clear_mmp` if nobody uses it"
        ));
    }
    if opened.is_replayed {
        report.recovered.push("journal");
    }
    if opened.is_finished {
        report.recovered.push("record of an interrupted change");
    }
    Ok(Examined { state, report, correction: None })
}

fn walk(state: &Arc<State>, runtime: &dyn Runtime) -> Result<()> {
    let groups = u64::from(state.layout.groups);
    state.progress.begin("inodes", groups);
    run(inodes::Inodes(state.clone()), THREADS, runtime);
    file_type::resolve(state);
    strays::resolve(state);
    let is_shared = state.layout.features.ro_compat(RoCompat::SHARED_BLOCKS);
    if state.twice.next(0).is_some() && !is_shared {
        run(owners::Twice(state.clone()), THREADS, runtime);
    }
    list_bit::judge(state);
    attributes::check_references(state);
    state.progress.begin("directories", state.totals.directories.load(Relaxed));
    run(directories::Directories(state.clone()), THREADS, runtime);
    disputes::judge(state);
    state.doubted_marks.judge(&state.findings);
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
