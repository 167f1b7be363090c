//! The experiments of `cairn lab`, with one module for each. An experiment compares the values of
//! an option in one run.
//!
//! An [`Experiment`] measures [`Section`]s of rows and subjects, and judges them by [`Goal`]s.
//! [`run`] adds what is needed to repeat it (machine, command, version, date). The result is a
//! [`Record`], which is rendered as JSON (the serialised record), as text ([`render::text`]) and as
//! a single HTML page ([`render::html`]).
//!
//! Rules: the subjects of a row are measured one after the other on the same device, in rotating
//! order, in every repetition. A figure is a median with its spread; a ratio is the median of the
//! ratios of the repetitions. What cannot be measured (no FUSE, no root, a program is missing) is
//! left out, and a note gives the reason.

#![forbid(unsafe_code)]

pub mod error;
pub mod experiment;
pub mod experiments;
mod fs_mark;
pub mod goal;
mod lanes;
pub mod machine;
mod mounted;
pub mod nothing;
mod paced;
pub mod progress;
pub mod record;
pub mod render;
pub mod scale;
pub mod section;
pub mod statistics;
mod volume;

pub use error::{Error, Result};
pub use experiment::{Context, Experiment, Findings, run};
pub use experiments::{all, find};
pub use goal::{Goal, Relation, Verdict};
pub use record::Record;
pub use scale::Scale;
pub use section::{Better, Metric, Row, Section};
pub use statistics::Spread;
