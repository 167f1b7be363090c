//! A result: the figures, and what is needed to judge and repeat them. Its JSON form is stable:
//! names are added and never changed. [`SCHEMA`] is raised if a meaning changes.

use serde::{Deserialize, Serialize};

use crate::about::Proposed;
use crate::goal::Goal;
use crate::machine::Machine;
use crate::scale::Scale;
use crate::section::Section;

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub(crate) schema: u32,
    /// Name of the experiment.
    pub(crate) experiment: String,
    /// Its question.
    pub(crate) question: String,
    /// The command that repeats it.
    pub(crate) command: String,
    /// Version of Cairn.
    pub(crate) version: String,
    /// `release`, or `debug` for a build with assertions, whose figures have little meaning.
    pub(crate) build: String,
    /// When it started, in UTC.
    pub(crate) started: String,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// The amount of work.
    pub(crate) scale: Scale,
    /// Interleaved repetitions.
    pub(crate) repetitions: usize,
    /// The machine.
    pub(crate) machine: Machine,
    /// Tables.
    pub(crate) sections: Vec<Section>,
    /// Goals with verdicts.
    pub(crate) goals: Vec<Goal>,
    /// The figures of the proposal for Linux beside the measured ones.
    #[serde(default)]
    pub(crate) proposal: Vec<Proposed>,
    /// How the work was done, and what could not be measured.
    pub(crate) notes: Vec<String>,
}
