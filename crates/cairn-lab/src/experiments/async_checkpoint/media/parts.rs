//! One part of the journal's checkpoints after the other switched on, from a checkpoint as Linux
//! does it to the daemon.

use cairn_jbd2::CheckpointParts as Parts;

use super::run::{SEED, run_on};
use super::subjects::{JOURNALS, OFF, ON, load};
use crate::error::Result;
use crate::experiment::Context;
use crate::fs_mark::{Load, SyncMethod};
use crate::goal::{Goal, Relation};
use crate::media::{self, Medium};
use crate::section::{Builder, Metric, Section};

const ID: &str = "parts";
/// What the handle does that finds the log full.
const AS_LINUX: &str = "as Linux";
const BACKGROUND: &str = "+ in background";
/// Each with those before it: the parts, and the option.
const STEPS: [(&str, Parts, &str); 7] = [
    (AS_LINUX, Parts::empty(), OFF),
    ("+ no more room than needed", Parts::EXACT_ROOM, OFF),
    ("+ sorted, across transactions", up_to(Parts::ACROSS), OFF),
    ("+ superseding", up_to(Parts::SUPERSEDE), OFF),
    ("+ tail moved by commits", up_to(Parts::WITH_COMMITS), OFF),
    ("+ shared commits", Parts::all(), OFF),
    (BACKGROUND, Parts::all(), ON),
];

/// This part and those before it.
const fn up_to(part: Parts) -> Parts {
    Parts::from_bits_truncate((part.bits() << 1) - 1)
}

/// Modes in which the journal fills.
const MODES: [SyncMethod; 2] = [SyncMethod::BeforeClose, SyncMethod::Reverse];

fn row(medium: &Medium, sync: SyncMethod) -> String {
    format!("{}, -S {}", medium.title, sync as usize)
}

/// Measures the table, with the smallest journal.
pub(super) fn measure(context: &Context, repetitions: usize) -> Result<Section> {
    let metrics = vec![
        Metric::higher("files_per_s", "files/s"),
        Metric::lower("transactions", "transactions"),
        Metric::lower("stalls", "stalls"),
        Metric::lower("stall_ms", "stalled ms"),
        Metric::lower("op_p99_ms", "op p99 ms"),
        Metric::lower("op_p999_ms", "op p99.9 ms"),
        Metric::lower("op_max_ms", "op max ms"),
    ];
    let (name, journal) = JOURNALS[0];
    let title = format!("Parts of a checkpoint, each with those before it; journal of {name}");
    let subjects = STEPS.map(|(subject, ..)| subject);
    let mut builder = Builder::new(ID, &title, &subjects, metrics);
    context.progress.expect(repetitions * media::ALL.len() * MODES.len());
    for repetition in 0..repetitions {
        for medium in &media::ALL {
            for sync in MODES {
                context.progress.show(&row(medium, sync));
                // The smallest journal fills with less.
                let load = load(context.scale, sync);
                let load = Load { files: load.files.div_ceil(2), ..load };
                for (subject, parts, option) in STEPS {
                    let seed = SEED + repetition as u64;
                    let run = run_on(*medium, journal, option, parts, &load, seed)?;
                    builder.add(&row(medium, sync), subject, &run.own_figures());
                }
                context.progress.step();
            }
        }
    }
    Ok(builder.finish())
}

/// The proposal's mode 3 on NVMe, against a checkpoint as Linux does it.
pub(super) fn goals(section: &Section) -> [Goal; 2] {
    let row = row(&media::ALL[media::ALL.len() - 1], SyncMethod::Reverse);
    let ratio = |metric| section.ratio(&row, metric, BACKGROUND, AS_LINUX);
    [
        Goal::judge(
            format!("{row}: files/s, in background ÷ as Linux (proposal: 1.145)"),
            Relation::AtLeast,
            1.145,
            ratio("files_per_s"),
        ),
        Goal::judge(
            format!("{row}: transactions, in background ÷ as Linux (proposal: 0.312)"),
            Relation::AtMost,
            0.5,
            ratio("transactions"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_adds_a_part() {
        for pair in STEPS.windows(2) {
            let ((_, before, _), (_, parts, option)) = (pair[0], pair[1]);
            let added = (parts - before).iter().count() + usize::from(option == ON);
            assert_eq!((added, before - parts), (1, Parts::empty()), "{}", pair[1].0);
        }
    }
}
