//! The rows in memory on a volume of F2FS, for the experiment on other formats.

use super::copy;
use super::measure::{Bench, Sizes};
use super::metrics;
use super::rows::{self, Medium, Work};
use super::subjects::{LARGE, PER_BLOCK};
use crate::error::Result;
use crate::experiment::Context;
use crate::section::{Builder, Section};

/// Id of the table.
pub(in crate::experiments) const ON_F2FS: &str = "folios";

/// Measures the table.
pub(in crate::experiments) fn on_f2fs(context: &Context) -> Result<Section> {
    let bench = Bench::f2fs(Sizes::of(context.scale))?;
    let mut metrics = metrics();
    // F2FS has no journal.
    metrics.retain(|metric| metric.name != "journal_blocks_per_mib");
    let title = "Large folios on F2FS, on memory";
    let mut builder = Builder::new(ON_F2FS, title, &[PER_BLOCK, LARGE], metrics);
    let lines: Vec<_> = rows::all()
        .into_iter()
        .filter(|line| line.medium == Medium::Ramdisk && line.work != Work::ReadHole)
        .collect();
    context.progress.expect(context.repetitions * lines.len());
    for repetition in 0..context.repetitions {
        for line in &lines {
            context.progress.show(&format!("F2FS: {}", line.name));
            let copy = copy::speed(line.block, bench.sizes());
            for option in context.order(repetition, 2).map(|index| [PER_BLOCK, LARGE][index]) {
                let figures = bench.measure(line, option)?;
                builder.add(&line.name, option, &figures.list(copy, line.copies()));
            }
            context.progress.step();
        }
    }
    Ok(builder.finish())
}
