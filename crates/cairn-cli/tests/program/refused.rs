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
    assert!(last.ends_with("its old contents are gone"), "{said}");
    mount.unmount();
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
