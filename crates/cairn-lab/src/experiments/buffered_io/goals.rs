//! The goals of buffered I/O.

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
    for row in ["ramdisk 1M", "ramdisk append write-back 1M"] {
        let measured = found.ratio(mounted::ID, row, mounted::CAIRN, mounted::NOTHING);
        goals.push(at_least(
            format!("through the mount, {row}: cairn ÷ a server that stores nothing"),
            0.8,
            measured,
        ));
    }
    for row in ["ramdisk 1M", "ramdisk append write-back 1M", mounted::RANDOM] {
        let measured = found.ratio(mounted::ID, row, mounted::CAIRN, mounted::FUSE2FS);
        goals.push(at_least(format!("through the mount, {row}: cairn ÷ fuse2fs"), 4.0, measured));
    }
    goals
}

/// The ratios that the proposal gives.
fn per_block(found: &Found<'_>) -> Vec<Goal> {
    let mut rows = Vec::new();
    for kind in ["cached append", "cached overwrite"] {
        for (size, target) in [("4K", 1.0), ("64K", 2.6), ("1M", 2.9)] {
            rows.push(("writes-cached", format!("{kind} {size}"), target));
        }
    }
    rows.push(("reads", "hole 1M".to_owned(), 1.8));
    rows.push(("writes-ramdisk", "ramdisk append sync 64K".to_owned(), 1.7));
    let goal = |(section, row, target): (&str, String, f64)| {
        at_least(
            format!("{row}: large ÷ per-block"),
            target,
            found.ratio(section, &row, LARGE, PER_BLOCK),
        )
    };
    rows.into_iter().map(goal).collect()
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
