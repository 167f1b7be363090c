//! e2fsck, debugfs, dumpe2fs and mke2fs.

use std::path::Path;

use super::{command, run, transcript};

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

/// The result of a checker.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Exit status of e2fsck: 0 clean, 1 corrected, 4 errors left, 8 operational error, 16 usage.
    /// fsck.f2fs has the same and 255.
    pub status: i32,
    /// Everything it printed.
    pub output: String,
}

impl Verdict {
    /// True if nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.status == 0
    }
}

fn e2fsck(flags: &str, image: &Path) -> Verdict {
    let output = command("e2fsck").arg(flags).arg(image).output().expect("e2fsck starts");
    Verdict { status: output.status.code().unwrap_or(-1), output: transcript(&output) }
}

/// `e2fsck -fn`: a full check that writes nothing (and does not replay the journal). The status is
/// 0 only if e2fsck had nothing to ask: with `-n` it exits with 0 after some findings that
/// `e2fsck -p` leaves to a person (a resize inode that is not valid). An offer to optimise an
/// extent tree is not a finding: e2fsck makes it for Linux's trees, too.
#[must_use]
pub fn e2fsck_check(image: &Path) -> Verdict {
    let verdict = e2fsck("-fn", image);
    let is_finding = |line: &str| line.ends_with("? no") && !line.contains("extent tree (at level");
    let asked = verdict.output.lines().any(is_finding);
    Verdict { status: if asked && verdict.status == 0 { 4 } else { verdict.status }, ..verdict }
}

/// `e2fsck -p`: replays the journal and makes safe repairs; 0 or 1 is what a boot accepts.
#[must_use]
pub fn e2fsck_preen(image: &Path) -> Verdict {
    e2fsck("-p", image)
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
