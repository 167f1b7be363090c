//! `checkpoint-clean`: how checkpointed transactions are found in the journal's checkpoint list: by
//! their counters (`counted`), by a walk to the first block that is not clean (`bail_out`), or by a
//! walk over all blocks at each commit (`scan`).

mod about;
mod bench;
mod commit_cost;
mod files;
mod goals;
mod instructions;
mod subjects;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "checkpoint-clean",
    question: "Is the cost of a commit independent of the number of transactions that wait to be \
        checkpointed?",
    run,
    about: Some(&about::ABOUT),
};

fn run(context: &Context) -> Result<Findings> {
    let mut findings = Findings { notes: notes(context), ..Findings::default() };
    findings.sections.push(commit_cost::measure(context, &mut findings.notes)?);
    findings.sections.push(files::growing_list(context)?);
    findings.sections.push(files::visits(context)?);
    findings.goals = goals::all(&findings.sections);
    Ok(findings)
}

/// Commits for the process that counts their instructions.
pub(super) fn commits_to_be_counted(listed: u32) -> Result<()> {
    instructions::work(listed)
}

fn notes(context: &Context) -> Vec<String> {
    vec![
        "Commit cost: a journal alone, in memory; so many transactions are listed, each with a \
         block of its own, then one more block is committed over and over. A look is a listed \
         block, or (counted) a transaction's counter."
            .to_owned(),
        format!(
            "Instructions: the same commits in a process of their own, which another process steps \
             through, one instruction at a time (ptrace); the median of some commits. scan is \
             counted for up to {} transactions.",
            instructions::SCAN_MAX
        ),
        format!(
            "fs_mark -D 2 -N 2560 -L 1 -S 1 -s 4096, one thread, {} files, in process on memory, a \
             journal that never fills; the rate of the files written while at least {} \
             transactions are listed stands beside that of all.",
            files::count(context.scale),
            files::LONG
        ),
        "fs_mark -s 1024 -n 10000 -t 1 -D 100 -N 100, in process on memory, a journal of 16 MiB: \
         what a cleaning looks at beyond what it frees (a commit cleans once)."
            .to_owned(),
    ]
}
