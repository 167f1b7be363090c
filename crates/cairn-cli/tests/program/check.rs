//! `check`: its lines, its document, its exit statuses, and what it leaves of the image.

use std::path::Path;

use cairn_testkit::judge;

use crate::support::{cairn, in_dir, works};

#[test]
fn defects_are_lines_and_a_document() {
    let (_dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4", "-b", "1024"]);
    works(&["touch", &image, "/file"]);
    let said = works(&["check", &image]);
    assert!(said.contains("12/2048 files") && said.ends_with(": clean\n"), "{said}");
    judge::run("debugfs", ["-w", "-R", "sif /file links_count 7", &image]);
    let before = std::fs::read(&image).unwrap();
    let (status, stdout, stderr) = cairn(&["check", &image]);
    assert!(status == 4 && stderr.is_empty(), "{status}: {stderr}");
    let line = "ext4.inode.links: inode 12: The link count of the inode is not the number of its \
        names (7 stored, 1 computed)\n";
    assert!(stdout.starts_with(line) && stdout.contains("1 finding: e2fsck"), "{stdout}");
    let (status, stdout, _) = cairn(&["check", "--json", &image]);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let finding = &document["findings"][0];
    assert_eq!((status, &document["status"], &document["clean"]), (4, &4.into(), &false.into()));
    assert_eq!(finding["code"], "ext4.inode.links");
    assert_eq!(finding["severity"], "accounting");
    assert_eq!((&finding["place"]["inode"], &finding["stored"]), (&12.into(), &7.into()));
    assert_eq!(document["counts"]["ext4.inode.links"], 1);
    assert!(std::fs::read(&image).unwrap() == before, "the check has written");
}

#[test]
fn statuses_are_those_of_e2fsck() {
    let (_dir, image) = in_dir("disk.img");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    for (line, expected) in [
        (&["check", "/no/such"][..], 8),
        (&["check", &image], 8),
        (&["check", "--nonsense", &image], 16),
        (&["check"], 16),
    ] {
        let (status, _, stderr) = cairn(line);
        assert!(status == expected && stderr.starts_with("cairn: "), "{line:?}: {stderr}");
    }
}

#[test]
fn the_document_of_a_failure_has_the_exit_status() {
    let (status, stdout, _) = cairn(&["check", "--json", "/no/such"]);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, &document["status"]), (8, &8.into()));
}

/// A first superblock of zeros: a backup is read, and the volume has one defect.
#[test]
fn a_backup_is_read_for_a_lost_superblock() {
    let (_dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 64 << 20, &["-t", "ext4", "-b", "1024"]);
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 1024], 1024).unwrap();
    let (status, stdout, _) = cairn(&["check", &image]);
    assert!(status == 4 && stdout.starts_with("ext4.superblock.damaged: "), "{status}: {stdout}");
}

#[test]
fn defects_of_f2fs_are_found() {
    let (_dir, image) = in_dir("disk.img");
    judge::mkfs_f2fs(Path::new(&image), 64 << 20, &[]);
    works(&["put", &image, "/etc/hostname", "/name"]);
    let said = works(&["check", &image]);
    assert!(said.contains("2/") && said.ends_with(": clean\n"), "{said}");
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4], 4096 + 1024).unwrap();
    let before = std::fs::read(&image).unwrap();
    let (status, stdout, stderr) = cairn(&["check", &image]);
    assert!(status == 4 && stderr.is_empty(), "{status}: {stderr}");
    assert!(stdout.starts_with("f2fs.superblock.damaged: block 1, magic: "), "{stdout}");
    assert!(stdout.contains("1 finding: fsck.f2fs"), "{stdout}");
    assert!(std::fs::read(&image).unwrap() == before, "the check has written");
}
