//! `object-store`: what filesystems on an object volume cost: requests, bytes, money and time.
//!
//! | table | what is done |
//! |---|---|
//! | `fsync` | clients that each fsync a new file, over and over |
//! | `stream` | a large file, and the device itself, against what the store takes |
//! | `listing` | `ls -lR` of many files behind a cold cache |
//! | `copies` | a snapshot and a clone of a large volume |
//! | `cleaning` | repacking objects that are mostly dead, and removing them |
//!
//! The volume is a log of objects ([`cairn_objects`]). In `fsync`, F2FS is also on zones that are
//! an object each ([`zones`]): what its own log costs without one below it.

mod copies;
mod disk;
mod goals;
mod slow;
mod work;
mod zones;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "object-store",
    question: "What do ext4 and F2FS on an object volume cost: requests, bytes, money, time?",
    run,
    about: None,
};

fn run(context: &Context) -> Result<Findings> {
    let sections = vec![
        work::fsync(context)?,
        work::stream(context)?,
        work::listing(context)?,
        copies::copies(context)?,
        copies::cleaning(context)?,
    ];
    Ok(Findings { goals: goals::all(&sections), sections, notes: notes() })
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "The store is in memory. A PUT takes {} ms, any other request {} ms, and each byte the \
             time of {} MiB/s; requests run beside each other. Money is that of a large provider: \
             5 $ for a million PUTs and LISTs, 0.4 $ for a million GETs, DELETEs are free; bytes \
             cost nothing inside its network.",
            slow::PUT.as_millis(),
            slow::OTHER.as_millis(),
            slow::BYTES_PER_S >> 20
        ),
        "object zones: F2FS on a zoned device, a zone of 8 MiB for each section. A flush makes one \
         PUT of each zone that was written since the last, of what is new in it, and one of each \
         64 KiB that was changed where zones are not in order; a reset is a DELETE. Reads are not \
         counted there."
            .to_owned(),
        "with a local log: flushes are durable in a file of this machine, and PUTs follow. PUTs \
         are counted until the last fsync has returned."
            .to_owned(),
        "Cold: the volume is opened again, and its cache is empty.".to_owned(),
    ]
}
