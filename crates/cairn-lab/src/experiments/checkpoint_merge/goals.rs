//! The goals of merged checkpoints.

use super::clients::{CLIENTS, row};
use super::subjects::{OFF, ON};
use super::threads::{WITH_C, WITHOUT_C};
use crate::goal::{Goal, Relation};
use crate::section::Section;

/// All of them.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let find = |id: &str| sections.iter().find(|section| section.id == id);
    let threads = find("threads");
    let time = threads.and_then(|section| section.ratio(WITH_C, "seconds", ON, OFF));
    let tail = |row| threads?.get(row, ON)?.values.get("p99_ms");
    let tails =
        tail(WITH_C).zip(tail(WITHOUT_C)).and_then(|(with, without)| with.ratio_to(without));
    let mut goals = vec![
        Goal::judge(
            "A's time beside B and C, on ÷ off: the proposal's 48 s of 68",
            Relation::AtMost,
            0.71,
            time,
        ),
        Goal::judge(
            "A's time beside B and C, on ÷ off: shared checkpoints",
            Relation::AtMost,
            0.5,
            time,
        ),
        Goal::judge(
            "p99 of A's fsync with merging, with C ÷ without, worst repetition",
            Relation::AtMost,
            1.5,
            tails.map(|ratio| ratio.max),
        ),
    ];
    for clients in CLIENTS.into_iter().filter(|clients| *clients > 1) {
        let found =
            find("clients").and_then(|section| section.median(&row(clients), ON, "per_1000"));
        let text = format!("{clients} clients: checkpoints per 1,000 requests");
        goals.push(Goal::judge(text, Relation::AtMost, 1200.0 / f64::from(clients), found));
    }
    for clients in [4, 16] {
        let found =
            find("mounted").and_then(|section| section.median(&row(clients), ON, "per_1000"));
        let text = format!("through a mount, {clients} clients: checkpoints per 1,000 requests");
        goals.push(Goal::judge(text, Relation::AtMost, 1200.0 / f64::from(clients), found));
    }
    let lone =
        find("clients").and_then(|section| section.ratio(&row(1), "requests_per_s", ON, OFF));
    goals.push(Goal::judge("A lone client: requests/s, on ÷ off", Relation::AtLeast, 0.97, lone));
    goals
}
