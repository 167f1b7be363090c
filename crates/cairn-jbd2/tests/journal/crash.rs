//! Power cuts at every kind of moment: a prefix of the operations survives, and with it all that was acknowledged.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Record, RecordLog};
use cairn_block::{Batch, BlockDevice, Completion, Geometry};

use crate::fixture::{self, features, format, recovered};
use crate::model::Model;

const OPERATIONS: u32 = 420;
const CUTS: u64 = 70;

/// Forgets the barriers it is asked for: what the journal must not be able to do without.
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

struct Run {
    before: MemoryDevice,
    log: RecordLog,
    model: Model,
    checkpoints: u64,
}

fn run(
    seed: u64,
    incompat: u32,
    compat: u32,
    careless: impl FnOnce(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
) -> Run {
    // Numbers wrap in the middle of the run.
    let device = format(incompat, compat, 0_u32.wrapping_sub(20));
    let before = device.fork();
    let record = Arc::new(Record::new(Arc::new(device)));
    let device = careless(record.clone());
    let simulated = Simulated::new(seed);
    let runtime: Arc<dyn Runtime> = simulated.clone();
    let (buffers, journal) = fixture::open(&device, runtime).expect("an empty journal opens");
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

/// Cuts the power at random moments; the first thing that must not be is the error.
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
                format!("cut at moment {moment} of {}, {share} % of the rest kept: {error}", run.log.end)
            };
            let (device, _) = recovered(crashed).map_err(|error| at(format!("recovery failed: {error}")))?;
            run.model.check(&*device, moment).map_err(at)?;
        }
    }
    Ok(())
}

#[test]
fn a_prefix_survives_with_everything_acknowledged() {
    let kinds = [
        (features::REVOKE | features::BITS_64 | features::CSUM_V3, 0),
        (features::REVOKE | features::CSUM_V2, 0),
        (features::REVOKE | features::BITS_64 | features::CSUM_V2, 0),
        (features::REVOKE, 1),
        (features::REVOKE | features::BITS_64, 0),
    ];
    let mut checkpoints = 0;
    for seed in 0..10 {
        let (incompat, compat) = kinds[seed as usize % kinds.len()];
        let run = run(seed, incompat, compat, |device| device);
        checkpoints += run.checkpoints;
        cut(&run, seed).unwrap_or_else(|error| panic!("seed {seed}, features {incompat:#x}: {error}"));
    }
    assert!(checkpoints > 100, "the logs never filled: {checkpoints} transactions checkpointed");
}

#[test]
fn the_same_seed_gives_the_same_writes() {
    let incompat = features::REVOKE | features::BITS_64 | features::CSUM_V3;
    let (one, two) = (run(7, incompat, 0, |device| device), run(7, incompat, 0, |device| device));
    assert!(one.log.events == two.log.events, "two runs of one seed wrote different things");
}

#[test]
fn a_commit_without_its_preflush_is_found_out() {
    let incompat = features::REVOKE | features::BITS_64 | features::CSUM_V3;
    let careless =
        |inner| -> Arc<dyn BlockDevice> { Arc::new(Careless { inner, drop_preflush: true, drop_flush: false }) };
    let found = (0..4).any(|seed| cut(&run(seed, incompat, 0, careless), seed).is_err());
    assert!(found, "the crash test does not notice a missing preflush");
}

#[test]
fn a_tail_that_moves_before_the_flush_is_found_out() {
    let incompat = features::REVOKE | features::BITS_64 | features::CSUM_V3;
    // Without its preflushes too, or the next commit would cover for it.
    let careless =
        |inner| -> Arc<dyn BlockDevice> { Arc::new(Careless { inner, drop_preflush: true, drop_flush: true }) };
    let found = (0..4).any(|seed| cut(&run(seed, incompat, 0, careless), seed).is_err());
    assert!(found, "the crash test does not notice missing flushes");
}
