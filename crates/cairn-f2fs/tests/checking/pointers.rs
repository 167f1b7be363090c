//! Data pointers that lead to a node, to a block of another file, or to the block of another
//! pointer: summaries, the NAT and footers say whose each block is.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_f2fs::format::inode;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::inject::Injection;
use crate::listed::{set, word};
use crate::readers::View;
use crate::repair::{apply, damaged, plan};
use crate::rescue::rescued;
use crate::stale::place_of;
use crate::types::{Judge, planted};
use crate::volume::open;
use crate::{check, lines, packs};

const POINTERS_AT: usize = 360;
pub const NIDS_AT: usize = 4052;
const XATTR_NID_AT: usize = 76;
/// Files, of which the first one is walked before the others, and pointers that are 0.
const EMPTY: [(&str, usize); 2] = [("pointers", 40), ("hole", 2)];

/// A planted volume in which all blocks of a file differ.
pub struct Volume {
    pub device: Arc<MemoryDevice>,
    pub judge: Judge,
}

impl Volume {
    pub fn new() -> Self {
        let device = Arc::new(planted(&[]).fork());
        let fs = open(device.clone(), "");
        let file = fs.lookup(fs.root(), b"pointers").unwrap().ino;
        let contents: Vec<u8> = (0..50_000).map(|at| (at / 4096) as u8 | 0x40).collect();
        fs.write(file, 0, &contents, IoFlags::empty()).unwrap();
        fs.unmount().unwrap();
        let judge = Judge::of(&device);
        Self { device, judge }
    }

    pub fn inode(&self, name: &str) -> (u64, Vec<u8>) {
        let fs = open(Arc::new(self.device.fork()), "");
        let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino.get();
        let at = place_of(&self.device, ino as u32);
        (at, self.judge.target.read(at))
    }

    pub fn pointer(&self, (name, slot): (&str, usize)) -> u32 {
        word(&self.inode(name).1, POINTERS_AT + 4 * slot)
    }

    /// Pointers of inodes get other values.
    pub fn set(&self, what: &str, pointers: &[((&str, usize), u32)]) -> Injection {
        let mut blocks: Vec<(u64, Vec<u8>)> = Vec::new();
        for ((name, slot), value) in pointers {
            let (at, bytes) = self.inode(name);
            if !blocks.iter().any(|(known, _)| *known == at) {
                blocks.push((at, bytes));
            }
            let (_, bytes) = blocks.iter_mut().find(|(known, _)| *known == at).unwrap();
            set(bytes, POINTERS_AT + 4 * slot, *value);
            inode::seal(bytes, self.judge.target.layout());
        }
        Injection { what: what.into(), blocks }
    }

    /// Only the pointer goes, and is listed.
    fn is_cut(&self, empty: (&str, usize), to: u32, what: &str) {
        let what = format!("{empty:?} leads to {what}");
        let injection = self.set(&what, &[(empty, to)]);
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&self.judge.target, &injection));
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.block.shared"), "{what}:\n{found}");
        assert!(plan(&device, Scope::Accounting).unwrap().changes.is_empty(), "{what}");
        let (tree, lost) = self.judge.repair(&injection, Scope::All);
        assert!(tree.unwrap() == self.judge.sound, "{what}");
        assert_eq!(lost, [[b"/", empty.0.as_bytes()].concat()], "{what}");
        if what.contains("attributes") {
            apply(&plan(&device, Scope::All).unwrap(), &device);
            let sound = View::of(&(Arc::new(self.device.fork()) as _));
            assert_eq!(View::of(&device).wrong(&sound), [""; 0], "{what}");
        }
    }
}

#[test]
fn a_hole_that_leads_to_a_block_of_another_file_is_cut() {
    let volume = Volume::new();
    for empty in EMPTY {
        for owned in [("pointers", 3), ("hole", 6), ("large", 0), ("nodes", 5)] {
            if owned.0 != empty.0 {
                volume.is_cut(empty, volume.pointer(owned), &format!("{owned:?}"));
            }
        }
    }
}

#[test]
fn a_hole_that_leads_to_a_node_is_cut() {
    let volume = Volume::new();
    let nodes = [("more attributes", XATTR_NID_AT), ("nodes", NIDS_AT), ("long hole", NIDS_AT)];
    let nodes = nodes.map(|(name, at)| {
        let nid = word(&volume.inode(name).1, at);
        (format!("a node of {name}"), place_of(&volume.device, nid))
    });
    let inodes = ["more attributes", "small"].map(|name| (name.into(), volume.inode(name).0));
    for (number, (what, at)) in nodes.into_iter().chain(inodes).enumerate() {
        volume.is_cut(EMPTY[number % 2], (at / 4096) as u32, &what);
    }
}

