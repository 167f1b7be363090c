//! What the page says of cleaning without scans.

use super::files;
use super::subjects::{BAIL_OUT, COUNTED, SCAN};
use crate::about::Shape::{Arrow, Box, Text};
use crate::about::Tone::{Cost, New, Plain};
use crate::about::{About, Drawing, Proposed};
use crate::section::Section;

pub(super) const ABOUT: About = About {
    lines: [
        "At each commit the journal looks for transactions whose blocks are all in their place, to \
         free their space.",
        "scan looks at every block of every listed transaction, thousands of them at each commit.",
        "bail_out, which Linux has since 3.18, stops at the first block that is not in its place.",
        "counted gives each transaction a number of the blocks that are missing; a completed write \
         lowers it.",
        "A commit then looks at the oldest transaction's number alone.",
    ],
    drawing: Drawing {
        height: 18,
        shapes: &[
            Text(1, 2, "scan"),
            Box(1, 3, 12, 4, Cost, "1: 9 blocks"),
            Box(15, 3, 12, 4, Cost, "2: 9 blocks"),
            Box(29, 3, 12, 4, Cost, "3: 9 blocks"),
            Text(43, 5, "… 3,000 more"),
            Arrow((1, 8), (56, 8)),
            Text(1, 12, "counted"),
            Box(1, 13, 12, 4, New, "1: 3 missing"),
            Box(15, 13, 12, 4, Plain, "2: 9 missing"),
            Box(29, 13, 12, 4, Plain, "3: 1 missing"),
            Text(43, 15, "… not looked at"),
            Box(66, 13, 18, 4, Plain, "a completed write:\nits number − 1"),
        ],
    },
    proposal,
};

fn proposal(sections: &[Section]) -> Vec<Proposed> {
    let table = sections.iter().find(|section| section.id == files::GROWING);
    let ratio = |mode| table?.ratio(files::GROWING_ROW, files::LONG_RATE, mode, SCAN);
    let text =
        |mode| format!("files/s, {} transactions listed or more: {mode} ÷ scan", files::LONG);
    vec![
        Proposed::new(text(BAIL_OUT), 1.78, ratio(BAIL_OUT)),
        Proposed::new(text(COUNTED), 1.78, ratio(COUNTED)),
    ]
}
