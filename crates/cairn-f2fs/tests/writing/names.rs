//! Each operation on names, on every kind of volume.

use cairn_vfs::{
    Caller, Error, FileKind, FileSystem, NewInode, RenameMode, SetAttributes, SetTime, Timestamp,
    XattrMode,
};

use crate::support::{KINDS, find, judge, make, open, remount, snapshot, volume};

#[test]
fn every_kind_of_inode_survives() {
    for args in KINDS {
        let device = volume(64 << 20, args);
        let fs = open(&device, "");
        let root = fs.root();
        let long = vec![b'l'; 4000];
        let kinds = [
            NewInode::Regular,
            NewInode::Directory,
            NewInode::Symlink(b"a/target"),
            NewInode::Symlink(&long),
            NewInode::CharDevice(0x103),
            NewInode::BlockDevice(0x1234_5678),
            NewInode::Fifo,
            NewInode::Socket,
        ];
        for (index, new) in kinds.into_iter().enumerate() {
            make(&fs, root, format!("entry {index}").as_bytes(), new).unwrap();
        }
        let link = find(&fs, root, b"entry 3").unwrap();
        assert_eq!(fs.readlink(link.ino).unwrap(), long);
        let fs = remount(&device, fs);
        assert_eq!(fs.readlink(find(&fs, root, b"entry 3").unwrap().ino).unwrap(), long);
        assert_eq!(find(&fs, root, b"entry 5").unwrap().device, 0x1234_5678);
        for index in 0..kinds_len() {
            let name = format!("entry {index}").into_bytes();
            match find(&fs, root, &name).unwrap().kind {
                FileKind::Directory => fs.rmdir(root, &name).unwrap(),
                _ => fs.unlink(root, &name).unwrap(),
            }
        }
        fs.unmount().unwrap();
        judge(&device);
    }
}

const fn kinds_len() -> usize {
    8
}

#[test]
fn names_move_and_multiply() {
    for args in KINDS {
        let device = volume(64 << 20, args);
        let fs = open(&device, "");
        let root = fs.root();
        for dir in [&b"a"[..], b"b"] {
            make(&fs, root, dir, NewInode::Directory).unwrap();
        }
        let (a, b) = (find(&fs, root, b"a").unwrap().ino, find(&fs, root, b"b").unwrap().ino);
        make(&fs, a, b"sub", NewInode::Directory).unwrap();
        make(&fs, a, b"file", NewInode::Regular).unwrap();
        let file = find(&fs, a, b"file").unwrap();
        fs.link(file.ino, b, b"other").map(|made| fs.forget(made.ino, 1)).unwrap();
        fs.rename(a, b"sub", b, b"moved", RenameMode::NoReplace).unwrap();
        fs.rename(a, b"file", b, b"file", RenameMode::Replace).unwrap();
        make(&fs, a, b"x", NewInode::Directory).unwrap();
        fs.rename(a, b"x", b, b"file", RenameMode::Exchange).unwrap();
        let loops = fs.rename(
            root,
            b"b",
            find(&fs, b, b"moved").unwrap().ino,
            b"loop",
            RenameMode::Replace,
        );
        assert!(loops.is_err());
        assert_eq!(
            (find(&fs, root, b"a").unwrap().links, find(&fs, root, b"b").unwrap().links),
            (2, 4)
        );
        let fs = remount(&device, fs);
        assert_eq!(find(&fs, a, b"x").unwrap().links, 2);
        let unnamed = fs.tmpfile(root, 0o600, &Caller::ROOT).unwrap();
        fs.link(unnamed.ino, root, b"named").map(|made| fs.forget(made.ino, 2)).unwrap();
        let open = fs.lookup(root, b"named").unwrap();
        fs.unlink(root, b"named").unwrap();
        assert_eq!(fs.getattr(open.ino).unwrap().links, 0);
        fs.forget(open.ino, 1);
        assert!(fs.getattr(open.ino).is_err());
        remount(&device, fs).unmount().unwrap();
    }
}

