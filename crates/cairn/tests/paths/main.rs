//! The calls that take a path, on both formats, compared with what the kernel's tools read.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use cairn::fs::{File, OpenOptions};
use cairn::{Format, ImageSpec, MkfsOptions, Volume};
use cairn_testkit::judge;
use cairn_vfs::{AllocateMode, Seek as Find};

mod tree;

const SIZE: u64 = 64 << 20;

fn make(image: &Path, format: Format) -> Volume {
    let options = MkfsOptions { size: Some(SIZE), ..MkfsOptions::new(format) };
    cairn::mkfs(&ImageSpec::whole(image), &options).unwrap();
    Volume::open_writable(image).unwrap()
}

fn both(test: impl Fn(&Path, Volume, Format)) {
    for format in [Format::Ext4, Format::F2fs] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let volume = make(&image, format);
        test(&image, volume, format);
        match format {
            Format::Ext4 => judge::assert_clean(&image),
            _ => judge::assert_f2fs_clean(&image),
        }
    }
}

#[test]
fn files_are_written_read_and_found() {
    both(|image, volume, format| {
        volume.create_dir_all("/a/b/c").unwrap();
        volume.create_dir_all("a/b").unwrap();
        volume.write("/a/b/file", "contents").unwrap();
        assert_eq!(volume.read_to_string("a/b/file").unwrap(), "contents");
        volume.write(Path::new("/a/b/file"), b"new").unwrap();
        assert_eq!(volume.read(b"/a/b/file").unwrap(), b"new");
        volume.symlink("/a/b", "/link").unwrap();
        volume.symlink("../../../../../a/b/file", "/a/out").unwrap();
        assert_eq!(volume.read("/link/file").unwrap(), b"new");
        assert_eq!(volume.read("/a/out").unwrap(), b"new", "`..` at the root is the root");
        assert_eq!(volume.read_link("/link").unwrap(), b"/a/b");
        assert!(volume.symlink_metadata("/link").unwrap().is_symlink());
        volume.hard_link("/a/b/file", "/second").unwrap();
        assert_eq!(volume.metadata("/second").unwrap().attributes().links, 2);
        volume.rename("/second", "/a/third").unwrap();
        let names = volume.read_dir("/a").unwrap();
        let mut names: Vec<Vec<u8>> = names.map(|entry| entry.unwrap().name().to_vec()).collect();
        names.sort();
        assert_eq!(names, [&b"b"[..], b"out", b"third"]);
        volume.set_permissions("/a/third", 0o4711).unwrap();
        volume.set_owner("/a/third", 5, 6).unwrap();
        let time = UNIX_EPOCH + Duration::new(1_000_000_000, 0);
        volume.set_times("/a/third", time, time).unwrap();
        let found = volume.metadata("/a/third").unwrap();
        assert_eq!((found.permissions(), found.owner(), found.len()), (0o4711, (5, 6), 3));
        assert_eq!((found.modified(), found.accessed()), (time, time));
        volume.set_xattr("/a/third", "user.note", Some(b"value")).unwrap();
        assert_eq!(volume.xattr("/a/third", "user.note").unwrap().unwrap(), b"value");
        assert_eq!(volume.list_xattrs("/a/third").unwrap(), [b"user.note"]);
        volume.set_xattr("/a/third", "user.note", None).unwrap();
        assert_eq!(volume.xattr("/a/third", "user.note").unwrap(), None);
        volume.close().unwrap();
        if format == Format::Ext4 {
            let read = judge::run("debugfs", ["-R", "cat /a/third", image.to_str().unwrap()]);
            assert!(read.starts_with("new"), "{read}");
        }
    });
}

