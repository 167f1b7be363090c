//! Inline files that are longer than what their inodes hold: the rest is a hole. `mke2fs -d` makes
//! them of files that begin with a hole; kernels before 5.19 made them when they extended a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_base::Ino;
use cairn_ext4::Ext4;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, debugfs, mke2fs, run};
use cairn_vfs::types::Seek;
use cairn_vfs::{AllocateMode, Error, FileSystem, IoFlags, SetAttributes};

use crate::checked::assert_clean;
use crate::support::open;

/// Names, sizes, and the bytes at the beginning that are not zeros.
const FILES: [(&str, usize, usize); 6] = [
    ("whole", 60, 60),
    ("hole-61", 61, 0),
    ("hole-5000", 5000, 0),
    ("hole-300000", 300_000, 0),
    ("extended-5000", 5000, 3),
    ("extended-100000", 100_000, 100),
];

/// A volume with the files, which e2fsck finds sound.
fn made(dir: &Path, options: &[&str]) -> PathBuf {
    let (tree, image) = (dir.join("tree"), dir.join("image"));
    std::fs::create_dir_all(&tree).unwrap();
    for (name, size, data) in FILES {
        let mut bytes: Vec<u8> = (1..=data as u8).collect();
        if data == 0 {
            bytes.resize(size, 0);
        }
        std::fs::write(tree.join(name), bytes).unwrap();
    }
    let args = ["-t", "ext4", "-O", "inline_data", "-d", tree.to_str().unwrap()];
    mke2fs(&image, 16 << 20, &[args.as_slice(), options].concat());
    for (name, size, _) in FILES {
        let request = format!("sif /{name} size {size}");
        run("debugfs", ["-w", "-R", &request, image.to_str().unwrap()]);
        let stat = debugfs(&image, &format!("stat /{name}"));
        assert!(stat.contains("Flags: 0x10000000"), "{name} is not inline:\n{stat}");
    }
    assert_clean(&image);
    image
}

fn expected(size: usize, data: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (1..=data as u8).collect();
    bytes.resize(size, 0);
    bytes
}

fn find(fs: &Ext4, name: &str) -> Ino {
    fs.lookup(fs.root(), name.as_bytes()).unwrap().ino
}

/// All bytes, read in pieces of this size.
fn read(fs: &Ext4, ino: Ino, piece: usize) -> Vec<u8> {
    let (mut bytes, mut buf) = (Vec::new(), vec![0xee; piece]);
    loop {
        match fs.read(ino, bytes.len() as u64, &mut buf, IoFlags::empty()).unwrap() {
            0 => return bytes,
            done => bytes.extend_from_slice(&buf[..done]),
        }
        buf.fill(0xee);
    }
}

#[test]
fn an_inline_file_reads_as_zeros_beyond_what_its_inode_holds() {
    let dir = tempfile::tempdir().unwrap();
    let image = made(dir.path(), &[]);
    let kernel = KernelMount::new(&image, "ro");
    let fs = open(&Arc::new(read_image(&image).unwrap()), "ro");
    for (name, size, data) in FILES {
        let (ino, bytes) = (find(&fs, name), expected(size, data));
        assert!(std::fs::read(kernel.path().join(name)).unwrap() == bytes, "Linux: {name}");
        for piece in [7, 60, 4096, 1 << 20] {
            assert!(read(&fs, ino, piece) == bytes, "{name} by {piece}");
        }
        let held = size.min(60.max(data)) as u64;
        let hole = fs.seek(ino, 0, Seek::Hole).unwrap();
        assert_eq!(hole, held, "{name}");
        let mut extents = Vec::new();
        let take = &mut |extent: cairn_vfs::FileExtent| {
            extents.push((extent.logical, extent.length));
            true
        };
        fs.extents(ino, 0, u64::MAX, false, take).unwrap();
        assert_eq!(extents, [(0, held)], "{name}");
        if size as u64 > held {
            let data = fs.seek(ino, held, Seek::Data);
            assert!(matches!(data, Err(Error::NoData)), "{name}: {data:?}");
        }
    }
    fs.unmount().unwrap();
    kernel.unmount();
}

/// One change of a file.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write(usize, usize),
    Truncate(usize),
    Punch(usize, usize),
    Zero(usize, usize),
    Extend(usize),
}

const CHANGES: [Change; 12] = [
    Change::Write(0, 10),
    Change::Write(50, 30),
    Change::Write(4090, 20),
    Change::Write(350_000, 5),
    Change::Truncate(2),
    Change::Truncate(61),
    Change::Truncate(120),
    Change::Truncate(9000),
    Change::Punch(1, 20),
    Change::Punch(30, 6000),
    Change::Zero(2, 5000),
    Change::Extend(10_000),
];

fn apply(fs: &Ext4, ino: Ino, bytes: &mut Vec<u8>, change: Change) {
    let cut = |at: usize| at.min(bytes.len());
    match change {
        Change::Write(at, len) => {
            let data = vec![0xab; len];
            assert_eq!(fs.write(ino, at as u64, &data, IoFlags::empty()).unwrap(), len);
            bytes.resize(bytes.len().max(at + len), 0);
            bytes[at..at + len].copy_from_slice(&data);
        }
        Change::Truncate(size) => {
            let set = SetAttributes { size: Some(size as u64), ..Default::default() };
            fs.setattr(ino, &set).unwrap();
            bytes.resize(size, 0);
        }
        Change::Punch(at, len) => {
            fs.allocate(ino, AllocateMode::PunchHole, at as u64, len as u64).unwrap();
            let range = cut(at)..cut(at + len);
            bytes[range].fill(0);
        }
        Change::Zero(at, len) => {
            let mode = AllocateMode::ZeroRange { keep_size: true };
            fs.allocate(ino, mode, at as u64, len as u64).unwrap();
            let range = cut(at)..cut(at + len);
            bytes[range].fill(0);
        }
        Change::Extend(end) => {
            fs.allocate(ino, AllocateMode::Extend, 0, end as u64).unwrap();
            bytes.resize(bytes.len().max(end), 0);
        }
    }
}

#[test]
fn an_inline_file_with_a_hole_takes_every_change() {
    let dir = tempfile::tempdir().unwrap();
    for options in [["-b", "1024"], ["-b", "4096"]] {
        let image = made(dir.path(), &options);
        let sound = read_image(&image).unwrap();
        for change in CHANGES {
            let device = Arc::new(sound.fork());
            let fs = open(&device, "");
            let mut all = Vec::new();
            for (name, size, data) in FILES {
                let (ino, mut bytes) = (find(&fs, name), expected(size, data));
                apply(&fs, ino, &mut bytes, change);
                assert!(read(&fs, ino, 4096) == bytes, "{name}, {change:?}, {options:?}");
                all.push((name, bytes));
            }
            fs.unmount().unwrap();
            write_image(&device, &image).unwrap();
            assert_clean(&image);
            let kernel = KernelMount::new(&image, "ro");
            for (name, bytes) in all {
                let found = std::fs::read(kernel.path().join(name)).unwrap();
                assert!(found == bytes, "Linux: {name}, {change:?}, {options:?}");
            }
            kernel.unmount();
        }
    }
}
