//! The experiment runner behind `cairn lab`: one module an experiment, each an A/B comparison in one run.
//!
//! An [`Experiment`] measures [`Section`]s of rows × subjects and judges them by [`Goal`]s; [`run`] adds what makes a
//! result repeatable (machine, command, version, date) and gives a [`Record`], which renders as JSON (the serialised
//! record itself), as text ([`render::text`]) and as one self-contained HTML page ([`render::html`]).
//!
//! Rules: subjects of a row are measured next to each other, in rotating order, repetition after repetition, on the same
//! device. A figure is a median with its spread; a ratio is the median of the ratios within the repetitions. What could not be
//! measured (no FUSE, no root, a program is missing) is left out, and a note says so.

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
