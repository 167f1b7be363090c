//! Features that a volume gets when they are first used: `ext_attr` and `large_file`. A volume that
//! was made without them stays sound, and says the same as after the same changes by the kernel.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, dumpe2fs, mke2fs};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, XattrMode};
use rustix::fs::{XattrFlags, setxattr};

use crate::checked::assert_clean;
use crate::support::open;

/// Does not fit in the inode.
const VALUE: [u8; 600] = [7; 600];
/// The first byte of a large file.
const LARGE: u64 = 1 << 31;

/// The features and the revision, as dumpe2fs prints them.
fn features(image: &Path) -> Vec<String> {
    let header = dumpe2fs(image);
    let wanted = |line: &&str| {
        ["Filesystem features:", "Filesystem revision", "First inode:", "Inode size:"]
            .iter()
            .any(|field| line.starts_with(field))
    };
    let found: Vec<String> = header.lines().filter(wanted).map(str::to_owned).collect();
    assert!(found.len() >= 2, "{header}");
    found
}

fn by_the_kernel(image: &Path, attribute: bool, large: bool) {
    let mount = KernelMount::new(image, "");
    let path = mount.path().join("file");
    File::create(&path).unwrap();
    if attribute {
        setxattr(&path, "user.long", &VALUE, XattrFlags::empty()).unwrap();
    }
    if large {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"x", LARGE).unwrap();
        file.sync_all().unwrap();
    }
}

fn by_cairn(image: &Path, attribute: bool, large: bool) {
    let device = std::sync::Arc::new(read_image(image).unwrap());
    let fs = open(&device, "");
    let made = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    if attribute {
        fs.setxattr(made.ino, b"user.long", &VALUE, XattrMode::Set).unwrap();
    }
    if large {
        assert_eq!(fs.write(made.ino, LARGE, b"x", IoFlags::empty()).unwrap(), 1);
    }
    fs.forget(made.ino, 1);
    fs.unmount().unwrap();
    write_image(&device, image).unwrap();
}

#[test]
fn features_come_with_their_first_use_as_in_the_kernel() {
    let without = "^ext_attr,^large_file,^huge_file";
    let shapes: [&[&str]; 4] = [
        &["-t", "ext2", "-O", without],
        &["-t", "ext3", "-O", without],
        &["-t", "ext4", "-O", without],
        &["-r", "0", "-t", "ext2", "-O", "none"],
    ];
    for shape in shapes {
        for (attribute, large) in [(false, false), (true, false), (false, true), (true, true)] {
            let (ours, theirs) =
                (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
            for image in [&ours, &theirs] {
                mke2fs(image.path(), 32 << 20, &[&["-b", "4096"], shape].concat());
            }
            by_cairn(ours.path(), attribute, large);
            assert_clean(ours.path());
            by_the_kernel(theirs.path(), attribute, large);
            let (ours, theirs) = (features(ours.path()), features(theirs.path()));
            assert_eq!(ours, theirs, "{shape:?}, an attribute {attribute}, large {large}");
        }
    }
}
