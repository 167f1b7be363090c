//! Seeded workloads on a kind of volume.

use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_crash::workload::{
    Crashed, Judging, Recorded, Seen, Tail, Target, Wrong, search as search_states, shrink,
};

use super::failure::{Failure, Run};
use super::judges::{Judges, told};
use super::kinds::{Format, Kind};
use super::report::Searched;
use super::stop::is_stopped;
use crate::error::Result;
use crate::progress::Progress;

/// How many runs a failure may take to become shorter.
const TRIES: usize = 80;

/// How much of a kind is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) seed: u64,
    pub(super) rounds: u64,
    pub(super) operations: usize,
    pub(super) states: usize,
    /// What is found is made shorter.
    pub(super) shrink: bool,
}

/// Calls `work` with a kind as the target of a search.
pub(super) fn with_target<T>(
    kind: &'static Kind,
    kernel: bool,
    work: impl FnOnce(&Target<'_>) -> T,
) -> Result<T> {
    let judges = Judges::new(kind, kernel)?;
    let open =
        |device: Arc<dyn BlockDevice>, runtime: Arc<Simulated>| kind.open(device, runtime, "");
    let by_cairn = |crashed: &Crashed<'_>| judges.by_cairn(crashed);
    let cut_again = |crashed: &Crashed<'_>| judges.cut_again(crashed);
    let damaged_log = |crashed: &Crashed<'_>| judges.damaged_log(crashed);
    let by_checker = |crashed: &Crashed<'_>| judges.by_checker(crashed);
    let by_kernel = |crashed: &Crashed<'_>| judges.by_kernel(crashed);
    let mut all = vec![
        Judging { name: "cairn", every: 1, judge: &by_cairn },
        Judging { name: "cairn, cut again", every: 24, judge: &cut_again },
    ];
    if judges.has_log() {
        all.push(Judging { name: "cairn, damaged log", every: 6, judge: &damaged_log });
    }
    if let Some(name) = judges.checker() {
        let every = if kind.format == Format::Ext4 { 2 } else { 1 };
        all.push(Judging { name, every, judge: &by_checker });
    }
    if judges.has_kernel() {
        all.push(Judging { name: "kernel", every: 8, judge: &by_kernel });
    }
    let fresh = kind.fresh()?;
    let whole = kind.whole(&fresh)?;
    let (laps, churn) = (kind.laps, kind.churn(&fresh)?);
    let tail = if kind.format == Format::Ext4 { Tail::Own } else { Tail::OwnOrZeros };
    Ok(work(&Target { fresh, whole, tail, open: &open, laps, churn, judges: all }))
}

/// A run of a seed; a panic is a failure of its last operation.
fn recorded(
    target: &Target<'_>,
    seed: u64,
    run: impl FnOnce() -> std::result::Result<Recorded, Wrong>,
) -> std::result::Result<Recorded, Wrong> {
    let panicked = |error| {
        let seeded = format!("seed {seed}, {} laps: {error}", target.laps);
        Wrong { ops: Vec::new(), cut: None, judge: None, error: seeded }
    };
    told(|| Ok(run())).unwrap_or_else(|error| Err(panicked(error)))
}

/// Searches a kind. The first failure, shrunk.
pub(super) fn search(
    kind: &'static Kind,
    kernel: bool,
    amount: Amount,
    progress: &Progress,
) -> Result<(Searched, Option<Failure>)> {
    with_target(kind, kernel, |target| {
        let mut searched = Searched { seed: Some(amount.seed), ..Searched::new(kind) };
        for seed in amount.seed..amount.seed + amount.rounds {
            if is_stopped() {
                break;
            }
            progress.show(&format!("{} {}, seed {seed}", kind.format, kind.mode));
            if let Err(wrong) = round(target, seed, amount, progress, &mut searched) {
                progress.show("shrinking what was found");
                let tries = if amount.shrink { TRIES } else { 0 };
                let wrong = shrink(target, seed, wrong, tries, &|| {});
                let Wrong { ops, cut, error, .. } = wrong;
                let run = Run::Ops { seed, ops };
                return (searched, Some(Failure { kind, run, cut, error }));
            }
        }
        (searched, None)
    })
}

fn round(
    target: &Target<'_>,
    seed: u64,
    amount: Amount,
    progress: &Progress,
    searched: &mut Searched,
) -> std::result::Result<(), Wrong> {
    let recorded = recorded(target, seed, || Recorded::seeded(target, seed, amount.operations))?;
    let mut seen = Seen::default();
    let step = || progress.step();
    let outcome = search_states(target, &recorded, (amount.states, seed), &mut seen, &step);
    searched.runs += 1;
    searched.operations += recorded.ops.len();
    searched.states += seen.states;
    count(target, &seen, searched);
    outcome
}

fn count(target: &Target<'_>, seen: &Seen, searched: &mut Searched) {
    for (judging, judged) in target.judges.iter().zip(&seen.judged) {
        searched.judged(judging.name, (judged.states, judged.promises, judged.refused));
    }
}

/// Repeats a failure: its operations, its state, and others.
pub(super) fn replay(
    failure: &Failure,
    (seed, ops): (u64, &[cairn_crash::workload::Op]),
    states: usize,
    kernel: bool,
) -> Result<(Searched, Option<Failure>)> {
    let kind = failure.kind;
    with_target(kind, kernel, |target| {
        let mut searched = Searched { seed: Some(seed), ..Searched::new(kind) };
        let mut seen = Seen::default();
        let outcome = recorded(target, seed, || Recorded::of(target, seed, ops)).and_then(|run| {
            // After a change of the program the wrong state may have another moment.
            let cuts = failure.cut.into_iter().chain(run.cuts(states, seed));
            cuts.collect::<Vec<_>>()
                .into_iter()
                .try_for_each(|cut| run.judge_by_all(target, cut, &mut seen))
        });
        (searched.runs, searched.operations, searched.states) = (1, ops.len(), seen.states);
        count(target, &seen, &mut searched);
        let found = outcome.err().map(|Wrong { ops, cut, error, .. }| Failure {
            kind,
            run: Run::Ops { seed, ops },
            cut,
            error,
        });
        (searched, found)
    })
}
