//! The goals of buffered I/O.

use super::measure::BOUND;
use super::subjects::{LARGE, MEMCPY, PER_BLOCK};
use super::{journal, memory, mounted};
use crate::goal::{Goal, Relation, worst};
use crate::section::Section;

/// All goals. If a section is missing, its goals are not measured.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let found = Found { sections };
    let mut goals = per_block(&found);
    for row in ["cached append 1M", "cached overwrite 1M"] {
        let measured = found.ratio("writes-cached", row, LARGE, MEMCPY);
        goals.push(at_least(format!("{row}: large ÷ pre-faulted memcpy"), 0.8, measured));
    }
    for size in ["64K", "1M"] {
        let text =
            format!("mapping calls for each MiB written sequentially, calls of {size}, worst row");
        goals.push(Goal::judge(text, Relation::AtMost, 1.0, found.map_calls(size)));
    }
    let memory = found.section(memory::ID).and_then(|section| section.get(memory::ROW, LARGE));
    let peak = memory.and_then(|row| row.values.get(memory::PEAK)).map(|peak| peak.max);
    goals.push(Goal::judge(
        "memory ÷ budget while writing ten times the budget",
        Relation::AtMost,
        1.0,
        peak,
    ));
    for (row, ..) in journal::ROWS {
        let section = found.section(journal::ID);
        let measured =
            section.and_then(|section| section.ratio(row, journal::BLOCKS, LARGE, mounted::KERNEL));
        goals.push(Goal::judge(
            format!("{row}: journal blocks ÷ the kernel's"),
            Relation::Below,
            1.0,
            measured,
        ));
    }
    goals.extend(through_the_mount(&found));
    goals
}

/// Cairn through the mount against other servers. What a server that stores nothing needs, and one
/// more copy of the bytes, is the least.
fn through_the_mount(found: &Found<'_>) -> Vec<Goal> {
    let speed =
        |row: &str, subject: &str| found.section(mounted::ID)?.median(row, subject, "mib_per_s");
    let copy = found
        .section("writes-cached")
        .and_then(|section| section.median("cached append 1M", MEMCPY, "mib_per_s"));
    let bound = |row: &str, base: &str| {
        let nothing = speed(row, mounted::NOTHING)?;
        Some(1.0 / (1.0 / nothing + 1.0 / copy?) / speed(row, base)?)
    };
    let mut goals = Vec::new();
    for row in ["ramdisk 1M", "ramdisk append write-back 1M"] {
        let measured = found.ratio(mounted::ID, row, mounted::CAIRN, mounted::NOTHING);
        goals.push(within(
            format!("through the mount, {row}: cairn ÷ a server that stores nothing"),
            0.8,
            bound(row, mounted::NOTHING),
            measured,
        ));
    }
    for row in ["ramdisk 1M", "ramdisk append write-back 1M", mounted::RANDOM] {
        let measured = found.ratio(mounted::ID, row, mounted::CAIRN, mounted::FUSE2FS);
        // The kernel keeps what the random row writes: the server gets none of the bytes.
        let bound = match row {
            mounted::RANDOM => found.ratio(mounted::ID, row, mounted::NOTHING, mounted::FUSE2FS),
            _ => bound(row, mounted::FUSE2FS),
        };
        let text = format!("through the mount, {row}: cairn ÷ fuse2fs");
        goals.push(within(text, 4.0, bound, measured));
    }
    for row in ["ramdisk 1M", "cached append 1M", "ramdisk append write-back 1M"] {
        let measured = found.ratio(mounted::ID, row, mounted::CAIRN, mounted::PER_BLOCK);
        goals.push(at_least(format!("through the mount, {row}: large ÷ per-block"), 1.0, measured));
    }
    goals
}

/// The ratios that the proposal gives, and its loss as a gain.
fn per_block(found: &Found<'_>) -> Vec<Goal> {
    let mut rows = Vec::new();
    for kind in ["cached append", "cached overwrite"] {
        for (size, target) in [("4K", 1.0), ("64K", 2.6), ("1M", 2.9)] {
            rows.push(("writes-cached", format!("{kind} {size}"), target));
        }
    }
    rows.push(("reads", "hole 1M".to_owned(), 1.8));
    rows.push(("writes-ramdisk", "ramdisk append sync 64K".to_owned(), 1.7));
    // 0.85 there.
    rows.push(("writes-ramdisk", "ramdisk append write-back 4K".to_owned(), 1.0));
    let goal = |(section, row, target): (&str, String, f64)| {
        let bound = found.bound(section, &row);
        let measured = found.ratio(section, &row, LARGE, PER_BLOCK);
        within(format!("{row}: large ÷ per-block"), target, bound, measured)
    };
    rows.into_iter().map(goal).collect()
}

/// The part of what a memcpy of the same bytes gives that a row must reach.
const OF_BOUND: f64 = 0.8;

/// A goal that gives way to what a memcpy of the same bytes in the same run leaves: `bound`, in the
/// unit of the goal.
fn within(text: String, target: f64, bound: Option<f64>, measured: Option<f64>) -> Goal {
    match bound.map(|bound| OF_BOUND * bound).filter(|possible| *possible < target) {
        Some(possible) => {
            let text =
                format!("{text} (goal {target}, {OF_BOUND} of what copies and requests allow)");
            at_least(text, possible, measured)
        }
        None => at_least(text, target, measured),
    }
}

fn at_least(text: String, target: f64, measured: Option<f64>) -> Goal {
    Goal::judge(text, Relation::AtLeast, target, measured)
}

struct Found<'s> {
    sections: &'s [Section],
}

impl Found<'_> {
    fn section(&self, id: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.id == id)
    }

    /// Throughput of `subject` divided by that of `base`.
    fn ratio(&self, section: &str, row: &str, subject: &str, base: &str) -> Option<f64> {
        self.section(section)?.ratio(row, "mib_per_s", subject, base)
    }

    /// The ratio to the per-block path if only the copies of the large one took time.
    fn bound(&self, section: &str, row: &str) -> Option<f64> {
        let section = self.section(section)?;
        let bound = section.get(row, LARGE)?.values.get(BOUND)?;
        let base = section.get(row, PER_BLOCK)?.values.get("mib_per_s")?;
        Some(bound.ratio_to(base)?.median)
    }

    /// Mapping calls for each MiB, in the rows that write sequentially with calls of `size` and let
    /// write-back choose its pieces.
    fn map_calls(&self, size: &str) -> Option<f64> {
        let mut all = Vec::new();
        for (id, prefix) in
            [("writes-cached", "cached"), ("writes-ramdisk", "ramdisk"), ("writes-disk", "disk")]
        {
            let how = if prefix == "cached" { "" } else { " write-back" };
            for kind in ["append", "overwrite"] {
                let row = format!("{prefix} {kind}{how} {size}");
                all.push(self.section(id)?.median(&row, LARGE, "map_calls_per_mib"));
            }
        }
        worst(Relation::AtMost, all)
    }
}
