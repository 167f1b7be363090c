//! Reads the kernel's directories, and lets the kernel and e2fsck read ours. Needs root for loop
//! mounts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cairn_testkit::judge;

use super::image::TestImage;
use super::*;
use crate::dir::hash::{LEGACY, TEA};

/// Names of different lengths; one in five has bytes above 127.
fn file_name(n: u32) -> String {
    match n % 5 {
        0 => format!("größe-{n}"),
        1 => format!("{n}"),
        2 => format!("a name with spaces {n}"),
        3 => format!("{n:0>60}"),
        _ => format!("file{n}.txt"),
    }
}

fn names_of(directory: &Path) -> BTreeMap<Vec<u8>, u64> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().as_bytes().to_vec(), entry.metadata().unwrap().ino()))
        .collect()
}

/// Lets the kernel create `count` files and compares every name.
fn read_kernels(count: u32, args: &[&str], tune: &[&str], version: u8) {
    let image = TestImage::new(
        256 << 20,
        &[&["-t", "ext4", "-N", "110000", "-O", "^has_journal"], args].concat(),
    );
    judge::run("tune2fs", tune.iter().map(Path::new).chain([image.path.as_path()]));
    let expected = image.mounted(|root| {
        let directory = root.join("d");
        fs::create_dir(&directory).unwrap();
        for n in 0..count {
            File::create(directory.join(file_name(n))).unwrap();
        }
        for n in (0..count).step_by(7) {
            fs::remove_file(directory.join(file_name(n))).unwrap();
        }
        names_of(&directory)
    });
    let open = image.open();
    let dir = open.directory("/d");
    assert!(dir.indexed());
    let info = read_root(&dir, &dir.settings).unwrap().1;
    assert_eq!(info.hash_version, version);
    dir.audit();
    assert_eq!(dir.names(1000).into_iter().collect::<BTreeMap<_, _>>(), expected);
    for (name, ino) in &expected {
        let found = lookup(&dir, name).unwrap().unwrap();
        assert_eq!((found.ino, found.kind), (Ino(*ino), Some(FileKind::Regular)));
    }
    for n in (0..count).step_by(7) {
        assert!(lookup(&dir, file_name(n).as_bytes()).unwrap().is_none());
    }
    assert!(!is_empty(&dir).unwrap());
}

#[test]
fn a_hundred_thousand_names_in_small_blocks() {
    read_kernels(100_000, &["-b", "1024"], &["-E", "hash_alg=half_md4"], HALF_MD4);
}

#[test]
fn a_hundred_thousand_names_in_large_blocks() {
    read_kernels(100_000, &["-b", "4096"], &["-E", "hash_alg=tea"], TEA);
}

#[test]
fn every_hash_version_and_seed() {
    let seed = ["-b", "1024", "-E", "hash_seed=01234567-89ab-cdef-0123-456789abcdef"];
    for (name, version) in [("legacy", LEGACY), ("half_md4", HALF_MD4), ("tea", TEA)] {
        let tune = format!("hash_alg={name}");
        read_kernels(6000, &seed, &["-E", &tune], version);
    }
}

#[test]
fn unsigned_hashes_and_no_checksums() {
    let image = TestImage::new(
        64 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum"],
    );
    judge::run("debugfs", ["-w", "-R", "ssv flags 2", image.path.to_str().unwrap()]);
    let expected = image.mounted(|root| {
        let directory = root.join("d");
        fs::create_dir(&directory).unwrap();
        for n in 0..2000 {
            File::create(directory.join(file_name(n))).unwrap();
        }
        names_of(&directory)
    });
    let open = image.open();
    let dir = open.directory("/d");
    assert!(dir.settings.hash.unsigned && dir.settings.format.seed == InodeSeed(None));
    dir.audit();
    assert!(expected.keys().all(|name| lookup(&dir, name).unwrap().is_some()));
}

/// e2fsck folds names for the index, as Linux does.
#[test]
fn folded_directories_are_read() {
    let image = TestImage::new(
        64 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "casefold,^has_journal", "-E", "encoding=utf8"],
    );
    let names: BTreeSet<_> = (0..600).map(|n| format!("UPPER {n}").into_bytes()).collect();
    let script = tempfile::NamedTempFile::new().unwrap();
    let writes = names.iter().map(|name| format!("write /dev/null \"/d/{}\"", name.escape_ascii()));
    let before = ["mkdir /d".to_owned(), "sif /d flags 0x40080000".to_owned()];
    let lines: Vec<_> = before.into_iter().chain(writes).collect();
    fs::write(script.path(), lines.join("\n")).unwrap();
    judge::run("debugfs", [Path::new("-wf"), script.path(), &image.path]);
    // It ends with 1, because it has changed the volume.
    let ended = judge::command("e2fsck").arg("-fyD").arg(&image.path).output().unwrap();
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{ended:?}");
    let open = image.open();
    let dir = open.directory("/d");
    assert!(dir.indexed() && dir.folded);
    for piece in [7, 1000] {
        let listed: Vec<_> = dir.names(piece).into_iter().map(|(name, _)| name).collect();
        assert_eq!(listed.len(), names.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    }
    assert!(names.iter().all(|name| lookup(&dir, name).unwrap().is_some()));
}

