//! Runs a workload, cuts it, and has each crash state judged.

use std::fmt;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode};

use super::expect::{Expect, FILLER, Tail, read_all};
use super::op::Op;
use super::worker::Worker;
use crate::opened::Opened;
use crate::states::{CrashLog, Cut, Promises, Recording, Volatile};

/// Directories that exist before the part that is cut.
const SHARED: [&str; 2] = ["d0", "d1"];
/// Every so many operations daemons get a few steps.
const PAUSE: usize = 3;

/// Opens a volume, with recovery if it is needed, under this runtime.
pub type Open<'a> = &'a dyn Fn(Arc<dyn BlockDevice>, Arc<Simulated>) -> Result<Opened, String>;

/// A block that a format needs whole.
pub type IsWhole = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// A kind of volume, and who judges what a power cut leaves of it.
pub struct Target<'a> {
    /// A fresh volume.
    pub fresh: MemoryDevice,
    /// Blocks that are never torn.
    pub whole: IsWhole,
    /// What may stand behind the durable bytes of a file that grows.
    pub tail: Tail,
    /// Opens it.
    pub open: Open<'a>,
    /// Synced operations before the part that is cut, so that a small log wraps in it.
    pub laps: u32,
    /// What is overwritten between operations.
    pub churn: Option<Churn>,
    /// Those who look at crash states.
    pub judges: Vec<Judging<'a>>,
}

/// After each operation some blocks of the file [`FILLER`] are overwritten, so that a full volume
/// reuses what was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Churn {
    /// Blocks of 4,096 bytes of the file.
    pub of: u64,
    /// Blocks that are overwritten.
    pub blocks: u32,
}

impl Churn {
    fn step(
        self,
        fs: &dyn FileSystem,
        filler: Ino,
        random: &mut fastrand::Rng,
    ) -> Result<(), Error> {
        for _ in 0..self.blocks {
            let at = random.u64(0..self.of) * 4096;
            if fs.write(filler, at, &[2; 4096], IoFlags::empty())? != 4096 {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }
}

/// A judge, and how often it is asked.
pub struct Judging<'a> {
    /// Its name.
    pub name: &'static str,
    /// It gets every so-manieth state.
    pub every: usize,
    /// Its judgement.
    pub judge: &'a dyn Fn(&Crashed<'_>) -> Result<Verdict, String>,
}

/// What a judge says of a state that is not wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was recovered, and this many promises are kept.
    Kept(usize),
    /// A torn block was noticed, and the volume refused.
    Refused,
    /// The judge cannot judge this state.
    NotJudged,
}

/// A crash state.
pub struct Crashed<'a> {
    /// The contents.
    pub device: MemoryDevice,
    /// The cut.
    pub cut: Cut,
    promised: &'a dyn Promised,
}

/// What was promised.
pub trait Promised {
    /// Compares an open volume with the promises from before this moment, and counts those.
    ///
    /// # Errors
    /// The first that is not kept.
    fn kept(&self, moment: u64, fs: &dyn FileSystem) -> Result<usize, String>;
}

impl Promised for Promises<String, Expect> {
    fn kept(&self, moment: u64, fs: &dyn FileSystem) -> Result<usize, String> {
        let found = read_all(fs)?;
        let promised = self.at(moment);
        for (path, expect) in &promised {
            expect.check(found.get(*path)).map_err(|error| format!("/{path}: {error}"))?;
        }
        Ok(promised.len())
    }
}

impl<'a> Crashed<'a> {
    /// The state that a cut leaves, and the promises of the run.
    #[must_use]
    pub fn new(device: MemoryDevice, cut: Cut, promised: &'a dyn Promised) -> Self {
        Self { device, cut, promised }
    }

    /// Compares an open volume with the promises, and counts those.
    ///
    /// # Errors
    /// The first that is not kept.
    pub fn keeps_promises(&self, fs: &dyn FileSystem) -> Result<usize, String> {
        self.promised.kept(self.cut.moment, fs)
    }

    /// True if blocks are torn.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        matches!(self.cut.volatile, Volatile::Torn(_))
    }
}

