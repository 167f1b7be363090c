//! The crash search as a command: `cairn lab crash`.
//!
//! A [`Kind`] is a format and a mode: how its volume is made and mounted. `seeded` runs workloads
//! of a seed on it and looks at their crash states, `exhaustive` at those of all short histories,
//! `recorded` at those of what any program has written.
//! `judges` are Cairn itself, e2fsck or fsck.f2fs, and the kernel. A [`Failure`] is shrunk, has a
//! text form, and can be replayed from it.

mod exhaustive;
mod failure;
mod judges;
mod kinds;
mod recorded;
mod report;
mod run;
mod seeded;
mod stop;
mod watched;

pub use failure::Failure;
pub use kinds::{Format, Kind, kinds};
pub use recorded::{Extent, Observed};
pub use report::{Report, Searched, text};
pub use run::{Options, replay, search};
pub use stop::stop;
