//! The experiments of `cairn lab`, with one module for each. An experiment compares the values of
//! an option in one run.
//!
//! An [`Experiment`] measures [`Section`]s of rows and subjects, and judges them by [`Goal`]s.
//! [`run`] adds what is needed to repeat it (machine, command, version, date). The result is a
//! [`Record`], which is rendered as JSON (the serialised record), as text ([`render::text`]) and as
//! an HTML page ([`render::html`]).
//!
//! Rules: the subjects of a row are measured one after the other on the same device, in rotating
//! order, in every repetition. A figure is a median with its spread; a ratio is the median of the
//! ratios of the repetitions. What cannot be measured (no FUSE, no root, a program is missing) is
//! left out, and a note gives the reason.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub(crate) mod about;
mod clock;
pub mod compare;
pub mod crash;
pub(crate) mod error;
pub(crate) mod experiment;
pub(crate) mod experiments;
mod fs_mark;
pub(crate) mod goal;
mod lanes;
mod leaving;
pub(crate) mod machine;
mod media;
mod mounted;
pub mod nothing;
mod paced;
mod processors;
pub mod progress;
mod random;
pub(crate) mod record;
pub mod render;
pub(crate) mod scale;
pub(crate) mod section;
pub(crate) mod statistics;
mod stepping;
mod volume;

pub use about::Proposed;
pub use error::{Error, Result};
pub use experiment::{Context, Experiment, Findings, run};
pub use experiments::{all, checkpoints_to_be_counted, commits_to_be_counted, find};
pub use goal::{Goal, Relation, Verdict};
pub use leaving::take_away;
pub use record::{Record, SCHEMA};
pub use scale::Scale;
pub use section::{Better, Metric, Row, Section};
pub use statistics::Spread;
