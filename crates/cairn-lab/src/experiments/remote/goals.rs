//! What a volume behind NBD should reach.

use super::client::connections;
use super::{fsyncs, streams};
use crate::goal::{Goal, Relation};
use crate::section::Section;

/// All of them.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let find = |id: &str| sections.iter().find(|section| section.id == id);
    let own = connections(streams::DEFAULT);
    let mut goals = Vec::new();
    for row in streams::ROWS {
        let measured = find(streams::ID)
            .and_then(|section| section.ratio(row, streams::RATE, &own, streams::NBDCOPY));
        let text = format!("{row}: {own} ÷ nbdcopy");
        goals.push(Goal::judge(text, Relation::AtLeast, 0.8, measured));
    }
    for (id, threads, target, place) in
        [(fsyncs::ID, 8, 4.0, "at once"), (fsyncs::DELAYED, 32, 15.0, "after 1 ms")]
    {
        let measured = find(id).and_then(|section| {
            let rate = |threads| section.median(&fsyncs::row(threads), &own, fsyncs::RATE);
            Some(rate(threads)? / rate(1)?)
        });
        let text = format!("fsync, answers {place}: {} ÷ 1 thread", fsyncs::row(threads));
        goals.push(Goal::judge(text, Relation::AtLeast, target, measured));
    }
    goals
}
