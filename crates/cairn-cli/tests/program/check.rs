//! `check`: its lines, its document, its exit statuses, and what it leaves of the image.

use std::os::unix::fs::PermissionsExt;
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
    assert!(stdout.starts_with(line) && stdout.contains("1 finding: --repair"), "{stdout}");
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
    assert!(stdout.contains("1 finding: --repair"), "{stdout}");
    assert!(std::fs::read(&image).unwrap() == before, "the check has written");
    let (status, stdout, stderr) = cairn(&["check", "--repair", &image]);
    assert!(status == 1 && stdout.contains(": repaired ("), "{status}: {stdout}{stderr}");
    judge::assert_f2fs_clean(Path::new(&image));
}

/// Check and both repairs say the same of a volume without a checkpoint.
#[test]
fn nothing_repairs_a_volume_without_a_checkpoint() {
    let (_dir, image) = in_dir("f2fs.img");
    judge::mkfs_f2fs(Path::new(&image), 64 << 20, &[]);
    let mut bytes = std::fs::read(&image).unwrap();
    let first = u32::from_le_bytes(bytes[1024 + 76..1024 + 80].try_into().unwrap()) as usize;
    bytes[first * 4096..(first + 1024) * 4096].fill(0);
    std::fs::write(&image, bytes).unwrap();
    for arguments in [&["check"][..], &["check", "--repair"], &["check", "--repair=all", "-y"]] {
        let (status, stdout, stderr) = cairn(&[arguments, &[&image]].concat());
        let last = stdout.lines().last().unwrap_or_default();
        let is_said = last.contains("nothing is left to repair it from");
        assert!(status == 4 && is_said, "{arguments:?}, {status}: {stdout}{stderr}");
        assert!(!stdout.contains("mends with losses"), "{stdout}");
    }
}

/// With nothing to repair, too, a check says who uses the volume.
#[test]
fn a_check_names_who_uses_a_volume_with_multiple_mount_protection() {
    use std::os::unix::fs::FileExt;
    let (_dir, image) = in_dir("disk.img");
    let features = ["-t", "ext4", "-b", "1024", "-O", "mmp,^metadata_csum"];
    judge::mke2fs(Path::new(&image), 8 << 20, &features);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&image).unwrap();
    let mut block = [0; 8];
    file.read_exact_at(&mut block, 1024 + 0x168).unwrap();
    let block = u64::from_le_bytes(block) * 1024;
    file.write_all_at(&[9, 0, 0, 0], block + 4).unwrap();
    file.write_all_at(b"other\0", block + 16).unwrap();
    let said = works(&["check", &image]);
    let user = "the computer \"other\" uses it, or went down while it did (mmp)\n";
    assert!(said.contains(user) && said.ends_with(": clean\n"), "{said}");
    let said: serde_json::Value =
        serde_json::from_str(&works(&["check", "--json", &image])).unwrap();
    assert_eq!(said["in_use"], "the computer \"other\"");
}

/// A volume with a wrong count, a name of nothing, and a file without a name.
fn damaged(image: &str) {
    judge::mke2fs(Path::new(image), 8 << 20, &["-t", "ext4", "-b", "1024"]);
    works(&["touch", image, "/kept", "/lost", "/gone"]);
    judge::run("debugfs", ["-w", "-R", "clri /lost", image]);
    judge::run("debugfs", ["-w", "-R", "unlink /gone", image]);
    judge::run("debugfs", ["-w", "-R", "sif /kept links_count 7", image]);
}

#[test]
fn losses_are_listed_asked_for_and_taken_back() {
    let (dir, image) = in_dir("disk.img");
    damaged(&image);
    let before = std::fs::read(&image).unwrap();
    let undo = dir.path().join("undo").to_str().unwrap().to_owned();
    // Nobody can be asked.
    let (status, stdout, stderr) = cairn(&["check", "--repair=all", &image]);
    assert!(status == 4 && stdout.contains("Lost of /lost: the name."), "{status}: {stdout}");
    assert!(stderr.contains("add -y; nothing was changed"), "{stderr}");
    let (status, stdout, _) = cairn(&["check", "--repair=all", "-n", &image]);
    assert!(status == 4 && stdout.contains("nothing was changed (-n)"), "{status}: {stdout}");
    assert!(std::fs::read(&image).unwrap() == before);
    let (status, stdout, _) = cairn(&["check", "--repair=all", "-y", "--undo", &undo, &image]);
    assert!(status == 1 && stdout.contains(": repaired ("), "{status}: {stdout}");
    // It holds bytes of files.
    assert_eq!(std::fs::metadata(&undo).unwrap().permissions().mode() & 0o777, 0o600);
    judge::assert_clean(Path::new(&image));
    let repaired = std::fs::read(&image).unwrap();
    let (status, stdout, _) = cairn(&["check", "--repair=all", "-y", &image]);
    assert!(status == 0 && stdout.ends_with(": clean\n"), "{status}: {stdout}");
    assert!(std::fs::read(&image).unwrap() == repaired, "the second repair has written");
    assert!(works(&["ls", &image, "/lost+found"]).starts_with('#'));
    // An undo file is not overwritten.
    let again = cairn(&["check", "--repair", "--undo", &undo, &image]);
    assert_eq!(again.0, 0, "{}", again.2);
    let said = works(&["check", "--take-back", &undo, &image]);
    assert!(said.contains("as they were before the repair"), "{said}");
    assert!(std::fs::read(&image).unwrap() == before);
    // What cannot be done is said before what would be done.
    let (status, stdout, stderr) = cairn(&["check", "--repair=all", "-y", "--undo", &undo, &image]);
    assert!(status == 8 && stderr.contains("exists"), "{status}: {stderr}");
    assert_eq!(stdout, "", "{stderr}");
    assert!(stderr.contains(&undo) && stderr.contains("name another with --undo"), "{stderr}");
    // What is there is neither overwritten nor removed.
    assert!(std::fs::read(&undo).unwrap().starts_with(b"CAIRN UNDO FILE\n"));
    let (status, _, stderr) = cairn(&["check", "--repair=all", "-y", "--undo", &image, &image]);
    assert!(status == 8 && stderr.contains("undo file"), "{status}: {stderr}");
    assert!(std::fs::read(&image).unwrap() == before);
}

