//! What the page says of the choice of victims.

use super::subjects::{BUFFERED, POLICIES, PROPOSAL};
use crate::about::Shape::{Arrow, Box, Text};
use crate::about::Tone::{Cost, New, Plain};
use crate::about::{About, Drawing, Proposed};
use crate::section::Section;

pub(super) const ABOUT: About = About {
    lines: [
        "On a zoned device F2FS writes to new places only; cleaning moves what is still valid in a \
         section and makes it free.",
        "greedy cleans the section with the fewest valid blocks, be it data or nodes.",
        "Nodes are rewritten often, so greedy often cleans node sections that would soon be empty \
         anyway.",
        "data_first cleans data sections, and node sections only when free sections run out.",
        "adaptive chooses by what a victim costs: valid blocks, and nodes and SIT blocks that \
         their move dirties.",
    ],
    drawing: Drawing {
        height: 17,
        shapes: &[
            Text(1, 2, "sections, by valid blocks"),
            Box(1, 3, 14, 4, Plain, "data 92 %"),
            Box(16, 3, 14, 4, Plain, "data 95 %"),
            Box(31, 3, 14, 4, Cost, "node 90 %"),
            Box(46, 3, 14, 4, Plain, "data 97 %"),
            Box(61, 3, 14, 4, Cost, "node 91 %"),
            Text(31, 10, "greedy: the node section"),
            Arrow((38, 9), (38, 7)),
            Text(1, 10, "data_first: the data section"),
            Arrow((8, 9), (8, 7)),
            Box(1, 12, 29, 4, New, "nodes are left to become\nempty by themselves"),
            Box(
                31,
                12,
                44,
                4,
                Cost,
                "each moved node is written again,\nand is soon rewritten by its file",
            ),
        ],
    },
    proposal,
};

fn proposal(sections: &[Section]) -> Vec<Proposed> {
    let table = sections.iter().find(|section| section.id == PROPOSAL);
    let [greedy, data_first, _] = POLICIES;
    let waf = |policy| table?.median(BUFFERED, policy, "waf");
    let ratio = |metric| table?.ratio(BUFFERED, metric, data_first, greedy);
    vec![
        Proposed::new("WAF, greedy (ours at d = 0.5 %)", 18.75, waf(greedy)),
        Proposed::new("WAF, data_first (ours at d = 0.5 %)", 13.3, waf(data_first)),
        Proposed::new("WAF, data_first ÷ greedy", 13.3 / 18.75, ratio("waf")),
        Proposed::new("node blocks moved, data_first ÷ greedy", 0.306, ratio("nodes_moved")),
    ]
}
