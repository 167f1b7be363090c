//! The smallest size of a volume, and the one that a refusal names, can be reached, and at once:
//! structures of groups that go need their place until the end is cut off.

use std::path::Path;
use std::sync::Arc;

use cairn_base::options::parse_size;
use cairn_block::memory::MemoryDevice;
use cairn_vfs::{AllocateMode, Caller, FileSystem, IoFlags, NewInode};

use crate::resize::{MIB, digest, least_of, resized, shortened, size_of};
use crate::support::{judge, open, volume};

/// Shapes, bytes of the volume, and files of 1 MB.
const SHAPES: &[(&[&str], u64, usize)] = &[
    (&["-t", "ext4", "-b", "4096", "-g", "8192"], 250 * MIB, 75),
    (&["-t", "ext4", "-b", "1024", "-N", "2000"], 100 * MIB, 50),
    (&["-t", "ext4", "-b", "1024", "-N", "2000", "-O", "^has_journal"], 100 * MIB, 50),
    (&["-t", "ext4", "-b", "1024", "-g", "1024", "-G", "8", "-J", "size=1"], 30 * MIB, 7),
    (&["-t", "ext4", "-b", "1024", "-O", "sparse_super2", "-N", "9000"], 60 * MIB, 20),
];

/// A volume made from the files that `fill` puts in a directory.
fn from_files(size: u64, shape: &[&str], fill: impl Fn(&Path)) -> Arc<MemoryDevice> {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    volume(size, &[shape, &["-d", dir.path().to_str().unwrap()]].concat())
}

/// Shrinks a volume to a size that it must be able to have.
fn shrunk(device: &Arc<MemoryDevice>, size: u64) -> Arc<MemoryDevice> {
    let device = Arc::new((**device).fork());
    let done = resized(&device, size).unwrap();
    assert!(done.after <= size && size_of(&device) == done.after, "{done:?}, not {size}");
    let device = Arc::new(shortened(&device, done.after));
    judge(&device);
    device
}

/// The size that a refusal of this one names.
fn named(device: &Arc<MemoryDevice>, size: u64) -> u64 {
    let said = resized(device, size).unwrap_err().to_string();
    let word = said.split("give ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    parse_size(word).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn the_least_size_and_the_one_that_is_named_can_be_reached() {
    for (shape, size, files) in SHAPES {
        let device = from_files(*size, shape, |dir| {
            (0..*files)
                .for_each(|n| std::fs::write(dir.join(n.to_string()), [7; 1_000_000]).unwrap());
        });
        let expected = digest(&device);
        let least = least_of(&device);
        println!("{shape:?}: {least}");
        let before = named(&device, least - 4096);
        assert!(before >= least && before < least + MIB, "{before}");
        shrunk(&device, before);
        // Steps that begin elsewhere.
        let nearly = shrunk(&device, least + MIB);
        for device in [device, nearly] {
            let mut device = shrunk(&device, least_of(&device));
            digest(&device).assert_same(&expected);
            assert!(size_of(&device) <= least);
            device = shrunk(&device, least_of(&device));
            digest(&device).assert_same(&expected);
        }
    }
}

/// The map of a file that moves into single free blocks needs more than was estimated.
#[test]
fn a_volume_becomes_as_small_as_there_is_room_for() {
    const HOLES: usize = 12_000;
    let shape = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    let device = from_files(64 * MIB, &shape, |dir| {
        std::fs::write(dir.join("holes"), vec![7; 2048 * HOLES]).unwrap();
    });
    let fs = open(&device, "");
    let holes = fs.lookup(fs.root(), b"holes").unwrap().ino;
    for at in (0..2048 * HOLES as u64).step_by(2048) {
        fs.allocate(holes, AllocateMode::PunchHole, at, 1024).unwrap();
    }
    let new = NewInode::Regular;
    let moves = fs.create(fs.root(), b"moves", new, 0o644, &Caller::ROOT).unwrap().ino;
    fs.write(moves, 0, &vec![9; 1024 * HOLES], IoFlags::empty()).unwrap();
    fs.unmount().unwrap();
    let (expected, least) = (digest(&device), least_of(&device));
    let done = resized(&device, least).unwrap();
    println!("{done:?}, estimated {least}");
    assert!(done.after > least && done.after < least + 4 * MIB, "{done:?}, not {least}");
    assert_eq!(size_of(&device), done.after);
    let device = Arc::new(shortened(&device, done.after));
    judge(&device);
    digest(&device).assert_same(&expected);
}
