//! The time of a measurement: the system's ([`Real`]), or that of a model ([`Model`]).
//!
//! In the time of a model, threads work in no time. When all of them sleep, the clock jumps to the
//! next deadline. So a slow device costs as little to measure as a fast one, and neither the
//! machine's speed nor its other work changes a figure. What a processor needs is part of the
//! model, as what a device needs.

mod model;
mod runtime;
mod seat;
mod time;
mod watch;

pub(crate) use model::Model;
pub(crate) use runtime::ModelRuntime;
pub(crate) use time::{Clock, Real};
