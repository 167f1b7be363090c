//! All histories of one and two steps, each made durable in each possible way, with each power cut.

use std::fmt;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_vfs::{Error, FileSystem};

use super::found::check;
use super::grammar::{Meanwhile, Persist, Step};
use super::history::{History, histories};
use super::world::{Promised, World};
use super::{DAMAGED, Subject};
use crate::states::{CrashLog, Cut, Recording, Volatile};

/// The numbers of examined states.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Histories.
    pub histories: usize,
    /// Histories in which a call finds damage.
    pub damaged: usize,
    /// Histories that end with a change of the size.
    pub resized: usize,
    /// Power cuts.
    pub states: usize,
    /// Names that had to exist, or not to exist.
    pub promises: usize,
}

/// A recorded history.
struct Run {
    log: CrashLog,
    /// The moment at which the last promise was made.
    from: u64,
    promised: Promised,
}

type Told<T> = Result<T, String>;

fn text(error: Error) -> String {
    error.to_string()
}

/// None if a step has no target.
fn run(subject: &Subject<'_>, history: &History) -> Told<Option<Run>> {
    let History { steps, persist, meanwhile } = history;
    let recording = Recording::start(subject.start(*meanwhile).fork());
    let opened = (subject.open)(recording.device())?;
    let fs = &*opened.fs;
    let mut world = World::new(fs, *persist).map_err(text)?;
    let (last, before) = steps.split_last().expect("a history has steps");
    for step in before {
        if !world.step(*step).map_err(text)? {
            return Ok(None);
        }
    }
    if meanwhile.stops() {
        world.persist(*persist).map_err(text)?;
        let (from, promised) = (recording.moment(), world.promised(*persist));
        stop(fs, &mut world, *meanwhile, *last)?;
        let damage = subject.damage.as_ref();
        let recorded = damage.is_some_and(|damage| damage.only_recorded(&recording.log(), from));
        if *meanwhile == Meanwhile::DamagePanic && !recorded {
            return Err("something was written after a power cut".into());
        }
        let _ = fs.shutdown(false);
        drop(opened);
        return Ok(Some(Run { log: recording.finish(), from, promised }));
    }
    happen(fs, &world, *meanwhile)?;
    if !world.step(*last).map_err(text)? {
        return Ok(None);
    }
    if *meanwhile == Meanwhile::Evicted {
        fs.extents(world.target, 0, u64::MAX >> 1, true, &mut |_| true).map_err(text)?;
        if !world.target_names.is_empty() {
            fs.forget(world.target, 1);
        }
        fs.forget(world.directory, 1);
        (opened.evict)();
    }
    world.persist(*persist).map_err(text)?;
    let (from, promised) = (recording.moment(), world.promised(*persist));
    fs.shutdown(false).map_err(text)?;
    drop(opened);
    if *meanwhile == Meanwhile::Resized {
        let resize = subject.resize.expect("its size can change");
        resize(recording.device()).map_err(|error| format!("resize: {error}"))?;
    }
    Ok(Some(Run { log: recording.finish(), from, promised }))
}

/// Does what comes before the last step, if the volume continues after it.
fn happen(fs: &dyn FileSystem, world: &World<'_>, meanwhile: Meanwhile) -> Told<()> {
    match meanwhile {
        Meanwhile::Fsynced => (0..2).try_for_each(|_| world.persist(Persist::File)).map_err(text),
        Meanwhile::TurnedOver => {
            ["ro", "rw"].into_iter().try_for_each(|word| fs.remount(word)).map_err(text)
        }
        Meanwhile::DamageContinue => meet_damage(fs, "errors=continue"),
        _ => Ok(()),
    }
}

fn meet_damage(fs: &dyn FileSystem, policy: &str) -> Told<()> {
    fs.remount(policy).map_err(text)?;
    match fs.lookup(fs.root(), DAMAGED) {
        Err(Error::Corrupt(_)) => Ok(()),
        other => Err(format!("the damaged file is {other:?}")),
    }
}

/// Damage stops the volume: later calls are refused.
fn stop(fs: &dyn FileSystem, world: &mut World<'_>, meanwhile: Meanwhile, last: Step) -> Told<()> {
    let panics = meanwhile == Meanwhile::DamagePanic;
    meet_damage(fs, if panics { "errors=panic" } else { "errors=remount-ro" })?;
    match world.step(last) {
        Err(Error::ReadOnly(_) | Error::Io(_)) => {}
        Ok(false) => return Ok(()),
        other => return Err(format!("a step on a volume that damage has stopped: {other:?}")),
    }
    match world.persist(Persist::All) {
        Err(Error::Io(_)) => Ok(()),
        other => Err(format!("sync of a volume that damage has stopped: {other:?}")),
    }
}

