//! Every kind of image: moved about, checkpointed, read again, judged.

use std::path::Path;

use crate::checkpoint::Reason;
use crate::format::CheckpointFlags;
use crate::segment::Mode;
use cairn_testkit::judge;

use super::state::{State, contents};
use super::volume::{
    change_inode, decode, device, files, grow, image, move_data, nids, open_with, pack, shrink,
};

const MIB: u64 = 1 << 20;
const ALL_FEATURES: &str =
    "extra_attr,inode_checksum,sb_checksum,flexible_inline_xattr,inode_crtime,lost_found";

/// Opens, changes much over several checkpoints, closes, and compares with what is read from disk.
/// Twice.
fn exercise(path: &Path, mode: Mode, seed: u64) {
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..2 {
        let store = open_with(device(path), mode, round == 1).expect("the core opens");
        let before = contents(&store);
        let mut side = pack(&store).side;
        for step in 0..4 {
            let share = [100, 50, 5][step % 3];
            for nid in nids(&store) {
                let node = store.nodes.get(nid).unwrap();
                if random.u32(..100) < share {
                    let _inside = store.operation_lock.lock_op().unwrap();
                    drop(node.modify());
                }
                let seed = random.u16(1..);
                move_data(&store, &node, |slot| u32::from(slot.wrapping_mul(seed) % 100) < share)
                    .unwrap();
            }
            assert!(store.checkpoints.write(Reason::Sync).unwrap());
            let pack = pack(&store);
            assert_eq!(pack.side, side.other(), "packs alternate");
            side = pack.side;
            assert!(!store.checkpoints.write(Reason::Sync).unwrap(), "nothing is dirty");
            judge::assert_f2fs_clean(path);
        }
        assert_eq!(contents(&store), before);
        let state = State::of(&store);
        let again = open_with(store.device.clone(), mode, false).expect("the core opens again");
        assert_eq!(State::of(&again), state, "a runtime checkpoint");
        assert!(store.checkpoints.write(Reason::Umount).unwrap());
        judge::assert_f2fs_clean(path);
        let pack = pack(&store);
        assert!(
            pack.checkpoint.flags.contains(CheckpointFlags::UMOUNT | CheckpointFlags::CRC_RECOVERY)
        );
        assert!(!store.checkpoints.write(Reason::Umount).unwrap(), "closed already");
        let again = open_with(store.device.clone(), mode, false).expect("the core opens again");
        assert_eq!(State::of(&again), state, "an unmount checkpoint");
        assert_eq!(contents(&again), before);
    }
}

/// Nodes are made and removed, nids used again with new versions.
fn grow_and_shrink(path: &Path) {
    let store = open_with(device(path), Mode::Adaptive, false).expect("the core opens");
    let room = store.space.free_blocks() as usize;
    let chosen: Vec<_> =
        files(&store).into_iter().take(30.min(room / 400)).map(|node| node.nid()).collect();
    assert!(chosen.len() >= 5, "the tree has files with blocks");
    for round in 0..3 {
        let size = |ino| decode(&store, &store.nodes.get(ino).unwrap()).size;
        let sizes: Vec<u64> = chosen.iter().map(|ino| size(*ino)).collect();
        let counts = store.space.counts();
        for ino in &chosen {
            grow(&store, *ino, 20 + round * 100).unwrap();
        }
        store.checkpoints.write(Reason::Sync).unwrap();
        judge::assert_f2fs_clean(path);
        let again =
            open_with(store.device.clone(), Mode::Adaptive, false).expect("the core opens again");
        assert_eq!(State::of(&again), State::of(&store));
        for (ino, size) in chosen.iter().zip(sizes) {
            shrink(&store, *ino, size).unwrap();
        }
        assert_eq!(store.space.counts(), counts);
        if round == 1 {
            // Made and removed between two checkpoints.
            grow(&store, chosen[0], 7).unwrap();
            let node = store.nodes.get(chosen[0]).unwrap();
            let size = (decode(&store, &node).shape().first_block(4).unwrap()) * 4096;
            shrink(&store, chosen[0], size).unwrap();
            let _inside = store.operation_lock.lock_op().unwrap();
            change_inode(&store, &node, |inode| inode.size = inode.size.min(size));
        }
        store.checkpoints.write(Reason::Sync).unwrap();
        judge::assert_f2fs_clean(path);
    }
    assert_eq!(store.checkpoints.version(), store.checkpoints.last().version);
}

fn run(size: u64, args: &[&str], large: &[usize], mode: Mode, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), size, args, large);
    exercise(&path, mode, seed);
    grow_and_shrink(&path);
}

#[test]
fn the_smallest_volume() {
    run(64 * MIB, &[], &[], Mode::Adaptive, 1);
}

#[test]
fn a_usual_volume() {
    run(512 * MIB, &[], &[3000, 1200], Mode::Adaptive, 2);
}

#[test]
fn a_volume_without_slack_reuse() {
    run(512 * MIB, &[], &[3000, 1200], Mode::Lfs, 3);
}

#[test]
fn a_large_sparse_volume() {
    run(16 << 30, &[], &[3000], Mode::Adaptive, 4);
}

#[test]
fn sections_of_two_segments() {
    run(512 * MIB, &["-s", "2"], &[2000], Mode::Adaptive, 5);
}

#[test]
fn zones_of_sections() {
    run(1024 * MIB, &["-s", "4", "-z", "2"], &[2000], Mode::Lfs, 6);
}

#[test]
fn a_large_nat_bitmap() {
    run(512 * MIB, &["-i"], &[1000], Mode::Adaptive, 7);
}

#[test]
fn every_feature() {
    // sload.f2fs damages larger files where attributes have a flexible size.
    run(512 * MIB, &["-O", ALL_FEATURES], &[700], Mode::Adaptive, 8);
}
