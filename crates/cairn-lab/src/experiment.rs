//! What an experiment is, and how one is run.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use crate::error::{Error, Result};
use crate::goal::Goal;
use crate::machine::{self, Machine};
use crate::progress::Progress;
use crate::record::{Record, SCHEMA};
use crate::scale::Scale;
use crate::section::Section;

/// What an experiment works with.
#[derive(Debug)]
pub struct Context {
    /// How much work.
    pub scale: Scale,
    /// Interleaved repetitions, at least 1.
    pub repetitions: usize,
    /// An existing directory on a disk, for images and mount points. Everything is removed again.
    pub scratch: PathBuf,
    /// The `cairn` program, to measure through mounts; `None` leaves these measurements out.
    pub program: Option<PathBuf>,
    /// The command that is noted in the result.
    pub command: String,
    /// Shows how far it is.
    pub progress: Progress,
}

impl Context {
    /// For repetitions × subjects: the order in which subjects are measured in this repetition. Nobody is always first.
    pub(crate) fn order(&self, repetition: usize, subjects: usize) -> impl Iterator<Item = usize> + use<> {
        (0..subjects).map(move |position| (position + repetition) % subjects)
    }
}

/// What an experiment found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Tables.
    pub sections: Vec<Section>,
    /// Goals.
    pub goals: Vec<Goal>,
    /// Notes.
    pub notes: Vec<String>,
}

/// One question with a way to answer it.
#[derive(Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// What it asks, in one sentence.
    pub question: &'static str,
    /// Measures.
    pub run: fn(&Context) -> Result<Findings>,
}

/// Runs an experiment and notes what belongs to its result.
///
/// # Errors
/// Something failed that the experiment cannot do without.
pub fn run(experiment: &Experiment, context: &Context) -> Result<Record> {
    std::fs::create_dir_all(&context.scratch).map_err(Error::host(&context.scratch))?;
    let (machine, started, clock) = (Machine::here(), machine::utc(SystemTime::now()), Instant::now());
    let findings = (experiment.run)(context)?;
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
        goals: findings.goals,
        notes: findings.notes,
    })
}
