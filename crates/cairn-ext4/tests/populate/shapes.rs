//! Trees of one extreme shape each: many names, many extents, many links, shared attributes.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_ext4::mkfs::MkfsOptions;
use cairn_testkit::judge::{KernelMount, debugfs};
use cairn_vfs::{Caller, FileKind, FileSystem, IoFlags, NewInode, OpenMode};

use crate::checked::assert_clean;
use crate::support::{fill, open, options};
use cairn_testkit::made::{Made, What, byte};

/// Fills a volume, judges it, and shows it to `look` under the kernel.
fn judge(made: Made, features: &str, block_size: u32, look: impl FnOnce(&Path, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    fill(Arc::new(made), &options(features, block_size), 32 << 20, 2, &image);
    assert_clean(&image);
    let mount = KernelMount::new(&image, "ro");
    look(mount.path(), &image);
    mount.unmount();
    if !features.contains("ea_inode") {
        change(&image);
        assert_clean(&image);
    }
}

/// Cairn's mount adds, removes and appends.
fn change(image: &Path) {
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(image, OpenOptions::write()).unwrap());
    let fs = open(device);
    let root = fs.root();
    let mut directories = vec![root];
    fs.readdir(root, 0, &mut |entry| {
        if entry.kind == Some(FileKind::Directory) && entry.name.len() > 2 {
            directories.push(entry.ino);
        }
        directories.len() < 4
    })
    .unwrap();
    for directory in directories {
        let mut names = Vec::new();
        fs.readdir(directory, 0, &mut |entry| {
            if entry.kind == Some(FileKind::Regular) {
                names.push(entry.name);
            }
            names.len() < 50
        })
        .unwrap();
        for name in &names {
            fs.unlink(directory, name).unwrap();
        }
        for number in 0..60 {
            let name = format!("a new name in an old directory {number}").into_bytes();
            let made = fs.create(directory, &name, NewInode::Regular, 0o644, &Caller::ROOT);
            let made = made.unwrap();
            let handle = fs.open(made.ino, OpenMode { write: true, direct: false }).unwrap();
            fs.write(made.ino, 0, b"new", IoFlags::empty()).unwrap();
            fs.release(made.ino, handle);
            fs.forget(made.ino, 1);
        }
    }
    fs.unmount().unwrap();
}

fn count(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_hundred_thousand_names_are_an_index_of_one_level_and_of_two() {
    for (block_size, depth) in [(4096, 2), (1024, 3)] {
        let mut made = Made::new();
        let many = made.directory(0, "many");
        for number in 0..100_000 {
            made.file(many, format!("{number:06}"), 0);
        }
        judge(made, "", block_size, |root, image| {
            assert_eq!(count(&root.join("many")), 100_000);
            for number in (0..100_000).step_by(97) {
                assert!(root.join(format!("many/{number:06}")).is_file(), "{number}");
            }
            let tree = debugfs(image, "htree_dump /many");
            let levels = tree.lines().find(|line| line.contains("Indirect levels")).unwrap();
            let found = levels.rsplit(' ').next().unwrap().parse::<u32>().unwrap() + 1;
            assert!(found <= depth, "{levels}");
        });
    }
}

#[test]
fn long_names_and_directories_without_an_index() {
    for features in ["", "^dir_index", "^metadata_csum"] {
        let mut made = Made::new();
        for number in 0..2000 {
            made.file(0, format!("{number}{}", "n".repeat(251)), 0);
        }
        judge(made, features, 1024, |root, _| {
            assert_eq!(count(root), 2001);
            assert!(root.join(format!("77{}", "n".repeat(251))).is_file());
        });
    }
}

/// Linux counts no more than 65,000 links of a directory.
#[test]
fn more_subdirectories_than_links_are_counted() {
    let mut made = Made::new();
    let many = made.directory(0, "many");
    for number in 0..65_100 {
        made.directory(many, format!("{number:05}"));
    }
    judge(made, "^has_journal", 4096, |root, _| {
        assert_eq!(count(&root.join("many")), 65_100);
        assert_eq!(root.join("many").metadata().unwrap().nlink(), 1);
        assert_eq!(root.join("many/64999").metadata().unwrap().nlink(), 2);
    });
}

#[test]
fn sparse_files_have_trees_of_every_depth() {
    for block_size in [1024, 4096] {
        let step = u64::from(block_size) * 2;
        let mut made = Made::new();
        for count in [1, 4, 5, 84, 85, 400, 3000] {
            let data: Vec<_> = (0..count).map(|n| n * step + 10..n * step + 700).collect();
            made.add(0, format!("{count}"), What::File(count * step + 5, data));
        }
        made.add(0, "hole", What::File(1 << 40, Vec::new()));
        judge(made, "", block_size, |root, _| {
            for count in [1, 4, 5, 84, 85, 400, 3000] {
                let file = File::open(root.join(count.to_string())).unwrap();
                assert_eq!(file.metadata().unwrap().len(), count * step + 5);
                for n in [0, count / 2, count - 1] {
                    let mut found = [0; 701];
                    file.read_exact_at(&mut found, n * step + 9).unwrap();
                    assert_eq!((found[0], found[700]), (0, 0));
                    assert_eq!(found[1], byte(n * step + 10));
                    assert_eq!(found[690], byte(n * step + 699));
                }
            }
            assert_eq!(root.join("hole").metadata().unwrap().blocks(), 0);
        });
    }
}

/// A file that is longer than a group is divided at the backups.
#[test]
fn a_large_file_crosses_groups() {
    let size = 90 << 20;
    let mut made = Made::new();
    made.file(0, "large", size);
    made.file(0, "small", 5);
    judge(made, "", 1024, |root, _| {
        let read = std::fs::read(root.join("large")).unwrap();
        assert_eq!(read.len() as u64, size);
        assert!(read.iter().zip(0..).all(|(found, place)| *found == byte(place)));
    });
}

#[test]
fn equal_attributes_share_blocks_of_at_most_1024_inodes() {
    let mut made = Made::new();
    let value = [7; 300];
    for number in 0..2500 {
        let id = made.file(0, format!("{number:04}"), 1);
        made.xattr(id, "user.large", &value);
        made.xattr(id, "user.small", b"x");
        if number == 1 {
            made.xattr(id, "user.other", &[8; 200]);
        }
    }
    judge(made, "", 4096, |root, image| {
        let mut found = [0; 400];
        for number in [0, 1, 1023, 1024, 2499] {
            let path = root.join(format!("{number:04}"));
            let len = rustix::fs::getxattr(&path, "user.large", &mut found[..]).unwrap();
            assert_eq!(found[..len], value);
        }
        let block = |name: &str| {
            let stat = debugfs(image, &format!("stat /{name}"));
            let line = stat.lines().find(|line| line.contains("File ACL")).unwrap().to_owned();
            line.split_whitespace().last().unwrap().to_owned()
        };
        assert_eq!(block("0000"), block("0002"));
        assert_ne!(block("0000"), block("0001"));
        assert_ne!(block("0000"), block("2499"));
    });
}

#[test]
fn the_tree_s_own_lost_and_found_is_kept() {
    let mut made = Made::new();
    let found = made.directory(0, "lost+found");
    made.file(found, "#12", 10);
    made.file(0, "zebra", 10);
    made.directory(0, "a");
    judge(made, "", 4096, |root, image| {
        assert_eq!(count(&root.join("lost+found")), 1);
        assert_eq!(std::fs::read(root.join("zebra")).unwrap().len(), 10);
        assert_eq!(root.join("lost+found").metadata().unwrap().ino(), 11);
        assert!(debugfs(image, "stat <11>").contains("Size: 16384"));
    });
}

#[test]
fn zeros_are_holes_of_the_image() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut made = Made::new();
    made.file(0, "file", 100);
    fill(Arc::new(made), &options("", 4096), 200 << 20, 2, &image);
    assert_clean(&image);
    assert!(image.metadata().unwrap().blocks() * 512 < 1 << 20);
}

