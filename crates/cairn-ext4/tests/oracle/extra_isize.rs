//! Inodes of an older volume get the fields of `s_want_extra_isize` when they are written, as in
//! the kernel. Attributes in the inode leave room, move to the block, or keep the inode unchanged.

use std::path::Path;
use std::sync::Arc;

use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, debugfs, mke2fs, run};
use cairn_vfs::{FileSystem, IoFlags};
use rustix::fs::{XattrFlags, setxattr};

use crate::checked::assert_clean;
use crate::support::open;

/// Files and their numbers of attributes of 24 bytes: none, few, as many as fit in the inode, one
/// or more too many for it, and so many that the block has room for one more or for none.
const FILES: [(&str, usize); 9] = [
    ("empty", 0),
    ("couple", 4),
    ("just-enough", 7),
    ("one-too-many", 8),
    ("full", 10),
    ("one-outside", 11),
    ("some-outside", 60),
    ("block-almost-full", 10 + (4060 - 16) / 24),
    ("block-full", 10 + 4060 / 24),
];

fn wants(image: &Path, want: u16, least: u16) {
    for field in [format!("want_extra_isize {want}"), format!("min_extra_isize {least}")] {
        run(
            "debugfs",
            [Path::new("-w"), Path::new("-R"), Path::new(&format!("ssv {field}")), image],
        );
    }
}

/// The size of the fields, and every attribute, as debugfs sees them.
fn seen(image: &Path, name: &str) -> (String, Vec<String>) {
    let stat = debugfs(image, &format!("stat /{name}"));
    let size = stat
        .lines()
        .find(|line| line.contains("Size of extra inode fields"))
        .expect(&stat)
        .to_owned();
    let mut attributes: Vec<String> =
        debugfs(image, &format!("ea_list /{name}")).lines().map(str::to_owned).collect();
    attributes.sort();
    (size, attributes)
}

#[test]
fn fields_grow_when_an_inode_is_written() {
    for features in ["none", "inline_data"] {
        let (file, ours) =
            (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let features = if features == "none" { "^inline_data" } else { features };
        mke2fs(file.path(), 64 << 20, &["-t", "ext4", "-b", "4096", "-I", "1024", "-O", features]);
        wants(file.path(), 640, 640);
        let mount = KernelMount::new(file.path(), "");
        for (name, count) in FILES {
            let path = mount.path().join(name);
            std::fs::write(&path, "").unwrap();
            for number in 0..count {
                setxattr(&path, format!("user.{number:03}"), b"aa", XattrFlags::CREATE).unwrap();
            }
        }
        mount.unmount();
        wants(file.path(), 720, 656);

        let device = Arc::new(read_image(file.path()).unwrap());
        let fs = open(&device, "");
        for (name, _) in FILES {
            let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
            assert_eq!(fs.write(ino, 0, b"aaaa", IoFlags::empty()).unwrap(), 4);
            fs.forget(ino, 1);
        }
        fs.unmount().unwrap();
        write_image(&device, ours.path()).unwrap();

        let mount = KernelMount::new(file.path(), "");
        for (name, _) in FILES {
            std::fs::write(mount.path().join(name), "aaaa").unwrap();
        }
        mount.unmount();
        for (name, _) in FILES {
            assert_eq!(seen(ours.path(), name), seen(file.path(), name), "{features}: {name}");
        }
        assert_clean(ours.path());
        // The kernel reads what Cairn wrote.
        let mount = KernelMount::new(ours.path(), "ro");
        for (name, _) in FILES {
            assert_eq!(
                std::fs::read(mount.path().join(name)).unwrap(),
                b"aaaa",
                "{features}: {name}"
            );
        }
        mount.unmount();
    }
}
