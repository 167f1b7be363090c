//! Volumes that mkfs fills with a tree: everything is there, fsck.f2fs and the check find nothing,
//! before and after a mount has changed them.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_f2fs::mkfs::MkfsOptions;
use cairn_f2fs::mkfs::populate::{PopulateError, Population, TreeError};
use cairn_testkit::judge::assert_f2fs_device_clean;
use cairn_testkit::made::{Made, What, assert_holds};
use cairn_vfs::{Caller, FileKind, FileSystem, IoFlags, NewInode, OpenMode};
use uuid::Uuid;

use crate::support::{EXTRA, find, judge, names, open};

const BLOCK: u64 = 4096;
/// Bytes of an inode for contents, on a volume without extra attributes.
const INLINE: u64 = 3488;
/// The features that change the form of inodes.
const FORMS: [&str; 4] = ["", EXTRA, "extra_attr,inode_crtime", "extra_attr,inode_checksum"];

pub fn options(features: &str) -> MkfsOptions {
    MkfsOptions {
        features: vec![features.into()],
        uuid: Some(Uuid::from_u128(7)),
        time: Some(1_700_000_000),
        ..Default::default()
    }
}

fn plan(made: &Made, options: &MkfsOptions) -> Result<Population, PopulateError> {
    Population::new(Arc::new(made.clone()), options, &*Threads::new())
}

/// The smallest volume that holds the tree and `free` bytes, written by two threads.
#[track_caller]
pub fn filled(made: &Made, features: &str, free: u64) -> Arc<MemoryDevice> {
    let population = plan(made, &options(features)).expect("a possible tree");
    let size = population.required_bytes(free).expect("a possible size");
    let device = Arc::new(MemoryDevice::new(size));
    population.write(device.clone(), 2, &*Threads::new()).expect("the volume is written");
    device
}

/// Fills volumes of every form, judges them, changes them, and judges them again.
#[track_caller]
fn holds(made: &Made) {
    for features in FORMS {
        let device = filled(made, features, 8 << 20);
        judge(&device);
        let fs = open(&device, "");
        assert_holds(&*fs, made);
        change(&*fs);
        fs.unmount().unwrap();
        drop(fs);
        judge(&device);
        let fs = open(&device, "");
        let root = fs.root();
        assert_eq!(find(&fs, root, b"a new name in an old directory 7").unwrap().size, 3);
        fs.unmount().unwrap();
    }
}

/// Removes files of the first directories, and makes new ones.
fn change(fs: &dyn FileSystem) {
    let root = fs.root();
    let mut directories = vec![root];
    fs.readdir(root, 0, &mut |entry| {
        if entry.kind == Some(FileKind::Directory) && entry.name.len() > 2 {
            directories.push(entry.ino);
        }
        directories.len() < 4
    })
    .unwrap();
    for directory in directories {
        let mut files = Vec::new();
        fs.readdir(directory, 0, &mut |entry| {
            if entry.kind == Some(FileKind::Regular) {
                files.push(entry.name);
            }
            files.len() < 50
        })
        .unwrap();
        for name in &files {
            fs.unlink(directory, name).unwrap();
        }
        for number in 0..60 {
            write_new(fs, directory, &format!("a new name in an old directory {number}")).unwrap();
        }
    }
    fs.sync().unwrap();
}