#[test]
fn pointers_that_were_exchanged_are_exchanged_again() {
    let volume = Volume::new();
    for (one, other) in [
        (("pointers", 3), ("pointers", 7)),
        (("pointers", 0), ("hole", 6)),
        (("nodes", 8), ("pointers", 11)),
    ] {
        let what = format!("{one:?} and {other:?}");
        let pointers = [(one, volume.pointer(other)), (other, volume.pointer(one))];
        let injection = volume.set(&what, &pointers);
        let found = check(Arc::new(damaged(&volume.judge.target, &injection))).unwrap();
        assert!(lines(&found).contains("f2fs.block.unlinked"), "{what}:\n{}", lines(&found));
        for scope in [Scope::Accounting, Scope::All] {
            let (tree, lost) = volume.judge.repair(&injection, scope);
            assert!(lost.is_empty() && tree.unwrap() == volume.judge.sound, "{what}");
        }
    }
}

/// Runs of pointers that were shifted, and other circles of three and more.
#[test]
fn pointers_that_were_exchanged_in_a_circle_are_exchanged_again() {
    let volume = Volume::new();
    let circles: [&[(&str, usize)]; 4] = [
        &[("pointers", 3), ("pointers", 7), ("pointers", 5)],
        &[("pointers", 0), ("hole", 6), ("nodes", 8), ("pointers", 11)],
        &[("nodes", 8), ("nodes", 9), ("nodes", 10), ("nodes", 11), ("nodes", 12)],
        &[("pointers", 1), ("pointers", 2), ("pointers", 3), ("pointers", 4), ("pointers", 5)],
    ];
    for circle in circles {
        let what = format!("{circle:?}");
        let next = circle.iter().cycle().skip(1);
        let pointers: Vec<_> =
            circle.iter().zip(next).map(|(one, next)| (*one, volume.pointer(*next))).collect();
        let injection = volume.set(&what, &pointers);
        let found = check(Arc::new(damaged(&volume.judge.target, &injection))).unwrap();
        let found = lines(&found);
        assert_eq!(found.matches("f2fs.block.unlinked").count(), circle.len(), "{what}:\n{found}");
        for scope in [Scope::Accounting, Scope::All] {
            let (tree, lost) = volume.judge.repair(&injection, scope);
            assert!(lost.is_empty() && tree.unwrap() == volume.judge.sound, "{what}");
        }
    }
}

/// Where the last block of a pack says how many blocks the pack has.
const PACK_BLOCKS_AT: usize = 136;

/// The block becomes the file's although the newest checkpoint, which is damaged, stays as long as
/// that is possible.
#[test]
fn a_pointer_to_a_free_block_is_decided_beside_a_damaged_checkpoint() {
    let device = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "nodiscard,mode=lfs");
    fs.create(fs.root(), b"new", NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
    fs.unmount().unwrap();
    let mut judge = Judge::of(&device);
    // Neither end is a copy of the other.
    let [head, last] = judge.target.pack_ends();
    let ends = [(head, 8, false), (last, PACK_BLOCKS_AT, true)].map(|(at, place, is_sealed)| {
        let mut bytes = judge.target.read(at);
        bytes[place] ^= 1;
        if is_sealed {
            packs::seal(&mut bytes);
        }
        (at, bytes)
    });
    let (free, _) = judge.target.free_blocks()[0];
    let mut injection = judge.change("pointers", &|bytes| {
        set(bytes, POINTERS_AT + 4 * EMPTY[0].1, free);
    });
    injection.blocks.extend(ends);
    let found = lines(&check(Arc::new(damaged(&judge.target, &injection))).unwrap());
    for code in ["f2fs.checkpoint.pack", "f2fs.block.free"] {
        assert!(found.contains(code), "{code}:\n{found}");
    }
    let (tree, lost) = judge.repair(&injection, Scope::All);
    assert!(lost.iter().any(|path| path == b"/pointers"), "{lost:?}");
    judge.sound.remove(&b"/new"[..]);
    assert!(tree.unwrap() == judge.sound);
}

