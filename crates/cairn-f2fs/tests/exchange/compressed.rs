//! Compressed files that Linux wrote: Cairn reads them after an unmount and after a power cut.

use std::sync::Arc;

use cairn_testkit::crash::read_image;
use cairn_testkit::judge::assert_f2fs_clean;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};
use cairn_testkit::vm::{Job, Vm};
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::support::{Kind, disk, judge, line, open};

const FEATURES: &[&str] = &["-O", "extra_attr,compression,inode_checksum"];
/// Mount options of Linux for each algorithm.
const ALGORITHMS: [&str; 5] = [
    "compress_algorithm=lz4,compress_log_size=2",
    "compress_algorithm=lz4:9,compress_log_size=4,compress_chksum",
    "compress_algorithm=zstd,compress_log_size=3",
    "compress_algorithm=lzo,compress_log_size=2",
    "compress_algorithm=lzo-rle,compress_log_size=2,compress_chksum",
];

/// Text, a program, noise in the middle, zeros, a hole, an end inside a cluster; appended to and
/// overwritten.
const FILES: &str = "yes 'some text that repeats' | head -c 300000 > text\nhead -c 700000 \
    /bin/agent > program\n\
    /bin/sync program\ndd if=/dev/urandom of=text bs=4096 seek=9 count=7 conv=notrunc \
    2>/dev/null\n/bin/sync text\n\
    head -c 200000 /dev/zero > zeros\nyes 0123456789 | head -c 50001 > odd\ncat odd >> zeros\n\
    dd if=program of=holes bs=1000 seek=700 count=90 2>/dev/null\ntruncate -s 123456 odd\n\
    dd if=/bin/busybox of=program bs=1000 seek=11 count=333 conv=notrunc 2>/dev/null\n/bin/sync \
    program\n";

#[test]
fn what_linux_compresses_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let (mut vm, mut script) = (Vm::new().tool("sync").agent(), String::new());
    let kind = Kind::new("compressed", 64, FEATURES);
    for (index, options) in ALGORITHMS.into_iter().enumerate() {
        let image = directory.path().join(index.to_string());
        kind.make(&image);
        vm = vm.disk(&image);
        let digest = line(&Job::Digest(format!("/mnt/{index}")));
        // Half of them are unmounted; the others lose unsynced data.
        let end = if index % 2 == 0 { format!("umount /mnt/{index}\n") } else { String::new() };
        script += &format!(
            "mkdir /mnt/{index}\nmount -t f2fs -o {options},compress_extension=* {} \
             /mnt/{index}\ncd /mnt/{index}\n\
             {FILES}/bin/sync *\n/bin/sync .\ncd /\n{digest}{end}",
            disk(index)
        );
    }
    let output = vm.crash_after(&format!("{script}echo now\nsleep 100\n"), "now");
    let expected: Vec<_> = Job::snapshots(&output.text).into_iter().map(timeless).collect();
    assert_eq!(expected.len(), ALGORITHMS.len(), "{}", output.describe());
    for (index, (options, expected)) in ALGORITHMS.into_iter().zip(expected).enumerate() {
        let image = directory.path().join(index.to_string());
        let device = Arc::new(read_image(&image).unwrap());
        let digest =
            |fs: &dyn FileSystem| timeless(digest_volume(fs, SnapshotOptions::default()).unwrap());
        assert_eq!(expected.diff(&digest(&*open(device.clone(), "ro"))), "", "{options}");
        let fs = open(device.clone(), "");
        assert!(packed(&*fs) > 3, "{options}: compressed extents of Linux's files");
        assert_eq!(expected.diff(&digest(&*fs)), "", "{options}");
        let program = fs.lookup(fs.root(), b"program").unwrap();
        let refused =
            fs.write(program.ino, 0, b"x", cairn_vfs::IoFlags::empty()).unwrap_err().to_string();
        assert!(refused.contains("compress"), "{refused}");
        fs.forget(program.ino, 1);
        fs.create(fs.root(), b"beside them", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
        fs.unlink(fs.root(), b"text").unwrap();
        fs.unmount().unwrap();
        judge(&device);
        assert_f2fs_clean(&image);
    }
}

/// Linux may not have written the times of a directory.
fn timeless(snapshot: Snapshot) -> Snapshot {
    snapshot.without_times_of_directories_and(b"\0")
}

/// Extents that are marked as encoded, in all files.
fn packed(fs: &dyn FileSystem) -> usize {
    let mut count = 0;
    for name in [&b"text"[..], b"program", b"zeros", b"holes"] {
        let file = fs.lookup(fs.root(), name).unwrap();
        let each = &mut |extent: cairn_vfs::FileExtent| {
            count += usize::from(extent.flags & 8 != 0);
            true
        };
        fs.extents(file.ino, 0, u64::MAX, true, each).unwrap();
        fs.forget(file.ino, 1);
    }
    count
}
