//! What overlayfs leaves in its upper directory: whiteouts, which are devices 0:0 with many names,
//! opaque directories, and its attributes. Nobody takes them for damage.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::tree::{SnapshotOptions, digest_path};

use crate::checked::{assert_clean, check_image, lines};
use crate::repaired::{plan, snapshot};

/// An overlay that is unmounted at the end.
struct Overlay<'a>(&'a Path);

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        judge::run("umount", [self.0]);
    }
}

/// Removes files, directories and links of a lower directory, and makes some of them again.
fn change(upper: &Path, dir: &Path) {
    let (lower, merged) = (dir.join("lower"), dir.join("merged"));
    for name in ["lower/below", "lower/other", "merged"] {
        std::fs::create_dir_all(dir.join(name)).unwrap();
    }
    for number in 0..20 {
        std::fs::write(lower.join(format!("file {number}")), "lower").unwrap();
        std::fs::write(lower.join(format!("below/file {number}")), "lower").unwrap();
    }
    for name in ["upper", "work"] {
        std::fs::create_dir(upper.join(name)).unwrap();
    }
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        text(&lower),
        text(&upper.join("upper")),
        text(&upper.join("work"))
    );
    judge::run("mount", ["-t", "overlay", "overlay", "-o", &options, merged.to_str().unwrap()]);
    let _overlay = Overlay(&merged);
    for number in 0..10 {
        std::fs::remove_file(merged.join(format!("file {number}"))).unwrap();
    }
    std::fs::remove_dir_all(merged.join("below")).unwrap();
    std::fs::create_dir(merged.join("below")).unwrap();
    std::fs::write(merged.join("below/new"), "upper").unwrap();
    std::fs::write(merged.join("file 15"), "changed").unwrap();
    std::fs::rename(merged.join("file 16"), merged.join("other/file 16")).unwrap();
}

#[test]
fn what_overlayfs_leaves_is_sound() {
    for args in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext2", "-b", "1024"]] {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("image");
        judge::mke2fs(&at, 8 << 20, args);
        let mount = KernelMount::new(&at, "");
        change(mount.path(), dir.path());
        let whiteout = std::fs::symlink_metadata(mount.path().join("upper/file 3")).unwrap();
        assert!(whiteout.rdev() == 0 && whiteout.nlink() > 1, "{whiteout:?}");
        let seen = digest_path(mount.path(), SnapshotOptions::default()).unwrap();
        mount.unmount();
        assert_clean(&at);
        let report = check_image(&at);
        assert_eq!(lines(&report), "", "{args:?}");
        let device = read_image(&at).unwrap();
        assert!(plan(device.fork(), Scope::All).unwrap().changes.is_empty(), "{args:?}");
        snapshot(device).assert_same(&seen);
    }
}
