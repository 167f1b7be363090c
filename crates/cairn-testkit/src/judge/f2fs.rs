//! mkfs.f2fs, fsck.f2fs, dump.f2fs and sload.f2fs.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::open_image;
use cairn_block::{BlockDevice, BlockDeviceExt};
use tempfile::NamedTempFile;

use crate::crash::{read_image, write_image};

use super::{Verdict, command, run, transcript};

/// What fsck.f2fs prints about a damaged volume. Its exit status is not enough: it repairs a wrong
/// hash, reports it, and exits with 0.
const ALARMS: [&str; 5] = ["[ASSERT]", "[FIX]", "[Fail]", "Invalid CP", "Corrupted"];

/// Offsets of the feature bits in both superblocks, and the bit of zoned volumes.
const FEATURES: [u64; 2] = [1024 + 2180, 4096 + 1024 + 2180];
const BLKZONED: u8 = 2;

/// `fsck.f2fs --dry-run`: a full check that writes nothing. The status is 0 only if the text
/// reports no error either. An image with zones is checked as a copy without them, because
/// fsck.f2fs asks the kernel for zones.
///
/// # Panics
/// fsck.f2fs cannot be started, or there is no room for the copy.
#[must_use]
pub fn fsck_f2fs(image: &Path) -> Verdict {
    let plain = without_zones(image);
    let image = plain.as_ref().map_or(image, |plain| plain.path());
    // Its standard input is empty. It asks questions about volumes with lost files, and the end of
    // the input is an error.
    let output =
        command("fsck.f2fs").arg("--dry-run").arg(image).output().expect("fsck.f2fs starts");
    let text = transcript(&output);
    let status = match output.status.code().unwrap_or(-1) {
        0 if f2fs_alarms(&text).next().is_some() => 4,
        status => status,
    };
    Verdict { status, output: text }
}

/// The lines of fsck.f2fs that report an error.
pub fn f2fs_alarms(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| ALARMS.iter().any(|alarm| line.contains(alarm)))
}

/// A copy of an image with zones, without the table of zones and without the feature.
fn without_zones(image: &Path) -> Option<NamedTempFile> {
    // The daemon that has unmounted it may not have ended yet.
    let options = OpenOptions { lock: false, ..OpenOptions::read() };
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(image, options).expect("the image opens"));
    let zoned = open_image(&device).expect("the table of zones is whole")?;
    let plain = NamedTempFile::new_in(image.parent()?).expect("a temporary file can be made");
    // cp keeps holes.
    run("cp", [image, plain.path()]);
    let file = File::options().read(true).write(true).open(plain.path()).expect("the copy opens");
    file.set_len(zoned.geometry().size).expect("the copy is cut");
    for at in FEATURES {
        let mut features = [0];
        file.read_exact_at(&mut features, at).expect("the superblock is read");
        assert_eq!(features[0] & BLKZONED, BLKZONED, "a volume on zones says so");
        file.write_all_at(&[features[0] & !BLKZONED], at).expect("the superblock is written");
    }
    Some(plain)
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
    Verdict { status: output.status.code().unwrap_or(-1), output: transcript(&output) }
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

/// Recognises the node blocks of this volume by their contents. F2FS needs the device to write each
/// of them whole or not at all: their footer is at the end, and only inodes of some volumes have
/// checksums.
///
/// # Panics
/// There is no superblock.
pub fn node_blocks_of(volume: &MemoryDevice) -> impl Fn(&[u8]) -> bool + Send + Sync + 'static {
    /// `cp_blkaddr` in the superblock. A pack begins with its version, the second one a segment
    /// later.
    const CP_BLKADDR: u64 = 1024 + 76;
    const SEGMENT: u64 = 512;
    /// `nid`, `ino`, `flag` and `cp_ver` of a node's footer.
    const FOOTER: usize = 4072;
    /// No test writes more checkpoints.
    const MANY: u32 = 100_000;
    let number = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let read = |at: u64| {
        let sector = volume.read_at(at / 512 * 512, 512).expect("memory does not fail");
        number(&sector, usize::try_from(at % 512).expect("within a sector"))
    };
    let packs = u64::from(read(CP_BLKADDR));
    let versions = [packs, packs + SEGMENT].map(|pack| read(pack * 4096));
    let version = versions.into_iter().max().expect("two packs");
    move |block| {
        let later = number(block, FOOTER + 12).wrapping_sub(version);
        later < MANY && number(block, FOOTER) != 0 && number(block, FOOTER + 4) != 0
    }
}