/// Lets the kernel create a directory with spare blocks, writes it again, and lets e2fsck and the
/// kernel judge it.
fn rewrite(args: &[&str], count: u32) {
    let image = TestImage::new(128 << 20, &[&["-t", "ext4", "-O", "^has_journal"], args].concat());
    let expected = image.mounted(|root| {
        let directory = root.join("d");
        fs::create_dir(&directory).unwrap();
        for n in 0..count {
            File::create(directory.join(file_name(n))).unwrap();
        }
        let files = names_of(&directory);
        for n in 0..count * 2 {
            fs::hard_link(
                directory.join(file_name(n % count)),
                directory.join(format!("{n:0>120}")),
            )
            .unwrap();
        }
        for n in 0..count * 2 {
            fs::remove_file(directory.join(format!("{n:0>120}"))).unwrap();
        }
        files
    });
    let open = image.open();
    let mut dir = open.directory("/d");
    dir.spare = Mutex::new(std::mem::take(&mut *dir.used.lock()).into_iter().rev().collect());
    dir.indexed.store(false, Ordering::Relaxed);
    init_empty(&dir, &dir.handle(), Ino(2)).unwrap();
    // Other names come first, so that there are gaps and splits everywhere.
    for n in 0..count {
        dir.add(format!("passing {n}").as_bytes(), 11);
    }
    for (name, ino) in &expected {
        dir.add(name, *ino);
    }
    for n in 0..count {
        remove(&dir, &dir.handle(), format!("passing {n}").as_bytes()).unwrap();
    }
    dir.audit();
    let ino = dir.settings.ino;
    let mut inode = open.inode(ino);
    let blocks = dir.count();
    inode.size = blocks * u64::from(open.layout.block_size);
    inode.flags.set(crate::format::inode::InodeFlags::INDEX, dir.indexed());
    open.write_inode(ino, &inode);
    open.cache.write_back().unwrap();
    let unused = dir.spare.lock().len() as u64;
    drop((dir, open));
    let punch = format!("punch <{ino}> {blocks} {}", blocks + unused);
    judge::run("debugfs", ["-w", "-R", punch.as_str(), image.path.to_str().unwrap()]);
    judge::assert_clean(&image.path);
    let seen = image.mounted(|root| {
        for name in expected.keys() {
            let path = root.join("d").join(std::ffi::OsStr::from_bytes(name));
            assert!(fs::symlink_metadata(&path).is_ok(), "the kernel does not find {path:?}");
        }
        names_of(&root.join("d"))
    });
    assert_eq!(seen, expected);
    judge::assert_clean(&image.path);
}

#[test]
fn directories_we_write_are_clean() {
    rewrite(&["-b", "1024"], 3000);
    rewrite(&["-b", "4096"], 8000);
    rewrite(&["-b", "1024", "-O", "^metadata_csum,^filetype"], 2000);
    rewrite(&["-b", "1024", "-O", "^dir_index"], 600);
    rewrite(&["-b", "2048"], 30);
}

#[test]
fn the_kernels_inline_directories_and_files_are_read() {
    let image =
        TestImage::new(32 << 20, &["-t", "ext4", "-I", "512", "-O", "inline_data,^has_journal"]);
    let contents: Vec<u8> = (0..150).collect();
    image.mounted(|root| {
        fs::create_dir(root.join("d")).unwrap();
        for n in 0..8 {
            File::create(root.join(format!("d/inline {n}"))).unwrap();
        }
        fs::remove_file(root.join("d/inline 3")).unwrap();
        fs::write(root.join("f"), &contents).unwrap();
    });
    let open = image.open();
    let ino = open.ino("/d");
    let inode = open.inode(ino);
    assert!(inode.flags.contains(crate::format::inode::InodeFlags::INLINE_DATA));
    let settings = open.settings(ino, &inode);
    let tail = crate::xattr::inline_data::tail_range(&inode.extra, ino).unwrap();
    assert!(!tail.is_empty());
    let dir = inline::InlineDir { head: &inode.block, tail: &inode.extra[tail] };
    let mut names = BTreeSet::new();
    dir.readdir(&settings, 0, &mut |entry| {
        names.insert(String::from_utf8(entry.name.into_bytes()).unwrap())
    })
    .unwrap();
    let files = [0, 1, 2, 4, 5, 6, 7].map(|n| format!("inline {n}"));
    assert_eq!(names, files.iter().cloned().chain([".".into(), "..".into()]).collect());
    assert_eq!(dir.parent(), Ino(2));
    assert_eq!(
        dir.lookup(&settings, b"inline 7").unwrap().unwrap().ino,
        open.ino("\"/d/inline 7\"")
    );
    let ino = open.ino("/f");
    let inode = open.inode(ino);
    let read =
        crate::xattr::inline_data::read(&inode.block, &inode.extra, ino, inode.size).unwrap();
    assert_eq!(read, contents);
}
