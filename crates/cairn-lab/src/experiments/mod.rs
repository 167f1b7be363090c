//! The experiments, one module each.

mod async_checkpoint;
mod buffered_io;
mod checkpoint_clean;
mod checkpoint_merge;
mod gc_victim;
mod mount;
mod object_store;
mod ops;
mod other_formats;
mod remote;

use crate::error::Result;
use crate::experiment::Experiment;

/// All experiments, in the order of `cairn lab list`.
#[must_use]
pub fn all() -> &'static [Experiment] {
    const ALL: &[Experiment] = &[
        buffered_io::EXPERIMENT,
        async_checkpoint::EXPERIMENT,
        checkpoint_clean::EXPERIMENT,
        checkpoint_merge::EXPERIMENT,
        gc_victim::EXPERIMENT,
        gc_victim::SWEEP,
        async_checkpoint::media::EXPERIMENT,
        mount::EXPERIMENT,
        ops::EXPERIMENT,
        object_store::EXPERIMENT,
        other_formats::EXPERIMENT,
        remote::EXPERIMENT,
    ];
    ALL
}

/// The experiment of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    all().iter().find(|experiment| experiment.name == name)
}

/// Commits with so many listed transactions, for `checkpoint-clean`, which counts their
/// instructions from another process.
///
/// # Errors
/// The journal failed, or no process waits to count.
pub fn commits_to_be_counted(listed: u32) -> Result<()> {
    checkpoint_clean::commits_to_be_counted(listed)
}

/// Checkpoints of F2FS with so many files in memory, for `other-formats`, which counts their
/// instructions from another process.
///
/// # Errors
/// The volume failed, or no process waits to count.
pub fn checkpoints_to_be_counted(files: u32) -> Result<()> {
    other_formats::checkpoints_to_be_counted(files)
}
