//! What single calls do.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink};

use cairn_vfs::FileSystem;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, Timespec, Timestamps, copy_file_range, fallocate,
    renameat_with, seek, utimensat,
};
use rustix::io::Errno;

use super::each;
use crate::fixture::{Mounted, require_mounting};

#[test]
fn files_are_written_read_renamed_and_removed() {
    each(|mounted| {
        let path = mounted.path("file");
        let data: Vec<u8> = (0..3_000_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
        let stat = fs::metadata(&path).unwrap();
        assert_eq!((stat.len(), stat.nlink(), stat.mode() & 0o170_000), (3_000_000, 1, 0o100_000));
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"tail").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(10).unwrap();
        file.write_all_at(b"XY", 8190).unwrap();
        let mut read = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!((read.len(), &read[..10], &read[8190..]), (8192, &data[..10], &b"XY"[..]));
        assert!(read[10..8190].iter().all(|byte| *byte == 0));
        fs::hard_link(&path, mounted.path("second")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 2);
        fs::rename(&path, mounted.path("renamed")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
        fs::remove_file(mounted.path("renamed")).unwrap();
        fs::remove_file(mounted.path("second")).unwrap();
        // Open, and without a name.
        file.write_all_at(b"still", 0).unwrap();
        file.sync_all().unwrap();
        let mut five = [0; 5];
        file.read_exact_at(&mut five, 0).unwrap();
        assert_eq!(&five, b"still");
    });
}

#[test]
fn directories_list_all_entries_once() {
    each(|mounted| {
        let dir = mounted.path("dir");
        fs::create_dir(&dir).unwrap();
        let names: BTreeSet<String> =
            (0..3000).map(|n| format!("a rather long name of entry number {n}")).collect();
        for name in &names {
            File::create(dir.join(name)).unwrap();
        }
        let listed: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(listed.len(), names.len());
        for entry in &listed {
            assert!(entry.file_type().unwrap().is_file() && entry.metadata().unwrap().ino() != 0);
        }
        assert_eq!(
            listed
                .iter()
                .map(|entry| entry.file_name().into_string().unwrap())
                .collect::<BTreeSet<_>>(),
            names
        );
        assert_eq!(fs::remove_dir(&dir).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0);
        // The kernel drops all references to the files at some later time. (A removed directory
        // stays in its inode cache, because the kernel sees one more link than it removes.)
        while mounted.model().inode_count() > 2 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn the_root_has_its_own_number_and_names_are_limited() {
    each(|mounted| {
        let root = mounted.model().root().get();
        assert_eq!(fs::metadata(mounted.path("")).unwrap().ino(), root);
        fs::create_dir(mounted.path("d")).unwrap();
        assert_eq!(fs::metadata(mounted.path("d/..")).unwrap().ino(), root);
        File::create(mounted.path(&"n".repeat(255))).unwrap();
        for len in [256, 1000, 3000] {
            let error = File::create(mounted.path(&"n".repeat(len))).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()), "{len}");
        }
        // A name can be created after a failed look-up, and then be looked up.
        assert!(!mounted.path("later").exists() && !mounted.path("later").exists());
        fs::write(mounted.path("later"), "x").unwrap();
        assert!(mounted.path("later").exists());
    });
}

#[test]
fn renames_of_all_modes() {
    each(|mounted| {
        fs::write(mounted.path("a"), "a").unwrap();
        fs::create_dir(mounted.path("d")).unwrap();
        fs::write(mounted.path("d/inner"), "inner").unwrap();
        let rename = |from: &str, to: &str, flags| {
            renameat_with(CWD, mounted.path(from), CWD, mounted.path(to), flags)
        };
        assert_eq!(rename("a", "d", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        assert_eq!(rename("d", "d/inner/x", RenameFlags::empty()), Err(Errno::NOTDIR));
        rename("a", "d", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read_to_string(mounted.path("a/inner")).unwrap(), "inner");
        assert_eq!(fs::read_to_string(mounted.path("d")).unwrap(), "a");
        rename("a", "b", RenameFlags::WHITEOUT).unwrap();
        let left = fs::symlink_metadata(mounted.path("a")).unwrap();
        assert_eq!((left.mode(), left.rdev()), (0o020_000, 0), "a whiteout");
        assert_eq!(fs::read_to_string(mounted.path("b/inner")).unwrap(), "inner");
    });
}

#[test]
fn owners_modes_times_and_privileges() {
    each(|mounted| {
        let path = mounted.path("f");
        fs::write(&path, "x").unwrap();
        lchown(&path, Some(7), Some(8)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
        let times = Timestamps {
            last_access: Timespec { tv_sec: 5, tv_nsec: 6 },
            last_modification: Timespec { tv_sec: -2, tv_nsec: 800_000_000 },
        };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let stat = fs::metadata(&path).unwrap();
        assert_eq!((stat.uid(), stat.gid(), stat.mode()), (7, 8, 0o106_755));
        assert_eq!(
            (stat.atime(), stat.atime_nsec(), stat.mtime(), stat.mtime_nsec()),
            (5, 6, -2, 800_000_000)
        );
        // A change of owner removes set-user-ID, also by root.
        lchown(&path, Some(9), None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode(), 0o100_755);
        fs::write(&path, "longer").unwrap();
        let stat = fs::metadata(&path).unwrap();
        assert!(stat.mtime() > 1_000_000_000, "{}.{}", stat.mtime(), stat.mtime_nsec());
        symlink("f", mounted.path("s")).unwrap();
        assert_eq!(fs::read_link(mounted.path("s")).unwrap().to_str(), Some("f"));
        assert_eq!(fs::read_to_string(mounted.path("s")).unwrap(), "longer");
    });
}

#[test]
fn holes_allocation_and_copies() {
    each(|mounted| {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(mounted.path("f"))
            .unwrap();
        file.write_all_at(&[7; 65536], 0).unwrap();
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 16384, 16384)
            .unwrap();
        let mut read = vec![0; 65536];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(
            read[16384..32768].iter().all(|byte| *byte == 0)
                && read[32768..].iter().all(|byte| *byte == 7)
        );
        assert_eq!(seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(16384));
        assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(16384)), Ok(32768));
        // Data that only the kernel's cache holds is found too.
        file.write_all_at(&[9; 100], 20480).unwrap();
        assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(16384)), Ok(20480));
        assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(1 << 20)), Err(Errno::NXIO));
        fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096).map_or_else(
            // FUSE passes no collapse. The error must be EOPNOTSUPP.
            |error| assert_eq!(error, Errno::OPNOTSUPP),
            |()| panic!("the kernel learnt to collapse: test it"),
        );
        fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        let copy = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(mounted.path("copy"))
            .unwrap();
        let (mut from, mut to) = (0, 10);
        assert_eq!(copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 65536), Ok(65536));
        let mut copied = vec![0; 65536];
        copy.read_exact_at(&mut copied, 10).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_exact(&mut read).unwrap();
        assert_eq!(copied, read);
    });
}

