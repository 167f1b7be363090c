//! The NAT leads to an older version of a node, which the SIT calls free: readers refuse it, a
//! rescue takes the present one, and a repair finds it.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_f2fs::format::units::Nid;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{FileSystem, IoFlags};

use crate::inject::Injection;
use crate::listed::{NAT_ENTRY, journals, set, word};
use crate::readers::View;
use crate::repair::damaged;
use crate::rescue::rescued;
use crate::types::{Judge, planted};
use crate::volume::open;
use crate::{check, lines};

const NIDS_AT: usize = 4052;
const NAMES: [&str; 3] = ["inline", "pointers", "nodes"];

/// Where the NAT has a node.
pub fn place_of(device: &MemoryDevice, nid: u32) -> u64 {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let volume = F2fs::open(Arc::new(device.fork()), Threads::new(), &options).unwrap();
    volume.disk().nat.lookup(Nid(nid)).unwrap().block_addr.bytes()
}

/// The NAT's entry of a node leads to this block again.
pub fn led_back(judge: &Judge, nid: u32, to: u64) -> Injection {
    let to = u32::try_from(to / 4096).unwrap();
    let mut injection = judge.target.inject_nat(nid as usize, ("block_addr", 5, 4), to);
    let (at, mut bytes) = journals(judge);
    let entries = (0..usize::from(bytes[0])).map(|entry| 2 + entry * NAT_ENTRY);
    for entry in entries.filter(|entry| word(&journals(judge).1, *entry) == nid) {
        set(&mut bytes, entry + 9, to);
    }
    injection.blocks.push((at, bytes));
    injection
}

#[test]
fn an_old_version_of_a_node_is_not_read() {
    let old = Judge::new(&[]);
    let device = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "nodiscard,mode=lfs");
    for name in NAMES {
        let attr = fs.lookup(fs.root(), name.as_bytes()).unwrap();
        fs.write(attr.ino, attr.size - 1, &[5; 900], IoFlags::empty()).unwrap();
    }
    fs.unmount().unwrap();
    let judge = Judge::of(&device);
    let mut nodes: Vec<(&str, u32, u64)> = Vec::new();
    for name in NAMES {
        let ino = judge.numbers[name];
        nodes.push((name, ino, place_of(&old.target.device, ino)));
    }
    let inode = judge.target.read(place_of(&judge.target.device, judge.numbers["nodes"]));
    for nid in (0..2).map(|slot| word(&inode, NIDS_AT + 4 * slot)).filter(|nid| *nid > 0) {
        nodes.push(("nodes", nid, place_of(&old.target.device, nid)));
    }
    let sound = View::of(&(Arc::new(judge.target.device.fork()) as Arc<dyn BlockDevice>));
    let whole = rescued(Arc::new(judge.target.device.fork()));
    let mut refused = 0;
    for (name, nid, at) in nodes {
        let injection = led_back(&judge, nid, at);
        let device = Arc::new(damaged(&judge.target, &injection));
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        let view = View::of(&dynamic);
        assert!(view.wrong(&sound).is_empty(), "{name}, node {nid}: {:?}", view.wrong(&sound));
        refused += u32::from(view.has_failed(format!("/{name}").as_bytes()));
        let fs = open(Arc::new(device.fork()), "");
        let mut bytes = vec![0; 8 << 20];
        let read = fs
            .lookup(fs.root(), name.as_bytes())
            .and_then(|attr| fs.read(attr.ino, 0, &mut bytes, IoFlags::empty()));
        assert!(!view.has_failed(format!("/{name}").as_bytes()) || read.is_err(), "{name}");
        drop(fs);
        let taken = rescued(Arc::new(device.fork()));
        assert!(taken.files == whole.files && taken.losses == whole.losses, "{name}, node {nid}");
        let found = lines(&check(dynamic).unwrap());
        if view.has_failed(format!("/{name}").as_bytes()) {
            assert!(found.contains("f2fs.nat.address"), "{name}, node {nid}:\n{found}");
            let (tree, lost) = judge.repair(&injection, Scope::Accounting);
            assert!(lost.is_empty() && tree.unwrap() == judge.sound, "{name}, node {nid}");
        }
    }
    assert!(refused > 3, "{refused}");
}

/// The NAT's step must not write the tables by the wrong pointer.
#[test]
fn a_wrong_pointer_beside_a_wrong_entry_of_the_nat_costs_nothing() {
    let judge = Judge::new(&[]);
    let mut injection = led_back(&judge, judge.numbers["inline"], 0x5b << 12);
    let (free, _) = judge.target.free_blocks()[0];
    let pointer = judge.change("pointers", &|bytes| {
        bytes[372..376].copy_from_slice(&free.to_le_bytes());
    });
    injection.blocks.extend(pointer.blocks);
    let (tree, lost) = judge.repair(&injection, Scope::Accounting);
    assert!(lost.is_empty());
    if let Some(tree) = tree {
        assert!(tree == judge.sound);
    }
    let (tree, lost) = judge.repair(&injection, Scope::All);
    assert!(lost.is_empty() && tree.unwrap() == judge.sound);
}

/// A pointer of another file leads to the present block of a node of which the NAT has an older
/// one: the block is the node's.
#[test]
fn a_pointer_to_a_node_that_the_nat_lost_is_cut() {
    const POINTER: std::ops::Range<usize> = 360 + 4 * 40..360 + 4 * 41;
    let old = Judge::new(&[]);
    let device = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "nodiscard,mode=lfs");
    for name in NAMES {
        let attr = fs.lookup(fs.root(), name.as_bytes()).unwrap();
        fs.write(attr.ino, attr.size - 1, &[5; 900], IoFlags::empty()).unwrap();
    }
    fs.unmount().unwrap();
    let judge = Judge::of(&device);
    let file = place_of(&judge.target.device, judge.numbers["pointers"]);
    for name in ["inline", "nodes"] {
        let ino = judge.numbers[name];
        let mut injection = led_back(&judge, ino, place_of(&old.target.device, ino));
        let present = u32::try_from(place_of(&judge.target.device, ino) / 4096).unwrap();
        let mut bytes = judge.target.read(file);
        bytes[POINTER].copy_from_slice(&present.to_le_bytes());
        injection.blocks.push((file, bytes));
        let found = lines(&check(Arc::new(damaged(&judge.target, &injection))).unwrap());
        let (tree, lost) = judge.repair(&injection, Scope::All);
        assert_eq!(lost, [b"/pointers"], "{name}:\n{found}");
        assert!(tree.unwrap() == judge.sound, "{name}");
    }
}
