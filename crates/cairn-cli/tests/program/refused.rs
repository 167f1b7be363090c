//! What the host or a flag of a file forbids: the message names the right file, and what is lost.

use std::path::Path;

use cairn_testkit::judge::{self, KernelMount};

use crate::support::{cairn, fails, in_dir, works};

/// The host of a sparse image is full: the file whose contents are lost is named, and so is the
/// loss.
#[test]
fn a_full_host_is_reported_for_the_file_that_lost_its_contents() {
    let dir = cairn_testkit::place::Place::new();
    let host = dir.path().join("host.img");
    judge::mke2fs(&host, 24 << 20, &["-t", "ext4"]);
    let mount = KernelMount::new(&host, "rw");
    let image = mount.path().join("disk.img").to_str().unwrap().to_owned();
    works(&["mkfs", "-t", "ext4", "--size", "128M", &image]);
    let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
    std::fs::write(&old, "original contents").unwrap();
    std::fs::write(&new, vec![7; 30 << 20]).unwrap();
    works(&["put", &image, old.to_str().unwrap(), "/target"]);
    let (status, _, said) = cairn(&["put", &image, new.to_str().unwrap(), "/target"]);
    // Warnings of the volume may come before.
    let last = said.lines().last().unwrap_or_default();
    assert!(status == 7 && last.contains("/target: "), "{status}: {said}");
    assert!(last.contains("its old contents are "), "{said}");
    mount.unmount();
}

/// A host of 8 MiB for images.
fn small_host(dir: &Path) -> KernelMount {
    let host = dir.join("host.img");
    judge::mke2fs(&host, 8 << 20, &["-t", "ext4", "-O", "^has_journal", "-m", "0"]);
    KernelMount::new(&host, "rw")
}

/// Takes the rest of the host's room.
fn fill(host: &KernelMount) {
    let mut full = std::fs::File::create(host.path().join("fill")).unwrap();
    while std::io::Write::write(&mut full, &[1; 4096]).is_ok_and(|count| count > 0) {}
    let _ = full.sync_all();
}

/// A file of this many bytes that are not zeros.
fn bytes(path: &Path, len: usize) -> String {
    std::fs::write(path, vec![0x5a; len]).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A new file whose data the host refused was left at its full size, with zeros for contents: the
/// log had room, so its size was committed. One that was to be replaced was lost with it.
#[test]
fn a_full_host_leaves_no_new_file_and_no_replaced_one() {
    let dir = cairn_testkit::place::Place::new();
    let (small, big) = (dir.path().join("small"), dir.path().join("big"));
    let (small, big) = (bytes(&small, 3_000_000), bytes(&big, 4_000_000));
    for format in ["ext4", "f2fs"] {
        let host = small_host(dir.path());
        let image = host.path().join("disk.img").to_str().unwrap().to_owned();
        works(&["mkfs", "-t", format, "--size", "100M", &image]);
        works(&["shell", "-c", "mkdir /dir", "-c", "touch /dir/old", &image]);
        // The log gets its blocks from the host.
        works(&["put", &image, &small, "/small"]);
        works(&["rm", &image, "/small"]);
        fill(&host);
        for (line, name) in [
            (vec!["put", &image, &big, "/big"], "/big: "),
            (vec!["put", "--remove-destination", &image, &big, "/dir/old"], "/dir/old: "),
        ] {
            let (status, _, said) = cairn(&line);
            let last = said.lines().last().unwrap_or_default();
            assert!(status == 7 && last.contains(name), "{format}: {status}: {said}");
            assert!(last.contains("make room on the host"), "{said}");
        }
        let (_, names, _) = cairn(&["find", &image, "/", "-type", "f", "-size", "+0"]);
        assert_eq!(names, "", "{format}: what looks complete is left");
        works(&["stat", &image, "/dir/old"]);
        std::fs::remove_file(host.path().join("fill")).unwrap();
        works(&["put", &image, &small, "/big"]);
        works(&["check", &image]);
        host.unmount();
    }
}

/// Whether old contents are lost is what the last commit or checkpoint says.
#[test]
fn what_became_of_old_contents_is_true() {
    let dir = cairn_testkit::place::Place::new();
    let old = bytes(&dir.path().join("old"), 100_000);
    let new = bytes(&dir.path().join("new"), 8_000_000);
    for format in ["ext4", "f2fs"] {
        let host = small_host(dir.path());
        let image = host.path().join("disk.img").to_str().unwrap().to_owned();
        works(&["mkfs", "-t", format, "--size", "100M", &image]);
        works(&["put", &image, &old, "/file"]);
        fill(&host);
        let (status, _, said) = cairn(&["put", &image, &new, "/file"]);
        let (_, size, _) = cairn(&["stat", "-c", "%s", &image, "/file"]);
        let is_there = size.trim() == "100000";
        let words = if is_there { "old contents are still there" } else { "old contents are gone" };
        assert!(status == 7 && said.contains(words), "{format}, {size}: {said}");
        if is_there {
            let (_, seen, _) = cairn(&["get", &image, "/file", "-"]);
            assert!(seen.bytes().all(|byte| byte == 0x5a) && seen.len() == 100_000);
        }
        host.unmount();
    }
}

/// Two files may be the one that is immutable; what was not made is not said to be left.
#[test]
fn what_is_immutable_is_named() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
    works(&["shell", "-c", "mkdir /closed", "-c", "touch /fixed /free", &image]);
    for name in ["closed", "fixed"] {
        judge::run(
            "debugfs",
            ["-w", "-R", &format!("set_inode_field /{name} flags 0x80010"), &image],
        );
    }
    let why = "operation not permitted";
    for (line, is) in [
        (["cp", &image, "/free", "/closed/new"], "/closed/new: "),
        (["mv", &image, "/fixed", "/other"], "/other (from /fixed): "),
        (["ln", &image, "/fixed", "/other"], "/other (for /fixed): "),
    ] {
        let said = fails(&line, 1);
        assert!(said.contains(&format!("{is}{why}")), "{said}");
    }
    judge::assert_clean(Path::new(&image));
}