fn judge(
    subject: &Subject<'_>,
    run: &Run,
    cut: Cut,
    (foreign, recovers, damaged): (bool, bool, bool),
) -> Told<usize> {
    if recovers && let Some(judge) = subject.judge_cut {
        judge(&run.log.device(cut))?;
    }
    let device = Arc::new(run.log.device(cut));
    let opened = (subject.open)(device.clone())?;
    let kept = if cut.moment >= run.from {
        check(&run.promised, &*opened.fs)?;
        run.promised.names.len()
    } else {
        0
    };
    opened.fs.unmount().map_err(|error| format!("closing after recovery: {error}"))?;
    drop(opened);
    if foreign {
        let device: &MemoryDevice = &device;
        if let (true, Some(damage)) = (damaged, &subject.damage) {
            damage.undo(device);
        }
        (subject.judge)(device)?;
    }
    Ok(kept)
}

/// How many cuts of a change of the size are examined.
const RESIZE_CUTS: usize = 12;

/// A promise that is not kept.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The history.
    pub history: History,
    /// The power cut after which it is not; None if a call of the history failed.
    pub cut: Option<Cut>,
    /// What is wrong.
    pub error: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { history, cut, error } = self;
        match cut {
            Some(cut) => write!(f, "{history}: {cut}: {error}"),
            None => write!(f, "{history}: {error}"),
        }
    }
}

/// Examines all histories of one and two steps. The foreign judge examines every `rare`-th state.
/// The first broken promise is the error.
///
/// # Errors
/// A promised change is missing, or a judge finds an error.
pub fn search(subject: &Subject<'_>, rare: usize) -> Result<Seen, Broken> {
    let mut seen = Seen::default();
    for history in histories(subject) {
        examine(subject, &history, rare, &mut seen)?;
    }
    Ok(seen)
}

/// The cuts of a history that are examined.
fn cuts(subject: &Subject<'_>, run: &Run, resized: bool, number: usize) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = run.log.barrier_cuts();
    cuts.retain(|cut| cut.moment >= run.from || cut.volatile == Volatile::Lost);
    if resized {
        // All of them are in the change of the size, and none is more likely than another.
        let every = cuts.len().div_ceil(RESIZE_CUTS);
        cuts = cuts.into_iter().skip(number % every).step_by(every).collect();
    }
    // The state before the steps is the same for all.
    let late = if resized { 0 } else { cuts.len().saturating_sub(subject.cuts) };
    let random = Volatile::Random(number as u64);
    let end = Cut { moment: run.log.log().end, volatile: random };
    cuts.split_off(late).into_iter().chain([end]).collect()
}

/// Runs a history and examines its power cuts, or nothing if a step has no target.
///
/// # Errors
/// As [`search`].
pub fn examine(
    subject: &Subject<'_>,
    history: &History,
    rare: usize,
    seen: &mut Seen,
) -> Result<(), Broken> {
    let broken = |cut, error| Broken { history: history.clone(), cut, error };
    let Some(run) = run(subject, history).map_err(|error| broken(None, error))? else {
        return Ok(());
    };
    let damaged = history.meanwhile.has_damage();
    let resized = history.meanwhile == Meanwhile::Resized;
    seen.histories += 1;
    seen.resized += usize::from(resized);
    seen.damaged += usize::from(damaged);
    for cut in cuts(subject, &run, resized, seen.histories) {
        let foreign = seen.states.is_multiple_of(rare);
        seen.states += 1;
        // Between two writes of a resize fsck.f2fs counts free segments of the other size.
        let recovers = foreign && !damaged && !resized;
        seen.promises += judge(subject, &run, cut, (foreign, recovers, damaged))
            .map_err(|error| format!("(the call returned at {}) {error}", run.from))
            .map_err(|error| broken(Some(cut), error))?;
    }
    Ok(())
}

/// Runs a history and examines one power cut, with the foreign judges.
///
/// # Errors
/// As [`search`].
pub fn examine_cut(subject: &Subject<'_>, history: &History, cut: Cut) -> Result<(), Broken> {
    let broken = |cut, error| Broken { history: history.clone(), cut, error };
    let Some(run) = run(subject, history).map_err(|error| broken(None, error))? else {
        return Ok(());
    };
    let damaged = history.meanwhile.has_damage();
    let recovers = !damaged && history.meanwhile != Meanwhile::Resized;
    let judged = judge(subject, &run, cut, (true, recovers, damaged));
    judged.map(drop).map_err(|error| broken(Some(cut), error))
}
