//! The goals of the mount.

use super::cases::{
    COPY, EXTRACT, GROUPS, LIST, MARK_0_1, MARK_0_8, MARK_1_1, MARK_1_8, READ, REMOVE, WRITE,
};
use super::subjects::{BUILD, EXT4, EXT4_RING, F2FS, F2FS_RING, FEWEST, FUSE2FS, KEEPS, KERNEL};
use crate::goal::{Goal, Relation, worst};
use crate::section::Section;

const FORMATS: [&str; 2] = [EXT4, F2FS];
const ON_RINGS: [&str; 2] = [EXT4_RING, F2FS_RING];

/// All goals, for the worse of both formats. If a subject is missing, its goals are not measured.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let found =
        Found { section: sections.iter().find(|section| section.id == super::subjects::ID) };
    let mut goals = Vec::new();
    for (text, rows, most) in [
        ("create + 4K + close", [MARK_0_1, MARK_0_8], 1.2),
        ("create + 4K + fsync", [MARK_1_1, MARK_1_8], 1.5),
    ] {
        for (subjects, transport) in [(FORMATS, "/dev/fuse"), (ON_RINGS, "rings")] {
            let values = rows
                .iter()
                .flat_map(|row| subjects.map(|subject| found.median(row, subject, "cpu_of_empty")));
            let text = format!("{text}: CPU ÷ an empty server with the same requests, {transport}");
            goals.push(Goal::judge(text, Relation::AtMost, most, worst(Relation::AtMost, values)));
        }
    }
    for (row, base, least) in [
        (MARK_1_8, KERNEL, 1.3),
        (MARK_1_1, KERNEL, 2.0),
        (MARK_0_1, FEWEST, 0.8),
        (MARK_0_8, FEWEST, 0.8),
        (WRITE, KERNEL, 0.8),
        (WRITE, KEEPS, 0.8),
        (READ, KERNEL, 2.7),
    ] {
        let values = each(&[row], |row, format| found.rate(row, format, base));
        goals.push(at_least(format!("{row}: cairn ÷ {base}"), least, values));
    }
    let server = each(&[WRITE], |row, format| found.median(row, format, "server_us"));
    let text = format!("{WRITE}: CPU µs of the server for each MiB");
    goals.push(Goal::judge(text, Relation::AtMost, 700.0, worst(Relation::AtMost, server)));
    for row in [COPY, EXTRACT, REMOVE, LIST] {
        for (subjects, most) in [(&FORMATS[..], 2.5), (&[BUILD][..], 1.7)] {
            let values = subjects.iter().map(|subject| found.rate(row, KERNEL, subject));
            let who = if most < 2.0 { BUILD } else { "cairn" };
            let program = row.trim_end_matches(", files/s");
            goals.push(Goal::judge(
                format!("{program}: time of {who} ÷ {KERNEL}"),
                Relation::AtMost,
                most,
                worst(Relation::AtMost, values),
            ));
        }
    }
    let rows: Vec<&str> =
        GROUPS.iter().flat_map(|group| group.iter()).map(|case| case.name).collect();
    let others: Vec<&str> = rows.iter().copied().filter(|row| *row != WRITE).collect();
    let against = |row: &str, format: &str| found.rate(row, format, FUSE2FS);
    goals.push(at_least(
        format!("everything but {WRITE}: cairn ÷ {FUSE2FS}"),
        4.0,
        each(&others, against),
    ));
    goals.push(at_least(format!("{WRITE}: cairn ÷ {FUSE2FS}"), 3.0, each(&[WRITE], against)));
    goals
}

/// A value for each row and format.
fn each(rows: &[&str], value: impl Fn(&str, &str) -> Option<f64>) -> Vec<Option<f64>> {
    rows.iter().flat_map(|row| FORMATS.map(|format| value(row, format))).collect()
}

fn at_least(text: String, target: f64, values: Vec<Option<f64>>) -> Goal {
    Goal::judge(text, Relation::AtLeast, target, worst(Relation::AtLeast, values))
}

struct Found<'s> {
    section: Option<&'s Section>,
}

impl Found<'_> {
    fn median(&self, row: &str, subject: &str, metric: &str) -> Option<f64> {
        self.section?.median(row, subject, metric)
    }

    /// The rate of `subject` divided by that of `base`.
    fn rate(&self, row: &str, subject: &str, base: &str) -> Option<f64> {
        self.section?.ratio(row, "rate", subject, base)
    }
}
