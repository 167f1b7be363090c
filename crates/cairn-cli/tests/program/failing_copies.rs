//! Copies that fail: what was there before stays, and the rest is copied.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use cairn_testkit::judge;
use serde_json::Value;

use crate::coreutils::volume;
use crate::support::{cairn, cairn_as_user, fails, in_dir, works};

/// A file survives if its new version could not be copied.
#[test]
fn a_copy_that_fails_leaves_what_was_there() {
    for format in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", format, "--size", "64M", &image]);
        let host = dir.path().join("host");
        std::fs::write(&host, "old").unwrap();
        let path = host.to_str().unwrap().to_owned();
        works(&["put", &image, &path, "/file"]);
        let volume = dir.path().join("fill");
        std::fs::write(&volume, vec![1; 3 << 20]).unwrap();
        let fill = volume.to_str().unwrap();
        let mut filled = 0;
        while cairn(&["put", &image, fill, &format!("/fill{filled}")]).0 == 0 {
            filled += 1;
        }
        assert!(filled > 1, "{format}");
        std::fs::write(&host, vec![2; 5 << 20]).unwrap();
        let said = fails(&["put", &image, &path, "/new"], 1);
        assert!(said.contains("/new: no space left"), "{said}");
        let names = works(&["ls", "-A", &image]);
        assert!(
            !names.contains("new") && !names.contains(&format!("fill{filled}\n")),
            "{format}: {names}"
        );
        // The source is a device that fails after its beginning. The image has room for both files.
        works(&["rm", &image, "/fill0", "/fill1"]);
        let said = fails(&["put", &image, "/proc/self/mem", "/file"], 1);
        assert!(said.contains("/proc/self/mem"), "{said}");
        assert_eq!(works(&["cat", &image, "/file"]), "old");
        assert!(!works(&["ls", "-A", &image]).contains("cairn"), "{format}");
        // A new version of the largest file. There is no room for both.
        works(&["put", &image, fill, "/file"]);
        works(&["put", &image, fill, "/file"]);
        // A version that does not fit even without the old one.
        std::fs::write(&host, vec![3; 40 << 20]).unwrap();
        let said = fails(&["put", &image, &path, "/file"], 1);
        assert!(said.contains("/file: no space left") && !said.contains("gone"), "{said}");
        assert_eq!(
            works(&["stat", "--json", &image, "/file"]).matches("3145728").count(),
            1,
            "{format}"
        );
        // Out of the image: the host's old file stays, too.
        let target = dir.path().join("target");
        std::fs::write(&target, "old").unwrap();
        works(&["get", &image, "/file", target.to_str().unwrap()]);
        assert_eq!(std::fs::read(&target).unwrap(), std::fs::read(&volume).unwrap());
        let mut names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["disk.img", "fill", "host", "target"]);
        judged(format, &image);
    }
}

fn judged(format: &str, image: &str) {
    match format {
        "ext4" => judge::assert_clean(Path::new(image)),
        _ => judge::assert_f2fs_clean(Path::new(image)),
    }
}

/// As in `cp -r`: only the files that could not be read or written are missing in the copy.
#[test]
fn a_tree_is_put_beside_what_cannot_be_read() {
    for format in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", format, "--size", "64M", &image]);
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("closed")).unwrap();
        std::fs::create_dir_all(tree.join("below")).unwrap();
        for name in ["a", "b", "below/c", "closed/c", "z"] {
            std::fs::write(tree.join(name), "old").unwrap();
        }
        let path = tree.to_str().unwrap();
        works(&["put", &image, path, "/"]);
        // On the image this one is a directory.
        works(&["mkdir", &image, "/tree/dir"]);
        for name in ["a", "b", "below/c", "dir", "z"] {
            std::fs::write(tree.join(name), "new").unwrap();
        }
        let modes = |mode| {
            for name in ["b", "closed"] {
                std::fs::set_permissions(tree.join(name), PermissionsExt::from_mode(mode)).unwrap();
            }
        };
        modes(0);
        let (status, said) = cairn_as_user(dir.path(), &image, &["put", &image, path, "/"]);
        modes(0o700);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((status, lines.len()), (1, 3), "{format}: {said}");
        for (line, what) in lines.iter().zip([
            "/tree/b: permission denied",
            "/tree/closed: permission denied",
            "/tree/dir: a directory exists there",
        ]) {
            assert!(line.contains(what), "{format}: {said}");
        }
        for (name, contents) in
            [("a", "new"), ("b", "old"), ("below/c", "new"), ("closed/c", "old"), ("z", "new")]
        {
            assert_eq!(
                works(&["cat", &image, &format!("/tree/{name}")]),
                contents,
                "{format}: {name}"
            );
        }
        assert_eq!(
            works(&["ls", "-A", &image, "/tree"]),
            "a\nb\nbelow\nclosed\ndir\nz\n",
            "{format}"
        );
        judged(format, &image);
    }
}

