//! Seeded directory trees and their digests, over host paths and over any
//! [`cairn_vfs::FileSystem`].
//!
//! [`plan`] turns a seed into steps, and [`with_extremes`] adds attributes at the limits. [`build`]
//! carries them out on a [`Target`]. [`digest_path`] and [`digest_volume`] make a [`Snapshot`] of a
//! tree; the snapshots of two implementations can be compared. [`Synced`] is a run of changes that
//! are fsynced one by one, for power cuts. [`script`] and [`listing`] say the same to programs in
//! other languages; [`judge_library`] has these write and read. All are bounded by what the plan
//! made; a digest of a hostile volume is bounded by `ENTRIES_MAX`.

mod digest;
mod extremes;
mod library;
mod plan;
mod script;
mod synced;
mod target;

pub use digest::{Snapshot, SnapshotOptions, digest_path, digest_volume};
pub use extremes::with_extremes;
pub use library::judge_library;
pub use plan::{Content, Step, TreeSpec, plan};
pub use script::{Change, Entry, listing, script};
pub use synced::{LOOSE, Synced, UNTIMED};
pub use target::{PathTarget, Target, VolumeTarget, build};

#[cfg(test)]
mod tests;