/// The neighbours of the empty pointer show that the block is not that of the one that leads there.
#[test]
fn a_pointer_that_was_moved_to_a_hole_is_moved_back() {
    let volume = Volume::new();
    for (from, to) in [(3, 40), (0, 13), (12, 500), (5, 6), (6, 5)] {
        let (from, to) = (("pointers", from), ("pointers", to));
        let what = format!("{from:?} is {to:?}");
        let pointers = [(from, 0), (to, volume.pointer(from))];
        let injection = volume.set(&what, &pointers);
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&volume.judge.target, &injection));
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.block.unlinked"), "{what}:\n{found}");
        let sound = View::of(&(Arc::new(volume.device.fork()) as _));
        let view = View::of(&device);
        assert!(view.wrong(&sound).is_empty(), "{what}: {:?}", view.wrong(&sound));
        assert!(view.failed.contains(&b"/pointers"[..]), "{what}");
        for scope in [Scope::Accounting, Scope::All] {
            let (tree, lost) = volume.judge.repair(&injection, scope);
            assert!(lost.is_empty() && tree.unwrap() == volume.judge.sound, "{what}: {lost:?}");
        }
    }
}

/// A block in use is that of the pointer, which says that the block is reserved and was never
/// written.
#[test]
fn a_pointer_that_became_a_reserved_one_does_not_read_as_zeros() {
    const NEW: u32 = u32::MAX;
    let volume = Volume::new();
    let whole = rescued(Arc::new(volume.device.fork()));
    for slot in [0, 3, 12] {
        let what = format!("pointer {slot}");
        let injection = volume.set(&what, &[(("pointers", slot), NEW)]);
        let device = Arc::new(damaged(&volume.judge.target, &injection));
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        let found = lines(&check(dynamic.clone()).unwrap());
        assert!(found.contains("f2fs.block.doubt"), "{what}:\n{found}");
        let view = View::of(&dynamic);
        assert!(view.failed.contains(&b"/pointers"[..]), "{what}");
        let taken = rescued(device);
        assert!(taken.files == whole.files, "{what}");
        assert_eq!((whole.faulty.len(), taken.faulty.len()), (0, 1), "{what}");
        // The place may have been reserved, and the SIT be wrong.
        let (tree, lost) = volume.judge.repair(&injection, Scope::Accounting);
        assert!(lost.is_empty() && tree.is_none(), "{what}: {lost:?}");
        let (tree, lost) = volume.judge.repair(&injection, Scope::All);
        assert_eq!(lost, [b"/pointers"], "{what}");
        assert!(tree.unwrap() == volume.judge.sound, "{what}");
    }
}

/// Each directory has the block of the other, with its `.` and `..`.
#[test]
fn exchanged_blocks_of_directories_are_set_back() {
    let device = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "");
    let new = |parent, name: &str, kind| {
        fs.create(parent, name.as_bytes(), kind, 0o755, &Caller::ROOT).unwrap().ino
    };
    let wide = new(fs.root(), "wide", NewInode::Directory);
    let inner = new(wide, "inner", NewInode::Directory);
    for index in 0..300 {
        new(wide, &format!("another rather long name {index}"), NewInode::Regular);
        new(inner, &format!("a third rather long name {index}"), NewInode::Regular);
    }
    fs.unmount().unwrap();
    let judge = Judge::of(&device);
    let number = |ino: cairn_base::Ino| u32::try_from(ino.get()).unwrap();
    let (wide, inner) = (number(wide), number(inner));
    let large = judge.numbers["large"];
    for (one, other) in [(large, wide), (wide, inner), (inner, large)] {
        let places = [one, other].map(|ino| place_of(&device, ino));
        let mut blocks = places.map(|at| judge.target.read(at));
        let pointers = [1, 0].map(|of: usize| word(&blocks[of], POINTERS_AT));
        blocks.iter_mut().zip(pointers).for_each(|(bytes, to)| set(bytes, POINTERS_AT, to));
        let what = format!("inodes {one} and {other}");
        let injection =
            Injection { what: what.clone(), blocks: places.into_iter().zip(blocks).collect() };
        let found = lines(&check(Arc::new(damaged(&judge.target, &injection))).unwrap());
        assert_eq!(found.matches("f2fs.block.unlinked").count(), 2, "{what}:\n{found}");
        for scope in [Scope::Accounting, Scope::All] {
            let (tree, lost) = judge.repair(&injection, scope);
            assert!(lost.is_empty() && tree.unwrap() == judge.sound, "{what}: {lost:?}");
        }
    }
}
