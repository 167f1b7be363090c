//! The experiments, one module each.

mod async_checkpoint;
mod buffered_io;
mod checkpoint_clean;
mod checkpoint_merge;
mod gc_victim;
mod mount;
mod ops;

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
        mount::EXPERIMENT,
        ops::EXPERIMENT,
    ];
    ALL
}

/// The experiment of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    all().iter().find(|experiment| experiment.name == name)
}
