//! Measures whether memory stays within the budget while a file of ten times its size is written.

use super::measure::{Bench, MIB};
use super::subjects::{LARGE, PER_BLOCK};
use crate::error::Result;
use crate::experiment::Context;
use crate::section::{Builder, Metric, Section};
use crate::volume::{self, OpenFile, counter};

/// Id of the table.
pub(super) const ID: &str = "memory";
/// Its only row.
pub(super) const ROW: &str = "write 10 × the budget";
/// Its primary metric.
pub(super) const PEAK: &str = "peak_of_budget";

/// Measures both paths. The figure is the most memory in use at any time.
pub(super) fn measure(context: &Context, bench: &Bench) -> Result<Section> {
    let budget = bench.sizes().file / 2;
    let metrics = vec![Metric::lower(PEAK, "peak/budget"), Metric::higher("mib_per_s", "MiB/s")];
    let title = format!(
        "Memory while a file is written that is ten times the budget of {} MiB",
        budget >> 20
    );
    let subjects = [PER_BLOCK, LARGE];
    let mut builder = Builder::new(ID, &title, &subjects, metrics);
    context.progress.expect(context.repetitions);
    context.progress.show(ROW);
    for repetition in 0..context.repetitions {
        for subject in context.order(repetition, 2).map(|index| subjects[index]) {
            let (peak, speed) = write(bench, budget, subject)?;
            builder.add(ROW, subject, &[("mib_per_s", speed)]);
            if let Some(peak) = peak {
                builder.add(ROW, subject, &[(PEAK, peak / budget as f64)]);
            }
        }
        context.progress.step();
    }
    Ok(builder.finish())
}

fn write(bench: &Bench, budget: u64, option: &str) -> Result<(Option<f64>, f64)> {
    let volume = volume::open(bench.ramdisk(), &format!("{option},cache={budget}"))?;
    let file = OpenFile::create(&*volume, "large")?;
    let block = vec![0x66; MIB];
    let start = std::time::Instant::now();
    (0..10 * budget / MIB as u64).try_for_each(|index| file.write(index * MIB as u64, &block))?;
    file.fsync()?;
    let speed = (10 * budget) as f64 / MIB as f64 / start.elapsed().as_secs_f64();
    let peak = counter(&volume.report(), "cache.budget.peak_bytes");
    drop(file);
    volume.unlink(volume.root(), b"large")?;
    volume.unmount()?;
    Ok((peak, speed))
}