/// A recorded run.
pub struct Recorded {
    /// The operations.
    pub ops: Vec<Op>,
    /// The record.
    pub crash: CrashLog,
    /// Cuts before this moment are not examined.
    pub from: u64,
    promises: Promises<String, Expect>,
}

/// States that a judge has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// All.
    pub states: usize,
    /// Promises that were kept.
    pub promises: usize,
    /// Refused, because a torn block was noticed.
    pub refused: usize,
}

/// The numbers of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Crash states.
    pub states: usize,
    /// By judge, in the order of [`Target::judges`].
    pub judged: Vec<Judged>,
}

/// A state that is wrong.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The operations.
    pub ops: Vec<Op>,
    /// The power cut; None if an operation failed.
    pub cut: Option<Cut>,
    /// Who found it.
    pub judge: Option<&'static str>,
    /// Who found it, and what.
    pub error: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cut {
            Some(cut) => write!(f, "{} operations, {cut}: {}", self.ops.len(), self.error),
            None => write!(f, "{} operations: {}", self.ops.len(), self.error),
        }
    }
}

fn shared_directories(fs: &dyn FileSystem) -> cairn_vfs::Result<Vec<(String, Ino)>> {
    let mut all = vec![(String::new(), fs.root())];
    for name in SHARED {
        let made =
            fs.create(fs.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)?;
        all.push((name.to_owned(), made.ino));
    }
    fs.sync()?;
    Ok(all)
}

/// Moves the head of the log on.
fn run_laps(fs: &dyn FileSystem, laps: u32) -> cairn_vfs::Result<()> {
    for _ in 0..laps {
        let made = fs.create(fs.root(), b"lap", NewInode::Directory, 0o755, &Caller::ROOT)?;
        fs.sync()?;
        fs.rmdir(fs.root(), b"lap")?;
        fs.forget(made.ino, 1);
        fs.sync()?;
    }
    Ok(())
}

impl Recorded {
    /// Runs `steps` seeded operations.
    ///
    /// # Errors
    /// An operation fails.
    pub fn seeded(target: &Target<'_>, seed: u64, steps: usize) -> Result<Self, Wrong> {
        Self::run(target, seed, steps, |worker, _| worker.choose())
    }

    /// Runs these operations. Those whose objects are missing do nothing. The seed decides when
    /// daemons work, and how the run ends.
    ///
    /// # Errors
    /// An operation fails.
    pub fn of(target: &Target<'_>, seed: u64, ops: &[Op]) -> Result<Self, Wrong> {
        Self::run(target, seed, ops.len(), |_, step| ops[step].clone())
    }

    fn run(
        target: &Target<'_>,
        seed: u64,
        steps: usize,
        next: impl Fn(&mut Worker, usize) -> Op,
    ) -> Result<Self, Wrong> {
        let mut ops = Vec::new();
        let done = Self::record(target, seed, steps, next, &mut ops);
        match done {
            Ok((crash, from, promises)) => Ok(Self { ops, crash, from, promises }),
            Err(error) => Err(Wrong { ops, cut: None, judge: None, error }),
        }
    }

    fn record(
        target: &Target<'_>,
        seed: u64,
        steps: usize,
        next: impl Fn(&mut Worker, usize) -> Op,
        ops: &mut Vec<Op>,
    ) -> Result<(CrashLog, u64, Promises<String, Expect>), String> {
        let text = |error: cairn_vfs::Error| error.to_string();
        let recording = Arc::new(Recording::start(target.fresh.fork()));
        let simulated = Simulated::new(seed);
        let Opened { fs, evict } = (target.open)(recording.device(), simulated.clone())?;
        let shared = shared_directories(&*fs).map_err(text)?;
        run_laps(&*fs, target.laps).map_err(text)?;
        let churned = target.churn.map(|churn| {
            let found = fs.lookup(fs.root(), FILLER.as_bytes());
            found.map(|filler| (churn, filler.ino, fastrand::Rng::with_seed(seed)))
        });
        let mut churned = churned.transpose().map_err(text)?;
        let from = recording.moment();
        let worker = Worker::new((fs.clone(), evict), &recording, seed, 1, &shared);
        let mut worker = worker.with_tail(target.tail);
        for step in 0..steps {
            let op = next(&mut worker, step);
            ops.push(op.clone());
            worker.apply(&op).map_err(|error| format!("`{op}` fails: {error}"))?;
            if let Some((churn, filler, random)) = &mut churned {
                churn.step(&*fs, *filler, random).map_err(text)?;
            }
            if step % PAUSE == 0 {
                simulated.some_steps(3);
            }
        }
        let promises = worker.finish();
        // Half of the runs end with an unmount, the others with a power cut.
        let ended = if seed.is_multiple_of(2) { fs.unmount() } else { fs.shutdown(false) };
        ended.map_err(|error| format!("the end of the run: {error}"))?;
        drop(fs);
        let crash = CrashLog::new(target.fresh.fork(), recording.log());
        let whole = target.whole.clone();
        Ok((crash.with_whole(move |block| whole(block)), from, promises))
    }