fn write_new(fs: &dyn FileSystem, directory: cairn_base::Ino, name: &str) -> cairn_vfs::Result<()> {
    let made = fs.create(directory, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?;
    let handle = fs.open(made.ino, OpenMode { write: true, direct: false })?;
    let written = fs.write(made.ino, 0, b"new", IoFlags::empty());
    fs.release(made.ino, handle);
    fs.forget(made.ino, 1);
    written.map(drop)
}

#[test]
fn an_empty_tree() {
    holds(&Made::new());
}

#[test]
fn every_kind_of_node_on_both_sides_of_every_limit() {
    let mut made = Made::new();
    for size in [0, 1, INLINE - 36, INLINE - 35, INLINE, INLINE + 1, BLOCK, BLOCK + 1, 873 * BLOCK]
    {
        let id = made.file(0, format!("file of {size}"), size);
        made.link(0, format!("another name of {size}"), id);
        made.add(0, format!("hole of {size}"), What::File(size, Vec::new()));
    }
    made.file(0, "direct node", 874 * BLOCK);
    for len in [1, INLINE - 36, INLINE, INLINE + 1, BLOCK - 1] {
        made.add(0, format!("link of {len}"), What::Link(vec![b'x'; len as usize]));
    }
    made.add(0, "device", What::Device(1, 3));
    made.add(0, "large numbers", What::Device(4000, 1_000_000));
    made.add(0, "socket", What::Socket);
    for (name, size) in [("cold.mp4", 30_000), ("hot.db", 30_000), ("small.DB", 10)] {
        made.file(0, name, size);
    }
    // Directories that fill their inodes, less or more.
    for count in [88, 89, 90, 91, 214, 500] {
        let directory = made.directory(0, format!("{count} names"));
        for number in 0..count {
            made.directory(directory, format!("{number:09}"));
        }
    }
    holds(&made);
}

#[test]
fn attributes_in_inodes_and_in_nodes() {
    let mut made = Made::new();
    for len in [0, 1, 150, 164, 165, 172, 173, 400, 4000, 4200] {
        let id = made.file(0, format!("{len:04}"), 10);
        made.xattr(id, "user.x", &vec![7; len]);
        let id = made.directory(0, format!("directory {len}"));
        made.xattr(id, "trusted.y", &vec![8; len]);
        made.xattr(id, "security.selinux", b"z");
        // user::rwx, user:5:rx, group::rx, mask::rwx, other::rx
        let entry = |tag: u16, bits: u16, id: u32| {
            [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let list = [entry(1, 7, none), entry(2, 5, 5), entry(4, 5, none), entry(0x10, 7, none)];
        let list = [&2_u32.to_le_bytes()[..], &list.concat(), &entry(0x20, 5, none)].concat();
        if len < 4000 {
            made.xattr(id, "system.posix_acl_access", &list);
            made.xattr(id, "system.posix_acl_default", &list);
        }
    }
    let link = made.add(0, "link", What::Link(b"target".to_vec()));
    made.xattr(link, "trusted.of a link", &[9; 300]);
    holds(&made);
}

/// Blocks at every depth of the tree of nodes, alone and beside others.
#[test]
fn sparse_files_have_nodes_of_every_kind() {
    let single = 873 + 2 * 1018;
    let double = single + 2 * 1018 * 1018;
    let mut made = Made::new();
    let at = |block: u64| block * BLOCK..block * BLOCK + 700;
    for (number, block) in
        [872, 873, 1891, single, single + 1018 * 1018, double, double + 1_100_000]
            .into_iter()
            .enumerate()
    {
        made.add(0, format!("only {number}"), What::File((block + 5) * BLOCK, vec![at(block)]));
    }
    let all = [0, 5, 873, 2000, single, single + 40_000, single + 1018 * 1018, double, double + 99];
    let data = all.into_iter().map(at).collect();
    made.add(0, "all", What::File((double + 100) * BLOCK, data));
    for count in [1, 900, 3000] {
        let data = (0..count).map(|n| n * 2 * BLOCK + 10..n * 2 * BLOCK + 5000).collect();
        made.add(0, format!("pieces {count}"), What::File(count * 2 * BLOCK, data));
    }
    made.file(0, "dense", 20 << 20);
    holds(&made);
}

#[test]
fn logs_that_end_with_a_segment() {
    // The root's inode and entries, and files of one block each or of many.
    for (small, large) in [(511, 0), (512, 0), (513, 0), (10, 502), (10, 503), (0, 1024), (1024, 7)]
    {
        let mut made = Made::new();
        for number in 0..small {
            made.file(0, format!("{number:04}"), BLOCK);
        }
        made.file(0, "large", large * BLOCK);
        let device = filled(&made, "", 4 << 20);
        judge(&device);
        let fs = open(&device, "");
        assert_holds(&*fs, &made);
        change(&*fs);
        fs.unmount().unwrap();
        judge(&device);
    }
}

#[test]
fn a_hundred_thousand_names_in_one_directory() {
    let mut made = Made::new();
    let many = made.directory(0, "many");
    for number in 0..100_000 {
        made.file(many, format!("{number:06}"), 0);
    }
    let device = filled(&made, "", 16 << 20);
    judge(&device);
    let fs = open(&device, "");
    let many = find(&fs, fs.root(), b"many").unwrap().ino;
    assert_eq!(names(&fs, many).len(), 100_002);
    for number in (0..100_000).step_by(97) {
        let found = find(&fs, many, format!("{number:06}").as_bytes());
        assert_eq!(found.unwrap().kind, FileKind::Regular, "{number}");
    }
    change(&*fs);
    fs.unmount().unwrap();
    judge(&device);
}

/// Names with one hash: the cipher behind it has four keys for each result.
fn equal_hashes(count: u32) -> Made {
    let mut made = Made::new();
    let directory = made.directory(0, "collisions");
    for number in 0..count {
        let mut name = vec![b'n'; 255];
        for (piece, bytes) in name.chunks_mut(16).enumerate().take(15) {
            if number >> piece & 1 == 1 {
                bytes[0] ^= 0x80;
                bytes[4] ^= 0x80;
            }
        }
        made.file(directory, name, 0);
    }
    made
}

#[test]
fn names_of_one_hash_take_a_level_each_until_there_are_no_more() {
    let made = equal_hashes(240);
    let device = filled(&made, "", 8 << 20);
    judge(&device);
    let fs = open(&device, "");
    assert_holds(&*fs, &made);
    change(&*fs);
    fs.unmount().unwrap();
    judge(&device);

    let error = plan(&equal_hashes(400), &options("")).err().expect("too many");
    assert_eq!(error.to_string(), "node 1: too many names have the same hash");
}

#[test]
fn the_tree_s_own_lost_and_found_is_kept() {
    let mut made = Made::new();
    let found = made.directory(0, "lost+found");
    made.file(found, "0x12", 10);
    made.file(0, "zebra", 10_000);
    made.directory(0, "a");
    holds(&made);
}

#[test]
fn the_number_of_threads_and_old_contents_change_nothing() {
    let mut made = Made::new();
    for number in 0..300 {
        made.file(0, format!("{number}"), number * 300);
    }
    let population = plan(&made, &options(EXTRA)).unwrap();
    let size = population.required_bytes(4 << 20).unwrap();
    let mut before: Option<Vec<u8>> = None;
    for (threads, old) in [(1, 0), (2, 0), (5, 0xa5)] {
        let device = Arc::new(MemoryDevice::new(size));
        for at in (0..size).step_by(1 << 20) {
            device.load(at, &vec![old; (1_u64 << 20).min(size - at) as usize]);
        }
        population.write(device.clone(), threads, &*Threads::new()).unwrap();
        let mut bytes = vec![0; size as usize];
        device
            .for_each_piece(|at, piece| {
                bytes[at as usize..][..piece.len()].copy_from_slice(piece);
                Ok::<_, ()>(())
            })
            .unwrap();
        assert!(before.as_ref().is_none_or(|before| *before == bytes), "{threads} threads");
        before = Some(bytes);
    }
}

/// The smallest volume has no room for more; after a file goes, it has.
#[test]
fn the_smallest_volume_is_full_and_can_be_used() {
    for files in [0, 30_000] {
        let mut made = Made::new();
        for number in 0..files {
            made.file(0, format!("{number}"), 3000 + number % 2 * 2000);
        }
        made.file(0, "large", 60 << 20);
        let device = filled(&made, "", 0);
        judge(&device);
        let smaller = Arc::new(MemoryDevice::new(device.geometry().size - (2 << 20)));
        let population = plan(&made, &options("")).unwrap();
        let error = population.write(smaller.clone(), 2, &*Threads::new()).expect_err("no room");
        let is_full = matches!(error, PopulateError::Tree(TreeError::NoSpace { .. }));
        assert!(is_full, "{error}");
        assert_eq!(smaller.allocated(), 0);
        let fs = open(&device, "");
        let (root, mut made) = (fs.root(), 0);
        while let Ok(()) = write_new(&*fs, root, &format!("new {made}")) {
            made += 1;
        }
        assert!(made < 600, "{made} more files fit");
        fs.unlink(root, b"large").unwrap();
        fs.sync().unwrap();
        for number in 0..1000 {
            write_new(&*fs, root, &format!("now {number}")).unwrap();
        }
        fs.unmount().unwrap();
        judge(&device);
    }
}

#[test]
fn impossible_nodes_are_named() {
    let refused = |change: &dyn Fn(&mut Made), expected: &str| {
        let mut made = Made::new();
        change(&mut made);
        let error = plan(&made, &options("")).err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&|made| _ = made.file(0, "n".repeat(256), 0), "is not a name");
    refused(&|made| made.link(0, "x", 99), "has no node");
    refused(&|made| made.link(0, "x", 0), "a directory has one name");
    refused(&|made| _ = made.add(0, "x", What::Link(vec![b'x'; 4096])), "node 1: the target is");
    refused(
        &|made| _ = made.add(0, "x", What::File(10, std::iter::once(0..11).collect())),
        "node 1: the data range",
    );
    refused(&|made| _ = made.file(0, "x", 1 << 42), "more than a file can have");
    let attribute = |name: &'static str, len: usize| {
        move |made: &mut Made| {
            let id = made.file(0, "x", 0);
            made.xattr(id, "user.first", b"1");
            made.xattr(id, name, &vec![1; len]);
        }
    };
    refused(&attribute("user.x", 4300), "node 1: attribute user.x: has no room beside the others");
    refused(&attribute("strange.x", 1), "attribute strange.x: F2FS stores no such name");
    refused(&attribute("system.advise", 1), "attribute system.advise: F2FS stores no such name");
    refused(&attribute("user.first", 1), "attribute user.first: exists twice");
    refused(&attribute("system.posix_acl_access", 3), "node 1: attribute system.posix");
    let zoned = MkfsOptions { zoned: true, ..options("") };
    let error = plan(&Made::new(), &zoned).err().expect("zones");
    assert!(error.to_string().contains("leave the zones out"), "{error}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_leaves_no_filesystem() {
    for size in [100, 10_000] {
        let mut made = Made::new();
        for number in 0..100 {
            made.file(0, format!("{number}"), size);
        }
        made.broken = Some(50);
        let population = plan(&made, &options("")).expect("possible");
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let error = population.write(device.clone(), 2, &*Threads::new()).expect_err("unreadable");
        assert_eq!(error.to_string(), "node 50: the disk is on fire");
        assert!(cairn_f2fs::probe(&*device).is_ok_and(|found| found.is_none()));
    }
}

#[test]
fn free_space_that_no_volume_has_is_refused() {
    let population = plan(&Made::new(), &options("")).unwrap();
    for free in [20 << 40, u64::MAX] {
        let error = population.required_bytes(free).expect_err("more than 16 TiB").to_string();
        assert!(error.contains("less than 16 TiB"), "{error}");
    }
    let size = population.required_bytes(10 << 40).unwrap();
    assert!((10 << 40..11 << 40).contains(&size), "{size}");
}

/// A volume of large sections, as `mkfs -s` makes them.
#[test]
fn logs_have_whole_sections() {
    let mut made = Made::new();
    for number in 0..3000 {
        made.file(0, format!("{number}"), 5000);
    }
    let large = MkfsOptions { segments_per_section: 4, ..options("") };
    let population = plan(&made, &large).unwrap();
    let device = Arc::new(MemoryDevice::new(population.required_bytes(32 << 20).unwrap()));
    population.write(device.clone(), 2, &*Threads::new()).unwrap();
    judge(&device);
    let fs = open(&device, "");
    assert_holds(&*fs, &made);
    change(&*fs);
    fs.unmount().unwrap();
    judge(&device);
}

/// Every write and flush fails once, on a device that had another volume.
#[test]
fn a_device_that_fails_leaves_no_filesystem_that_is_half_filled() {
    let mut made = Made::new();
    for number in 0..200 {
        made.file(0, format!("{number}"), number * 300);
    }
    let population = plan(&made, &options("")).unwrap();
    let old = filled(&Made::new(), "", 64 << 20);
    for operation in [Operation::Write, Operation::Flush] {
        for nth in 1.. {
            let device = Arc::new(old.fork());
            let fault = Arc::new(Fault::new(device.clone()));
            fault.fail(operation, nth, Lasting::Once);
            let written = population.write(fault.clone(), 1, &*Threads::new());
            if fault.count(operation) < nth {
                written.expect("nothing failed");
                break;
            }
            let error = written.expect_err("a request failed").to_string();
            assert!(error.contains("injected fault"), "{error}");
            match cairn_f2fs::probe(&*device).unwrap() {
                // The old one, before anything was written; the new one, with everything in place
                // and perhaps one superblock.
                Some(_) => assert_f2fs_device_clean(&device),
                None => assert!(operation == Operation::Flush || nth > 1),
            }
        }
    }
}
