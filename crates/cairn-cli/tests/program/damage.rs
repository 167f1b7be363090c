//! One damaged inode in a directory: what is beside it is listed and copied, and the exit status says that something is wrong.

use std::path::Path;

use cairn_testkit::judge;

use crate::support::{cairn, in_dir, works};

const BAD: &str = "a-file-that-is-damaged";

/// A volume with three files in a directory, one of which has an impossible inode.
fn damaged(image: &str, format: &str) {
    works(&["mkfs", "-t", format, "--size", "64M", image]);
    let host = tempfile::tempdir().unwrap();
    let source = host.path().join("d");
    std::fs::create_dir(&source).unwrap();
    for name in ["before", BAD, "zebra"] {
        std::fs::write(source.join(name), name).unwrap();
    }
    works(&["put", image, source.to_str().unwrap(), "/"]);
    if format == "ext4" {
        let request = format!("set_inode_field /d/{BAD} extra_isize 60000");
        judge::run("debugfs", ["-w", "-R", &request, image]);
        return;
    }
    // The inode has its name at byte 92; its mode comes first.
    let mut bytes = std::fs::read(image).unwrap();
    let places = bytes.windows(BAD.len()).enumerate().filter(|(at, found)| at % 4096 == 92 && *found == BAD.as_bytes());
    let places: Vec<usize> = places.map(|(at, _)| at - 92).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at..at + 2].fill(0));
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn one_damaged_inode_does_not_hide_its_directory() {
    for format in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("disk.img");
        damaged(&image, format);
        let (status, listed, said) = cairn(&["ls", "-lR", &image]);
        assert_eq!(status, 4, "{format}: {said}");
        assert!(["before", BAD, "zebra"].iter().all(|name| listed.contains(name)), "{format}: {listed}");
        assert!(said.contains(BAD) && said.contains("1 damaged"), "{format}: {said}");
        let out = dir.path().join("out");
        let (status, _, said) = cairn(&["get", &image, "/d", out.to_str().unwrap()]);
        assert!(status == 4 && said.contains(BAD) && said.contains("1 damaged"), "{format}: {status}: {said}");
        let names = |at: &Path| {
            let mut names: Vec<_> = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&out), ["before", "zebra"], "{format}");
        assert_eq!(std::fs::read(out.join("zebra")).unwrap(), b"zebra");

        let point = dir.path().join("mnt");
        std::fs::create_dir(&point).unwrap();
        works(&["mount", "-o", "ro", &image, point.to_str().unwrap()]);
        let (listed, bad) = (names(&point.join("d")), std::fs::metadata(point.join("d").join(BAD)));
        let kept = std::fs::read(point.join("d/before"));
        // It repeats what the daemon had to say.
        assert_eq!(cairn(&["umount", point.to_str().unwrap()]).0, 0);
        assert_eq!(listed, [BAD, "before", "zebra"], "{format}");
        assert_eq!(bad.unwrap_err().raw_os_error(), Some(117), "{format}");
        assert_eq!(kept.unwrap(), b"before", "{format}");
    }
}