    /// [`CrashLog::cuts`] of the part that is examined.
    #[must_use]
    pub fn cuts(&self, most: usize, seed: u64) -> Vec<Cut> {
        self.crash.cuts(self.from, most, seed)
    }

    /// The state that a cut leaves.
    #[must_use]
    pub fn crashed(&self, cut: Cut) -> Crashed<'_> {
        Crashed::new(self.crash.device(cut), cut, &self.promises)
    }

    /// Has the `number`-th state judged by those whose turn it is.
    ///
    /// # Errors
    /// A judge finds something wrong.
    pub fn judge(
        &self,
        target: &Target<'_>,
        cut: Cut,
        number: usize,
        seen: &mut Seen,
    ) -> Result<(), Wrong> {
        // Each judge begins at another state.
        let is_turn = |place: usize, judging: &Judging<'_>| {
            (number + 3 * place).is_multiple_of(judging.every)
        };
        self.judge_by(target, cut, &is_turn, seen)
    }

    /// Has a state judged by all.
    ///
    /// # Errors
    /// A judge finds something wrong.
    pub fn judge_by_all(
        &self,
        target: &Target<'_>,
        cut: Cut,
        seen: &mut Seen,
    ) -> Result<(), Wrong> {
        self.judge_by(target, cut, &|_, _| true, seen)
    }

    /// Has a state judged by one.
    ///
    /// # Errors
    /// It finds something wrong.
    pub(super) fn judge_by_name(
        &self,
        target: &Target<'_>,
        cut: Cut,
        name: &str,
    ) -> Result<(), Wrong> {
        let is_turn = |_: usize, judging: &Judging<'_>| judging.name == name;
        self.judge_by(target, cut, &is_turn, &mut Seen::default())
    }

    fn judge_by(
        &self,
        target: &Target<'_>,
        cut: Cut,
        is_turn: &dyn Fn(usize, &Judging<'_>) -> bool,
        seen: &mut Seen,
    ) -> Result<(), Wrong> {
        let crashed = self.crashed(cut);
        seen.states += 1;
        seen.judged.resize(target.judges.len(), Judged::default());
        for (place, judging) in target.judges.iter().enumerate() {
            if !is_turn(place, judging) {
                continue;
            }
            let verdict = (judging.judge)(&crashed).map_err(|error| Wrong {
                ops: self.ops.clone(),
                cut: Some(cut),
                judge: Some(judging.name),
                error: format!("{}: {error}", judging.name),
            })?;
            let judged = &mut seen.judged[place];
            judged.states += usize::from(verdict != Verdict::NotJudged);
            judged.refused += usize::from(verdict == Verdict::Refused);
            if let Verdict::Kept(promises) = verdict {
                judged.promises += promises;
            }
        }
        Ok(())
    }
}

/// Examines at most `most` crash states of a run, counts them in `seen`, and calls `step` after
/// each.
///
/// # Errors
/// The first state that is wrong.
pub fn search(
    target: &Target<'_>,
    recorded: &Recorded,
    (most, seed): (usize, u64),
    seen: &mut Seen,
    step: &dyn Fn(),
) -> Result<(), Wrong> {
    for (number, cut) in recorded.cuts(most, seed).into_iter().enumerate() {
        recorded.judge(target, cut, number, seen)?;
        step();
    }
    Ok(())
}