/// A file whose first mebibytes can be read, and not its end: that of ext4 has many extents, that
/// of F2FS many direct nodes.
fn half_readable(format: &str, dir: &Path, image: &str) {
    let host = dir.join("half");
    let file = std::fs::File::create(&host).unwrap();
    match format {
        "ext4" => (0..400).for_each(|n| file.write_all_at(&[b'x'; 4096], n << 16).unwrap()),
        _ => file.write_all_at(&vec![b'x'; 5 << 20], 0).unwrap(),
    }
    works(&["put", image, host.to_str().unwrap(), "/half"]);
    let json: Value = serde_json::from_str(&works(&["stat", "--json", image, "/half"])).unwrap();
    let ino = u32::try_from(json[0]["inode"].as_u64().unwrap()).unwrap().to_le_bytes();
    let mut bytes = std::fs::read(image).unwrap();
    // All leaves but the first: a header with its magic number and a depth of 0, then the first
    // extent's block.
    let leaf = |block: &[u8]| {
        block.starts_with(&[0x0a, 0xf3]) && block[6..8] == [0, 0] && block[12..16] != [0; 4]
    };
    // Nodes other than the inode, by their footers.
    let node = |block: &[u8]| block[4076..4080] == ino && block[4072..4076] != ino;
    let size = if format == "ext4" { 1024 } else { 4096 };
    let is_bad = |block: &[u8]| if format == "ext4" { leaf(block) } else { node(block) };
    let bad: Vec<&mut [u8]> = bytes.chunks_exact_mut(size).filter(|block| is_bad(block)).collect();
    assert!(!bad.is_empty(), "{format}");
    bad.into_iter().for_each(|block| block.fill(0));
    std::fs::write(image, bytes).unwrap();
}

/// If the end of a source is damaged, `get` and `cp` have already written a part of it.
#[test]
fn get_and_cp_that_fail_leave_what_was_there() {
    for format in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", format, "--size", "64M", &image]);
        let kept = dir.path().join("kept");
        std::fs::write(&kept, "old").unwrap();
        let path = kept.to_str().unwrap();
        works(&["put", &image, path, "/kept"]);
        half_readable(format, dir.path(), &image);
        let (status, read, said) = cairn(&["cat", &image, "/half"]);
        assert!(status != 0 && read.starts_with("xxxx"), "{format}: {status}: {said}");
        for new in [false, true] {
            let at = if new { dir.path().join("new") } else { kept.clone() };
            let (status, _, said) = cairn(&["get", &image, "/half", at.to_str().unwrap()]);
            assert!(status == 4 && said.contains("/half"), "{format}: {status}: {said}");
            let at = if new { "/new" } else { "/kept" };
            let (status, _, said) = cairn(&["cp", &image, "/half", at]);
            assert!(status == 4 && said.contains("/half"), "{format}: {status}: {said}");
        }
        assert_eq!(std::fs::read(&kept).unwrap(), b"old", "{format}");
        let entries =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        assert_eq!(names, ["disk.img", "half", "kept"], "{format}");
        assert_eq!(works(&["cat", &image, "/kept"]), "old", "{format}");
        let names = works(&["ls", "-A", &image]);
        assert!(
            names.lines().filter(|name| *name != "lost+found").eq(["half", "kept"]),
            "{format}: {names}"
        );
    }
}

#[test]
fn an_image_is_not_copied_into_itself() {
    let (dir, image) = volume();
    let link = dir.path().join("another name");
    std::fs::hard_link(&image, &link).unwrap();
    for source in [&image, link.to_str().unwrap()] {
        let said = fails(&["put", &image, source, "/d"], 1);
        assert!(said.contains("is the image itself"), "{said}");
    }
    // The other files are copied.
    let beside = dir.path().join("beside");
    std::fs::write(&beside, "contents").unwrap();
    let (status, _, said) =
        cairn(&["put", &image, &format!("{}/.", dir.path().display()), "/d/sub"]);
    assert!(
        status == 1 && said.lines().all(|line| line.contains("is the image itself")),
        "{status}: {said}"
    );
    assert_eq!((said.lines().count(), works(&["ls", &image, "/d/sub"])), (2, "beside\n".into()));
    judge::assert_clean(Path::new(&image));
}

/// On a full volume the blocks of an old file only fill what the volume keeps for itself.
#[test]
fn a_full_image_keeps_the_old_contents() {
    for format in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("full.img");
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        for number in 0..200 {
            std::fs::write(tree.join(format!("{number}")), vec![1; 30_000]).unwrap();
        }
        let source = format!("{}/", tree.display());
        works(&["build", "-t", format, &image, &source]);
        for number in 0..5 {
            std::fs::write(tree.join(format!("{number}")), vec![2; 30_000]).unwrap();
        }
        let new = tree.join("0");
        cairn(&["put", &image, new.to_str().unwrap(), "/0"]);
        cairn(&["sync", &source, &image]);
        for number in 0..5 {
            let found = works(&["cat", &image, &format!("/{number}")]);
            let whole = [1_u8, 2].map(|byte| String::from_utf8(vec![byte; 30_000]).unwrap());
            assert!(whole.contains(&found), "{format}: /{number} has {} bytes", found.len());
        }
    }
}
