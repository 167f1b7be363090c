//! What a checkpoint lists: orphans, and the journals of the NAT and the SIT. A wrong list costs no
//! file, neither at a mount nor in a repair. So does a wrong field of both superblocks that the
//! others imply.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_f2fs::format::units::Nid;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::inject::{Injection, Target};
use crate::readers::View;
use crate::repair::damaged;
use crate::rescue::rescued;
use crate::types::{Judge, planted};
use crate::volume::open;
use crate::{check, lines};

/// In the first block of a pack: its flags, and where its summaries begin.
const FLAGS_AT: usize = 132;
const START_SUM_AT: usize = 140;
const COMPACT: u32 = 4;
/// In an orphan block: how many it names.
const COUNT_AT: usize = 4088;
/// In a block of compact summaries: the journal of the SIT, and entries of each.
pub const SIT_AT: usize = 507;
pub const NAT_ENTRY: usize = 13;
pub const SIT_ENTRY: usize = 78;

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn set(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Changes of some files in a further mount.
fn touched(device: &Arc<MemoryDevice>) {
    let fs = open(device.clone(), "");
    for name in [&b"pointers"[..], b"inline", b"nodes"] {
        let ino = fs.lookup(fs.root(), name).unwrap().ino;
        fs.write(ino, 900, &[5; 900], IoFlags::empty()).unwrap();
    }
    let new = fs.create(fs.root(), b"new", NewInode::Directory, 0o700, &Caller::ROOT).unwrap();
    fs.create(new.ino, b"link", NewInode::Symlink(b"new"), 0o777, &Caller::ROOT).unwrap();
    fs.unmount().unwrap();
}

/// A volume whose checkpoint has an orphan, as a power cut leaves it; and the block that lists it.
fn with_an_orphan() -> (Judge, u64) {
    let device = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "");
    let new = fs.create(fs.root(), b"gone", NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
    fs.write(new.ino, 0, &[1; 20_000], IoFlags::empty()).unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.sync().unwrap();
    fs.shutdown(false).unwrap();
    let judge = Judge::of(&Arc::new(device.fork()));
    let at = judge.target.pack().1[0];
    let listed = judge.target.read(at);
    assert_eq!((word(&listed, 0), word(&listed, COUNT_AT)), (new.ino.get() as u32, 1));
    (judge, at)
}

#[test]
fn a_list_of_orphans_that_names_files_deletes_none() {
    let (judge, at) = with_an_orphan();
    for name in ["pointers", "small", "nodes", "/"] {
        let mut bytes = judge.target.read(at);
        set(&mut bytes, 0, judge.numbers[name]);
        let injection = Injection { what: name.into(), blocks: vec![(at, bytes)] };
        let device = Arc::new(damaged(&judge.target, &injection));
        let found = check(device.clone()).unwrap();
        assert!(lines(&found).contains("f2fs.orphan.inode"), "{name}:\n{}", lines(&found));
        let sound = View::of(&(device.clone() as _));
        open(device.clone(), "").unmount().unwrap();
        let now = View::of(&(device.clone() as _));
        assert_eq!(now.wrong(&sound), [""; 0], "{name}");
        let after = lines(&check(device).unwrap());
        assert!(after.contains("f2fs.checkpoint.flags"), "{name}:\n{after}");
        let (tree, lost) = judge.repair(&injection, Scope::All);
        let tree = tree.unwrap();
        assert!(lost.is_empty(), "{name}");
        assert!(judge.sound.iter().all(|(path, right)| tree.get(path) == Some(right)), "{name}");
    }
}

#[test]
fn an_orphan_that_is_listed_twice_is_found() {
    let (judge, at) = with_an_orphan();
    let mut bytes = judge.target.read(at);
    let ino = word(&bytes, 0);
    set(&mut bytes, 4, ino);
    set(&mut bytes, COUNT_AT, 2);
    let injection = Injection { what: "twice".into(), blocks: vec![(at, bytes)] };
    let device = Arc::new(damaged(&judge.target, &injection));
    let found = lines(&check(device).unwrap());
    assert!(found.contains("f2fs.orphan.inode"), "{found}");
    let (tree, lost) = judge.repair(&injection, Scope::Accounting);
    assert!(lost.is_empty() && tree.unwrap() == judge.sound);
}

#[test]
fn a_wrong_entry_of_a_journal_costs_nothing() {
    let device = Arc::new(planted(&[]).fork());
    touched(&device);
    let judge = Judge::of(&device);
    let (at, sound) = journals(&judge);
    assert!(sound[0] > 1 && sound[SIT_AT] > 1, "{} {}", sound[0], sound[SIT_AT]);
    let sit = SIT_AT + 2;
    let second = word(&sound, 2 + NAT_ENTRY);
    let other = word(&sound, sit + SIT_ENTRY);
    type Change<'c> = &'c dyn Fn(&mut Vec<u8>);
    let cases: [(&str, Scope, Change<'_>); 9] = [
        ("an impossible nid", Scope::Accounting, &|bytes| set(bytes, 2, u32::MAX)),
        ("a nid twice", Scope::Accounting, &|bytes| set(bytes, 2, second)),
        ("another nid", Scope::Accounting, &|bytes| bytes[2] ^= 1),
        ("too many nids", Scope::All, &|bytes| bytes[0] |= 0x40),
        ("an impossible segment", Scope::Accounting, &|bytes| set(bytes, sit, 0xffff)),
        ("a segment twice", Scope::Accounting, &|bytes| set(bytes, sit, other)),
        ("another count", Scope::Accounting, &|bytes| bytes[sit + 4] ^= 1),
        ("another bit", Scope::Accounting, &|bytes| bytes[sit + 6] ^= 1),
        ("too many segments", Scope::Accounting, &|bytes| bytes[SIT_AT] |= 0x40),
    ];
    for (what, scope, change) in cases {
        let mut bytes = sound.clone();
        change(&mut bytes);
        let injection = Injection { what: what.into(), blocks: vec![(at, bytes)] };
        let found = check(Arc::new(damaged(&judge.target, &injection))).unwrap();
        assert!(found.count() > 0, "{what}");
        let (tree, lost) = judge.repair(&injection, scope);
        assert!(scope == Scope::All || lost.is_empty(), "{what}: {lost:?}");
        assert!(tree.is_some_and(|tree| tree == judge.sound), "{what}:\n{}", lines(&found));
    }
}

/// The summaries of the pack with the journals, and where they are.
pub fn journals(judge: &Judge) -> (u64, Vec<u8>) {
    journal_of(&judge.target)
}

/// As [`journals`].
pub fn journal_of(target: &Target) -> (u64, Vec<u8>) {
    let (head, contents) = target.pack();
    let head = target.read(head);
    assert!(word(&head, FLAGS_AT) & COMPACT != 0);
    let at = contents[word(&head, START_SUM_AT) as usize - 1];
    (at, target.read(at))
}

/// A volume without the NAT's entry of an inode, and with an impossible entry of its segment.
fn without(judge: &Judge, ino: u32) -> Injection {
    let device: Arc<MemoryDevice> = Arc::new(judge.target.device.fork());
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let fs = F2fs::open(device, Threads::new(), &options).unwrap();
    let addr = fs.disk().nat.lookup(Nid(ino)).unwrap().block_addr.get();
    let segment = (addr - judge.target.layout().main) / 512;
    let mut injection = judge.target.inject_nat(ino as usize, ("block_addr", 5, 4), 0);
    let (at, mut bytes) = journals(judge);
    let entries = (0..usize::from(bytes[0])).map(|entry| 2 + entry * NAT_ENTRY);
    for entry in entries {
        if word(&bytes, entry) == ino {
            set(&mut bytes, entry + 9, 0);
        }
    }
    let mut entries = (0..usize::from(bytes[SIT_AT])).map(|entry| SIT_AT + 2 + entry * SIT_ENTRY);
    match entries.find(|entry| word(&bytes, *entry) == segment) {
        Some(entry) => bytes[entry + 4] ^= 1,
        None => {
            let place = judge.target.sit_place(segment).unwrap();
            let mut block = judge.target.read(place);
            block[(place & 0xfff) as usize] ^= 1;
            injection.blocks.push((place & !0xfff, block));
        }
    }
    injection.blocks.push((at, bytes));
    injection
}

/// The block of a node is lost in the NAT, and the SIT's entry of its segment contradicts itself.
#[test]
fn a_node_in_a_segment_that_the_sit_does_not_know_is_found_in_the_log() {
    let device = Arc::new(planted(&[]).fork());
    touched(&device);
    let judge = Judge::of(&device);
    // Of one that was written again, the log has an older version elsewhere.
    for name in ["small", "pointers"] {
        let ino = judge.numbers[name];
        let injection = without(&judge, ino);
        let (tree, losses) = judge.repair(&injection, Scope::All);
        let tree = tree.unwrap();
        let differ = judge.sound.iter().filter(|(path, right)| tree.get(*path) != Some(right));
        let differ: Vec<_> = differ.map(|(path, _)| String::from_utf8_lossy(path)).collect();
        assert_eq!(differ, [""; 0], "{name}: {losses:?}");
        assert!(losses.is_empty(), "{name}: {losses:?}");
    }
}

/// A field of the superblock, where it is, and what is changed in both copies.
const SUPERBLOCK: [(&str, usize, u32); 16] = [
    ("log_blocksize", 16, 1),
    ("segs_per_sec", 24, 4),
    ("secs_per_zone", 28, 0x80),
    ("section_count", 44, 0x10),
    ("segment_count", 48, 0x100),
    ("segment_count_ckpt", 52, 1),
    ("segment_count_nat", 60, 2),
    ("cp_blkaddr", 76, 0x200),
    ("sit_blkaddr", 80, 0x400),
    ("main_blkaddr", 92, 1),
    ("root_ino", 96, 1),
    ("devs", 2201, 0x40),
    ("extension_count", 1148, 0x4000),
    ("hot_ext_count", 2757, 0x80),
    ("qf_ino[0]", 2745, 0x8000_0000),
    ("qf_ino[1]", 2749, 9),
];

#[test]
fn a_field_of_both_superblocks_that_others_imply_costs_nothing() {
    let judge = Judge::new(&[]);
    let whole = rescued(Arc::new(judge.target.device.fork()));
    for (what, at, change) in SUPERBLOCK {
        let blocks = [0, 4096].map(|copy| {
            let mut bytes = judge.target.read(copy);
            let value = word(&bytes, 1024 + at) ^ change;
            set(&mut bytes, 1024 + at, value);
            (copy, bytes)
        });
        let injection = Injection { what: what.into(), blocks: blocks.to_vec() };
        let device = Arc::new(damaged(&judge.target, &injection));
        let found = check(device.clone()).unwrap();
        assert!(found.count() > 0, "{what}");
        let (tree, _) = judge.repair(&injection, Scope::All);
        assert!(tree.is_some_and(|tree| tree == judge.sound), "{what}:\n{}", lines(&found));
        if ["secs_per_zone", "extension_count", "hot_ext_count"].contains(&what) {
            assert!(rescued(device).files == whole.files, "{what}");
        }
    }
}

/// A volume with an orphan, and with fsynced files behind the checkpoint.
fn with_a_chain() -> Judge {
    let device = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "");
    let create = |name: &[u8]| {
        let new = fs.create(fs.root(), name, NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
        fs.write(new.ino, 0, &[1; 20_000], IoFlags::empty()).unwrap();
        new.ino
    };
    create(b"gone");
    fs.unlink(fs.root(), b"gone").unwrap();
    create(b"before");
    fs.sync().unwrap();
    let behind = create(b"behind");
    fs.fsync(behind, 0, false).unwrap();
    fs.shutdown(false).unwrap();
    Judge::of(&Arc::new(device.fork()))
}

/// The NAT's journal loses entries: neither the nodes nor the chain are lost.
#[test]
fn a_journal_that_is_cut_costs_nothing() {
    let judge = with_a_chain();
    let (at, sound) = journals(&judge);
    assert!(sound[0] > 1, "{}", sound[0]);
    for count in [0, sound[0] / 2] {
        let mut bytes = sound.clone();
        bytes[0] = count;
        let injection = Injection { what: format!("{count} entries"), blocks: vec![(at, bytes)] };
        let (tree, lost) = judge.repair(&injection, Scope::All);
        assert!(lost.is_empty(), "{count}: {lost:?}");
        assert!(tree.unwrap() == judge.sound, "{count}");
    }
}

/// The NAT and the SIT are set right where they are, so that what was fsynced is recovered after
/// that.
#[test]
fn a_wrong_entry_before_a_chain_costs_nothing() {
    const ADDRESS: usize = 9;
    let judge = with_a_chain();
    let (at, sound) = journals(&judge);
    let sit = SIT_AT + 2;
    assert!(sound[0] > 0 && sound[SIT_AT] > 0, "{} {}", sound[0], sound[SIT_AT]);
    let mut cases: Vec<(String, Scope, u64, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, scope, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sound.clone();
        change(&mut bytes);
        cases.push((what.into(), scope, at, bytes));
    };
    for entry in 0..usize::from(sound[0]) {
        let what = format!("the address of entry {entry} of the journal");
        add(&what, Scope::All, &|bytes| bytes[2 + entry * NAT_ENTRY + ADDRESS + 3] = 0xf6);
    }
    add("a count in the journal", Scope::Accounting, &|bytes| bytes[sit + 4] ^= 1);
    add("a bit in the journal", Scope::Accounting, &|bytes| bytes[sit + 6] ^= 1);
    add("a possible bit in the journal", Scope::Accounting, &|bytes| unmarked(bytes, sit + 4));
    add("too many segments", Scope::Accounting, &|bytes| bytes[SIT_AT] |= 0x40);
    for segment in 0..judge.target.layout().main_segments {
        let Some(place) = judge.target.sit_place(segment) else { continue };
        let base = (place & 0xfff) as usize;
        let mut bytes = judge.target.read(place & !0xfff);
        unmarked(&mut bytes, base);
        let what = format!("a possible bit of segment {segment}");
        cases.push((what, Scope::Accounting, place & !0xfff, bytes));
    }
    for (what, scope, at, bytes) in cases {
        let injection = Injection { what: what.clone(), blocks: vec![(at, bytes)] };
        let (tree, lost) = judge.repair(&injection, scope);
        assert!(lost.is_empty(), "{what}: {lost:?}");
        assert!(tree.is_some_and(|tree| tree == judge.sound), "{what}");
    }
}

/// The first block in use of a segment becomes a free one, and the count agrees.
pub fn unmarked(bytes: &mut [u8], entry: usize) {
    let count = u16::from_le_bytes([bytes[entry], bytes[entry + 1]]);
    if let Some(at) = (entry + 2..entry + 66).find(|at| bytes[*at] != 0) {
        bytes[at] &= bytes[at] - 1;
        bytes[entry..entry + 2].copy_from_slice(&(count - 1).to_le_bytes());
    }
}
