//! Damage as in e2fsprogs' test images, made with mke2fs and debugfs: each structure is valid and
//! has a correct checksum, but the structures contradict each other.

use std::path::Path;
use std::sync::Arc;

use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_ext4::Info;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, e2fsck_check, mke2fs, run};
use cairn_vfs::{Error, FileSystem, XattrMode};

use rustix::fs::XattrFlags;

use crate::support::{open, try_open};
use crate::visitor::Visitor;

/// The inodes of every volume before the damage: 12 to 17.
const CONTENTS: &str = "\
mkdir d
mkdir d/e
write 64K file
write 64K d/other
symlink link target
write 64K d/e/third
";

/// The result of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Opens,
    OpensToRead,
    Refused,
}
use Answer::{Opens, OpensToRead, Refused};

/// A case: its name, the expected result, and the requests of debugfs.
type Shape = (&'static str, Answer, &'static [&'static str]);

/// Cases that `e2fsck -n` does not detect.
const UNSEEN: &[&str] =
    &["an orphan that is the root", "an orphan that the volume has not", "a journal with a hole"];

const SHAPES: &[Shape] = &[
    ("a directory below itself", Opens, &["link <12> d/e/again"]),
    ("the root below itself", Opens, &["link <2> d/root"]),
    ("a directory with two names", Opens, &["link <13> elsewhere"]),
    ("a name for the journal", Opens, &["link <8> journal"]),
    ("a name for an inode that is free", Opens, &["link <200> nobody"]),
    ("no `..`", Opens, &["unlink d/e/.."]),
    ("a directory without its dots", Opens, &["unlink d/..", "unlink d/."]),
    ("a directory that is a file to its parent", Opens, &["sif <12> mode 0100755"]),
    ("a file that is a directory", Opens, &["sif <14> mode 040755"]),
    ("a link with a length that its inode cannot hold", Opens, &["sif <16> size 4000000000"]),
    ("a size beyond any map", Opens, &["sif <14> size 0xffffffffffff"]),
    ("a directory larger than the volume", Opens, &["sif <12> size 0x40000000"]),
    ("two files with the same blocks", Opens, &["clri <15>", "copy_inode <14> <15>"]),
    ("an extent in the inode table", Opens, &["sif <14> block[5] 20"]),
    ("an extent beyond the volume", Opens, &["sif <14> block[5] 0x7fffffff"]),
    ("a tree of extents that is deeper than any", Opens, &["sif <14> block[1] 0x00ff0004"]),
    (
        "a tree of extents that is its own child",
        Opens,
        &["sif <14> block[1] 0x00010000", "sif <14> block[3] 0", "sif <14> block[4] 20"],
    ),
    ("more extents than fit", Opens, &["sif <14> block[0] 0x00fff30a"]),
    ("a block of attributes in the inode table", Opens, &["sif <14> file_acl 20"]),
    ("a block of attributes beyond the volume", Opens, &["sif <14> file_acl 0x7fffffff"]),
    ("no link but a name", Opens, &["sif <14> links_count 0"]),
    (
        "orphans in a circle",
        Opens,
        &["sif <14> dtime 15", "sif <15> dtime 14", "ssv last_orphan 14"],
    ),
    ("an orphan that is the root", Opens, &["ssv last_orphan 2"]),
    ("an orphan that the volume has not", Opens, &["ssv last_orphan 4000000000"]),
    (
        "bitmaps in the inode table",
        Refused,
        &["set_block_group 0 block_bitmap 20", "set_block_group 0 inode_bitmap 20"],
    ),
    (
        "a group's inode table beyond the volume",
        Refused,
        &["set_block_group 0 inode_table 0x7fffffff"],
    ),
    ("a journal with a hole", Refused, &["punch <8> 10 20"]),
    ("a journal that is a directory", Refused, &["ssv journal_inum 2"]),
    ("a journal inode that the volume has not", Refused, &["ssv journal_inum 4000000000"]),
    ("no inodes in a group", Refused, &["ssv inodes_per_group 0"]),
    ("blocks of 2^41 bytes", Refused, &["ssv log_block_size 31"]),
    ("groups without blocks", Refused, &["ssv blocks_per_group 0"]),
    ("inodes larger than a block", Refused, &["ssv inode_size 32768"]),
    ("descriptors of 3 bytes", Refused, &["ssv desc_size 3"]),
    ("more blocks than the device", Refused, &["ssv blocks_count 0xffffffff"]),
];

/// Root inodes that neither Linux nor Cairn opens.
const UNUSABLE_ROOTS: &[(&str, &[&str])] = &[
    ("that is a file", &["sif <2> mode 0100644"]),
    ("without bytes", &["sif <2> size 0"]),
    ("without blocks", &["sif <2> blocks 0"]),
    ("without links", &["sif <2> links_count 0"]),
    ("that is free", &["clri <2>"]),
    (
        "with a map beyond the volume",
        &["sif <2> block[0] 0x7fffffff", "sif <2> block[5] 0x7fffffff"],
    ),
];

/// Root inodes that Linux and Cairn open, although e2fsck changes them.
const USABLE_ROOTS: &[(&str, &[&str])] = &[
    ("with less than a block of bytes", &["sif <2> size 100"]),
    ("with a time of deletion", &["sif <2> dtime 5"]),
];

/// Runs requests of debugfs, which may write a file of 64 KiB.
fn debugfs(image: &Path, requests: &str) {
    let dir = tempfile::tempdir().unwrap();
    let data: Vec<u8> =
        (0..65_536_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (data_file, script) = (dir.path().join("64K"), dir.path().join("script"));
    std::fs::write(&data_file, data).unwrap();
    let write = format!("write {}", data_file.display());
    std::fs::write(&script, requests.replace("write 64K", &write)).unwrap();
    run("debugfs", [Path::new("-w"), Path::new("-f"), &script, image]);
}

/// Opens, walks and changes a damaged volume. False if it was refused.
fn survive(image: &Path, options: &str) -> bool {
    let device = read_image(image).unwrap();
    let fs = match try_open(Arc::new(device), options) {
        Ok(fs) => fs,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let mut visitor = Visitor::new(&fs);
    visitor.walk();
    visitor.change();
    visitor.walk();
    let closed = fs.unmount();
    visitor.call(closed);
    true
}

#[test]
fn lies_with_good_checksums_are_survived() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    for features in ["metadata_csum", "^metadata_csum,^metadata_csum_seed,inline_data"] {
        for (what, answer, requests) in SHAPES {
            println!("{what} ({features})");
            mke2fs(&image, 4 << 20, &["-t", "ext4", "-b", "1024", "-O", features]);
            debugfs(&image, CONTENTS);
            assert!(e2fsck_check(&image).is_clean(), "the volume is sound at first");
            debugfs(&image, &requests.join("\n"));
            assert!(UNSEEN.contains(what) || !e2fsck_check(&image).is_clean(), "not made: {what}");
            let found = match [survive(&image, "ro,cache=1M"), survive(&image, "cache=1M")] {
                [true, true] => Opens,
                [true, false] => OpensToRead,
                _ => Refused,
            };
            assert_eq!(found, *answer, "{what} ({features})");
        }
    }
}

/// Without its root nothing of a volume can be reached: it is refused as by Linux, for reading and
/// for writing, before anything is written.
#[test]
fn a_volume_without_a_usable_root_is_refused_as_by_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let made_as = ["metadata_csum", "^metadata_csum,^metadata_csum_seed", "^extents,^64bit"];
    let roots = UNUSABLE_ROOTS.iter().map(|root| (root, false));
    for ((what, requests), opens) in roots.chain(USABLE_ROOTS.iter().map(|root| (root, true))) {
        for features in made_as {
            mke2fs(&image, 4 << 20, &["-t", "ext4", "-b", "1024", "-O", features]);
            debugfs(&image, &requests.join("\n"));
            assert!(!e2fsck_check(&image).is_clean(), "not made: a root {what} ({features})");
            let before = std::fs::read(&image).unwrap();
            let device: Arc<dyn BlockDevice> = Arc::new(read_image(&image).unwrap());
            let probe = cairn_ext4::probe(&*device).unwrap().unwrap();
            let access = Info::of_probe(&probe, &device, 0).access;
            assert_eq!(access == "read-write", opens, "info of a root {what}: {access}");
            for options in ["ro", ""] {
                let device = Arc::new(read_image(&image).unwrap());
                let opened = try_open(device.clone(), options);
                let described = opened.as_ref().err().map(ToString::to_string);
                assert_eq!(opened.is_ok(), opens, "a root {what} ({features}): {described:?}");
                let kernel = KernelMount::try_new(&image, "ro");
                assert_eq!(kernel.is_ok(), opens, "Linux and a root {what} ({features})");
                if opens {
                    continue;
                }
                let after = device.read_at(0, before.len()).unwrap();
                assert!(after[..] == before[..], "a root {what} ({features}): written");
            }
        }
    }
}

/// The value is in another inode, which is read while its owner is locked.
#[test]
fn values_in_inodes_of_their_own_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, 4 << 20, &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]);
    let value: Vec<u8> = (0..30_000_u32).map(|n| (n / 7) as u8).collect();
    let mount = KernelMount::new(&image, "");
    let (file, dir) = (mount.path().join("file"), mount.path().join("d"));
    std::fs::write(&file, b"contents").unwrap();
    std::fs::create_dir(&dir).unwrap();
    rustix::fs::setxattr(&file, "user.large", &value, XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&dir, "user.small", b"tiny", XattrFlags::CREATE).unwrap();
    mount.unmount();
    let fs = open(&Arc::new(read_image(&image).unwrap()), "");
    let file = fs.lookup(fs.root(), b"file").unwrap().ino;
    let small = fs.lookup(fs.root(), b"d").unwrap().ino;
    assert!(fs.getxattr(file, b"user.large").unwrap() == value);
    assert_eq!(fs.getxattr(small, b"user.small").unwrap(), b"tiny");
    assert_eq!(fs.listxattr(file).unwrap(), [b"user.large".to_vec()]);
    // Cairn does not write such values, so the volume is read-only and gives the reason.
    let error = fs
        .setxattr(file, b"user.new", b"x", XattrMode::Set)
        .expect_err("a volume with ea_inode is read-only");
    assert!(matches!(&error, Error::ReadOnly(why) if why.contains("ea_inode")), "{error}");
}
