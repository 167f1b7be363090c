//! A result: the figures, and what is needed to judge and repeat them. Its JSON form is stable:
//! names are added and never changed. [`SCHEMA`] is raised if a meaning changes.

use serde::{Deserialize, Serialize};

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
    pub schema: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Its question.
    pub question: String,
    /// The command that repeats it.
    pub command: String,
    /// Version of Cairn.
    pub version: String,
    /// `release`, or `debug` for a build with assertions, whose figures have little meaning.
    pub build: String,
    /// When it started, in UTC.
    pub started: String,
    /// Duration in seconds.
    pub seconds: f64,
    /// The amount of work.
    pub scale: Scale,
    /// Interleaved repetitions.
    pub repetitions: usize,
    /// The machine.
    pub machine: Machine,
    /// Tables.
    pub sections: Vec<Section>,
    /// Goals with verdicts.
    pub goals: Vec<Goal>,
    /// How the work was done, and what could not be measured.
    pub notes: Vec<String>,
}

impl Record {
    /// A section by its id.
    #[must_use]
    pub fn section(&self, id: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.id == id)
    }
}
