//! The goals of cleaning without scans.

use super::subjects::{BAIL_OUT, COUNTED, SCAN};
use super::{commit_cost, files, instructions};
use crate::goal::{Goal, Relation, worst};
use crate::section::Section;

/// All of them.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let find = |id: &str| sections.iter().find(|section| section.id == id);
    let mut goals = Vec::new();
    let flat = find(commit_cost::ID).and_then(|section| growth(section, COUNTED));
    goals.push(Goal::judge(
        "counted: instructions of the dearest commit ÷ those with the shortest list",
        Relation::AtMost,
        1.05,
        flat,
    ));
    let beyond = find(commit_cost::ID).and_then(|section| {
        let rows = section.row_names();
        let beyond = |row: &str, metric: &str| section.median(row, BAIL_OUT, metric);
        worst(
            Relation::AtMost,
            rows.into_iter().map(|row| {
                Some(beyond(row, commit_cost::LOOKS)? - beyond(row, "freed_per_commit")?)
            }),
        )
    });
    goals.push(Goal::judge(
        "bail_out: looks beyond what is freed, a commit, worst length",
        Relation::AtMost,
        1.0,
        beyond,
    ));
    for mode in [COUNTED, BAIL_OUT] {
        let ratio = find(files::GROWING)
            .and_then(|section| section.ratio(files::GROWING_ROW, files::LONG_RATE, mode, SCAN));
        let text = format!("fs_mark, {} transactions listed or more: {mode} ÷ scan", files::LONG);
        goals.push(Goal::judge(text, Relation::AtLeast, 1.5, ratio));
    }
    for mode in [COUNTED, BAIL_OUT] {
        let excess = find(files::VISITS)
            .and_then(|section| section.median(files::VISITS_ROW, mode, files::EXCESS));
        let text = format!(
            "fs_mark {}: {mode}: looks beyond what is freed, a cleaning",
            files::VISITS_ROW
        );
        goals.push(Goal::judge(text, Relation::AtMost, 1.0, excess));
    }
    goals
}

/// The most instructions, relative to that of the shortest list in the same repetition.
fn growth(section: &Section, mode: &str) -> Option<f64> {
    let rows = section.row_names();
    let cost = |row: &str| section.get(row, mode)?.values.get(instructions::INSTRUCTIONS);
    let first = cost(rows.first()?)?;
    let growths = rows.iter().map(|row| Some(cost(row)?.ratio_to(first)?.median));
    worst(Relation::AtMost, growths.collect::<Vec<_>>())
}