#[test]
fn large_values_have_inodes_that_equal_ones_share() {
    for (features, block_size) in [("ea_inode", 4096), ("ea_inode,^metadata_csum", 1024)] {
        let value = |seed: u64, len: u64| (0..len).map(|n| byte(n * 7 + seed)).collect::<Vec<_>>();
        let mut made = Made::new();
        for number in 0..40 {
            let id = made.file(0, format!("{number:02}"), 1);
            made.xattr(id, "user.same", &value(0, 60_000));
            made.xattr(id, "user.also the same", &value(0, 60_000));
            made.xattr(id, "user.other", &value(number % 3 + 1, 5000));
            made.xattr(id, "user.small", &value(number, 900));
            made.xattr(id, "user.x", b"y");
        }
        judge(made, features, block_size, |root, _| {
            let mut found = vec![0; 70_000];
            for number in 0..40 {
                let path = root.join(format!("{number:02}"));
                for (name, expected) in [
                    ("user.same", value(0, 60_000)),
                    ("user.also the same", value(0, 60_000)),
                    ("user.other", value(number % 3 + 1, 5000)),
                    ("user.small", value(number, 900)),
                ] {
                    let len = rustix::fs::getxattr(&path, name, &mut found[..]).unwrap();
                    assert!(found[..len] == expected, "{name} of {number}");
                }
            }
        });
    }
}

/// Short records have no room for attributes.
#[test]
fn records_of_every_size() {
    for inode_size in [128, 512, 4096] {
        let mut made = Made::new();
        for number in 0..200 {
            let id = made.file(0, format!("{number:03}"), number * 100);
            made.xattr(id, "user.name", &[5; 300]);
        }
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let options = MkfsOptions { inode_size: Some(inode_size), ..options("", 4096) };
        fill(Arc::new(made), &options, 8 << 20, 2, &image);
        assert_clean(&image);
        let mount = KernelMount::new(&image, "ro");
        let mut found = [0; 400];
        for number in 0..200 {
            let path = mount.path().join(format!("{number:03}"));
            assert_eq!(path.metadata().unwrap().len(), number * 100);
            let len = rustix::fs::getxattr(&path, "user.name", &mut found[..]).unwrap();
            assert_eq!(found[..len], [5; 300]);
        }
        mount.unmount();
    }
}
