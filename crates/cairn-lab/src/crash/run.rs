//! The searches over all chosen kinds.

use std::time::Instant;

use super::exhaustive::{self, Depth};
use super::failure::{Failure, Run};
use super::judges::checker_of;
use super::kinds::{Format, Kind, kinds};
use super::report::{Report, Searched};
use super::seeded::{self, Amount};
use super::stop::is_stopped;
use crate::error::Result;
use crate::progress::Progress;

/// What is searched.
#[derive(Clone, Debug)]
pub struct Options {
    /// The formats; none means all.
    pub formats: Vec<Format>,
    /// Names of modes; none means all.
    pub modes: Vec<String>,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each mode.
    pub rounds: u64,
    /// Operations of a run.
    pub operations: usize,
    /// Crash states of a run.
    pub states: usize,
    /// The kernel recovers, too.
    pub kernel: bool,
    /// All short histories instead of seeded workloads.
    pub exhaustive: bool,
    /// What is found is made shorter.
    pub shrink: bool,
    /// The command that repeats the search.
    pub command: String,
}

impl Options {
    /// The kinds that are searched.
    ///
    /// # Errors
    /// A mode is of none of the formats.
    fn kinds(&self) -> Result<Vec<&'static Kind>> {
        let is_of_format =
            |kind: &&Kind| self.formats.is_empty() || self.formats.contains(&kind.format);
        let of_format: Vec<&Kind> = kinds().iter().filter(is_of_format).collect();
        for mode in &self.modes {
            if !of_format.iter().any(|kind| kind.mode == mode) {
                let format = of_format.first().map_or(Format::Ext4, |kind| kind.format);
                Kind::find(format, mode)?;
            }
        }
        let chosen =
            |kind: &&Kind| self.modes.is_empty() || self.modes.iter().any(|mode| mode == kind.mode);
        Ok(of_format.into_iter().filter(chosen).collect())
    }
}

/// Searches the chosen kinds, until the first failure, which is returned as well.
///
/// # Errors
/// There is no such mode, a volume cannot be made, or the host refuses something.
pub fn search(options: &Options) -> Result<(Report, Option<Failure>)> {
    let kinds = options.kinds()?;
    let name = if options.exhaustive { "exhaustive" } else { "seeded" };
    let mut report = Report::new(name, options.command.clone());
    report.notes = notes(&kinds, options.kernel && !options.exhaustive);
    let progress = Progress::new();
    let amount = Amount {
        seed: options.seed,
        rounds: options.rounds,
        operations: options.operations,
        states: options.states,
        shrink: options.shrink,
    };
    if !options.exhaustive {
        let rounds = usize::try_from(options.rounds).unwrap_or(usize::MAX);
        progress.expect(kinds.len().saturating_mul(rounds).saturating_mul(options.states));
    }
    for kind in kinds {
        let clock = Instant::now();
        let (searched, failure) = if options.exhaustive {
            exhaustive::search(kind, Depth { cuts: 6, rare: 100 }, &progress)?
        } else {
            seeded::search(kind, options.kernel, amount, &progress)?
        };
        let seconds = clock.elapsed().as_secs_f64();
        report.searched.push(Searched { seconds, ..searched });
        if let Some(failure) = failure {
            report.fail(&failure);
            return Ok((report, Some(failure)));
        }
        if is_stopped() {
            break;
        }
    }
    report.stopped = is_stopped();
    Ok((report, None))
}

/// Repeats a failure. `states`: how many are looked at besides the one that it names.
///
/// # Errors
/// As [`search`].
pub fn replay(
    failure: &Failure,
    states: usize,
    kernel: bool,
    command: String,
) -> Result<(Report, Option<Failure>)> {
    let mut report = Report::new("replay", command);
    report.notes = notes(&[failure.kind], kernel);
    let clock = Instant::now();
    let (searched, found) = match &failure.run {
        Run::Ops { seed, ops } => seeded::replay(failure, (*seed, ops), states, kernel)?,
        Run::History(history) => exhaustive::replay(failure, history)?,
    };
    report.searched.push(Searched { seconds: clock.elapsed().as_secs_f64(), ..searched });
    if let Some(found) = &found {
        report.fail(found);
    }
    Ok((report, found))
}

/// What cannot judge.
pub(super) fn notes(kinds: &[&Kind], kernel: bool) -> Vec<String> {
    let has = |format| kinds.iter().any(|kind| kind.format == format);
    let mut notes = Vec::new();
    for format in [Format::Ext4, Format::F2fs] {
        let checker = checker_of(format);
        if has(format) && cairn_crash::foreign::find(checker).is_none() {
            notes.push(format!("{checker} is not installed and did not judge"));
        }
    }
    if kernel && has(Format::F2fs) {
        notes.push("the kernel judges ext4 only".to_owned());
    }
    notes
}
