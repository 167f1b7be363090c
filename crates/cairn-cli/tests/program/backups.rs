//! A volume without its first superblock: every command that reads uses a backup and prints one
//! warning with the command that says what repairs the volume. A file that contains such bytes
//! elsewhere is no volume.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use cairn_testkit::judge;

use crate::support::{cairn, fails, in_dir, works};

const CHECK: &str = "run `cairn check` on it, which says what repairs it";

fn overwrite(image: &str, at: u64, bytes: &[u8]) {
    let mut file = std::fs::File::options().write(true).open(image).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

/// A volume of three groups with one file, without its first superblock.
fn beheaded(image: &str, dir: &Path) {
    judge::mke2fs(Path::new(image), 20 << 20, &["-t", "ext4", "-b", "1024", "-L", "kept"]);
    let file = dir.join("hello");
    std::fs::write(&file, "contents").unwrap();
    works(&["put", image, file.to_str().unwrap(), "/"]);
    overwrite(image, 1024, &[0; 1024]);
}

/// Standard output of a run that succeeds with one line of warning.
#[track_caller]
fn warns(args: &[&str]) -> String {
    let (status, told, said) = cairn(args);
    assert_eq!(status, 0, "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    assert!(said.starts_with("cairn: warning: ") && said.contains(CHECK), "{args:?}: {said}");
    told
}

#[test]
fn every_command_reads_by_a_backup_and_says_once_what_to_do() {
    let (dir, image) = in_dir("disk.img");
    beheaded(&image, dir.path());
    let before = std::fs::read(&image).unwrap();
    assert!(warns(&["ls", &image]).contains("hello"));
    assert_eq!(warns(&["cat", &image, "/hello"]), "contents");
    assert!(warns(&["stat", &image, "/hello"]).contains("hello"));
    assert!(warns(&["find", &image, "/", "-name", "hello"]).contains("hello"));
    warns(&["df", &image]);
    let info = warns(&["info", &image]);
    assert!(info.contains("kept") && info.contains(CHECK), "{info}");
    let out = dir.path().join("out");
    warns(&["get", &image, "/hello", out.to_str().unwrap()]);
    assert_eq!(std::fs::read(&out).unwrap(), b"contents");

    let point = dir.path().join("mnt");
    std::fs::create_dir(&point).unwrap();
    warns(&["mount", &image, point.to_str().unwrap()]);
    let read = std::fs::read(point.join("hello"));
    let written = std::fs::write(point.join("new"), "x");
    let rw = cairn(&["remount", "-o", "rw", point.to_str().unwrap()]);
    assert_eq!(cairn(&["umount", point.to_str().unwrap()]).0, 0);
    assert_eq!(read.unwrap(), b"contents");
    assert_eq!(written.unwrap_err().raw_os_error(), Some(30));
    assert!(rw.0 != 0 && rw.2.contains(CHECK), "{rw:?}");

    let (status, _, said) = cairn(&["put", &image, out.to_str().unwrap(), "/new"]);
    assert!(status != 0 && said.lines().last().unwrap().contains(CHECK), "{status}: {said}");
    let mkfs = fails(&["mkfs", &image], 1);
    assert!(mkfs.contains("an ext4 volume labelled kept"), "{mkfs}");
    assert!(std::fs::read(&image).unwrap() == before, "something was written");

    // The named command names the one that repairs the volume.
    let (status, said, _) = cairn(&["check", &image]);
    assert!(status == 4 && said.contains("--repair mends what loses nothing"), "{said}");
    let (status, said, _) = cairn(&["check", "--repair", &image]);
    assert_eq!(status, 1, "{said}");
    judge::assert_clean(Path::new(&image));
    assert_eq!(works(&["cat", &image, "/hello"]), "contents");
}

#[test]
fn where_another_format_begins_a_backup_counts_for_nothing() {
    let (dir, image) = in_dir("disk.img");
    beheaded(&image, dir.path());
    overwrite(&image, 0, b"XFSB");
    assert!(fails(&["ls", &image], 4).contains("XFS"));
    overwrite(&image, 0, &[0; 4]);
    overwrite(&image, 4096, &[0xfc, 0x4e, 0x2b, 0xa9]);
    assert!(fails(&["ls", &image], 4).contains("RAID"));
    overwrite(&image, 4096, &[0; 4]);
    warns(&["ls", &image]);
    let random: Vec<u8> = (0_u32..(20 << 18))
        .flat_map(|n| n.wrapping_mul(2_654_435_761).rotate_left(n).to_le_bytes())
        .collect();
    std::fs::write(&image, random).unwrap();
    assert!(fails(&["ls", &image], 4).contains("not a filesystem"));
}

#[test]
fn sb_names_the_superblock_of_a_mount() {
    let (dir, image) = in_dir("disk.img");
    beheaded(&image, dir.path());
    let point = dir.path().join("mnt");
    std::fs::create_dir(&point).unwrap();
    let point = point.to_str().unwrap();
    warns(&["mount", "-o", "sb=8193", &image, point]);
    let read = std::fs::read(Path::new(point).join("hello"));
    assert_eq!(cairn(&["umount", point]).0, 0);
    assert_eq!(read.unwrap(), b"contents");
    assert!(
        fails(&["mount", "-o", "sb=8194", &image, point], 2)
            .contains("no backup superblock is there")
    );
}
