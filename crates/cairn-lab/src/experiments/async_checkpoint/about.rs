//! What the page says of asynchronous checkpoints.

use super::subjects::{JOURNALS, OFF, ON, row};
use crate::about::Shape::{Arrow, Box, Text};
use crate::about::Tone::{Cost, New, Plain};
use crate::about::{About, Drawing, Proposed};
use crate::fs_mark::SyncMethod;
use crate::section::Section;

pub(super) const ABOUT: About = About {
    lines: [
        "Committed blocks stay in the journal until they are written to their place: the \
         checkpoint.",
        "When the journal is full, every operation waits while somebody checkpoints.",
        "With async_checkpoint, a daemon keeps free what the next commits need; with =N, N % of \
         the journal.",
        "It writes the blocks of many transactions in the order of the device, each block once. \
         The flush of the next commit covers them, and moves the journal's tail.",
        "As long as it writes faster than the journal fills, no operation waits.",
    ],
    drawing: Drawing {
        height: 20,
        shapes: &[
            Text(1, 2, "noasync_checkpoint: the journal is full"),
            Box(1, 3, 60, 4, Cost, "transactions that wait for their checkpoint"),
            Box(64, 3, 16, 4, Cost, "operations wait"),
            Arrow((64, 5), (61, 5)),
            Text(1, 11, "async_checkpoint: enough stays free"),
            Box(1, 12, 30, 4, Plain, "transactions"),
            Box(31, 12, 30, 4, New, "free"),
            Box(64, 12, 16, 4, Plain, "operations"),
            Arrow((64, 14), (61, 14)),
            Arrow((10, 16), (10, 18)),
            Text(12, 19, "daemon: writes the oldest to their place, sorted"),
        ],
    },
    proposal,
};

/// fs_mark's modes: the proposal's files/s and transactions, on ÷ off.
const MODES: [(SyncMethod, f64, f64); 7] = [
    (SyncMethod::Never, 1.009, 1.0),
    (SyncMethod::BeforeClose, 1.058, 0.871),
    (SyncMethod::SyncThenOne, 1.020, 0.995),
    (SyncMethod::Reverse, 1.145, 0.312),
    (SyncMethod::SyncThenReverse, 1.013, 0.995),
    (SyncMethod::InOrder, 1.085, 0.682),
    (SyncMethod::SyncThenInOrder, 0.987, 1.005),
];

fn proposal(sections: &[Section]) -> Vec<Proposed> {
    let (id, title, _) = JOURNALS[0];
    let table = sections.iter().find(|section| section.id == id);
    let ratio = |sync, metric| table?.ratio(&row(sync), metric, ON, OFF);
    let files = MODES.map(|(sync, files, _)| {
        let text = format!("{}: files/s, on ÷ off ({title})", row(sync));
        Proposed::new(text, files, ratio(sync, "files_per_s"))
    });
    let transactions = MODES.map(|(sync, _, transactions)| {
        let text = format!("{}: transactions, on ÷ off ({title})", row(sync));
        Proposed::new(text, transactions, ratio(sync, "transactions"))
    });
    files.into_iter().chain(transactions).collect()
}
