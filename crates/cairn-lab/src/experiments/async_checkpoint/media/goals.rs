//! The goals on storage that people have.

use super::subjects::{JOURNALS, OFF, ON, row};
use crate::fs_mark::SyncMethod;
use crate::goal::{Goal, Relation, worst};
use crate::media;
use crate::section::Section;

/// All of them.
pub(super) fn all(sections: &[Section], modes: &[SyncMethod]) -> Vec<Goal> {
    let rows: Vec<String> =
        JOURNALS.iter().flat_map(|(name, _)| modes.iter().map(|sync| row(name, *sync))).collect();
    let mut goals = Vec::new();
    for (index, medium) in media::ALL.iter().enumerate() {
        let Some(section) = sections.iter().find(|section| section.id == medium.id) else {
            continue;
        };
        of_medium(section, &rows, medium.title, &mut goals);
        // The slowest.
        if index == 0 {
            goals.push(tail(section, &rows, medium.title));
        }
    }
    goals
}

fn of_medium(section: &Section, rows: &[String], title: &str, goals: &mut Vec<Goal>) {
    let on = |row: &str, metric: &str| section.median(row, ON, metric);
    let keeps_up = |row: &&String| {
        on(row, "home_per_s").zip(on(row, "fill_per_s")).is_some_and(|(home, fill)| home > fill)
    };
    let quick: Vec<&String> = rows.iter().filter(keeps_up).collect();
    let of = |metric: &'static str| quick.iter().map(move |row| on(row, metric));
    let where_ = format!("where it can write home what is needed ({} rows)", quick.len());
    goals.push(Goal::judge(
        format!("{title}: stalls with it on, {where_}"),
        Relation::AtMost,
        0.0,
        worst(Relation::AtMost, of("stalls")),
    ));
    goals.push(Goal::judge(
        format!("{title}: files/s on ÷ never full, {where_}"),
        Relation::AtLeast,
        0.95,
        worst(Relation::AtLeast, of("efficiency")),
    ));
    let gains = rows.iter().map(|row| section.ratio(row, "files_per_s", ON, OFF));
    goals.push(Goal::judge(
        format!("{title}: files/s on ÷ off, worst row"),
        Relation::AtLeast,
        0.99,
        worst(Relation::AtLeast, gains),
    ));
}

/// The longest waits of one operation in a thousand, where operations and fsyncs take turns. With
/// -S 3 and 5 all files are made before the first fsync, and wait for the commit of a full
/// transaction.
fn tail(section: &Section, rows: &[String], title: &str) -> Goal {
    let stalled =
        |row: &&String| section.median(row, OFF, "stalls").is_some_and(|stalls| stalls > 0.0);
    let mixed = format!("-S {}", SyncMethod::BeforeClose as usize);
    let rows = rows.iter().filter(|row| row.ends_with(&mixed)).filter(stalled);
    let ratios = rows.map(|row| section.ratio(row, "op_p999_ms", ON, OFF));
    Goal::judge(
        format!(
            "{title}: p99.9 of an operation, on ÷ off, worst row of {mixed} that stalls when off"
        ),
        Relation::AtMost,
        0.2,
        worst(Relation::AtMost, ratios),
    )
}