#[test]
fn errors_have_the_kinds_of_the_systems() {
    both(|_, volume, _| {
        volume.write("/file", "x").unwrap();
        volume.create_dir("/dir").unwrap();
        volume.write("/dir/inside", "x").unwrap();
        volume.symlink("/loop", "/loop").unwrap();
        let kinds = [
            (volume.read("/none").unwrap_err(), ErrorKind::NotFound),
            (volume.read("/file/x").unwrap_err(), ErrorKind::NotADirectory),
            (volume.read("/dir").unwrap_err(), ErrorKind::IsADirectory),
            (volume.remove_dir("/dir").unwrap_err(), ErrorKind::DirectoryNotEmpty),
            (volume.create_dir("/dir").unwrap_err(), ErrorKind::AlreadyExists),
            (volume.read("").unwrap_err(), ErrorKind::NotFound),
            (volume.create_dir("").unwrap_err(), ErrorKind::NotFound),
            (volume.create_dir("/").unwrap_err(), ErrorKind::AlreadyExists),
            (volume.remove_dir("/").unwrap_err(), ErrorKind::ResourceBusy),
            (volume.remove_file("/file/").unwrap_err(), ErrorKind::NotADirectory),
            (volume.write("/new/", "x").unwrap_err(), ErrorKind::IsADirectory),
            (volume.symlink("file", "/new/").unwrap_err(), ErrorKind::NotFound),
            (volume.write(vec![b'n'; 300], "x").unwrap_err(), ErrorKind::InvalidFilename),
            (volume.read_link("/file").unwrap_err(), ErrorKind::InvalidInput),
        ];
        for (error, kind) in kinds {
            assert_eq!(error.kind(), kind, "{error}");
        }
        let looped = volume.read("/loop").unwrap_err();
        let source = looped.get_ref().and_then(|error| error.downcast_ref::<cairn_vfs::Error>());
        assert!(matches!(source, Some(cairn_vfs::Error::Loop)), "{looped}");
        let new = OpenOptions::new().write(true).create_new(true).open(&volume, "/file");
        assert_eq!(new.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let file = File::open(&volume, "/file").unwrap();
        assert_eq!(file.write_at(b"y", 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(file.set_len(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
        let neither = OpenOptions::new().create(true).open(&volume, "/new");
        assert_eq!(neither.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn open_files_have_positions_and_outlive_their_names() {
    both(|_, volume, _| {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .mode(0o600)
            .owner(7, 8)
            .open(&volume, "/file")
            .unwrap();
        write!(file, "0123456789").unwrap();
        assert_eq!(file.seek(SeekFrom::End(-3)).unwrap(), 7);
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "789");
        assert!(file.seek(SeekFrom::Current(-100)).is_err());
        let found = file.metadata().unwrap();
        assert_eq!((found.permissions(), found.owner()), (0o600, (7, 8)));
        let mut more = OpenOptions::new().append(true).open(&volume, "/file").unwrap();
        more.write_all(b"ab").unwrap();
        more.write_all(b"cd").unwrap();
        assert_eq!(volume.read("/file").unwrap(), b"0123456789abcd");
        drop(more);
        file.set_len(1 << 20).unwrap();
        file.write_all_at(b"end", (1 << 20) - 3).unwrap();
        file.allocate(AllocateMode::PunchHole, 4096, 65536).unwrap();
        assert_eq!(file.find(Find::Data, 1 << 20).unwrap(), None);
        file.sync_all().unwrap();
        volume.remove_file("/file").unwrap();
        let mut three = [0; 3];
        assert_eq!(file.read_at(&mut three, (1 << 20) - 3).unwrap(), 3);
        assert_eq!(&three, b"end");
        // A dangling link names the file that is made.
        volume.symlink("target", "/dangling").unwrap();
        volume.write("/dangling", "made").unwrap();
        assert_eq!(volume.read("/target").unwrap(), b"made");
    });
}

#[test]
fn a_dropped_volume_is_clean_and_one_in_use_stays_open() {
    both(|image, volume, _| {
        volume.write("/file", "contents").unwrap();
        let fs = volume.filesystem().clone();
        drop(volume);
        fs.sync().expect("it is still open");
        fs.unmount().unwrap();
        drop(fs);
        let volume = Volume::open_writable(image).unwrap();
        volume.write("/second", "contents").unwrap();
        drop(volume);
        // The caller's checker finds the volume clean.
        let volume = Volume::open(image).unwrap();
        assert_eq!(volume.read("/second").unwrap(), b"contents");
        assert_eq!(volume.write("/x", "").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    });
}

#[test]
fn trees_are_walked_copied_and_removed() {
    both(|_, volume, format| {
        let dir = tempfile::tempdir().unwrap();
        let other_format = if format == Format::Ext4 { Format::F2fs } else { Format::Ext4 };
        let other = make(&dir.path().join("other"), other_format);
        volume.create_dir_all("/tree/deep/er").unwrap();
        volume.write("/tree/file", vec![9; 3_000_000]).unwrap();
        volume.hard_link("/tree/file", "/tree/deep/again").unwrap();
        volume.symlink("er/none", "/tree/deep/link").unwrap();
        volume.set_permissions("/tree/deep", 0o750).unwrap();
        volume.set_xattr("/tree/file", "user.a", Some(b"b")).unwrap();
        let holed = File::create(&volume, "/tree/deep/er/holed").unwrap();
        holed.write_all_at(b"x", 5_000_000).unwrap();
        drop(holed);
        let time = UNIX_EPOCH + Duration::from_secs(1_234_567_890);
        for path in ["/tree/file", "/tree/deep/er/holed", "/tree/deep", "/tree"] {
            volume.set_times(path, time, time).unwrap();
        }
        let mut told = 0;
        let copied = volume
            .copy_tree("/tree", &other, "/copy", &mut |progress| {
                told = progress.copied.files;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!((copied.files, told), (7, 7));
        let seen = |volume: &Volume, path: &str| {
            let mut seen = Vec::new();
            let mut visit = |path: &[u8], found: &cairn::fs::Metadata| {
                let size = if found.is_dir() { 0 } else { found.len() };
                seen.push((
                    path.to_vec(),
                    found.kind(),
                    found.permissions(),
                    size,
                    found.modified(),
                ));
                ControlFlow::Continue(())
            };
            volume.walk(path, &mut visit).unwrap();
            seen.sort_by(|one, other| one.0.cmp(&other.0));
            seen.retain(|(path, ..)| path != b"deep/er" && path != b"deep/link");
            seen
        };
        assert_eq!(seen(&volume, "/tree"), seen(&other, "/copy"));
        assert_eq!(other.read("/copy/deep/again").unwrap(), vec![9; 3_000_000]);
        assert_eq!(other.metadata("/copy/file").unwrap().attributes().links, 2);
        assert!(other.metadata("/copy/deep/er/holed").unwrap().attributes().sectors < 100);
        assert_eq!(other.xattr("/copy/file", "user.a").unwrap().unwrap(), b"b");
        let ended =
            volume.copy_tree("/tree", &volume, "/tree/inside", &mut |progress| match progress
                .copied
                .bytes
                > 1_000_000
            {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            });
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Interrupted);
        volume.remove_dir_all("/tree").unwrap();
        assert!(!volume.exists("/tree").unwrap());
        assert_eq!(
            other
                .read_dir("/")
                .unwrap()
                .filter(|it| it.as_ref().unwrap().name() == b"copy")
                .count(),
            1
        );
    });
}

/// Who is to write hears at once that that cannot be; who may read gets the volume.
#[test]
fn what_can_only_be_read_is_not_opened_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    judge::run(
        "mke2fs",
        ["-qF", "-t", "ext4", "-O", "bigalloc,quota"].map(Path::new).into_iter().chain([&*image]),
    );
    let before = std::fs::read(&image).unwrap();
    let refused = Volume::open_writable(&image).err().expect("it has clusters");
    assert_eq!(std::io::Error::from(refused).kind(), ErrorKind::ReadOnlyFilesystem);
    let spec = ImageSpec::whole(&image);
    for (read_only, ephemeral, opens) in [(true, false, true), (false, true, false)] {
        let defaults = cairn::OpenOptions { must_write: true, ..cairn::OpenOptions::default() };
        let options = cairn::OpenOptions { read_only, ephemeral, ..defaults };
        assert_eq!(cairn::open(&spec, &options).is_ok(), opens, "{options:?}");
    }
    let volume = cairn::open(&spec, &cairn::OpenOptions::default()).unwrap();
    let why = volume.read_only_reason().unwrap();
    assert!(why.contains("bigalloc"), "{why}");
    volume.close().unwrap();
    assert!(std::fs::read(&image).unwrap() == before, "it was written");
    let written = make(&dir.path().join("other"), Format::F2fs);
    assert_eq!(written.read_only_reason(), None);
}