#[test]
fn attributes_survive() {
    for args in KINDS {
        let device = volume(64 << 20, args);
        let fs = open(&device, "");
        let root = fs.root();
        make(&fs, root, b"file", NewInode::Regular).unwrap();
        let ino = find(&fs, root, b"file").unwrap().ino;
        let set = SetAttributes {
            permissions: Some(0o4711),
            uid: Some(70_000),
            gid: Some(7),
            ..Default::default()
        };
        fs.setattr(ino, &set).unwrap();
        fs.setxattr(ino, b"user.small", b"value", XattrMode::Create).unwrap();
        fs.setxattr(ino, b"user.large", &[7; 3000], XattrMode::Create).unwrap();
        assert!(fs.setxattr(ino, b"user.huge", &[7; 5000], XattrMode::Set).is_err());
        let fs = remount(&device, fs);
        assert_eq!(fs.getxattr(ino, b"user.large").unwrap(), [7; 3000]);
        fs.removexattr(ino, b"user.large").unwrap();
        assert_eq!(fs.listxattr(ino).unwrap(), [b"user.small".to_vec()]);
        let before = snapshot(&fs);
        assert!(fs.removexattr(ino, b"user.large").is_err());
        before.assert_same(&snapshot(&fs));
        remount(&device, fs).unmount().unwrap();
    }
}

/// A kernel with a writeback cache sends the times of each removed file, and those of a new file
/// although they have not changed. Each of them made the inode dirty.
#[test]
fn times_of_removed_files_and_unchanged_times_make_nothing_dirty() {
    let device = volume(64 << 20, &[]);
    let fs = open(&device, "");
    let root = fs.root();
    let made =
        |name: &[u8]| fs.create(root, name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let (kept, removed) = (made(b"kept"), made(b"removed"));
    let unnamed = fs.tmpfile(root, 0o644, &Caller::ROOT).unwrap().ino;
    fs.unlink(root, b"removed").unwrap();
    fs.sync().unwrap();
    let dirty = || fs.report().u64("state.dirty_inodes").unwrap();
    let set = |ino, seconds: i64| {
        let time = Timestamp { seconds, nanoseconds: 5 };
        let (mtime, ctime) = (Some(SetTime::To(time)), Some(time));
        let found = fs.setattr(ino, &SetAttributes { mtime, ctime, ..SetAttributes::default() });
        let found = found.unwrap();
        assert_eq!((found.mtime, found.ctime), (time, time));
    };
    assert_eq!(dirty(), 0);
    set(kept, 1000);
    assert_eq!(dirty(), 1, "they have changed");
    fs.sync().unwrap();
    set(kept, 1000);
    set(removed, 2000);
    set(unnamed, 3000);
    assert_eq!(dirty(), 0);
    // Whoever gives the file a name stores its times, too.
    fs.link(unnamed, root, b"named").unwrap();
    [(kept, 1), (removed, 1), (unnamed, 2)].iter().for_each(|(ino, count)| fs.forget(*ino, *count));
    let fs = remount(&device, fs);
    let seconds = |name| find(&fs, root, name).unwrap().mtime.seconds;
    assert_eq!((seconds(b"kept".as_slice()), seconds(b"named".as_slice())), (1000, 3000));
    fs.unmount().unwrap();
    judge(&device);
}

/// Whether an inode has attributes is known without its node: after each change, and at once after
/// it was loaded.
#[test]
fn the_last_attribute_goes_and_the_first_one_comes() {
    for args in KINDS {
        let device = volume(64 << 20, args);
        let mut fs = open(&device, "");
        let root = fs.root();
        make(&fs, root, b"file", NewInode::Regular).unwrap();
        for value in [&[7; 10][..], &[7; 1000]] {
            for mode in [XattrMode::Create, XattrMode::Replace] {
                let ino = find(&fs, root, b"file").unwrap().ino;
                fs.setxattr(ino, b"user.a", value, mode).unwrap();
                assert_eq!(fs.getxattr(ino, b"user.a").unwrap(), value);
                fs = remount(&device, fs);
                assert_eq!(fs.getxattr(ino, b"user.a").unwrap(), value);
            }
            let ino = find(&fs, root, b"file").unwrap().ino;
            fs.removexattr(ino, b"user.a").unwrap();
            for _ in 0..2 {
                assert!(fs.listxattr(ino).unwrap().is_empty());
                assert!(matches!(fs.getxattr(ino, b"user.a"), Err(Error::NoAttribute)));
                fs = remount(&device, fs);
            }
        }
        fs.unmount().unwrap();
    }
}