#[test]
fn direct_and_buffered_access_agree() {
    each(|mounted| {
        let path = mounted.path("f");
        fs::write(&path, [1; 16384]).unwrap();
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let direct =
            File::options().read(true).write(true).custom_flags(direct).open(&path).unwrap();
        // Direct I/O wants aligned memory.
        let mut memory = vec![2_u8; 8192 + 4096];
        let start = memory.as_ptr().align_offset(4096);
        let aligned = &mut memory[start..start + 8192];
        direct.write_all_at(aligned, 4096).unwrap();
        let read = fs::read(&path).unwrap();
        assert!(
            read[..4096].iter().all(|byte| *byte == 1)
                && read[4096..12288].iter().all(|byte| *byte == 2)
        );
        File::options().write(true).open(&path).unwrap().write_all_at(&[3; 100], 4096).unwrap();
        direct.read_exact_at(aligned, 4096).unwrap();
        assert_eq!((aligned[99], aligned[100]), (3, 2));
    });
}

#[test]
fn extended_attributes_and_access_control_lists() {
    each(|mounted| {
        let path = mounted.path("f");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        xattr::set(&path, "user.small", b"1").unwrap();
        xattr::set(&path, "user.large", &[5; 60_000]).unwrap();
        xattr::set(&path, "trusted.t", b"").unwrap();
        assert_eq!(xattr::get(&path, "user.large").unwrap().unwrap(), [5; 60_000]);
        assert_eq!(xattr::get(&path, "user.none").unwrap(), None);
        assert_eq!(xattr::list(&path).unwrap().count(), 3);
        xattr::remove(&path, "user.small").unwrap();
        assert_eq!(xattr::list(&path).unwrap().count(), 2);
        // u::rw-, u:5:rw-, g::r--, m::rw-, o::--- : the mask shows as the group's bits.
        let entry = |tag: u16, permissions: u16, id: u32| {
            [
                tag.to_le_bytes().to_vec(),
                permissions.to_le_bytes().to_vec(),
                id.to_le_bytes().to_vec(),
            ]
            .concat()
        };
        let none = u32::MAX;
        let list = [
            2_u32.to_le_bytes().to_vec(),
            entry(1, 6, none),
            entry(2, 6, 5),
            entry(4, 4, none),
            entry(0x10, 6, none),
            entry(0x20, 0, none),
        ]
        .concat();
        xattr::set(&path, "system.posix_acl_access", &list).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode(), 0o100_660);
        assert_eq!(xattr::get(&path, "system.posix_acl_access").unwrap().unwrap(), list);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let changed = xattr::get(&path, "system.posix_acl_access").unwrap().unwrap();
        assert_eq!(changed[4 + 3 * 8 + 2], 0, "the mask followed chmod");
        // A default list overrides the umask for new files.
        let dir = mounted.path("d");
        fs::create_dir(&dir).unwrap();
        xattr::set(&dir, "system.posix_acl_default", &list).unwrap();
        File::create(dir.join("new")).unwrap();
        assert_eq!(fs::metadata(dir.join("new")).unwrap().mode(), 0o100_660);
    });
}

