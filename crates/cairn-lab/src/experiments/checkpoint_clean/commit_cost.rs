//! The cost of one commit by the number of listed transactions.

use std::collections::BTreeMap;
use std::time::Instant;

use super::bench::Bench;
use super::instructions::{self, INSTRUCTIONS};
use super::subjects::{MODES, lengths, row};
use crate::error::Result;
use crate::experiment::Context;
use crate::section::{Builder, Metric, Section};
use crate::statistics::Spread;

/// Id of the table.
pub(super) const ID: &str = "commit-cost";
/// Metrics.
pub(super) const NS: &str = "commit_ns";
pub(super) const LOOKS: &str = "looks_per_commit";

/// Bursts of one repetition.
const BURSTS: u32 = 5;

/// Measures the table. A failure to count instructions is a note.
pub(super) fn measure(context: &Context, notes: &mut Vec<String>) -> Result<Section> {
    let commits = context.scale.pick(10, 100, 400);
    let metrics = vec![
        Metric::lower(NS, "ns a commit"),
        Metric::lower(INSTRUCTIONS, "instructions a commit"),
        Metric::lower(LOOKS, "looks a commit"),
        Metric::lower("freed_per_commit", "freed a commit"),
    ];
    let mut builder = Builder::new(ID, "Cost of a commit", &MODES, metrics);
    let more =
        (commits + 1) * BURSTS * 3 * u32::try_from(context.repetitions).unwrap_or(u32::MAX) + 64;
    let lengths = lengths(context);
    context.progress.show("listing transactions");
    let benches: Vec<Bench> =
        lengths.iter().map(|listed| Bench::new(*listed, more)).collect::<Result<_>>()?;
    context.progress.expect(context.repetitions);
    for repetition in 0..context.repetitions {
        let order: Vec<&str> =
            context.order(repetition, MODES.len()).map(|index| MODES[index]).collect();
        let mut best = BTreeMap::new();
        // The lengths are compared as well, so they take turns in short bursts. The quickest burst
        // of each counts, because other work of the machine only adds to it.
        for _ in 0..BURSTS {
            for (listed, bench) in lengths.iter().zip(&benches) {
                context.progress.show(&row(*listed));
                for mode in &order {
                    let burst = burst(bench, mode, commits)?;
                    let kept = best.entry((listed, *mode)).or_insert(burst);
                    if burst[0].1 < kept[0].1 {
                        *kept = burst;
                    }
                }
            }
        }
        for ((listed, mode), values) in &best {
            builder.add(&row(**listed), mode, values);
        }
        context.progress.step();
    }
    // The lists above fill the memory; a child needs some for its own.
    drop(benches);
    // Their number has no noise, so a quick run counts once.
    for _ in 0..context.scale.pick(1, context.repetitions, context.repetitions) {
        if let Err(error) = instructions::measure(context, lengths, &mut builder) {
            notes.push(format!("Instructions were not counted: {error}."));
            break;
        }
    }
    Ok(builder.finish())
}

/// The cost of a commit in this mode.
fn burst(bench: &Bench, mode: &str, commits: u32) -> Result<[(&'static str, f64); 3]> {
    bench.begin(mode)?;
    let before = bench.looked_and_freed();
    let mut times = Vec::with_capacity(commits as usize);
    for _ in 0..commits {
        let start = Instant::now();
        bench.commit_again()?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    let after = bench.looked_and_freed();
    // The median ignores commits during which the machine did other work.
    let time = Spread::of(&times).map_or(f64::NAN, |times| times.median);
    let each = |total: f64| total / f64::from(commits);
    Ok([
        (NS, time),
        (LOOKS, each((after.0 - before.0) as f64)),
        ("freed_per_commit", each((after.1 - before.1) as f64)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_scan_looks_at_everything() {
        let bench = Bench::new(200, 100).unwrap();
        let looks = |mode| burst(&bench, mode, 10).unwrap()[1].1;
        assert!(looks(super::super::subjects::SCAN) >= 200.0);
        assert!(looks(super::super::subjects::BAIL_OUT) <= 2.0);
        assert!(looks(super::super::subjects::COUNTED) <= 2.0);
    }
}
