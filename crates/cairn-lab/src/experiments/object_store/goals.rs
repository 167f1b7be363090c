//! The goals of object volumes.

use super::copies::{CLONE, SECONDS};
use super::disk::LOG;
use super::work::{
    EXT4, F2FS, FILES_PER_PUT, LISTING_REQUESTS, MIB_PER_S, STORE, clients, listing_row,
};
use crate::goal::{Goal, Relation};
use crate::section::Section;

/// All of them.
pub(super) fn all(sections: &[Section]) -> Vec<Goal> {
    let find = |id: &str| sections.iter().find(|section| section.id == id);
    let mut goals = Vec::new();
    for format in [EXT4, F2FS] {
        let shared = find("fsync")
            .and_then(|section| section.median(&clients(format, 32), LOG, FILES_PER_PUT));
        let text = format!("{format}, 32 clients: fsyncs that share a PUT");
        goals.push(Goal::judge(text, Relation::AtLeast, 16.0, shared));
    }
    for row in ["device", EXT4, F2FS] {
        let ratio = find("stream").and_then(|section| section.ratio(row, MIB_PER_S, LOG, STORE));
        let text = format!("sequential write, {row}: of what the store takes");
        goals.push(Goal::judge(text, Relation::AtLeast, 0.7, ratio));
    }
    for format in [EXT4, F2FS] {
        let requests = find("listing").and_then(|section| {
            section.median(&listing_row(format, "ls -lR"), LOG, LISTING_REQUESTS)
        });
        let text = format!("{format}: requests of a cold ls -lR of 20,000 files");
        goals.push(Goal::judge(text, Relation::AtMost, 60.0, requests));
    }
    let seconds = find("copies").and_then(|section| section.median(CLONE, LOG, SECONDS));
    goals.push(Goal::judge("a clone of 100 GiB, s", Relation::AtMost, 1.0, seconds));
    goals
}
