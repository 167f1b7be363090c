//! A power cut after many fsyncs. Recovery writes each of their nodes again before it frees a
//! block, so it needs as much room as they took.

use cairn_base::Ino;
use cairn_testkit::deep;
use cairn_vfs::{Caller, FileSystem, NewInode, SetAttributes};

use crate::support::{judge, open, volume};

const FILES: usize = 20_000;

fn name(number: usize) -> String {
    format!("file-{number}")
}

/// Files of one node each fill half of the volume. Each is changed and fsynced.
fn search(options: &str) {
    let device = volume(256 << 20, &[]);
    let fs = open(device.clone(), options);
    let create = |number| {
        fs.create(fs.root(), name(number).as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
            .unwrap()
            .ino
    };
    let files: Vec<Ino> = (0..FILES).map(create).collect();
    fs.sync().unwrap();
    let change = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    let every = if deep() { 1_000 } else { 9_000 };
    for (number, ino) in files.iter().enumerate() {
        fs.setattr(*ino, &change).unwrap();
        fs.fsync(*ino, 0, false).unwrap();
        if (number + 1) % every == 0 {
            let cut = std::sync::Arc::new(device.fork());
            let again = open(cut.clone(), options);
            for number in 0..=number {
                let found = again.lookup(again.root(), name(number).as_bytes()).unwrap();
                assert_eq!(found.permissions, 0o600, "{options}: file {number}");
            }
            again.unmount().unwrap();
            judge(&cut);
        }
    }
    let stats = fs.fsync_stats();
    let (nodes, checkpoints) = (stats.nodes.get(), stats.checkpoints.get());
    assert!(
        checkpoints > 0 && nodes > 1000 * checkpoints,
        "{options}: {checkpoints} checkpoints, {nodes} served by nodes"
    );
    fs.unmount().unwrap();
    judge(&device);
}

#[test]
fn recovery_has_room_for_the_nodes_of_many_fsyncs() {
    // All nodes fit in memory, so no checkpoint is written for want of that.
    search("cache=512M");
    search("cache=512M,mode=lfs");
}
