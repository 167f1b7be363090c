//! The definition of an experiment, and how it is run.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use crate::about::About;
use crate::error::{Error, Result};
use crate::goal::Goal;
use crate::leaving;
use crate::machine::{self, Machine};
use crate::progress::Progress;
use crate::record::{Record, SCHEMA};
use crate::scale::Scale;
use crate::section::Section;

/// The environment of an experiment.
#[derive(Debug)]
pub struct Context {
    /// The amount of work.
    pub scale: Scale,
    /// Interleaved repetitions, at least 1.
    pub repetitions: usize,
    /// An existing directory on a disk, for images and mount points. The experiment removes what it
    /// creates there.
    pub scratch: PathBuf,
    /// The `cairn` program, for measurements through mounts. `None` leaves these measurements out.
    pub program: Option<PathBuf>,
    /// The same program, for measurements in a process of its own.
    pub itself: Option<PathBuf>,
    /// The command line, which the result contains.
    pub command: String,
    /// The progress bar.
    pub progress: Progress,
}

impl Context {
    /// The order in which the subjects are measured in this repetition. It rotates, so that no
    /// subject is always first.
    pub(crate) fn order(
        &self,
        repetition: usize,
        subjects: usize,
    ) -> impl Iterator<Item = usize> + use<> {
        (0..subjects).map(move |position| (position + repetition) % subjects)
    }
}

/// The results of an experiment.
#[derive(Debug, Default)]
pub struct Findings {
    /// Tables.
    pub(crate) sections: Vec<Section>,
    /// Goals.
    pub(crate) goals: Vec<Goal>,
    /// Notes.
    pub(crate) notes: Vec<String>,
}

/// A question, and a function that measures the answer.
#[derive(Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// The question, in one sentence.
    pub question: &'static str,
    /// Measures the answer.
    pub(crate) run: fn(&Context) -> Result<Findings>,
    /// The improvement of the write path that it measures, if it is one.
    pub(crate) about: Option<&'static About>,
}

impl Experiment {
    /// True if it measures an improvement of the write path, on and off.
    #[must_use]
    pub fn is_of_the_write_path(&self) -> bool {
        self.about.is_some()
    }
}

/// Runs an experiment and adds the machine, the command and the time to its findings.
///
/// # Errors
/// A call on a volume, a device, the system or another program failed.
pub fn run(experiment: &Experiment, context: &Context) -> Result<Record> {
    std::fs::create_dir_all(&context.scratch).map_err(Error::host(&context.scratch))?;
    let (machine, started, clock) =
        (Machine::here(), machine::utc(SystemTime::now()), Instant::now());
    let findings = (experiment.run)(context);
    let findings = findings.inspect_err(|_| leaving::stay_if_ending_soon())?;
    leaving::stay_if_ending();
    let mut goals = findings.goals;
    if context.scale == Scale::Quick {
        goals = goals.into_iter().map(Goal::without_verdict).collect();
    }
    let proposal = experiment.about.map(|about| (about.proposal)(&findings.sections));
    Ok(Record {
        schema: SCHEMA,
        experiment: experiment.name.to_owned(),
        question: experiment.question.to_owned(),
        command: context.command.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        started,
        seconds: clock.elapsed().as_secs_f64(),
        scale: context.scale,
        repetitions: context.repetitions,
        machine,
        sections: findings.sections,
        goals,
        proposal: proposal.unwrap_or_default(),
        notes: findings.notes,
    })
}
