//! `other-formats`: what the improvements of one format's write path are worth on the other.
//!
//! | table | improvement of | on |
//! |---|---|---|
//! | `group-commit` | F2FS: checkpoints that callers share | ext4: commits |
//! | `checkpoint-cost` | ext4: a checkpoint list with counters | F2FS: what a checkpoint looks at |
//! | `folios` | ext4: large folios | F2FS |
//! | `ahead` | ext4: checkpoints before anybody waits | F2FS: checkpoints that free sections |

mod ahead;
mod checkpoint_cost;
mod goals;
mod group_commit;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};
use crate::experiments::buffered_io;

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "other-formats",
    question: "What are the improvements of one format's write path worth on the other?",
    run,
    about: None,
};

fn run(context: &Context) -> Result<Findings> {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    findings.sections.push(group_commit::measure(context)?);
    findings.sections.extend(checkpoint_cost::measure(context, &mut findings.notes)?);
    findings.sections.push(buffered_io::on_f2fs(context)?);
    findings.sections.push(ahead::measure(context)?);
    findings.goals = goals::all(&findings.sections);
    Ok(findings)
}

/// Checkpoints for the process that counts their instructions.
pub(super) fn checkpoints_to_be_counted(files: u32) -> Result<()> {
    checkpoint_cost::work(files)
}

fn notes() -> Vec<String> {
    vec![
        group_commit::NOTE.to_owned(),
        checkpoint_cost::NOTE.to_owned(),
        "Large folios on F2FS: the rows of buffered-io in process, on memory.".to_owned(),
        ahead::NOTE.to_owned(),
    ]
}
