//! Pointers to nodes: a node whose footer says where it belongs is linked again, and what is lost
//! is listed by a name, also if the file has several.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::repair::{Plan, Scope};
use cairn_f2fs::format::inode;

use crate::inject::{Injection, Target};
use crate::readers::View;
use crate::repair::{apply, damaged, plan};
use crate::types::Judge;
use crate::{check, lines};

const XATTR_NID_AT: usize = 76;
const NIDS_AT: usize = 4052;
const NID_AT: usize = 4072;
const INO_AT: usize = 4076;
/// No node has it.
const UNUSED: u32 = 9000;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn set(target: &Target, what: &str, (ino, at, to): (u32, usize, u32)) -> Injection {
    let place = target.inode_of(ino);
    let mut bytes = target.read(place);
    bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
    inode::seal(&mut bytes, target.layout());
    Injection { what: what.into(), blocks: vec![(place, bytes)] }
}

/// A repair with losses.
fn repaired(target: &Target, injection: &Injection) -> (Arc<dyn BlockDevice>, Plan) {
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(target, injection));
    let what = &injection.what;
    assert!(check(device.clone()).unwrap().count() > 0, "{what}");
    let done = plan(&device, Scope::All).unwrap();
    let left = lines(&done.after);
    assert!(!done.is_refused && done.after.count() == 0, "{what}:\n{left}");
    apply(&done, &device);
    (device, done)
}

/// Everything is as it was, and nothing is listed as lost.
fn costs_nothing(target: &Target, sound: &View, injection: &Injection) {
    let (device, done) = repaired(target, injection);
    let view = View::of(&device);
    let wrong = view.wrong(sound);
    let lost: Vec<_> = done.steps.losing().filter_map(|step| step.loss.as_ref()).collect();
    let what = &injection.what;
    assert!(wrong.is_empty() && view.failed.is_empty() && lost.is_empty(), "{what}: {lost:?}");
}

#[test]
fn a_node_that_its_footer_places_is_linked_again() {
    let judge = Judge::new(&[]);
    let target = &judge.target;
    let sound = View::of(&(Arc::new(target.device.fork()) as Arc<dyn BlockDevice>));
    let numbers = [("nodes", NIDS_AT), ("more attributes", XATTR_NID_AT)];
    for (name, at) in numbers {
        let path = format!("/{name}");
        let ino = u32::try_from(sound.found[path.as_bytes()].ino).unwrap();
        assert!(word(&target.read(target.inode_of(ino)), at) != 0, "{name} has a node");
        for to in [0, UNUSED, ino] {
            let what = format!("{name}, byte {at}: {to}");
            costs_nothing(target, &sound, &set(target, &what, (ino, at, to)));
        }
    }
}

#[test]
fn nodes_in_the_blocks_of_each_other_are_found() {
    let judge = Judge::new(&[]);
    let target = &judge.target;
    let sound = View::of(&(Arc::new(target.device.fork()) as Arc<dyn BlockDevice>));
    let mut by_inode = BTreeMap::new();
    for at in target.nodes() {
        by_inode.entry(word(&target.read(*at), INO_AT)).or_insert(*at);
    }
    let places: Vec<u64> = by_inode.into_values().collect();
    assert!(places.len() > 1);
    for pair in places.windows(2) {
        let [one, other] = [pair[0], pair[1]];
        let [first, second] = [one, other].map(|at| target.read(at));
        let what = format!("nodes {} and {}", word(&first, NID_AT), word(&second, NID_AT));
        let blocks = vec![(one, second), (other, first)];
        costs_nothing(target, &sound, &Injection { what, blocks });
    }
}

#[test]
fn what_a_file_with_several_names_loses_is_listed_by_one_of_them() {
    const NAMES: [&[u8]; 2] = [b"/small/in the inode 0", b"/large/linked 0"];
    let judge = Judge::new(&[]);
    let target = &judge.target;
    let sound = View::of(&(Arc::new(target.device.fork()) as Arc<dyn BlockDevice>));
    let ino = u32::try_from(sound.found[NAMES[0]].ino).unwrap();
    assert_eq!(sound.found[NAMES[1]].ino, u64::from(ino));
    let injection = set(target, "a missing node of attributes", (ino, XATTR_NID_AT, UNUSED));
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(target, &injection));
    let found = check(device).unwrap();
    let is_named = |path: Option<&[u8]>| path.is_some_and(|path| NAMES.contains(&path));
    let of_it = found.findings.iter().filter(|found| found.place.inode == Some(ino.into()));
    assert!(of_it.clone().count() > 0, "{}", lines(&found));
    assert!(of_it.clone().all(|found| is_named(found.place.path.as_deref())), "{}", lines(&found));
    let (_, done) = repaired(target, &injection);
    let lost: Vec<_> = done.steps.losing().filter_map(|step| step.loss.as_ref()).collect();
    assert!(!lost.is_empty());
    assert!(lost.iter().all(|loss| is_named(Some(&loss.path))), "{lost:?}");
    assert!(lost.iter().all(|loss| loss.what.ends_with("1 more name")), "{lost:?}");
}

#[test]
fn a_pointer_to_the_node_of_another_inode_is_cut() {
    let judge = Judge::new(&[]);
    let target = &judge.target;
    let sound = View::of(&(Arc::new(target.device.fork()) as Arc<dyn BlockDevice>));
    let number = |path: &str| u32::try_from(sound.found[path.as_bytes()].ino).unwrap();
    let pairs = [
        ("/attributes", "/more attributes", XATTR_NID_AT),
        ("/more attributes", "/small/in the inode 0", XATTR_NID_AT),
        ("/pointers", "/nodes", NIDS_AT),
    ];
    for (path, other, at) in pairs {
        let nid = word(&target.read(target.inode_of(number(other))), at);
        let what = format!("{path}: {nid}");
        if nid > 0 {
            costs_others_nothing(target, &sound, &set(target, &what, (number(path), at, nid)));
        }
    }
}

/// Only what is listed may be lost, and nothing of other files.
fn costs_others_nothing(target: &Target, sound: &View, injection: &Injection) {
    let (device, _) = repaired(target, injection);
    let view = View::of(&device);
    let wrong = view.wrong(sound);
    let path = injection.what.split(':').next().unwrap();
    let is_of_it = |wrong: &String| wrong.starts_with(path);
    assert!(wrong.iter().all(is_of_it) && view.failed.is_empty(), "{path}: {wrong:?}");
}
