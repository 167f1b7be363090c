//! Many threads on the same names and files, and on one big directory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::contention::{Watchdog, share, short_lived_files};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::{KernelMount, mke2fs};
use cairn_testkit::oracle::Subject;
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::checked::assert_clean;
use crate::support::{judge, open, volume};

/// A small volume, which is sometimes full.
struct Small(&'static [&'static str], &'static str);

impl Subject for Small {
    fn name(&self) -> String {
        format!("{:?} ({})", self.0, self.1)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        volume(8 << 20, self.0)
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        open(device, self.1)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }
}

#[test]
fn threads_share_names_files_and_the_last_blocks() {
    let steps = if deep() { 100_000 } else { 2_500 };
    for small in [
        Small(&["-t", "ext4", "-b", "1024"], "cache=1M"),
        Small(&["-t", "ext4", "-b", "4096"], "cache=1M,nobuffered_iomap"),
        Small(&["-t", "ext4", "-b", "4096", "-O", "orphan_file"], ""),
        Small(&["-t", "ext2", "-b", "1024", "-O", "extent"], "cache=1M,max_folio=64K"),
    ] {
        share(&small, steps);
    }
}

#[test]
fn a_big_directory_is_the_kernels_too() {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), 96 << 20, &["-t", "ext4", "-b", "1024", "-N", "24000"]);
    let device = Arc::new(read_image(file.path()).unwrap());
    let fs = open(&device, "cache=4M");
    let dir = fs.create(fs.root(), b"big", NewInode::Directory, 0o755, &Caller::ROOT).unwrap().ino;
    let watchdog = Watchdog::start("big directory");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fs, progress) = (&fs, &watchdog.progress);
            scope.spawn(move || {
                for number in 0..5000 {
                    let name = format!("name {thread} of {number}");
                    let made = fs
                        .create(dir, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
                        .unwrap();
                    fs.forget(made.ino, 1);
                    progress.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let mut names = BTreeSet::new();
    fs.readdir(dir, 0, &mut |entry| names.insert(entry.name.into_bytes())).unwrap();
    assert_eq!(names.len(), 20_002, "20,000 names, `.` and `..`, none twice");
    fs.unmount().unwrap();
    write_image(&device, file.path()).unwrap();
    assert_clean(file.path());
    let mount = KernelMount::new(file.path(), "ro");
    let theirs: BTreeSet<Vec<u8>> = std::fs::read_dir(mount.path().join("big"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_encoded_bytes())
        .collect();
    mount.unmount();
    names.retain(|name| !matches!(name.as_slice(), b"." | b".."));
    assert!(names == theirs, "the kernel lists {} names", theirs.len());
}

#[test]
fn numbers_of_short_lived_files_go_round() {
    for kind in [&["-t", "ext4"][..], &["-t", "ext2"]] {
        let device = volume(64 << 20, kind);
        let fs = open(&device, "");
        short_lived_files(&*fs);
        fs.unmount().unwrap();
        judge(&device);
    }
}
