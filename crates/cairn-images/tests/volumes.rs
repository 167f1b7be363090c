//! ext4 and F2FS in a qcow2 image, through the facade: a tree is made, and `qemu-img`, `e2fsck` and
//! `fsck.f2fs` accept what is left.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use cairn::{FileSystem, OpenOptions};
use cairn_base::runtime::threads::Threads;
use cairn_block::file::{self, FileDevice};
use cairn_block::{BlockDevice, Error, ErrorKind};
use cairn_images::qcow2::{self, BackingName, Options};
use cairn_testkit::judge::{self, assert_clean, assert_f2fs_clean};
use cairn_testkit::tree::{SnapshotOptions, TreeSpec, VolumeTarget, build, digest_volume, plan};

const SIZE: u64 = 64 << 20;

fn qemu_img(args: &[&str]) {
    let output = Command::new("qemu-img").args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "qemu-img {args:?}: {}", String::from_utf8_lossy(&text));
}

fn open(path: &Path, write: bool) -> Arc<dyn FileSystem> {
    let how = if write { file::OpenOptions::write() } else { file::OpenOptions::read() };
    let file: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path, how).unwrap());
    let none = |_: &BackingName| -> cairn_block::Result<Arc<dyn BlockDevice>> {
        Err(Error::new(ErrorKind::NotFound, "open", "no backing file is expected"))
    };
    let disk = qcow2::open(file, &Options { write, backing: &none, depth: 0 }).unwrap();
    let options = if write { OpenOptions::default() } else { OpenOptions::read_only() };
    let volume = cairn::open_on(Arc::new(disk), Threads::new(), &options).unwrap();
    volume.filesystem().clone()
}

fn tree_survives(raw: &Path, judge: fn(&Path)) {
    let (disk, back) = (raw.with_extension("qcow2"), raw.with_extension("back"));
    let [from, image, to] = [raw, &disk, &back].map(|path| path.to_str().unwrap());
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=4k", from, image]);
    let fs = open(&disk, true);
    build(&VolumeTarget::new(&*fs), &plan(&TreeSpec::small(5)));
    fs.sync().unwrap();
    let made = digest_volume(&*fs, SnapshotOptions::default()).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    qemu_img(&["check", "-q", image]);
    let fs = open(&disk, false);
    made.assert_same(&digest_volume(&*fs, SnapshotOptions::default()).unwrap());
    fs.unmount().unwrap();
    drop(fs);
    qemu_img(&["convert", "-O", "raw", image, to]);
    judge(&back);
}

#[test]
fn ext4_and_f2fs_live_in_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let ext4 = dir.path().join("ext4");
    judge::mke2fs(&ext4, SIZE, &["-t", "ext4", "-q"]);
    tree_survives(&ext4, assert_clean);
    let f2fs = dir.path().join("f2fs");
    judge::mkfs_f2fs(&f2fs, SIZE, &[]);
    tree_survives(&f2fs, assert_f2fs_clean);
}