#[test]
fn a_repair_without_losses_needs_no_answer_and_leaves_the_rest() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4", "-b", "1024"]);
    works(&["touch", &image, "/file"]);
    judge::run("debugfs", ["-w", "-R", "sif /file links_count 7", &image]);
    let (status, stdout, _) = cairn(&["check", "--repair", "--json", &image]);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, &document["status"], &document["repaired"]), (1, &1.into(), &true.into()));
    assert_eq!(document["steps"][0]["code"], "ext4.inode.links");
    judge::assert_clean(Path::new(&image));
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|one| one.unwrap()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    damaged(&image);
    let (status, stdout, _) = cairn(&["check", "--repair", &image]);
    // What waits for the loss is told apart.
    let left = "1 defect is left, which --repair=all mends with losses; ";
    assert!(status == 4 && stdout.contains(left) && stdout.contains(" for that"), "{stdout}");
    // The check promises no more than that.
    let (_, stdout, _) = cairn(&["check", &image]);
    let promise = "--repair=all mends all, and lists each loss before it asks; 1 of them may lose";
    let last = stdout.lines().last().unwrap();
    assert!(last.contains(promise) && last.contains("does not depend on a loss"), "{last}");
}

#[test]
fn a_repair_that_cannot_be_written_changes_nothing() {
    let (dir, image) = in_dir("disk.img");
    damaged(&image);
    let before = std::fs::read(&image).unwrap();
    // An earlier repair was interrupted: its undo file is there.
    let left = dir.path().join("disk.img.cairn-undo");
    let undo = left.to_str().unwrap();
    assert_eq!(cairn(&["check", "--repair=all", "-y", "--undo", undo, &image]).0, 1);
    std::fs::write(&image, &before).unwrap();
    let (status, _, stderr) = cairn(&["check", "--repair=all", "-y", &image]);
    assert!(status == 8 && stderr.contains("--take-back"), "{status}: {stderr}");
    let (status, _, stderr) = cairn(&["check", &image]);
    assert!(status == 4 && stderr.contains("--take-back"), "{status}: {stderr}");
    // Nothing writes meanwhile: it could not be taken back any more.
    let (status, _, stderr) = cairn(&["mkdir", &image, "/new"]);
    assert!(status != 0 && stderr.contains("--take-back"), "{status}: {stderr}");
    assert!(std::fs::read(&image).unwrap() == before);
    let left = left.to_str().unwrap().to_owned();
    // Who only reads is told that it is half repaired.
    for words in [&["ls", &image][..], &["cat", &image, "/kept"], &["info", &image]] {
        let (status, _, stderr) = cairn(words);
        assert!(status == 0 && stderr.contains("--take-back"), "{words:?}: {status}: {stderr}");
    }
    // In a directory like /tmp anybody can make such a file.
    std::os::unix::fs::chown(&left, Some(12345), None).unwrap();
    let (status, _, stderr) = cairn(&["check", &image]);
    assert!(status == 4 && stderr.is_empty(), "{status}: {stderr}");
    std::fs::remove_file(&left).unwrap();
    let undo = "/proc/no/such/undo";
    let (status, stdout, stderr) = cairn(&["check", "--repair=all", "-y", "--undo", undo, &image]);
    assert!(status == 8 && stderr.contains("undo file"), "{status}: {stderr}");
    assert!(stdout.is_empty() && stderr.contains(undo), "{stdout}{stderr}");
    assert_eq!(cairn(&["check", "-y", &image]).0, 16);
    assert!(std::fs::read(&image).unwrap() == before);
}
