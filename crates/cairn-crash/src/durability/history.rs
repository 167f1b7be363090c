//! The histories, and their text: `Create Rename, Nothing, File`.

use std::fmt;
use std::str::FromStr;

use super::Subject;
use super::grammar::{Meanwhile, Persist, Step};

/// Changes, made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The changes.
    pub steps: Vec<Step>,
    /// What happens before the last one.
    pub meanwhile: Meanwhile,
    /// What makes them durable.
    pub persist: Persist,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step:?}", if number == 0 { "" } else { " " })?;
        }
        write!(f, ", {:?}, {:?}", self.meanwhile, self.persist)
    }
}

/// The word of the grammar with this name.
fn word<T: fmt::Debug + Copy>(all: &[T], text: &str) -> Result<T, String> {
    let names = || all.iter().map(|word| format!("{word:?}"));
    let at = names().position(|name| name == text.trim());
    at.map(|at| all[at]).ok_or_else(|| {
        let names: Vec<String> = names().collect();
        format!("no word '{}': give one of {}", text.trim(), names.join(", "))
    })
}

impl FromStr for History {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        let [steps, meanwhile, persist] = parts[..] else {
            return Err(format!("'{text}' is no history: give STEPS, MEANWHILE, PERSIST"));
        };
        let steps = steps.split_whitespace().map(|step| word(&Step::ALL, step));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        if steps.is_empty() {
            return Err(format!("'{text}' has no step: give at least one"));
        }
        let meanwhile = word(&Meanwhile::ALL, meanwhile)?;
        Ok(Self { steps, meanwhile, persist: word(&Persist::ALL, persist)? })
    }
}

/// Each pair of steps gets at most one of the newest words.
const TURNS: usize = 8;

/// All histories of one and two steps.
#[must_use]
pub fn histories(subject: &Subject<'_>) -> Vec<History> {
    let second = std::iter::once(None).chain(Step::ALL.into_iter().map(Some));
    let pairs =
        Step::ALL.into_iter().flat_map(|first| second.clone().map(move |second| (first, second)));
    let mut all = Vec::new();
    for (number, (first, second)) in pairs.enumerate() {
        let steps: Vec<Step> = std::iter::once(first).chain(second).collect();
        all.extend(histories_of(subject, &steps, number));
    }
    all
}

/// The histories of these steps. All older words are tried. Unless every word is asked for, the
/// newest take turns.
fn histories_of(subject: &Subject<'_>, steps: &[Step], number: usize) -> Vec<History> {
    use Meanwhile::{
        DamageContinue, DamagePanic, DamageRemountReadOnly, Evicted, Fsynced, Nothing, Resized,
        TurnedOver,
    };
    let history = |persist, meanwhile| History { steps: steps.to_vec(), persist, meanwhile };
    let is_new = |step: &Step| matches!(step, Step::RenameLeavingWhiteout | Step::Own);
    let all = subject.every_word || steps.len() == 1;
    let mut histories = Vec::new();
    if all || !steps.iter().any(is_new) {
        let every =
            |persist| [Nothing, Evicted, Fsynced].map(|meanwhile| history(persist, meanwhile));
        histories.extend(Persist::CALLS.into_iter().flat_map(every));
    } else {
        histories.push(history(
            turn(&Persist::CALLS, number),
            turn(&[Nothing, Evicted, Fsynced], number / 5),
        ));
    }
    let words = [
        history(Persist::ReadOnly, Nothing),
        history(Persist::SynchronousFlag, Nothing),
        history(Persist::DirsyncFlag, Nothing),
        history(turn(&Persist::CALLS, number), TurnedOver),
    ];
    let damage = [DamageContinue, DamageRemountReadOnly, DamagePanic];
    let damage = damage.map(|meanwhile| history(turn(&Persist::CALLS, number), meanwhile));
    let damage = damage.into_iter().filter(|_| subject.damage.is_some());
    let resized = subject.resize.map(|_| history(turn(&Persist::CALLS, number), Resized));
    let (first, step) = if all { (0, 1) } else { (number % TURNS, TURNS) };
    let newest = words.into_iter().chain(resized).chain(damage);
    histories.extend(newest.skip(first).step_by(step));
    histories
}

fn turn<T: Copy>(words: &[T], number: usize) -> T {
    words[number % words.len()]
}
