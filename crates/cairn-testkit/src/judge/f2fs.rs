//! mkfs.f2fs, fsck.f2fs, dump.f2fs and sload.f2fs.

use std::collections::BTreeMap;
use std::path::Path;

use cairn_block::memory::MemoryDevice;
pub use cairn_crash::foreign::f2fs_alarms;

use crate::crash::{read_image, write_image};

use super::{Verdict, command, run, tool, transcript};

/// [`cairn_crash::foreign::fsck_f2fs`].
///
/// # Panics
/// fsck.f2fs cannot be started, or there is no room for the copy.
#[must_use]
pub fn fsck_f2fs(image: &Path) -> Verdict {
    cairn_crash::foreign::fsck_f2fs(&tool("fsck.f2fs"), image).expect("fsck.f2fs starts")
}

/// Asserts that fsck.f2fs finds nothing.
///
/// # Panics
/// It finds something.
#[track_caller]
pub fn assert_f2fs_clean(image: &Path) {
    let verdict = fsck_f2fs(image);
    assert!(
        verdict.is_clean(),
        "fsck.f2fs --dry-run {}: {}:\n{}",
        image.display(),
        verdict.status,
        verdict.output
    );
}

/// [`assert_f2fs_clean`] of what a device holds.
///
/// # Panics
/// fsck.f2fs finds an error, or there is no room for the copy that it checks.
#[track_caller]
pub fn assert_f2fs_device_clean(device: &MemoryDevice) {
    let verdict = fsck_f2fs_device(device);
    assert!(verdict.is_clean(), "fsck.f2fs --dry-run: {}:\n{}", verdict.status, verdict.output);
}

/// [`fsck_f2fs`] of what a device holds.
///
/// # Panics
/// There is no room for the copy that it checks.
#[must_use]
pub fn fsck_f2fs_device(device: &MemoryDevice) -> Verdict {
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    write_image(device, file.path()).expect("the device can be copied");
    fsck_f2fs(file.path())
}

/// [`mkfs_f2fs`] in memory.
///
/// # Panics
/// As [`mkfs_f2fs`].
#[track_caller]
#[must_use]
pub fn f2fs_in_memory(size: u64, args: &[&str]) -> MemoryDevice {
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    mkfs_f2fs(file.path(), size, args);
    read_image(file.path()).expect("the image can be read")
}

/// Makes a filesystem: `mkfs.f2fs -f -q ARGS… IMAGE`, the image first grown to `size` bytes
/// (sparse, emptied).
///
/// # Panics
/// The file cannot be made, or mkfs.f2fs refuses.
#[track_caller]
pub fn mkfs_f2fs(image: &Path, size: u64, args: &[&str]) {
    let verdict = try_mkfs_f2fs(image, size, args);
    assert!(verdict.is_clean(), "mkfs.f2fs {args:?} on {size} bytes: {}", verdict.output);
}

/// [`mkfs_f2fs`] that may refuse.
///
/// # Panics
/// The file cannot be made.
#[track_caller]
#[must_use]
pub fn try_mkfs_f2fs(image: &Path, size: u64, args: &[&str]) -> Verdict {
    let file = std::fs::File::create(image).expect("image file is created");
    file.set_len(size).expect("image file grows");
    let output = command("mkfs.f2fs")
        .args(["-f", "-q"])
        .args(args)
        .arg(image)
        .output()
        .expect("mkfs.f2fs starts");
    let status = output.status.code().unwrap_or(-1);
    Verdict { status, exit: status, output: transcript(&output) }
}

/// Copies a directory of the host into a clean volume: `sload.f2fs -P -f DIRECTORY IMAGE`.
///
/// # Panics
/// sload.f2fs fails, or the fsck that it runs at its end (1 means that fsck changed the volume).
#[track_caller]
pub fn sload_f2fs(image: &Path, directory: &Path) {
    let output = command("sload.f2fs").arg("-P").arg("-f").arg(directory).arg(image).output();
    let output = output.expect("sload.f2fs starts");
    let text = transcript(&output);
    let fine = matches!(output.status.code(), Some(0 | 1)) && !text.contains("[Fail]");
    assert!(fine, "sload.f2fs {}: {}\n{text}", image.display(), output.status);
}

/// The numbers of superblock and checkpoint as `dump.f2fs -d 1` prints them, by their names.
#[track_caller]
#[must_use]
pub fn dump_f2fs(image: &Path) -> BTreeMap<String, u64> {
    let text = run("dump.f2fs", [Path::new("-d"), Path::new("1"), image]);
    // "block_count                  [0x    4000 : 16384]"
    let field = |line: &str| {
        let (name, rest) = line.split_once('[')?;
        let (_, value) = rest.trim_end().strip_suffix(']')?.split_once(" : ")?;
        Some((name.trim().to_owned(), value.parse().ok()?))
    };
    // Names with an index have another bracket.
    let indexed = |line: &str| {
        let (name, rest) = line.split_once(']')?;
        let (_, value) = rest.trim().strip_prefix('[')?.strip_suffix(']')?.split_once(" : ")?;
        Some((format!("{}]", name.trim()), value.parse().ok()?))
    };
    text.lines().filter_map(|line| indexed(line).or_else(|| field(line))).collect()
}

/// The flags of the valid checkpoint, as dump.f2fs names them:
/// `checkpoint state = 1c5 : trimmed crc unmount`.
///
/// # Panics
/// dump.f2fs does not print them.
#[track_caller]
#[must_use]
pub fn f2fs_checkpoint_state(image: &Path) -> String {
    let text = run("dump.f2fs", [image]);
    let state = text.lines().find(|line| line.contains("checkpoint state"));
    state.unwrap_or_else(|| panic!("no state: {text}")).to_owned()
}

/// [`cairn_crash::nodes::node_blocks_of`].
///
/// # Panics
/// There is no superblock.
pub fn node_blocks_of(volume: &MemoryDevice) -> impl Fn(&[u8]) -> bool + Send + Sync + 'static {
    cairn_crash::nodes::node_blocks_of(volume).expect("memory does not fail")
}
