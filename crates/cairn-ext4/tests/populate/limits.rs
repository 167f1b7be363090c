//! What cannot be written is refused with a typed error, before anything is written.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::mkfs::MkfsOptions;
use cairn_ext4::mkfs::populate::{PopulateError, Population, TreeError};

use crate::support::options;
use cairn_testkit::made::{Made, What};

fn plan(made: Made, options: &MkfsOptions) -> Result<Population, PopulateError> {
    Population::new(Arc::new(made), options, 0, &*Threads::new())
}

#[track_caller]
fn refused(made: Made, features: &str, expected: &str) {
    let error = plan(made, &options(features, 4096)).err().expect("refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn impossible_nodes_are_named() {
    let with = |change: &dyn Fn(&mut Made)| {
        let mut made = Made::new();
        change(&mut made);
        made
    };
    refused(with(&|made| _ = made.file(0, "a/b", 0)), "", "a/b is not a name");
    refused(with(&|made| _ = made.file(0, "", 0)), "", "out of order");
    refused(with(&|made| _ = made.file(0, "n".repeat(256), 0)), "", "is not a name");
    refused(with(&|made| _ = made.file(0, "lost+found", 0)), "", "must be a directory");
    refused(with(&|made| made.link(0, "x", 99)), "", "has no node");
    refused(with(&|made| made.link(0, "x", 0)), "", "a directory has one name");
    refused(with(&|made| _ = made.add(0, "x", What::Link(Vec::new()))), "", "the target is");
    let long = What::Link(vec![b'x'; 4096]);
    refused(with(&|made| _ = made.add(0, "x", long.clone())), "", "node 1: the target is");
    let beyond = What::File(10, std::iter::once(0..11).collect());
    refused(with(&|made| _ = made.add(0, "x", beyond.clone())), "", "node 1: the data range");
    refused(with(&|made| _ = made.file(0, "x", 1 << 31)), "^large_file", "large_file");
    refused(with(&|made| _ = made.file(0, "x", 1 << 44)), "", "more than a file can have");
    let attribute = |name: &'static str, len: usize| {
        move |made: &mut Made| {
            let id = made.file(0, "x", 0);
            made.xattr(id, name, &vec![1; len]);
        }
    };
    refused(with(&attribute("user.x", 5000)), "", "attribute user.x: has no room");
    refused(with(&attribute("user.x", 70_000)), "", "more than 65536");
    refused(with(&attribute("strange.x", 1)), "", "attribute strange.x");
    refused(with(&attribute("system.posix_acl_access", 3)), "", "node 1: attribute system.posix");
    refused(Made::new(), "^extent", "feature extent");
}

#[test]
fn too_little_room_is_known_before_anything_is_written() {
    let mut made = Made::new();
    made.file(0, "file", 3 << 20);
    let population = plan(made, &options("", 4096)).expect("possible");
    let least = population.required_bytes(0).expect("possible");
    let device = Arc::new(MemoryDevice::new(least - (1 << 20)));
    let error = population.write(device.clone(), 2, &*Threads::new()).expect_err("too small");
    assert!(matches!(error, PopulateError::Tree(TreeError::NoSpace { .. })), "{error}");
    assert_eq!(device.allocated(), 0);
    let device = Arc::new(MemoryDevice::new(least));
    population.write(device, 2, &*Threads::new()).expect("the smallest size suffices");

    let mut made = Made::new();
    for number in 0..300 {
        made.file(0, format!("{number}"), 0);
    }
    let few = MkfsOptions { inodes: Some(100), ..options("", 4096) };
    let error = plan(made, &few).err().expect("too few inodes");
    assert!(matches!(error, PopulateError::Tree(TreeError::NoInodes { .. })), "{error}");
}

/// More inodes than full groups have, and nearly nothing else: the last group, which mkfs leaves
/// out if it has little room, is needed for its inodes.
#[test]
fn inodes_alone_decide_the_size() {
    for inodes in [9000, 8192 * 3] {
        let runtime = Threads::new();
        let source = Arc::new(Made::new());
        let population = Population::new(source, &options("", 1024), inodes, &*runtime);
        let population = population.expect("a possible tree");
        let device = Arc::new(MemoryDevice::new(population.required_bytes(0).expect("possible")));
        let made = population.write(device.clone(), 1, &*runtime).expect("it has room");
        assert!(made.inodes >= inodes, "{made:?}");
        let image = tempfile::NamedTempFile::new().unwrap();
        cairn_testkit::crash::write_image(&device, image.path()).unwrap();
        cairn_testkit::judge::assert_clean(image.path());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_leaves_no_filesystem() {
    let mut made = Made::new();
    for number in 0..100 {
        made.file(0, format!("{number}"), 10_000);
    }
    made.broken = Some(50);
    let population = plan(made, &options("", 4096)).expect("possible");
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let error = population.write(device.clone(), 2, &*Threads::new()).expect_err("unreadable");
    assert_eq!(error.to_string(), "node 50: the disk is on fire");
    assert!(cairn_ext4::probe(&*device).is_ok_and(|found| found.is_none()));
}
