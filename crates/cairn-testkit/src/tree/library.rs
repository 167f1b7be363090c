//! [`judge_library`]: whether a library writes and reads the tree that all others do.

use std::path::Path;

use super::plan::{Step, TreeSpec, plan};
use crate::judge;

/// Bytes of a volume.
const SIZE: u64 = 64 << 20;

/// Has a library write a seeded tree on volumes of mke2fs and mkfs.f2fs, and list it. fsck of each
/// format must accept the volume, `list` give what `own`, another reader, lists, and both formats
/// the same.
///
/// # Panics
/// One of that fails.
pub fn judge_library(
    write: &dyn Fn(&Path, &[Step]),
    list: &dyn Fn(&Path) -> String,
    own: &dyn Fn(&Path) -> String,
) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    let steps = plan(&TreeSpec::small(19));
    let listed = |make: &dyn Fn(&Path), assert_clean: &dyn Fn(&Path)| {
        make(&image);
        write(&image, &steps);
        assert_clean(&image);
        let listed = list(&image);
        assert_eq!(listed, own(&image));
        listed
    };
    let ext4 = listed(&|image| judge::mke2fs(image, SIZE, &[]), &judge::assert_clean);
    let f2fs = listed(&|image| judge::mkfs_f2fs(image, SIZE, &[]), &judge::assert_f2fs_clean);
    assert_eq!(ext4, f2fs);
    assert!(ext4.lines().count() > 50, "{ext4}");
}