#[test]
fn ioctls_of_flags_label_and_shutdown() {
    require_mounting();
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, "x").unwrap();
    let file = File::open(&path).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::IMMUTABLE).unwrap();
    assert!(rustix::fs::ioctl_getflags(&file).unwrap().contains(rustix::fs::IFlags::IMMUTABLE));
    assert_eq!(fs::remove_file(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
    rustix::fs::ioctl_setflags(&file, flags).unwrap();
    fs::remove_file(&path).unwrap();
    drop(file);
    assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0);
    mounted.finish();
}

#[test]
fn special_files_and_statfs() {
    each(|mounted| {
        let kinds = [
            rustix::fs::FileType::Fifo,
            rustix::fs::FileType::Socket,
            rustix::fs::FileType::CharacterDevice,
        ];
        for (n, kind) in kinds.into_iter().enumerate() {
            let path = mounted.path(&format!("special{n}"));
            let device = rustix::fs::makedev(259, 1_000);
            rustix::fs::mknodat(CWD, &path, kind, rustix::fs::Mode::from(0o644), device).unwrap();
            let stat = rustix::fs::lstat(&path).unwrap();
            assert_eq!(rustix::fs::FileType::from_raw_mode(stat.st_mode), kind);
            if kind == rustix::fs::FileType::CharacterDevice {
                assert_eq!(stat.st_rdev, device);
            }
        }
        let stats =
            rustix::fs::statvfs(CString::new(mounted.path("").to_str().unwrap()).unwrap()).unwrap();
        assert_eq!((stats.f_bsize, stats.f_namemax, stats.f_blocks), (4096, 255, 1 << 30));
    });
}

#[test]
fn files_without_a_name_and_times_of_creation() {
    each(|mounted| {
        let unnamed = rustix::fs::open(
            mounted.path(""),
            rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR,
            rustix::fs::Mode::from_raw_mode(0o640),
        );
        let file = File::from(unnamed.unwrap());
        file.write_all_at(b"unseen", 0).unwrap();
        assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().len()), (0, 6));
        assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0);
        let created = file.metadata().unwrap().created().expect("statx has a time of creation");
        assert!(
            created <= std::time::SystemTime::now() && created.elapsed().unwrap().as_secs() < 3600
        );
    });
}
