//! Changes of the superblock that are interrupted: the volume has the old label and UUID or the new
//! ones, and every file; the next try completes them.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_f2fs::tune::{TuneOptions, tune};
use cairn_testkit::crash::{Cut, Recording};
use cairn_testkit::judge::node_blocks_of;
use cairn_testkit::tree::{
    Snapshot, SnapshotOptions, TreeSpec, VolumeTarget, build, digest_volume, plan,
};
use cairn_vfs::FileSystem;
use uuid::Uuid;

use crate::support::{judge, look, open, volume};

fn options() -> TuneOptions {
    TuneOptions {
        label: Some("new".into()),
        uuid: Some(Uuid::from_u128(7)),
        cold: vec!["bak".into()],
        hot: vec!["sqlite".into()],
    }
}

fn tuned(device: Arc<dyn BlockDevice>) -> cairn_f2fs::Result<()> {
    tune(device, Threads::new(), &options())
}

fn digest(device: &Arc<MemoryDevice>) -> Snapshot {
    digest_volume(&*look(device.clone()), SnapshotOptions::default()).unwrap()
}

fn filled() -> Arc<MemoryDevice> {
    let device = volume(64 << 20, &[]);
    let fs = open(device.clone(), "");
    build(&VolumeTarget::new(&*fs), &plan(&TreeSpec { size_max: 50_000, ..TreeSpec::small(2) }));
    fs.unmount().unwrap();
    device
}

/// What an interruption has left. True if it has the new label.
fn check(state: &Arc<MemoryDevice>, expected: &Snapshot, named: &str) -> bool {
    judge(state);
    digest(state).assert_same(expected);
    let probe = cairn_f2fs::probe(&**state).unwrap().expect("it is there");
    let label = probe.superblock.label();
    assert!(label.is_empty() || label == "new", "{named}: {label}");
    tuned(state.clone()).unwrap();
    judge(state);
    digest(state).assert_same(expected);
    label == "new"
}

#[test]
fn a_power_cut_leaves_the_old_words_or_the_new_ones() {
    let before = filled();
    let expected = digest(&before);
    let recording = Recording::start(before.fork());
    tuned(recording.device()).unwrap();
    let log = recording.finish().with_whole(node_blocks_of(&before));
    let mut cuts = log.barrier_cuts();
    cuts.extend(log.random_cuts(4, 3));
    let is_new = |cut: &&Cut| check(&Arc::new(log.device(**cut)), &expected, &cut.to_string());
    let new = cuts.iter().filter(is_new).count();
    assert!(new > 0 && new < cuts.len(), "{new} of {}", cuts.len());
}

#[test]
fn a_write_that_fails_leaves_the_old_words_or_the_new_ones() {
    let before = filled();
    let expected = digest(&before);
    for operation in [Operation::Write, Operation::Flush] {
        let counted = Arc::new(Fault::new(Arc::new(before.fork())));
        tuned(counted.clone()).unwrap();
        for nth in 1..=counted.count(operation) {
            let named = format!("{operation:?} {nth} fails");
            let state = Arc::new(before.fork());
            let fault = Arc::new(Fault::new(state.clone()));
            fault.fail(operation, nth, Lasting::Forever);
            assert!(tuned(fault).is_err(), "{named}");
            check(&state, &expected, &named);
        }
    }
}
