//! The result of a search.

use super::failure::Failure;
use super::kinds::Kind;

/// States that one judge has looked at.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Judge {
    /// Who.
    pub name: String,
    /// States.
    pub states: usize,
    /// Promises that were kept.
    pub promises: usize,
    /// States that were refused because wrong bytes were noticed.
    pub refused: usize,
}

/// What was searched on one kind of volume.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Searched {
    /// The format.
    pub format: String,
    /// The mode.
    pub mode: String,
    /// The mount options of the mode.
    pub options: String,
    /// The first seed; none for the exhaustive search.
    pub seed: Option<u64>,
    /// Runs, or histories.
    pub runs: usize,
    /// Operations of all runs.
    pub operations: usize,
    /// Crash states.
    pub states: usize,
    /// By judge.
    pub judges: Vec<Judge>,
    /// Seconds.
    pub seconds: f64,
}

impl Searched {
    pub(super) fn new(kind: &Kind) -> Self {
        Self {
            format: kind.format.to_string(),
            mode: kind.mode.to_owned(),
            options: kind.options.to_owned(),
            seed: None,
            runs: 0,
            operations: 0,
            states: 0,
            judges: Vec::new(),
            seconds: 0.0,
        }
    }

    /// Adds to the figures of a judge.
    pub(super) fn judged(
        &mut self,
        name: &str,
        (states, promises, refused): (usize, usize, usize),
    ) {
        let place = self.judges.iter().position(|judge| judge.name == name);
        let place = place.unwrap_or_else(|| {
            let name = name.to_owned();
            self.judges.push(Judge { name, states: 0, promises: 0, refused: 0 });
            self.judges.len() - 1
        });
        let judge = &mut self.judges[place];
        judge.states += states;
        judge.promises += promises;
        judge.refused += refused;
    }
}

/// The result of a search. Serialises to the object that `cairn lab crash --json` prints.
#[derive(Debug, serde::Serialize)]
pub struct Report {
    /// The version of this object.
    pub schema: u32,
    /// `seeded`, `exhaustive`, `replay` or `record`.
    pub search: &'static str,
    /// The command that repeats it.
    pub command: String,
    /// By kind of volume.
    pub searched: Vec<Searched>,
    /// The text of what was found.
    pub failure: Option<String>,
    /// A signal has ended the search before it was done.
    pub stopped: bool,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl Report {
    pub(super) fn new(search: &'static str, command: String) -> Self {
        let (searched, notes) = (Vec::new(), Vec::new());
        Self { schema: 1, search, command, searched, failure: None, stopped: false, notes }
    }

    pub(super) fn fail(&mut self, failure: &Failure) {
        self.failure = Some(failure.to_string());
    }

    /// Crash states of all kinds.
    #[must_use]
    pub fn states(&self) -> usize {
        self.searched.iter().map(|searched| searched.states).sum()
    }

    /// Kept promises of all kinds and judges.
    #[must_use]
    pub fn promises(&self) -> usize {
        let judges = self.searched.iter().flat_map(|searched| &searched.judges);
        judges.map(|judge| judge.promises).sum()
    }
}

/// The report as lines.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    for searched in &report.searched {
        let runs = match report.search {
            "exhaustive" => format!("{} histories", searched.runs),
            "record" => "what a program wrote".to_owned(),
            _ => format!("{} operations in {} runs", searched.operations, searched.runs),
        };
        lines.push(format!(
            "{} {}: {runs}, {} crash states, {:.1} s",
            searched.format, searched.mode, searched.states, searched.seconds
        ));
        for judge in &searched.judges {
            let refused = match judge.refused {
                0 => String::new(),
                count => format!(", {count} refused"),
            };
            // A checker knows of no promises.
            let kept = match judge.promises {
                0 => String::new(),
                count => format!(", {count} promises kept"),
            };
            lines.push(format!("  {}: {} states{kept}{refused}", judge.name, judge.states));
        }
    }
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    match &report.failure {
        None => lines.push(format!(
            "{} crash states, {} promises kept: nothing found",
            report.states(),
            report.promises()
        )),
        Some(failure) => lines.extend(["found:".to_owned(), failure.trim_end().to_owned()]),
    }
    lines.join("\n") + "\n"
}
