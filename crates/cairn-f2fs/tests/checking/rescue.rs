//! `rescue` of a volume after a power cut: what was fsynced behind the checkpoint is there as it
//! was last, and is no loss.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::salvage::{Contents, Found, Loss, Receiver};
use cairn_f2fs::{Choice, rescue};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::check;
use crate::flags::sampled_of;
use crate::inject::{Injection, Target};
use crate::names::{NAMES_AT, SLOT, block_of};
use crate::repair::damaged;
use crate::sweep::cases;
use crate::types::Judge;
use crate::volume::{End, MIB, open, volume, work};

/// What a rescue hands out.
#[derive(Default)]
pub struct Taken {
    pub files: BTreeMap<Vec<u8>, Vec<u8>>,
    pub losses: Vec<Loss>,
    /// Paths of files that were not copied as a whole.
    pub faulty: Vec<Vec<u8>>,
}

impl Receiver for Taken {
    fn found(&mut self, file: &Found, contents: &mut dyn Contents) -> bool {
        let mut bytes = vec![0; usize::try_from(file.size).unwrap()];
        let is_small = bytes.len() < 64 << 20;
        if is_small {
            let faults = contents.copy(&mut |offset, part| {
                let at = usize::try_from(offset).unwrap();
                bytes[at..at + part.len()].copy_from_slice(part);
                true
            });
            self.faulty.extend((!faults.is_empty()).then(|| file.path.clone()));
        }
        self.files.insert(file.path.clone(), bytes);
        true
    }

    fn linked(&mut self, _: &[u8], _: u64, _: &[u8]) -> bool {
        true
    }

    fn lost(&mut self, loss: Loss) -> bool {
        self.losses.push(loss);
        true
    }

    fn progress(&mut self, _: &'static str, _: u64, _: u64) -> bool {
        true
    }
}

