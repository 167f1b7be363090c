//! The program itself: errors for bad input (one line, the right exit status), and images that are
//! made, filled and judged.

mod address_space;
mod addresses;
mod away;
mod backups;
mod book;
mod build;
mod check;
mod coreutils;
mod daily;
mod damage;
mod devices;
mod disks;
mod dump;
mod every_command;
mod examples;
mod f2fs;
mod failing_copies;
mod interrupted;
mod kinds;
mod leftovers;
mod lists;
mod local_logs;
mod makers;
mod messages;
mod mistakes;
mod mkfs_blocks;
mod mkfs_safety;
mod names;
mod newcomers;
mod object_volumes;
mod outputs;
mod overwrite;
mod pools;
mod refused;
mod repairs;
mod reproducible;
mod rescue;
mod rescued;
mod sectors;
mod serve;
mod shown_names;
mod sparse;
mod support;
mod sync;
mod tuned;
mod unfinished_uploads;
mod unreadable;
mod unreplayable;
mod words;
mod written_over;

use std::path::Path;

use cairn_testkit::judge;

use crate::support::{fails, in_dir, works};

#[test]
fn a_missing_image() {
    let line = fails(&["ls", "/no/such.img"], 3);
    assert!(line.contains("/no/such.img") && line.contains("check the name"), "{line}");
}

#[test]
fn not_a_filesystem() {
    let (_dir, image) = in_dir("zeros.img");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let line = fails(&["ls", &image], 4);
    assert!(line.contains("not a filesystem") && line.contains("nothing but zeros"), "{line}");
    std::fs::write(&image, [b"XFSB".as_slice(), &[0; 1 << 17]].concat()).unwrap();
    assert!(fails(&["info", &image], 4).contains("XFS"));
    std::fs::write(&image, b"").unwrap();
    assert!(fails(&["ls", &image], 4).contains("an empty file): `cairn mkfs --size 1G IMAGE`"));
    std::fs::write(&image, b"Dear diary").unwrap();
    assert!(fails(&["ls", &image], 4).contains("text): give the image itself"));
}

#[test]
fn bad_addresses() {
    let (_dir, image) = in_dir("disk.img");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    assert!(fails(&["ls", &format!("{image}#1")], 3).contains("no partition table"));
    assert!(fails(&["ls", &format!("{image}?offset=2M")], 3).contains("beyond the end"));
    assert!(fails(&["ls", &format!("{image}?size=2M")], 2).contains("?offset="));
}

#[test]
fn mkfs_without_a_size_says_so() {
    let (_dir, image) = in_dir("new.img");
    assert!(fails(&["mkfs", &image], 2).contains("--size 1G"));
    assert!(!Path::new(&image).exists());
}

#[test]
fn a_mount_point_that_is_missing_or_a_file() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4"]);
    let missing = dir.path().join("missing");
    assert!(
        fails(&["mount", &image, missing.to_str().unwrap()], 1)
            .contains("create the directory first")
    );
    assert!(fails(&["mount", &image, &image], 1).contains("not a directory"));
    assert!(
        fails(&["umount", dir.path().to_str().unwrap()], 1).contains("nothing is mounted here")
    );
    assert!(fails(&["mount", "-o", "offset=512", &image, "/"], 2).contains("?offset=512"));
}

#[test]
fn an_image_in_use() {
    let (_dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4"]);
    let holder = std::fs::File::open(&image).unwrap();
    holder.lock().unwrap();
    assert!(fails(&["mkdir", &image, "/x"], 6).contains("in use"));
    // A child that another test is just starting has a copy of the descriptor.
    holder.unlock().unwrap();
    works(&["mkdir", &image, "/x"]);
    judge::assert_clean(Path::new(&image));
}

/// The system lets root open such a device for writing, and loses what is written.
#[test]
fn a_read_only_block_device_is_not_written() {
    for format in ["ext4", "f2fs"] {
        let (_dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", format, "--size", "64M", &image]);
        let before = std::fs::read(&image).unwrap();
        let device = judge::LoopDevice::attach(Path::new(&image), true);
        let path = device.path().to_str().unwrap();
        let (status, _, said) = support::cairn(&["mkdir", path, "/made"]);
        assert!(
            status != 0 && said.contains("read-only") && said.lines().count() == 1,
            "{format}: {status}: {said}"
        );
        works(&["ls", path]);
        drop(device);
        assert!(std::fs::read(&image).unwrap() == before, "{format}");
    }
}

#[test]
fn a_made_image_is_filled_and_judged() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", "ext4", "-L", "made", "--size", "32M", &image]);
    judge::assert_clean(Path::new(&image));
    let source = dir.path().join("file");
    std::fs::write(&source, b"contents\n").unwrap();
    works(&["mkdir", "-p", &image, "/a/b"]);
    works(&["put", &image, source.to_str().unwrap(), "/a/b"]);
    works(&["ln", "-s", &image, "b/file", "/a/link"]);
    works(&["chmod", &image, "-r", "/a/b/file"]);
    works(&["chown", &image, "7:8", "/a/b/file"]);
    works(&["mv", &image, "/a/b/file", "/a/b/renamed"]);
    assert_eq!(works(&["cat", &image, "/a/b/renamed"]), "contents\n");
    assert_eq!(works(&["ls", &image, "/a/b"]), "renamed\n");
    assert!(works(&["info", &image]).contains("made"));
    let json: serde_json::Value =
        serde_json::from_str(&works(&["stat", "--json", &image, "/a/b/renamed"])).unwrap();
    assert_eq!((json[0]["uid"].as_u64(), json[0]["gid"].as_u64()), (Some(7), Some(8)));
    works(&["rm", "-r", &image, "/a/b"]);
    assert_eq!(works(&["ls", &image, "/a"]), "link\n");
    judge::assert_clean(Path::new(&image));
}

#[test]
fn looking_writes_nothing() {
    let (_dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4"]);
    let before = std::fs::read(&image).unwrap();
    works(&["ls", "-l", &image]);
    works(&["stat", &image, "/"]);
    works(&["info", "--json", &image]);
    assert!(std::fs::read(&image).unwrap() == before, "the image changed");
}
