//! e2fsck, debugfs, dumpe2fs and mke2fs.

use std::path::Path;

use cairn_crash::foreign;
pub use cairn_crash::foreign::Verdict;

use super::{run, tool};

/// Feature sets that Cairn and Linux write, with their names: the defaults of mke2fs, and single
/// differences.
pub const EXT4_FORMATS: &[(&str, &[&str])] = &[
    ("default 4K", &["-t", "ext4"]),
    ("1K", &["-t", "ext4", "-b", "1024"]),
    ("2K", &["-t", "ext4", "-b", "2048"]),
    ("orphan_file, csum_seed", &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"]),
    ("no csum", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"]),
    ("no 64bit, no flex_bg", &["-t", "ext4", "-O", "^64bit,^flex_bg,^metadata_csum"]),
    ("meta_bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode"]),
    ("sparse_super2", &["-t", "ext4", "-O", "sparse_super2"]),
    ("large_dir", &["-t", "ext4", "-O", "large_dir"]),
    ("inline_data", &["-t", "ext4", "-O", "inline_data"]),
    ("128-byte inodes", &["-t", "ext4", "-I", "128"]),
    ("no journal", &["-t", "ext4", "-O", "^has_journal"]),
    ("ext3", &["-t", "ext3", "-b", "1024"]),
    ("ext2", &["-t", "ext2", "-b", "1024"]),
];

/// [`foreign::e2fsck_check`].
///
/// # Panics
/// e2fsck cannot be started.
#[must_use]
pub fn e2fsck_check(image: &Path) -> Verdict {
    foreign::e2fsck_check(&tool("e2fsck"), image).expect("e2fsck starts")
}

/// [`foreign::e2fsck_preen`].
///
/// # Panics
/// e2fsck cannot be started.
#[must_use]
pub fn e2fsck_preen(image: &Path) -> Verdict {
    foreign::e2fsck_preen(&tool("e2fsck"), image).expect("e2fsck starts")
}

/// Asserts that `e2fsck -fn` finds nothing.
///
/// # Panics
/// It finds something.
#[track_caller]
pub fn assert_clean(image: &Path) {
    let verdict = e2fsck_check(image);
    assert!(
        verdict.is_clean(),
        "e2fsck -fn {} exits {}:\n{}",
        image.display(),
        verdict.status,
        verdict.output
    );
}

/// One debugfs request (`stat <2>`, `ls -l /`…), read-only.
#[track_caller]
#[must_use]
pub fn debugfs(image: &Path, request: &str) -> String {
    run("debugfs", [Path::new("-R"), Path::new(request), image])
}

/// The superblock and groups as `dumpe2fs` prints them.
#[track_caller]
#[must_use]
pub fn dumpe2fs(image: &Path) -> String {
    run("dumpe2fs", [image])
}

/// Makes a filesystem: `mke2fs -F -q ARGS… IMAGE`, the image first grown to `size` bytes (sparse,
/// emptied).
///
/// # Panics
/// The file cannot be made, or mke2fs refuses.
#[track_caller]
pub fn mke2fs(image: &Path, size: u64, args: &[&str]) {
    let file = std::fs::File::create(image).expect("image file is created");
    file.set_len(size).expect("image file grows");
    let args = ["-F", "-q"].iter().chain(args).map(Path::new).chain([image]);
    run("mke2fs", args);
}
