//! The goals of asynchronous checkpoints.

use super::subjects::{JOURNALS, NEVER_FULL, OFF, ON, row, threads_row};
use crate::fs_mark::SyncMethod;
use crate::goal::{Goal, Relation, worst};
use crate::section::Section;

/// All of them.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let find = |id: &str| sections.iter().find(|section| section.id == id);
    let journal = |index: usize| find(JOURNALS[index].0);
    let mut goals = Vec::new();
    for (index, (_, title, _)) in JOURNALS.iter().enumerate() {
        let ratios =
            SyncMethod::ALL.map(|sync| journal(index)?.ratio(&row(sync), "files_per_s", ON, OFF));
        let text = format!("{title}: files/s on ÷ off, worst mode");
        goals.push(Goal::judge(text, Relation::AtLeast, 0.99, worst(Relation::AtLeast, ratios)));
    }
    let reverse = row(SyncMethod::Reverse);
    for (index, (_, title, _)) in JOURNALS.iter().enumerate().take(NEVER_FULL) {
        let ratio = |metric: &str, own, base| journal(index)?.ratio(&reverse, metric, own, base);
        let say = |text: &str| format!("{title}, mode 3: {text}");
        goals.push(Goal::judge(
            say("files/s on ÷ off"),
            Relation::AtLeast,
            1.14,
            ratio("files_per_s", ON, OFF),
        ));
        let transactions = ratio("transactions", ON, OFF);
        goals.push(Goal::judge(say("transactions on ÷ off"), Relation::AtMost, 0.5, transactions));
        let waits = ratio("op_p99_us", OFF, ON);
        goals.push(Goal::judge(
            say("p99 of an operation, off ÷ on"),
            Relation::AtLeast,
            5.0,
            waits,
        ));
    }
    for (index, (_, title, _)) in JOURNALS.iter().enumerate().take(NEVER_FULL) {
        let of = |metric: &'static str| {
            SyncMethod::ALL.map(move |sync| journal(index)?.median(&row(sync), ON, metric))
        };
        let stalls = worst(Relation::AtMost, of("stalls"));
        goals.push(Goal::judge(
            format!("{title}: stalls with it on, worst mode"),
            Relation::AtMost,
            0.0,
            stalls,
        ));
        let efficiency = worst(Relation::AtLeast, of("efficiency"));
        let text = format!("{title}: files/s on ÷ never full, worst mode");
        goals.push(Goal::judge(text, Relation::AtLeast, 0.95, efficiency));
    }
    for count in [8, 32] {
        let shared = find("shared-commits")
            .and_then(|section| section.median(&threads_row(count), OFF, "files_per_commit"));
        let text = format!("{count} threads that fsync: files a commit");
        goals.push(Goal::judge(text, Relation::AtLeast, count as f64 / 2.0, shared));
    }
    goals
}
