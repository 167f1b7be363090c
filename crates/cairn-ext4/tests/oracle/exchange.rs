//! Trees that Cairn writes and the kernel reads, and the reverse, judged by e2fsck.

use cairn_testkit::judge::{EXT4_FORMATS, KernelMount, mke2fs};
use cairn_testkit::tree::{
    PathTarget, SnapshotOptions, TreeSpec, VolumeTarget, build, digest_path, digest_volume, plan,
};
use cairn_vfs::FileSystem;

use crate::checked::assert_clean;
use crate::support::open_image;

fn spec(seed: u64, format: &str) -> TreeSpec {
    // Records of 128 bytes have no room for nanoseconds; large attributes want a block.
    TreeSpec { xattrs: !format.starts_with("ext2"), ..TreeSpec::small(seed) }
}

fn options(format: &str) -> SnapshotOptions {
    let whole_seconds = format.contains("128") || format == "ext2" || format == "ext3";
    SnapshotOptions { times: !whole_seconds, sectors: true, directory_links: true }
}

#[test]
fn the_kernel_reads_what_cairn_writes() {
    for (seed, (name, args)) in (1..).zip(EXT4_FORMATS) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        mke2fs(&image, 96 << 20, args);
        let fs = open_image(&image, "");
        build(&VolumeTarget::new(&*fs), &plan(&spec(seed, name)));
        fs.sync().unwrap();
        let ours = digest_volume(&*fs, options(name)).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert_clean(&image);
        let again = digest_volume(&*open_image(&image, "ro"), options(name)).unwrap();
        ours.assert_same(&again);
        let mount = KernelMount::new(&image, "ro");
        let theirs = digest_path(mount.path(), options(name)).unwrap();
        mount.unmount();
        ours.assert_same(&theirs);
        println!("{name}: {} entries equal", ours.len());
    }
}

#[test]
fn cairn_reads_what_the_kernel_writes() {
    for (seed, (name, args)) in (100..).zip(EXT4_FORMATS) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        mke2fs(&image, 96 << 20, args);
        let mount = KernelMount::new(&image, "");
        build(&PathTarget::new(mount.path()), &plan(&spec(seed, name)));
        // The space of delayed blocks is known only after their allocation.
        rustix::fs::syncfs(std::fs::File::open(mount.path()).unwrap()).unwrap();
        let theirs = digest_path(mount.path(), options(name)).unwrap();
        mount.unmount();
        let fs = open_image(&image, "ro");
        let ours = digest_volume(&*fs, options(name)).unwrap();
        drop(fs);
        theirs.assert_same(&ours);
        // Cairn continues after the kernel and removes everything.
        let fs = open_image(&image, "");
        remove_all(&*fs);
        fs.unmount().unwrap();
        drop(fs);
        assert_clean(&image);
    }
}

fn remove_all(fs: &dyn FileSystem) {
    fn empty(fs: &dyn FileSystem, dir: cairn_base::Ino) {
        let mut names = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." && entry.name != b"lost+found" {
                names.push(entry.name);
            }
            true
        })
        .unwrap();
        for name in names {
            let found = fs.lookup(dir, &name).unwrap();
            if found.kind == cairn_vfs::FileKind::Directory {
                empty(fs, found.ino);
                fs.rmdir(dir, &name).unwrap();
            } else {
                fs.unlink(dir, &name).unwrap();
            }
            fs.forget(found.ino, 1);
        }
    }
    empty(fs, fs.root());
}
