//! What the host or a flag of a file forbids: the message names the right file, and what is lost.

use std::path::Path;

use cairn_testkit::judge;

use crate::support::{fails, in_dir, works};

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
    let why = "operation not permitted\n";
    for (line, is) in [
        (["cp", &image, "/free", "/closed/new"], "/closed/new: "),
        (["mv", &image, "/fixed", "/other"], "/other (from /fixed): "),
        (["ln", &image, "/fixed", "/other"], "/other (for /fixed): "),
    ] {
        let said = fails(&line, 1);
        assert!(said.ends_with(&format!("{is}{why}")), "{said}");
    }
    judge::assert_clean(Path::new(&image));
}
