//! Crafted volumes with pointers to the volume's own structures, or with impossible structures. The
//! results are compared with the kernel's ext4 on a loop device.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{
    KernelMount, LoopDevice, command, debugfs, dumpe2fs, e2fsck_check, mke2fs, run,
};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, SetAttributes};
use tempfile::NamedTempFile;

use crate::checked::assert_clean;
use crate::support::{open, try_open};

const EUCLEAN: i32 = 117;

/// A volume with a file of 20 KiB and a directory.
fn made(args: &[&str]) -> NamedTempFile {
    let image = NamedTempFile::new().unwrap();
    mke2fs(image.path(), 64 << 20, args);
    let host = NamedTempFile::new().unwrap();
    std::fs::write(host.path(), vec![b'f'; 5 * 4096]).unwrap();
    edit(image.path(), &format!("write {} f", host.path().display()));
    edit(image.path(), "mkdir d");
    assert_clean(image.path());
    image
}

fn edit(image: &Path, request: &str) {
    run("debugfs", [Path::new("-w"), Path::new("-R"), Path::new(request), image]);
}

/// The first number behind `what` in the text.
fn number(text: &str, what: &str) -> u64 {
    let rest = text.split(what).nth(1).unwrap_or_else(|| panic!("no {what:?} in {text}"));
    let digits: String =
        rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Blocks that no file can have. A mount does not change those with `true`.
fn system_blocks(image: &Path) -> Vec<(&'static str, u64, bool)> {
    let text = dumpe2fs(image);
    let journal = debugfs(image, "blocks <8>");
    let journal: u64 =
        journal.split_whitespace().rev().nth(5).and_then(|word| word.parse().ok()).unwrap();
    vec![
        ("superblock", number(&text, "Primary superblock at"), false),
        ("descriptors", number(&text, "Group descriptors at"), false),
        ("reserved descriptors", number(&text, "Reserved GDT blocks at") + 3, true),
        ("block bitmap", number(&text, "Block bitmap at"), false),
        ("inode bitmap", number(&text, "Inode bitmap at"), false),
        ("inode table", number(&text, "Inode table at") + 7, true),
        ("backup superblock", number(&text, "Backup superblock at"), true),
        ("journal", journal, false),
    ]
}

fn copy_of(image: &NamedTempFile) -> NamedTempFile {
    let copy = NamedTempFile::new().unwrap();
    std::fs::copy(image.path(), copy.path()).unwrap();
    copy
}

/// The kernel's errors in a read of the file and the directory.
fn by_kernel(image: &Path) -> (Option<i32>, Option<i32>) {
    let mount = KernelMount::new(image, "ro");
    let file = std::fs::read(mount.path().join("f")).err().and_then(|error| error.raw_os_error());
    let listed = std::fs::read_dir(mount.path().join("d"))
        .and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let directory = listed.err().and_then(|error| error.raw_os_error());
    mount.unmount();
    (file, directory)
}

fn by_us(device: &Arc<MemoryDevice>) -> (Option<i32>, Option<i32>) {
    let fs = open(device, "ro");
    let read = |name: &[u8]| -> cairn_vfs::Result<()> {
        let found = fs.lookup(fs.root(), name)?;
        fs.read(found.ino, 0, &mut vec![0; 5 * 4096], IoFlags::empty()).map(drop)
    };
    let list = || -> cairn_vfs::Result<()> {
        let found = fs.lookup(fs.root(), b"d")?;
        fs.readdir(found.ino, 0, &mut |_| true)
    };
    (read(b"f").err().map(|error| error.errno()), list().err().map(|error| error.errno()))
}

type Change = fn(&dyn FileSystem, cairn_base::Ino) -> cairn_vfs::Result<()>;

/// Writes to the file, truncates and removes it, whatever the results. Then checks that the block
/// has not changed.
fn is_left_alone(device: &Arc<MemoryDevice>, block: u64, size: u64, what: &str) {
    let before = device.read_at(block * size, size as usize).unwrap();
    let changes: [Change; 3] = [
        |fs, ino| {
            fs.write(ino, 0, &[b'!'; 5 * 4096], IoFlags::empty())
                .and_then(|_| fs.fsync(ino, 0, false))
        },
        |fs, ino| {
            fs.setattr(ino, &SetAttributes { size: Some(1), ..SetAttributes::default() }).map(drop)
        },
        |fs, _| fs.unlink(fs.root(), b"f"),
    ];
    for change in changes {
        let fs = open(device, "");
        if let Ok(found) = fs.lookup(fs.root(), b"f") {
            let _ = change(&*fs, found.ino);
            fs.forget(found.ino, 1);
        }
        let _ = fs.unmount();
        assert!(
            *device.read_at(block * size, size as usize).unwrap() == *before,
            "{what} was written"
        );
    }
}

#[test]
fn no_data_is_metadata_and_the_kernel_agrees() {
    for (format, args, fields) in [
        // The first extent's block in the inode.
        ("extents of 1K", &["-t", "ext4", "-b", "1024"][..], &["block[5]"][..]),
        ("extents of 4K", &["-t", "ext4", "-b", "4096", "-g", "4096"], &["block[5]"]),
        ("block map of 1K", &["-t", "ext3", "-b", "1024"], &["block[0]", "block[2]", "block[IND]"]),
    ] {
        let image = made(args);
        let size = if args.contains(&"4096") { 4096 } else { 1024 };
        for (what, block, unchanging) in system_blocks(image.path()) {
            for field in fields.iter().copied().chain(["file_acl"]) {
                // Block 0, but only in an extent.
                if block == 0 && field != "block[5]" {
                    continue;
                }
                let copy = copy_of(&image);
                // The directory has one block. The kernel reads blocks behind its end, Cairn does
                // not.
                for name in ["f", "d"].iter().take(if ["block[2]", "block[IND]"].contains(&field) {
                    1
                } else {
                    2
                }) {
                    edit(copy.path(), &format!("set_inode_field {name} {field} {block}"));
                }
                let what = format!("{format}: {field} is {block}, the {what}");
                let device = Arc::new(read_image(copy.path()).unwrap());
                let (theirs, ours) = (by_kernel(copy.path()), by_us(&device));
                // The kernel returns EIO if the inode itself is valid, and accepts any block as a
                // block of pointers.
                assert!(
                    theirs.0.is_some() || field == "block[IND]",
                    "{what}: the kernel reads the file"
                );
                assert_eq!(ours.0, Some(EUCLEAN), "{what}");
                assert_eq!(ours.1.is_some(), theirs.1.is_some(), "{what}");
                if unchanging {
                    is_left_alone(&device, block, size, &what);
                }
            }
        }
        // The journal's own inode has its blocks.
        let device = Arc::new(read_image(image.path()).unwrap());
        assert_eq!(
            (by_kernel(image.path()), by_us(&device)),
            ((None, None), (None, None)),
            "{format}"
        );
    }
}

/// If a bitmap marks the inode table as free, the next file could get its blocks.
#[test]
fn metadata_that_a_bitmap_has_free_is_not_allocated() {
    let image = made(&[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,^uninit_bg,^flex_bg,^has_journal",
    ]);
    let text = dumpe2fs(image.path());
    let table = number(&text, "Inode table at");
    edit(image.path(), &format!("freeb {table} 60"));
    let device = Arc::new(read_image(image.path()).unwrap());
    let before = device.read_at(table * 1024, 60 * 1024).unwrap();
    let fs = open(&device, "");
    let file = fs.create(fs.root(), b"new", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    let _ = fs
        .write(file.ino, 0, &[b'!'; 200_000], IoFlags::empty())
        .and_then(|_| fs.fsync(file.ino, 0, false));
    let _ = fs.unmount();
    let after = device.read_at(table * 1024, 60 * 1024).unwrap();
    assert!(!after.windows(64).any(|bytes| bytes == [b'!'; 64]) && before.len() == after.len());
}

/// The kernel's verdict on mounting.
fn kernel_mounts(image: &Path) -> bool {
    let (device, point) = (LoopDevice::attach(image, false), cairn_testkit::place::Place::new());
    let mount =
        command("mount").args(["-t", "ext4"]).args([device.path(), point.path()]).output().unwrap();
    if mount.status.success() {
        run("umount", [point.path()]);
    }
    mount.status.success()
}

#[test]
fn a_journal_that_linux_finds_too_short_is_not_written() {
    for (blocks, enough) in [(35_u32, false), (100, false), (1023, false), (1024, true)] {
        let image = NamedTempFile::new().unwrap();
        mke2fs(image.path(), 64 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=4"]);
        let first: u64 =
            debugfs(image.path(), "blocks <8>").split_whitespace().next().unwrap().parse().unwrap();
        let file = File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(&blocks.to_be_bytes(), first * 1024 + 16).unwrap();
        assert_eq!(kernel_mounts(image.path()), enough, "{blocks} blocks");
        let device = Arc::new(read_image(image.path()).unwrap());
        let fs = open(&device, "");
        let made = fs.create(fs.root(), b"f", NewInode::Regular, 0o644, &Caller::ROOT);
        assert_eq!(made.is_ok(), enough);
        if let Err(error) = made {
            let said = error.to_string();
            assert!(
                error.errno() == 30
                    && said.contains(&blocks.to_string())
                    && said.contains("tune2fs"),
                "{said}"
            );
            assert!(fs.remount("rw").is_err());
        }
        fs.unmount().unwrap();
    }
}

#[test]
fn an_absurd_first_meta_group_is_not_believed() {
    let image = NamedTempFile::new().unwrap();
    let features = "meta_bg,^resize_inode,^metadata_csum,^has_journal,^orphan_file";
    mke2fs(image.path(), 64 << 20, &["-t", "ext4", "-b", "1024", "-g", "256", "-O", features]);
    let blocks = 256_u32.div_ceil(1024 / 64);
    for (first, accepted) in [(0, true), (blocks + 1, false), (u32::MAX, false)] {
        let file = File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(&first.to_le_bytes(), 1024 + 0x104).unwrap();
        assert_eq!(kernel_mounts(image.path()), accepted, "{first}");
        // Cairn uses a backup, and gives the reason.
        let fs = try_open(Arc::new(read_image(image.path()).unwrap()), "").unwrap();
        let reason = fs.read_only_reason();
        assert_eq!(reason.is_none(), accepted, "{first}: {reason:?}");
        assert!(reason.is_none_or(|reason| reason.contains("s_first_meta_bg")), "{first}");
        fs.unmount().unwrap();
    }
}

/// The Hurd has other fields in place of Linux's change counter and checksum.
#[test]
fn inodes_of_the_hurd_keep_what_linux_has_no_word_for() {
    let image = NamedTempFile::new().unwrap();
    mke2fs(image.path(), 16 << 20, &["-t", "ext2", "-o", "hurd", "-I", "128"]);
    let host = NamedTempFile::new().unwrap();
    std::fs::write(host.path(), b"contents").unwrap();
    edit(image.path(), &format!("write {} old", host.path().display()));
    for (field, value) in [("translator", 4000), ("author", 77)] {
        edit(image.path(), &format!("set_inode_field old {field} {value}"));
    }
    let text = |image: &Path| debugfs(image, "stat old");
    let before = text(image.path());
    assert!(
        before.contains("Translator: 4000") && before.contains("Author: 77")
            || before.contains("4000"),
        "{before}"
    );
    let complaints = |image: &Path| {
        e2fsck_check(image).output.lines().filter(|line| line.contains("claimed")).count()
    };
    assert_eq!(complaints(image.path()), 0);
    let device = Arc::new(read_image(image.path()).unwrap());
    let fs = open(&device, "");
    for index in 0..20 {
        let name = format!("new-{index}").into_bytes();
        let file = fs.create(fs.root(), &name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
        fs.write(file.ino, 0, &[7; 5000], IoFlags::empty()).unwrap();
    }
    let old = fs.lookup(fs.root(), b"old").unwrap().ino;
    fs.write(old, 8, b" and more", IoFlags::empty()).unwrap();
    fs.setattr(old, &SetAttributes { permissions: Some(0o600), ..SetAttributes::default() })
        .unwrap();
    fs.unmount().unwrap();
    cairn_testkit::crash::write_image(&device, image.path()).unwrap();
    let after = text(image.path());
    let kept = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.contains("4000"))
            .expect("the translator is there")
            .to_owned();
        (line, text.contains("77"))
    };
    assert_eq!(kept(&before), kept(&after));
    assert_eq!(complaints(image.path()), 0, "{}", e2fsck_check(image.path()).output);
    for field in ["translator", "author"] {
        edit(image.path(), &format!("set_inode_field old {field} 0"));
    }
    assert_clean(image.path());
}
