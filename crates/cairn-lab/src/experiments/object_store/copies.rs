//! Copies of volumes, and what cleaning costs.

use std::sync::Arc;
use std::time::Instant;

use cairn_block::BlockDeviceExt;
use cairn_objects::pool::{Copy, Pool};
use cairn_objects::store::Store;

use super::disk::{LOG, VOLUME, close, create, open, options};
use super::slow::{Slow, Usage};
use crate::error::Result;
use crate::experiment::Context;
use crate::random::Rng;
use crate::section::{Builder, Metric, Section};

pub(super) const CLONE: &str = "clone of 100 GiB";
pub(super) const SECONDS: &str = "seconds";
const MIB: f64 = 1_048_576.0;
const GIB: u64 = 1 << 30;
const BLOCK: u64 = 4096;

fn pool(store: &Arc<Slow>) -> Pool {
    let store: Arc<dyn Store> = store.clone();
    Pool::new(store, options().runtime, options().patience)
}

/// A snapshot and a clone of a large volume.
pub(super) fn copies(context: &Context) -> Result<Section> {
    let metrics = vec![
        Metric::lower(SECONDS, "s"),
        Metric::lower("requests", "requests"),
        Metric::lower("kib", "KiB put"),
    ];
    let step = context.scale.pick(64_u64, 1, 1) << 20;
    let title = format!("Copies of 100 GiB, with a block in every {} MiB", step >> 20);
    let mut builder = Builder::new("copies", &title, &[LOG], metrics);
    context.progress.expect(context.repetitions + 1);
    context.progress.show("a volume of 100 GiB");
    let store = Arc::new(Slow::default());
    let volume = create(&store, 100 * GIB)?;
    for at in (0..100 * GIB).step_by(step as usize) {
        volume.write_at(at, vec![0x5a; BLOCK as usize])?;
    }
    close(volume)?;
    context.progress.step();
    let pool = pool(&store);
    for repetition in 0..context.repetitions {
        for (row, kind) in [("snapshot of 100 GiB", Copy::Snapshot), (CLONE, Copy::Clone)] {
            let name = format!("{}-{repetition}", &row[..5]);
            let (before, start) = (store.usage(), Instant::now());
            pool.copy(VOLUME, &name, kind)?;
            let seconds = start.elapsed().as_secs_f64();
            let used = store.usage().since(&before);
            let figures = [
                (SECONDS, seconds),
                ("requests", used.requests() as f64),
                ("kib", used.put_bytes as f64 / 1024.0),
            ];
            builder.add(row, LOG, &figures);
        }
        context.progress.step();
    }
    Ok(builder.finish())
}

/// Objects that are mostly dead are repacked and removed.
pub(super) fn cleaning(context: &Context) -> Result<Section> {
    let metrics = vec![
        Metric::lower(SECONDS, "s"),
        Metric::lower("requests", "requests"),
        Metric::lower("read", "MiB read"),
        Metric::lower("put", "MiB put"),
        Metric::lower("dollars", "$ per 1,000 times"),
    ];
    let size = context.scale.pick(16_u64, 256, 1024) << 20;
    let title = format!("{} MiB, whose blocks are overwritten at random three times", size >> 20);
    let mut builder = Builder::new("cleaning", &title, &[LOG], metrics);
    context.progress.expect(context.repetitions);
    for repetition in 0..context.repetitions {
        context.progress.show("cleaning");
        let store = Arc::new(Slow::default());
        let volume = create(&store, size)?;
        let mut add = |row: &str, before: &Usage, start: Instant| {
            let used = store.usage().since(before);
            let figures = [
                (SECONDS, start.elapsed().as_secs_f64()),
                ("requests", used.requests() as f64),
                ("read", used.get_bytes as f64 / MIB),
                ("put", used.put_bytes as f64 / MIB),
                ("dollars", used.dollars() * 1000.0),
            ];
            builder.add(row, LOG, &figures);
        };
        let (before, start) = (store.usage(), Instant::now());
        for at in (0..size).step_by(1 << 20) {
            volume.write_at(at, vec![1; 1 << 20])?;
        }
        let mut random = Rng::new(repetition as u64);
        for _ in 0..3 * (size / BLOCK) {
            volume.write_at(random.below(size / BLOCK) * BLOCK, vec![2; BLOCK as usize])?;
        }
        close(volume)?;
        add("writing", &before, start);
        let shared: Arc<dyn Store> = store.clone();
        let volume = open(&shared)?;
        let (before, start) = (store.usage(), Instant::now());
        volume.repack()?;
        add("repack", &before, start);
        close(volume)?;
        let (before, start) = (store.usage(), Instant::now());
        pool(&store).gc()?;
        add("gc", &before, start);
        context.progress.step();
    }
    Ok(builder.finish())
}
