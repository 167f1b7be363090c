//! Names with equal hashes, across leaves.

use std::collections::HashMap;

use cairn_base::runtime::threads::Threads;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_testkit::judge::{KernelMount, assert_clean};
use cairn_vfs::Timestamp;
use uuid::Uuid;

use super::*;

struct OneDirectory {
    names: Vec<Vec<u8>>,
}

impl Source for OneDirectory {
    fn count(&self) -> u32 {
        1 + self.names.len() as u32
    }

    fn node(&self, id: u32) -> Node<'_> {
        let kind = match id {
            0 => Kind::Directory { entries: self.names.len() as u32 },
            _ => Kind::Fifo,
        };
        let time = Timestamp::default();
        let (atime, mtime, ctime, crtime) = (time, time, time, time);
        let (permissions, uid, gid, xattrs) = (0o700, 0, 0, Vec::new());
        Node { permissions, uid, gid, atime, mtime, ctime, crtime, xattrs, kind }
    }

    fn entry(&self, _: u32, index: u32) -> (&[u8], u32) {
        (&self.names[index as usize], index + 1)
    }

    fn read(&self, _: u32, _: u64, _: &mut [u8]) -> ReadResult {
        unreachable!("there are no files")
    }

    fn path(&self, id: u32) -> String {
        format!("node {id}")
    }
}

fn options() -> MkfsOptions {
    MkfsOptions {
        block_size: Some(1024),
        uuid: Some(Uuid::from_u128(7)),
        time: Some(1_700_000_000),
        ..Default::default()
    }
}

/// Pairs of names with the same hash on a volume with these options.
fn pairs_of_equal_hash(runtime: &dyn Runtime) -> Vec<Vec<u8>> {
    let identity = Identity::new(&options(), runtime);
    let probe = volume::probe(&options(), &identity).unwrap();
    let hash = hash_settings(&probe.superblock);
    let mut known: HashMap<u32, u32> = HashMap::new();
    let name = |number: u32| format!("{number:07}{}", "x".repeat(110)).into_bytes();
    let mut names = Vec::new();
    for number in 0..1_000_000 {
        let major = hash.hash(hash.default_version, &name(number)).unwrap().major;
        if let Some(other) = known.insert(major, number) {
            names.extend([name(other), name(number)]);
        }
    }
    names.sort();
    names.dedup();
    names
}

/// A leaf has seven names, so the ends of leaves divide pairs. The kernel, whose lookups use the
/// index, must find both names.
#[test]
fn names_of_equal_hash_are_found_in_two_leaves() {
    let runtime = Threads::new();
    let names = pairs_of_equal_hash(&*runtime);
    assert!(names.len() > 200, "{} names", names.len());
    let source = Arc::new(OneDirectory { names: names.clone() });
    let population = Population::new(source, &options(), 0, &*runtime).unwrap();
    let form =
        directory::Form::new(&population.survey.names(0).unwrap(), &population.survey.settings);
    let directory::Form::Indexed { entries, leaves } = form.unwrap() else { panic!("one block") };
    let divided =
        leaves.iter().filter(|at| **at > 0 && entries[**at - 1].0.major == entries[**at].0.major);
    assert!(divided.count() > 10, "no pair is divided");

    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let size = population.required_bytes(0).unwrap();
    let open = OpenOptions::create(size);
    population.write(Arc::new(FileDevice::open(&image, open).unwrap()), 2, &*runtime).unwrap();
    assert_clean(&image);
    let mount = KernelMount::new(&image, "ro");
    for name in names {
        let name = String::from_utf8(name).unwrap();
        assert!(mount.path().join(&name).symlink_metadata().is_ok(), "{name}");
    }
    mount.unmount();
}
