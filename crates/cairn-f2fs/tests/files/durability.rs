//! What is said to be durable: all histories of two steps with every way to ask, and two who ask at once.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_testkit::durability::{Opened, Subject, both_hear_of_a_failed_flush, search};

use crate::crash::{BEFORE, clean};
use crate::support::{FEATURES, open, volume};

fn opened(device: Arc<dyn BlockDevice>, options: &str) -> Opened {
    let fs = open(device, options);
    let evicted = fs.clone();
    Opened { fs, evict: Box::new(move || evicted.volume().inodes.shrink()) }
}

fn closed(device: &MemoryDevice) -> Result<(), String> {
    clean(device, "after recovery")
}

fn cut(device: &MemoryDevice) -> Result<(), String> {
    clean(device, BEFORE)
}

#[test]
fn every_history_of_two_steps_is_as_durable_as_was_said() {
    let cuts = if cairn_testkit::deep() { 6 } else { 2 };
    for (args, options) in [(&[][..], ""), (FEATURES, "mode=lfs,nocheckpoint_merge")] {
        let open = |device| opened(device, options);
        let fresh = volume(64 << 20, args).fork();
        let subject = Subject { fresh, cuts, open: &open, judge: &closed, judge_cut: Some(&cut) };
        let rare = if cairn_testkit::deep() { 3 } else { 150 };
        let seen = search(&subject, rare).unwrap_or_else(|error| panic!("{args:?}, {options:?}: {error}"));
        println!("{args:?}, {options:?}: {seen:?}");
        assert!(seen.histories > 1500 && seen.promises > 3 * seen.histories, "{seen:?}");
    }
}

#[test]
fn two_who_ask_at_once_are_told_the_same() {
    let open = |device| opened(device, "");
    let fresh = volume(64 << 20, &[]).fork();
    both_hear_of_a_failed_flush(&Subject { fresh, cuts: 0, open: &open, judge: &closed, judge_cut: None });
}
