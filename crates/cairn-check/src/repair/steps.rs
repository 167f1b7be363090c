//! [`Steps`]: what a repair mends, and what is lost by it.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::kind::{Kind, Severity};
use crate::place::{Place, escaped};

/// Steps of a kind that are kept, if nothing is lost by them.
const KEPT: u64 = 200;
/// Steps of a kind that are kept, if something is.
const KEPT_LOSING: u64 = 100_000;

/// What a file loses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// The path of the file; empty if no directory has a name for it.
    pub path: Box<[u8]>,
    /// What is lost: `blocks 3 to 7`, `the name`, `the file`.
    pub what: Box<str>,
}

/// One thing that a repair mends.
#[derive(Clone, Debug)]
pub struct Step {
    /// The defect.
    pub kind: &'static Kind,
    /// Where it is.
    pub place: Place,
    /// What is lost. None if nothing is.
    pub loss: Option<Loss>,
}

impl Step {
    /// A step by which nothing is lost.
    #[must_use]
    pub const fn new(kind: &'static Kind, place: Place) -> Self {
        Self { kind, place, loss: None }
    }

    /// A number that only equal steps share.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.kind.code, &self.place, &self.loss).hash(&mut hasher);
        hasher.finish()
    }

    /// With what is lost of the file at `path`.
    #[must_use]
    pub fn losing(self, path: impl Into<Box<[u8]>>, what: impl Into<Box<str>>) -> Self {
        Self { loss: Some(Loss { path: path.into(), what: what.into() }), ..self }
    }
}

/// One line: `CODE: PLACE: REPAIR Lost of PATH: WHAT.`
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.kind.code, self.place, self.kind.repair)?;
        match &self.loss {
            Some(loss) if loss.path.is_empty() => write!(f, " Lost: {}.", loss.what),
            Some(loss) => write!(f, " Lost of {}: {}.", escaped(&loss.path), loss.what),
            None => Ok(()),
        }
    }
}

/// The steps of a repair, in the order in which they are made. One that is made again in a later
/// round is listed once.
#[derive(Debug, Default)]
pub struct Steps {
    kept: Vec<Step>,
    counts: BTreeMap<&'static str, (&'static Kind, u64)>,
    known: HashSet<u64>,
    made: u64,
}

impl Steps {
    /// Adds a step.
    pub fn add(&mut self, step: Step) {
        self.made = self.made.saturating_add(1);
        if !self.known.insert(step.key()) {
            return;
        }
        let (kind, count) = self.counts.entry(step.kind.code).or_insert((step.kind, 0));
        *count = count.saturating_add(1);
        let is_losing = kind.severity != Severity::Accounting || step.loss.is_some();
        if *count <= if is_losing { KEPT_LOSING } else { KEPT } {
            self.kept.push(step);
        }
    }

    /// Number of all steps.
    #[must_use]
    pub fn count(&self) -> u64 {
        cairn_base::units::as_u64(self.known.len())
    }

    /// Number of all steps, with those that were made again: it grows whenever something is mended.
    #[must_use]
    pub const fn made(&self) -> u64 {
        self.made
    }

    /// The kept steps, in order.
    #[must_use]
    pub fn kept(&self) -> &[Step] {
        &self.kept
    }

    /// Number of all steps of each kind, by code.
    pub fn counts(&self) -> impl Iterator<Item = (&'static Kind, u64)> {
        self.counts.values().copied()
    }

    /// Steps by which something may be lost: those of [`Severity::Losing`], and those with a loss.
    pub fn losing(&self) -> impl Iterator<Item = &Step> {
        let is_losing =
            |step: &&Step| step.loss.is_some() || step.kind.severity != Severity::Accounting;
        self.kept.iter().filter(is_losing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COUNT: Kind = Kind {
        code: "test.count",
        severity: Severity::Accounting,
        meaning: "A count is wrong.",
        repair: "The count is set.",
    };
    static NAME: Kind = Kind {
        code: "test.name",
        severity: Severity::Losing,
        meaning: "A name is wrong.",
        repair: "The name is removed.",
    };

    #[test]
    fn steps_are_counted_and_losses_kept() {
        let mut steps = Steps::default();
        (0..1000_u64).for_each(|ino| steps.add(Step::new(&COUNT, Place::inode(ino))));
        for ino in 0..1000_u64 {
            steps.add(Step::new(&NAME, Place::inode(ino)).losing(*b"/a\n", "the name"));
        }
        assert_eq!((steps.count(), steps.kept().len(), steps.losing().count()), (2000, 1200, 1000));
        // Made again, a step is the same one.
        steps.add(Step::new(&COUNT, Place::inode(7_u64)));
        assert_eq!((steps.count(), steps.made()), (2000, 2001));
        let counts: Vec<_> = steps.counts().map(|(kind, count)| (kind.code, count)).collect();
        assert_eq!(counts, [("test.count", 1000), ("test.name", 1000)]);
        let line = "test.name: inode 0: The name is removed. Lost of /a\\n: the name.";
        assert_eq!(steps.losing().next().unwrap().to_string(), line);
        let unnamed = Step::new(&NAME, Place::volume()).losing(*b"", "a file");
        assert!(unnamed.to_string().ends_with("The name is removed. Lost: a file."));
    }
}
