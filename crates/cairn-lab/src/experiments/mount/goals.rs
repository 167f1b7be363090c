//! The goals of the mount.

use super::cases::{
    COPY, EXTRACT, GROUPS, LIST, MARK_0_1, MARK_0_8, MARK_1_1, MARK_1_8, READ, REMOVE, WRITE,
};
use super::subjects::{
    EXT4, EXT4_BUILD, EXT4_BUILD_RING, EXT4_RING, F2FS, F2FS_BUILD, F2FS_BUILD_RING, F2FS_RING,
    FEWEST, FEWEST_RING, FUSE2FS, KEEPS, KEEPS_RING, KERNEL,
};
use crate::goal::{Goal, Relation, worst};
use crate::section::Section;

/// The subjects on one transport.
struct Transport {
    name: &'static str,
    /// Cairn with its default options, both formats.
    cairn: [&'static str; 2],
    /// Cairn with `build`.
    build: [&'static str; 2],
    fewest: &'static str,
    keeps: &'static str,
}

const TRANSPORTS: [Transport; 2] = [
    Transport {
        name: "/dev/fuse",
        cairn: [EXT4, F2FS],
        build: [EXT4_BUILD, F2FS_BUILD],
        fewest: FEWEST,
        keeps: KEEPS,
    },
    Transport {
        name: "rings",
        cairn: [EXT4_RING, F2FS_RING],
        build: [EXT4_BUILD_RING, F2FS_BUILD_RING],
        fewest: FEWEST_RING,
        keeps: KEEPS_RING,
    },
];

/// All goals on each transport, for the worse of both formats. If a subject is missing, its goals
/// are not measured.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let section = sections.iter().find(|section| section.id == super::subjects::ID);
    TRANSPORTS.iter().flat_map(|transport| Found { section, transport }.goals()).collect()
}

struct Found<'s> {
    section: Option<&'s Section>,
    transport: &'s Transport,
}

impl Found<'_> {
    fn goals(&self) -> Vec<Goal> {
        let Transport { cairn, build, fewest, keeps, .. } = self.transport;
        let mut goals = vec![
            self.processor("create + 4K + close", [MARK_0_1, MARK_0_8], 1.2),
            self.processor("create + 4K + fsync", [MARK_1_1, MARK_1_8], 1.5),
        ];
        for (row, who, subjects, base, least) in [
            (MARK_1_8, "cairn", cairn, KERNEL, 1.3),
            (MARK_1_1, "cairn", cairn, KERNEL, 2.0),
            (MARK_0_1, "cairn", cairn, fewest, 0.8),
            (MARK_0_8, "cairn", cairn, fewest, 0.8),
            (MARK_0_1, "build", build, fewest, 0.8),
            (MARK_0_8, "build", build, fewest, 0.8),
            (WRITE, "cairn", cairn, KERNEL, 0.8),
            (READ, "cairn", cairn, KERNEL, 2.7),
            (WRITE, "cairn", cairn, keeps, 0.8),
        ] {
            let text = format!("{row}: {who} ÷ {base}");
            goals.push(self.at_least(text, least, subjects, base, &[row]));
        }
        let server = cairn.map(|subject| self.median(WRITE, subject, "server_us"));
        let text = format!("{WRITE}: CPU µs of the server for each MiB");
        goals.push(self.at_most(text, 700.0, server));
        for row in [COPY, EXTRACT, REMOVE, LIST] {
            for (who, subjects, most) in [("cairn", cairn, 2.5), ("build", build, 1.7)] {
                let program = row.trim_end_matches(", files/s");
                let times = subjects.map(|subject| self.rate(row, KERNEL, subject));
                goals.push(self.at_most(
                    format!("{program}: time of {who} ÷ {KERNEL}"),
                    most,
                    times,
                ));
            }
        }
        let rows = GROUPS.iter().flat_map(|group| group.iter()).map(|case| case.name);
        let others: Vec<&str> = rows.filter(|row| *row != WRITE).collect();
        let text = format!("everything but {WRITE}: cairn ÷ {FUSE2FS}");
        goals.push(self.at_least(text, 4.0, cairn, FUSE2FS, &others));
        let text = format!("{WRITE}: cairn ÷ {FUSE2FS}");
        goals.push(self.at_least(text, 3.0, cairn, FUSE2FS, &[WRITE]));
        goals
    }

    /// Processor time in relation to the empty server with the same requests.
    fn processor(&self, work: &str, rows: [&str; 2], most: f64) -> Goal {
        let values = rows.iter().flat_map(|row| {
            self.transport.cairn.map(|subject| self.median(row, subject, "cpu_of_empty"))
        });
        let text = format!("{work}: CPU ÷ an empty server with the same requests");
        self.at_most(text, most, values)
    }

    fn at_most(
        &self,
        text: String,
        most: f64,
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> Goal {
        self.judge(text, Relation::AtMost, most, values)
    }

    /// The least of the rates of these subjects in these rows, divided by that of `base`.
    fn at_least(
        &self,
        text: String,
        least: f64,
        subjects: &[&str],
        base: &str,
        rows: &[&str],
    ) -> Goal {
        let values = rows
            .iter()
            .flat_map(|row| subjects.iter().map(|subject| self.rate(row, subject, base)));
        self.judge(text, Relation::AtLeast, least, values)
    }

    fn judge(
        &self,
        text: String,
        relation: Relation,
        target: f64,
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> Goal {
        let text = format!("{}, {text}", self.transport.name);
        Goal::judge(text, relation, target, worst(relation, values))
    }

    fn median(&self, row: &str, subject: &str, metric: &str) -> Option<f64> {
        self.section?.median(row, subject, metric)
    }

    /// The rate of `subject` divided by that of `base`.
    fn rate(&self, row: &str, subject: &str, base: &str) -> Option<f64> {
        self.section?.ratio(row, "rate", subject, base)
    }
}
