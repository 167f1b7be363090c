//! What the page says of merged checkpoints.

use super::subjects::{OFF, ON};
use super::threads::WITH_C;
use crate::about::Shape::{Arrow, Box, Text};
use crate::about::Tone::{Cost, New, Plain};
use crate::about::{About, Drawing, Proposed};
use crate::section::Section;

pub(super) const ABOUT: About = About {
    lines: [
        "An fsync of a directory, or sync(2), needs a checkpoint of the whole F2FS volume.",
        "Without merging, each caller writes its own, one after another, at its own priority.",
        "With checkpoint_merge, callers queue their requests and wait.",
        "One daemon takes the whole queue, writes one checkpoint, and answers all with its result.",
        "Before it starts, it waits a moment for the next requests of the last checkpoint's \
         callers.",
    ],
    drawing: Drawing {
        height: 22,
        shapes: &[
            Text(1, 2, "nocheckpoint_merge"),
            Box(1, 3, 8, 4, Plain, "A"),
            Box(1, 9, 8, 4, Plain, "B"),
            Box(1, 15, 8, 4, Plain, "C"),
            Arrow((9, 5), (14, 5)),
            Arrow((9, 11), (22, 11)),
            Arrow((9, 17), (30, 17)),
            Box(14, 3, 8, 4, Cost, "checkpoint"),
            Box(22, 9, 8, 4, Cost, "checkpoint"),
            Box(30, 15, 8, 4, Cost, "checkpoint"),
            Text(50, 2, "checkpoint_merge"),
            Box(50, 3, 8, 4, Plain, "A"),
            Box(50, 9, 8, 4, Plain, "B"),
            Box(50, 15, 8, 4, Plain, "C"),
            Arrow((58, 5), (64, 10)),
            Arrow((58, 11), (64, 11)),
            Arrow((58, 17), (64, 12)),
            Box(64, 8, 10, 6, New, "queue"),
            Arrow((74, 11), (80, 11)),
            Box(80, 8, 14, 6, New, "daemon:\none checkpoint"),
        ],
    },
    proposal,
};

fn proposal(sections: &[Section]) -> Vec<Proposed> {
    let threads = sections.iter().find(|section| section.id == "threads");
    let time = threads.and_then(|section| section.ratio(WITH_C, "seconds", ON, OFF));
    vec![Proposed::new("A's time beside B and C, on ÷ off (48 s of 68)", 48.0 / 68.0, time)]
}