#[test]
fn what_was_fsynced_is_rescued_as_it_was_last() {
    let device = volume(96 * MIB, &[]);
    let fs = open(device.clone(), "");
    let old = fs.create(fs.root(), b"old", NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
    fs.write(old.ino, 0, &[1; 9000], IoFlags::empty()).unwrap();
    fs.forget(old.ino, 1);
    work(&fs, End::Closed);
    let fs = open(device.clone(), "");
    let old = fs.lookup(fs.root(), b"old").unwrap();
    fs.write(old.ino, 4096, &[2; 30_000], IoFlags::empty()).unwrap();
    fs.fsync(old.ino, 0, false).unwrap();
    for index in 0..8_u8 {
        let name = format!("new {index}");
        let new = fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o600, &Caller::ROOT);
        let ino = new.unwrap().ino;
        fs.write(ino, 0, &vec![index; 100 + 4000 * usize::from(index)], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
    }
    fs.shutdown(false).unwrap();
    let mut taken = Taken::default();
    let left = Arc::new(device.fork());
    rescue::open(left, Choice::default()).unwrap().tree(&mut taken);
    let mut bytes = vec![2; 34_096];
    bytes[..4096].fill(1);
    assert!(taken.files[&b"old"[..]] == bytes);
    for index in 0..8_u8 {
        let bytes = &taken.files[format!("new {index}").as_bytes()];
        assert!(*bytes == vec![index; 100 + 4000 * usize::from(index)], "{index}");
    }
    assert_eq!(taken.losses, []);
}

pub fn rescued(device: Arc<dyn BlockDevice>) -> Taken {
    let mut taken = Taken::default();
    rescue::open(device, Choice::default()).unwrap().tree(&mut taken);
    taken
}

/// Form or type of an inode are wrong: it is rescued by those that it shows, or told as damaged.
#[test]
fn an_inode_with_a_wrong_record_is_not_rescued_as_whole() {
    const NAMES: [&str; 5] = ["inline", "pointers", "nodes", "small", "large"];
    for arguments in [&[][..], &["-O", "extra_attr,inode_checksum,inode_crtime"]] {
        let judge = Judge::new(arguments);
        let sound = rescued(Arc::new(judge.target.device.fork()));
        assert_eq!(sound.losses, []);
        let (mut cases, mut whole) = (Vec::new(), 0);
        for name in NAMES {
            for bit in [1, 2, 4] {
                cases.push((name, 3, bit));
            }
            for bit in [0x10, 0x40, 0x60, 0x80, 0xc0] {
                cases.push((name, 1, bit));
            }
            // Of 36 bytes of extra attributes.
            for bits in
                [36 ^ 24, 36 ^ 12, 36 ^ 28, 36 ^ 40].into_iter().filter(|_| !arguments.is_empty())
            {
                cases.push((name, 360, bits));
            }
        }
        for (name, at, bits) in cases {
            let injection = judge.change(name, &|bytes| bytes[at] ^= bits);
            let device = judge.target.device.fork();
            for (at, bytes) in &injection.blocks {
                device.load(*at, bytes);
            }
            let taken = rescued(Arc::new(device));
            let is_whole = taken.files == sound.files;
            whole += u32::from(is_whole);
            let is_told = taken.losses.iter().any(|loss| loss.path == name.as_bytes());
            assert!(is_whole || is_told, "{name}, byte {at} ^ {bits:#x}: {:?}", taken.losses);
        }
        assert!(whole > 20, "{whole}");
    }
}

/// What a rescue doubts, the check finds, too.
#[test]
fn a_rescue_doubts_only_what_the_check_finds() {
    for (arguments, seed) in [(&[][..], 31), (&["-O", "extra_attr,inode_checksum"], 32)] {
        let judge = Judge::new(arguments);
        let mut wrong = String::new();
        let sizes = ["inline", "line", "small", "pointers"].map(|name| {
            let injection = judge.change(name, &|bytes| bytes[16..24].fill(0));
            ("i_size is 0".to_owned(), injection)
        });
        let others = sampled_of(cases(&judge), seed, 30);
        let others = others.into_iter().map(|case| (case.injection.what.clone(), case.injection));
        for (what, injection) in sizes.into_iter().chain(others) {
            let device = damaged(&judge.target, &injection);
            let report = check(Arc::new(device.fork())).unwrap();
            let taken = rescued(Arc::new(device));
            if report.count() == 0 && !taken.losses.is_empty() {
                wrong += &format!("{what}: {:?}\n", taken.losses[0]);
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }
}

/// The inode and the hash say which name an entry had; else it is told that it may be wrong.
#[test]
fn a_wrong_name_is_rescued_as_it_was_or_told() {
    let target = Target::new(&[]);
    let sound = rescued(Arc::new(target.device.fork()));
    assert_eq!(sound.losses, []);
    let (at, right, slot) = block_of(&target, b"linked");
    for count in [1, 4] {
        let mut bytes = right.clone();
        let name = NAMES_AT + slot * SLOT;
        bytes[name..name + count].fill(b'!');
        let injection = Injection { what: format!("{count} bytes"), blocks: vec![(at, bytes)] };
        let taken = rescued(Arc::new(damaged(&target, &injection)));
        let is_told = taken.losses.iter().any(|loss| loss.what.contains("hash"));
        assert!(taken.files == sound.files || is_told, "{count}");
        assert!(count > 1 || taken.losses.is_empty());
    }
}

/// The node that an inode does not lead to any more is missed, by the count of blocks.
#[test]
fn blocks_that_were_not_found_are_told() {
    const NIDS_AT: usize = 4052;
    for arguments in [&[][..], &["-O", "extra_attr,inode_checksum,compression"]] {
        let judge = Judge::new(arguments);
        for flags in [0, 4] {
            let injection = judge.change("nodes", &|bytes| {
                bytes[NIDS_AT..NIDS_AT + 4].fill(0);
                // A file that is compressed, but for its clusters.
                if flags > 0 {
                    (bytes[80], bytes[392], bytes[393]) = (bytes[80] | flags, 1, 2);
                }
            });
            let taken = rescued(Arc::new(damaged(&judge.target, &injection)));
            let is_told = taken.losses.iter().any(|loss| loss.path == b"nodes");
            let is_told = is_told || taken.faulty == [b"nodes"];
            assert!(is_told, "{arguments:?} {flags}: {:?}", taken.losses);
            if arguments.is_empty() {
                break;
            }
        }
    }
}

/// What has a wrong checksum is copied, and told.
#[test]
fn an_inode_with_a_wrong_checksum_is_copied_and_told() {
    const MTIME_AT: usize = 48;
    let judge = Judge::new(&["-O", "extra_attr,inode_checksum"]);
    let sound = rescued(Arc::new(judge.target.device.fork()));
    for (name, path) in [("inline", "inline"), ("nodes", "nodes"), ("/", "/")] {
        let mut injection = judge.change(name, &|_| ());
        injection.blocks[0].1[MTIME_AT] ^= 0xff;
        let taken = rescued(Arc::new(damaged(&judge.target, &injection)));
        assert!(taken.files == sound.files, "{name}: {:?}", taken.losses);
        let what: Vec<_> = taken.losses.iter().map(|loss| (&loss.path[..], &loss.what)).collect();
        let [(lost, what)] = what[..] else { panic!("{name}: {what:?}") };
        assert!(lost == path.as_bytes() && what.contains("and so may be the copy"), "{what}");
    }
}

/// Under another UUID all checksums of inodes are wrong: that is said once.
#[test]
fn a_wrong_seed_of_checksums_loses_nothing() {
    const UUID_AT: usize = 108;
    let judge = Judge::new(&["-O", "extra_attr,inode_checksum"]);
    let sound = rescued(Arc::new(judge.target.device.fork()));
    let blocks = [0, 4096].map(|at| {
        let mut bytes = judge.target.read(at);
        bytes[1024 + UUID_AT..1024 + UUID_AT + 16].fill(7);
        (at, bytes)
    });
    let injection = Injection { what: "UUID".into(), blocks: blocks.into() };
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
    let mut rescue = rescue::open(device, Choice::default()).unwrap();
    let notes = rescue.notes();
    assert!(notes.iter().any(|note| note.contains("another UUID")), "{notes:?}");
    let mut taken = Taken::default();
    rescue.tree(&mut taken);
    assert_eq!(taken.losses, []);
    assert!(taken.files == sound.files);
}

/// The NAT leads to every node: a lost SIT makes none of them an older version.
#[test]
fn a_lost_segment_table_loses_nothing() {
    let judge = Judge::new(&[]);
    let sound = rescued(Arc::new(judge.target.device.fork()));
    let all = judge.target.layout().main_segments;
    let places = (0..all).filter_map(|segment| judge.target.sit_place(segment));
    let starts: std::collections::BTreeSet<u64> = places.map(|at| at / 4096 * 4096).collect();
    assert!(!starts.is_empty());
    let blocks = starts.into_iter().map(|at| (at, vec![0; 4096])).collect();
    let injection = Injection { what: "SIT".into(), blocks };
    let taken = rescued(Arc::new(damaged(&judge.target, &injection)));
    assert_eq!(taken.losses, []);
    assert!(taken.files == sound.files);
}
