//! `df`: the same as the kernel's. Only the users in the superblock may use reserved blocks.

use std::ffi::OsStr;
use std::sync::Arc;

use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, mke2fs, run};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, ReservedFor, root_reserved};

use crate::support::{judge, open};

/// Blocks and inodes in all and free, and blocks free for ordinary users.
#[test]
fn df_is_the_kernels() {
    let sets: [(u64, &[&str]); 9] = [
        (16 << 20, &[]),
        (64 << 20, &["-b", "1024"]),
        (300 << 20, &["-b", "4096", "-m", "10"]),
        (64 << 20, &["-O", "^has_journal"]),
        (64 << 20, &["-O", "^flex_bg,^resize_inode", "-b", "1024"]),
        (256 << 20, &["-O", "meta_bg,^resize_inode", "-b", "1024"]),
        (64 << 20, &["-O", "sparse_super2", "-E", "num_backup_sb=1"]),
        (64 << 20, &["-J", "size=16", "-m", "0"]),
        (1 << 30, &["-O", "^64bit", "-b", "2048"]),
    ];
    let every_set = sets.into_iter().map(|(size, set)| (size, set, ""));
    for (size, set, options) in
        every_set.chain([(64 << 20, [].as_slice(), "minixdf"), (64 << 20, &[], "minixdf,bsddf")])
    {
        let file = tempfile::NamedTempFile::new().unwrap();
        mke2fs(file.path(), size, &[&["-t", "ext4"], set].concat());
        let ours = {
            let device = Arc::new(read_image(file.path()).unwrap());
            let fs = open(&device, options);
            let found = fs.statfs().unwrap();
            fs.unmount().unwrap();
            [
                found.blocks,
                found.free_blocks,
                found.available_blocks,
                found.inodes,
                found.free_inodes,
            ]
        };
        let mount = KernelMount::new(file.path(), options);
        let found = rustix::fs::statvfs(mount.path()).unwrap();
        let kernel = [found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree];
        assert_eq!(
            ours, kernel,
            "{size} bytes, {set:?}, {options}: blocks, free, available, inodes, free"
        );
    }
}

#[test]
fn the_users_in_the_superblock_may_use_reserved_blocks() {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), 32 << 20, &["-t", "ext4", "-b", "4096", "-m", "20"]);
    run(
        "tune2fs",
        [OsStr::new("-u"), "77".as_ref(), "-g".as_ref(), "88".as_ref(), file.path().as_os_str()],
    );
    let device = Arc::new(read_image(file.path()).unwrap());
    let fs = open(&device, "");
    let file = fs.create(fs.root(), b"f", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let mut at = 0;
    let mut fill = || {
        let data = vec![7; 64 << 10];
        loop {
            match fs.write(file, at, &data, IoFlags::empty()) {
                Ok(count) => at += count as u64,
                Err(Error::NoSpace) => return at,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let ordinary = root_reserved::denied_if(true, &mut fill);
    fs.sync().unwrap();
    let reserved = (32 << 20) / 4096 / 5 * 4096;
    assert_eq!((fs.room(false), fs.reserved_for()), (0, Some(ReservedFor { uid: 77, gid: 88 })));
    assert!(fs.room(true) >= reserved, "{}", fs.room(true));
    let found = fs.statfs().unwrap();
    assert!(found.available_blocks == 0 && found.free_blocks * 4096 >= reserved, "{found:?}");
    let all = fill();
    assert!(
        all - ordinary > reserved - (1 << 20),
        "{ordinary} bytes, then {all} of {reserved} reserved"
    );
    fs.forget(file, 1);
    fs.unmount().unwrap();
    judge(&device);
}
