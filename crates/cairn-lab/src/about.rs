//! What a page says of an improvement of the write path: how it works, a drawing, and the figures
//! of the proposal for Linux.

use serde::{Deserialize, Serialize};

use crate::section::Section;

/// What a page says of an improvement.
#[derive(Debug)]
pub(crate) struct About {
    /// How it works, one sentence a line.
    pub(crate) lines: [&'static str; 5],
    pub(crate) drawing: Drawing,
    /// The proposal's figures, and those of these tables.
    pub(crate) proposal: fn(&[Section]) -> Vec<Proposed>,
}

/// A figure of the proposal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposed {
    /// What the number is.
    pub(crate) text: String,
    /// The proposal's.
    pub(crate) proposed: f64,
    /// The measured one.
    pub(crate) measured: Option<f64>,
}

impl Proposed {
    pub(crate) fn new(text: impl Into<String>, proposed: f64, measured: Option<f64>) -> Self {
        let measured = measured.filter(|value| value.is_finite());
        Self { text: text.into(), proposed, measured }
    }
}

/// Boxes and arrows on a grid whose cells are 10 units wide and high. It is 96 cells wide.
#[derive(Debug)]
pub(crate) struct Drawing {
    /// Cells.
    pub(crate) height: u32,
    pub(crate) shapes: &'static [Shape],
}

/// A part of a drawing. Places and sizes are cells.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A box with a text: left, top, width, height.
    Box(u32, u32, u32, u32, Tone, &'static str),
    /// An arrow from a point to a point.
    Arrow((u32, u32), (u32, u32)),
    /// A text that begins at a point.
    Text(u32, u32, &'static str),
}

/// The colour of a box.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    /// As without the improvement.
    Plain,
    /// What the improvement adds.
    New,
    /// What costs.
    Cost,
}
