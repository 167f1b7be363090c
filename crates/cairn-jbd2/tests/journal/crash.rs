//! Power cuts at random moments. A prefix of the operations survives, and it contains every
//! operation whose commit was waited for.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Record, RecordLog};
use cairn_block::{Batch, BlockDevice, Completion, Geometry};
use cairn_jbd2::JournalOptions;

use crate::fixture::{self, features, format, recovered};
use crate::model::Model;

const OPERATIONS: u32 = 420;
const CUTS: u64 = 70;

/// A device that ignores barriers. The journal must not survive power cuts on it.
struct Careless {
    inner: Arc<dyn BlockDevice>,
    drop_preflush: bool,
    drop_flush: bool,
}

impl BlockDevice for Careless {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, mut batch: Batch) -> Completion {
        batch.durability.preflush &= !self.drop_preflush;
        self.inner.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        if self.drop_flush { Ok(()) } else { self.inner.flush() }
    }
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// These options.
    Fixed(JournalOptions),
    /// Options that change again and again.
    Toggled,
}

struct Run {
    before: MemoryDevice,
    log: RecordLog,
    model: Model,
    checkpoints: u64,
}

fn run(
    seed: u64,
    (incompat, compat): (u32, u32),
    mode: Mode,
    careless: impl FnOnce(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
) -> Run {
    // The transactions' numbers wrap in the middle of the run.
    let device = format(incompat, compat, 0_u32.wrapping_sub(20));
    let before = device.fork();
    let record = Arc::new(Record::new(Arc::new(device)));
    let device = careless(record.clone());
    let simulated = Simulated::new(seed);
    let runtime: Arc<dyn Runtime> = simulated.clone();
    let options = match mode {
        Mode::Fixed(options) => options,
        Mode::Toggled => JournalOptions::default(),
    };
    let (buffers, journal) =
        fixture::open_with(&device, runtime, options).expect("an empty journal opens");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::new(seed);
    for _ in 0..OPERATIONS {
        let tid = model.operate(&buffers, &journal).expect("the device works");
        match random.u8(..10) {
            0 | 1 => {
                journal.commit_and_wait(tid).expect("the device works");
                model.acknowledge(record.moment());
            }
            2 => journal.request_commit(tid),
            3 => simulated.some_steps(4),
            _ => {}
        }
        model.reuse(&*record, || record.moment()).expect("the device works");
        if matches!(mode, Mode::Toggled) && random.u8(..8) == 0 {
            fixture::toggle(&journal, &mut random);
            fixture::leave_out_parts(&journal, &mut random);
        }
        if random.u8(..100) == 0 {
            journal.checkpoint_all().expect("the device works");
        }
    }
    let checkpoints = journal.stats().checkpointed.get();
    if random.bool() {
        journal.shutdown().expect("the device works");
        model.acknowledge(record.moment());
    }
    drop(journal);
    Run { before, log: record.log(), model, checkpoints }
}

/// Cuts the power at random moments. The error is the first state that must not occur.
fn cut(run: &Run, seed: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    let mut moments: Vec<u64> = (0..CUTS).map(|_| random.u64(0..=run.log.end)).collect();
    moments.push(run.log.end);
    for moment in moments {
        let point = run.log.crash_point(moment);
        for share in [0, 30, 70, 100] {
            let survivors = point.volatile.iter().copied().filter(|_| random.u8(..100) < share);
            let survivors: Vec<usize> = point.durable.iter().copied().chain(survivors).collect();
            let crashed = run.before.fork();
            run.log.apply(&crashed, survivors).expect("memory does not fail");
            let at = |error: String| {
                format!(
                    "cut at moment {moment} of {}, {share} % of the rest kept: {error}",
                    run.log.end
                )
            };
            let (device, _) =
                recovered(crashed).map_err(|error| at(format!("recovery failed: {error}")))?;
            run.model.check(&*device, moment).map_err(at)?;
        }
    }
    Ok(())
}

const KINDS: [(u32, u32); 5] = [
    (features::REVOKE | features::BITS_64 | features::CSUM_V3, 0),
    (features::REVOKE | features::CSUM_V2, 0),
    (features::REVOKE | features::BITS_64 | features::CSUM_V2, 0),
    (features::REVOKE, 1),
    (features::REVOKE | features::BITS_64, 0),
];

/// Runs and cuts. Returns the number of checkpointed transactions.
fn search(mode: Mode, seeds: std::ops::Range<u64>) -> u64 {
    let mut checkpoints = 0;
    for seed in seeds {
        let kind = KINDS[seed as usize % KINDS.len()];
        let run = run(seed, kind, mode, |device| device);
        checkpoints += run.checkpoints;
        cut(&run, seed).unwrap_or_else(|error| {
            panic!("{mode:?}, seed {seed}, features {:#x}: {error}", kind.0)
        });
    }
    checkpoints
}

/// Factor for the number of seeds: more with `CAIRN_DEEP=1`.
fn depth() -> u64 {
    if std::env::var_os("CAIRN_DEEP").is_some_and(|value| value == "1") { 20 } else { 1 }
}

#[test]
fn a_prefix_survives_with_everything_acknowledged() {
    let checkpoints = search(Mode::Fixed(JournalOptions::default()), 0..10 * depth());
    assert!(checkpoints > 100, "the logs never filled: {checkpoints} transactions checkpointed");
}

#[test]
fn a_prefix_survives_in_every_mode() {
    for (number, options) in fixture::modes().enumerate() {
        let from = 100 * number as u64;
        let checkpoints = search(Mode::Fixed(options), from..from + 2 * depth());
        assert!(checkpoints > 20, "{options:?}: {checkpoints} transactions checkpointed");
    }
}

#[test]
fn a_prefix_survives_while_the_options_change() {
    let checkpoints = search(Mode::Toggled, 1000..1000 + 8 * depth());
    assert!(checkpoints > 100, "{checkpoints} transactions checkpointed");
}

#[test]
fn the_same_seed_gives_the_same_writes() {
    let (one, two) = (
        run(7, KINDS[0], Mode::Toggled, |device| device),
        run(7, KINDS[0], Mode::Toggled, |device| device),
    );
    assert!(one.log.events == two.log.events, "two runs of one seed wrote different things");
}

#[test]
fn a_commit_without_its_preflush_is_found_out() {
    let careless = |inner| -> Arc<dyn BlockDevice> {
        Arc::new(Careless { inner, drop_preflush: true, drop_flush: false })
    };
    let found =
        (0..4).any(|seed| cut(&run(seed, KINDS[0], Mode::Toggled, careless), seed).is_err());
    assert!(found, "the crash test does not notice a missing preflush");
}

#[test]
fn a_tail_that_moves_before_the_flush_is_found_out() {
    // The preflushes are dropped, too: that of the next commit would make the writes durable.
    let careless = |inner| -> Arc<dyn BlockDevice> {
        Arc::new(Careless { inner, drop_preflush: true, drop_flush: true })
    };
    let found = fixture::modes().take(2).any(|options| {
        (0..4).any(|seed| cut(&run(seed, KINDS[0], Mode::Fixed(options), careless), seed).is_err())
    });
    assert!(found, "the crash test does not notice missing flushes");
}
