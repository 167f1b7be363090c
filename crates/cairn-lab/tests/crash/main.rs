//! The crash search of `cairn lab crash`: it finds nothing on volumes that are whole, and something
//! as soon as one safeguard is switched off.
//!
//! `CAIRN_DEEP=1` tries every safeguard; else a few are. All of it is one test, because a safeguard
//! is switched off for the whole process.

use cairn_base::sabotage::{Safeguard, without};
use cairn_lab::crash::{Failure, Format, Options, replay, search};

/// What finds that a safeguard is off.
#[derive(Clone, Copy)]
struct Control {
    safeguard: Safeguard,
    format: Format,
    mode: &'static str,
    /// Operations of a run, and states that are looked at.
    extent: (usize, usize),
    /// Part of the short test.
    quick: bool,
    /// False if nothing is lost without it, or if no state has shown yet what is: then the table of
    /// docs/crash-search.md says so.
    needed: bool,
}

const fn control(safeguard: Safeguard, format: Format, mode: &'static str, quick: bool) -> Control {
    Control { safeguard, format, mode, extent: (60, 100), quick, needed: true }
}

use Format::{Ext4, F2fs};

const CONTROLS: [Control; 24] = [
    control(Safeguard::CommitFlush, Ext4, "default", true),
    control(Safeguard::CommitForce, Ext4, "default", false),
    control(Safeguard::CheckpointFlush, Ext4, "checkpoint-when-full", false),
    Control {
        extent: (300, 400),
        needed: false,
        ..control(Safeguard::TailForce, Ext4, "checkpoint-when-full", false)
    },
    control(Safeguard::RecoveryFlush, Ext4, "default", false),
    control(Safeguard::Revoke, Ext4, "default", false),
    control(Safeguard::RevokeCheck, Ext4, "default", false),
    control(Safeguard::Forget, Ext4, "checkpoint-ahead", false),
    control(Safeguard::LogChecksum, Ext4, "default", true),
    control(Safeguard::FreedBlocks, Ext4, "default", false),
    // The journal keeps the order of the transaction that frees a number and the one that uses it
    // again. Linux lets numbers rest for e2fsck on volumes without a journal.
    Control { needed: false, ..control(Safeguard::FreedInodes, Ext4, "default", false) },
    control(Safeguard::Orphan, Ext4, "default", true),
    control(Safeguard::DataFlush, Ext4, "default", false),
    control(Safeguard::PackFlush, F2fs, "default", true),
    control(Safeguard::PackForce, F2fs, "default", false),
    control(Safeguard::PackChecksum, F2fs, "default", false),
    control(Safeguard::PackEnds, F2fs, "default", false),
    control(Safeguard::CheckpointBlocks, F2fs, "full", false),
    control(Safeguard::CheckpointNids, F2fs, "default", false),
    Control { needed: false, ..control(Safeguard::ChainVersion, F2fs, "default", false) },
    control(Safeguard::FsyncMark, F2fs, "default", true),
    control(Safeguard::DentryMark, F2fs, "default", false),
    control(Safeguard::FsyncCheckpoint, F2fs, "default", false),
    control(Safeguard::OrphanBlocks, F2fs, "default", false),
];

/// Seeds that are tried at most.
const ROUNDS: u64 = 40;

fn deep() -> bool {
    std::env::var_os("CAIRN_DEEP").is_some_and(|value| value == "1")
}

fn options(format: Format, modes: &[&str], rounds: u64) -> Options {
    Options {
        formats: vec![format],
        modes: modes.iter().map(|mode| (*mode).to_owned()).collect(),
        seed: 1,
        rounds,
        operations: 60,
        states: 100,
        kernel: false,
        exhaustive: false,
        shrink: false,
        command: String::new(),
    }
}

/// The states that were looked at, and what was found.
fn found(control: Control) -> (usize, Option<Failure>) {
    let off = without(control.safeguard);
    let (operations, states) = control.extent;
    let options =
        Options { operations, states, ..options(control.format, &[control.mode], ROUNDS) };
    let (report, failure) = search(&options).expect("the search runs");
    drop(off);
    (report.states(), failure)
}

/// Nothing is found without sabotage.
fn finds_nothing() {
    let (rounds, modes): (u64, &[&[&str]]) =
        if deep() { (20, &[&[], &[]]) } else { (1, &[&["default", "small-log"], &["default"]]) };
    for (format, modes) in [Ext4, F2fs].into_iter().zip(modes) {
        let options = options(format, modes, rounds);
        let (report, failure) = search(&options).expect("the search runs");
        print!("{}", cairn_lab::crash::text(&report));
        assert!(failure.is_none() && report.promises() > report.states());
    }
}

#[test]
fn every_safeguard_that_is_off_is_missed() {
    finds_nothing();
    let only = std::env::var("CAIRN_SAFEGUARD").ok();
    let mut missing = Vec::new();
    for control in CONTROLS {
        let name = format!("{:?}", control.safeguard);
        let chosen = only.as_ref().map_or(control.quick || deep(), |only| only.contains(&name));
        if !chosen {
            continue;
        }
        let (states, failure) = found(control);
        let place = format!("{} {}", control.format, control.mode);
        match failure {
            Some(failure) => {
                let first = failure.error.lines().next().unwrap_or_default().to_owned();
                println!("| {name} | {place} | {states} | {first} |");
                // It is found again from its text, and only while the safeguard is off.
                let read: Failure = failure.to_string().parse().expect("its own text");
                let again = |failure: &Failure| {
                    replay(failure, 60, false, String::new()).expect("it runs").1
                };
                assert!(again(&read).is_none(), "{name}: it is wrong without sabotage:\n{failure}");
                let off = without(control.safeguard);
                assert!(again(&read).is_some(), "{name}: it is not repeated:\n{failure}");
                drop(off);
            }
            None => {
                println!("| {name} | {place} | {states} | nothing |");
                if control.needed {
                    missing.push(name);
                }
            }
        }
    }
    assert!(missing.is_empty(), "off, and not missed: {missing:?}");
}
