//! What each improvement is worth on the other format.

use super::{ahead, checkpoint_cost, group_commit};
use crate::experiments::buffered_io;
use crate::goal::{Goal, Relation, worst};
use crate::section::Section;

/// All of them.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let find = |id: &str| sections.iter().find(|section| section.id == id);
    let mut goals = Vec::new();
    for clients in [8_usize, 32] {
        let shared = find(group_commit::ID).and_then(|section| {
            let row = group_commit::row(clients);
            section.median(&row, group_commit::GATHERED, group_commit::PER_1000)
        });
        goals.push(Goal::judge(
            format!("ext4: commits per 1,000 fsyncs, {clients} clients"),
            Relation::AtMost,
            1200.0 / clients as f64,
            shared,
        ));
    }
    let spread = find(checkpoint_cost::ID).and_then(|section| {
        let counted = section.row_names().into_iter().filter_map(|row| {
            section.median(row, checkpoint_cost::F2FS, checkpoint_cost::INSTRUCTIONS)
        });
        let counted: Vec<f64> = counted.collect();
        let most = counted.iter().copied().reduce(f64::max)?;
        Some(most / counted.into_iter().reduce(f64::min)?)
    });
    goals.push(Goal::judge(
        "F2FS: instructions of a checkpoint, most ÷ fewest files in memory",
        Relation::AtMost,
        1.1,
        spread,
    ));
    let folios = find(buffered_io::ON_F2FS);
    for row in ["cached append 1M", "ramdisk append write-back 1M"] {
        let measured = folios.and_then(|section| {
            section.ratio(row, "mib_per_s", buffered_io::LARGE, buffered_io::PER_BLOCK)
        });
        let text = format!("F2FS, {row}: large folios ÷ blocks");
        goals.push(Goal::judge(text, Relation::AtLeast, 1.1, measured));
    }
    let gains = find(ahead::ID).into_iter().flat_map(|section| {
        let rows: Vec<String> = section.row_names().into_iter().map(str::to_owned).collect();
        rows.into_iter().map(|row| section.ratio(&row, "writes_per_s", ahead::ON, ahead::OFF))
    });
    goals.push(Goal::judge(
        "F2FS: writes/s with checkpoints ahead ÷ without, best row",
        Relation::AtLeast,
        1.1,
        worst(Relation::AtMost, gains),
    ));
    goals
}
