//! Times that a volume cannot store, compared with the kernel's ext4: stat shows the same times at
//! once and after a remount.

use std::path::Path;

use cairn_testkit::judge;

use crate::fixture::Volume;

/// Sets times on inodes of each type, if requested, and prints them.
const SET: &str = r#"
import os, sys
root, sets = sys.argv[1], sys.argv[2] == "set"
SECOND = 10**9
TIMES = [-2**40, -2**31 - 5, -2**31, -1, 0, 7, 2**31 - 1, 2**31, 2**32 + 9, 2**34 - 2**31 - 2, 2**34 - 2**31 - 1, 2**34, 2**40]
for at, seconds in enumerate(TIMES):
    for kind in ("file", "directory", "link"):
        path = f"{root}/{kind}{at}"
        if sets:
            if kind == "file":
                open(path, "w").close()
            elif kind == "directory":
                os.mkdir(path)
            else:
                os.symlink("x", path)
            os.utime(path, ns=(seconds * SECOND + 123456789, seconds * SECOND + 987654321), follow_symlinks=False)
        found = os.lstat(path)
        print(kind, seconds, found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns % SECOND > 0 if kind != "file" else "")
"#;

fn show(place: &Path, how: &str) -> String {
    judge::run("python3", [Path::new("-c"), Path::new(SET), place, Path::new(how)])
}

/// Without the writeback cache: with it the kernel keeps the times of files, as they were given,
/// while it has the files in memory.
fn compare(arguments: &[&str]) {
    let expected = judge::on_the_kernel_s_ext4(64 << 20, arguments, |root| show(root, "set"));
    let mut volume = Volume::make(64 << 20, arguments);
    volume.mount("nowriteback_cache");
    assert_eq!(show(&volume.root(), "set"), expected, "{arguments:?}: ours, the kernel's");
    volume.unmount();
    volume.mount("");
    assert_eq!(show(&volume.root(), "show"), expected, "{arguments:?}: after a remount");
    volume.unmount();
}

#[test]
fn times_that_cannot_be_stored_are_cut_at_once() {
    compare(&[]);
}

#[test]
fn small_inodes_have_whole_seconds_at_once() {
    compare(&["-I", "128"]);
}
