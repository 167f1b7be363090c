//! e2fsprogs replays our logs, and we replay those of debugfs.
//!
//! Needs `mke2fs`, `debugfs` and `e2fsck`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_base::{FileBlock, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_jbd2::Incompat;
use cairn_jbd2::{
    Journal, JournalArea, JournalOptions, read_superblock, recover, replay_in_memory,
};

const BLOCK: u32 = 1024;
/// Free blocks of the volume, which the logs change.
const HOMES: std::ops::Range<u64> = 20_000..20_040;

pub struct Volume {
    _folder: tempfile::TempDir,
    pub image: PathBuf,
}

pub fn run(program: &str, arguments: &[&str], image: &Path, accepted: &[i32]) -> String {
    let output = Command::new(program).args(arguments).arg(image).env("LC_ALL", "C").output();
    let output =
        output.unwrap_or_else(|error| panic!("{program} (from e2fsprogs) is needed: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let code = output.status.code().unwrap_or(-1);
    assert!(accepted.contains(&code), "{program} {arguments:?} ended with {code}:\n{text}");
    text
}

impl Volume {
    fn new(options: &str) -> Self {
        Self::of(options, 32 << 20, 4)
    }

    /// A volume of `size` bytes with a journal of `journal` MiB.
    pub fn of(options: &str, size: u64, journal: u32) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(size)).expect("an image");
        let journal = format!("size={journal}");
        run(
            "mke2fs",
            &["-q", "-F", "-t", "ext4", "-b", "1024", "-J", &journal, "-O", options],
            &image,
            &[0],
        );
        Self { _folder: folder, image }
    }

    pub fn debugfs(&self, script: &str) -> String {
        let file = self.image.with_extension("script");
        std::fs::write(&file, script).expect("a script");
        run("debugfs", &["-w", "-f", file.to_str().expect("a path")], &self.image, &[0])
    }

    /// The journal's place on the volume.
    pub fn area(&self, device: Arc<dyn BlockDevice>) -> JournalArea {
        let listing = run("debugfs", &["-R", "blocks <8>"], &self.image, &[0]);
        let mut blocks = listing.split_whitespace().filter_map(|word| word.parse().ok());
        // No word of the banner is a number.
        let mut extents: Vec<(FileBlock, Pba, u64)> = Vec::new();
        for (index, block) in blocks.by_ref().enumerate() {
            match extents.last_mut() {
                Some((_, start, len)) if start.get() + *len == block => *len += 1,
                _ => extents.push((FileBlock(index as u64), Pba(block), 1)),
            }
        }
        JournalArea { device, block_size: BLOCK, extents, since: 0 }
    }

    fn load(&self) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::from_image(&std::fs::read(&self.image).expect("the image")))
    }

    fn store(&self, device: &MemoryDevice) {
        let size = usize::try_from(device.geometry().size).expect("a small image");
        std::fs::write(&self.image, &*device.read_at(0, size).expect("memory")).expect("the image");
    }

    /// Replays the log with e2fsck, and returns the blocks of [`HOMES`].
    fn replayed_by_e2fsck(&self) -> Vec<Vec<u8>> {
        run("e2fsck", &["-fy", "-E", "journal_only"], &self.image, &[0, 1]);
        homes(&*self.load())
    }
}

fn homes(device: &dyn BlockDevice) -> Vec<Vec<u8>> {
    HOMES
        .map(|block| {
            device.read_at(block * u64::from(BLOCK), BLOCK as usize).expect("memory").to_vec()
        })
        .collect()
}

fn replayed_by_us(volume: &Volume) -> Vec<Vec<u8>> {
    let device = volume.load();
    let as_device: Arc<dyn BlockDevice> = device.clone();
    let area = volume.area(as_device.clone());
    let overlay = replay_in_memory(&area).expect("a good log");
    let mut laid_over = homes(&*device);
    for (block, bytes) in HOMES.zip(&mut laid_over) {
        if let Some(image) = overlay.get(&Pba(block)) {
            *bytes = image.to_vec();
        }
    }
    recover(&area, &as_device).expect("a good log");
    let replayed = homes(&*device);
    assert!(laid_over == replayed, "the replay in memory differs from the one on the device");
    replayed
}

/// Writes three transactions with debugfs: blocks (one begins with the magic number), revokes, and
/// a block after its revoke.
fn theirs(volume: &Volume, open: &str) {
    let data = volume.image.with_extension("data");
    let mut bytes: Vec<u8> = (0..20 * BLOCK).map(|n| (n / BLOCK * 7 + n % 251) as u8).collect();
    bytes[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
    bytes[5 * BLOCK as usize..][..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
    std::fs::write(&data, bytes).expect("the data");
    let data = data.display();
    for script in [
        format!("jo {open}\njw -b 20000-20015 {data}\njc\n"),
        format!("jo {open}\njw -r 20003-20005,20009\njc\n"),
        format!("jo {open}\njw -b 20004,20020-20022 {data}\njc\n"),
    ] {
        volume.debugfs(&script);
    }
}

#[test]
fn logs_that_debugfs_wrote_are_replayed_as_e2fsck_does() {
    for (options, open) in [
        ("^metadata_csum,^64bit", ""),
        ("^metadata_csum,64bit", ""),
        ("^metadata_csum,64bit", "-c -v 2"),
        ("^metadata_csum,^64bit", "-c -v 2"),
        ("^metadata_csum,64bit", "-c -v 3"),
        // Without `metadata_csum` debugfs uses `Compat::CHECKSUM` whatever version is asked for.
        // With it, debugfs uses version 2.
        ("metadata_csum,64bit", "-c -v 2"),
        ("metadata_csum,^64bit", "-c -v 2"),
        ("metadata_csum,64bit", "-c -v 3"),
        ("metadata_csum,^64bit", "-c -v 3"),
    ] {
        let volume = Volume::new(options);
        theirs(&volume, open);
        check_features(&volume, options, open);
        let ours = replayed_by_us(&volume);
        assert!(ours[0].iter().any(|byte| *byte != 0), "{options} {open}: nothing was replayed");
        // With `Compat::CHECKSUM` debugfs miscalculates the checksum of a transaction that has only
        // revokes: both programs end the log before it.
        let all = open.is_empty() || options.starts_with("metadata_csum");
        assert!(
            !all || ours[3].iter().all(|byte| *byte == 0),
            "{options} {open}: a revoked block was replayed"
        );
        assert!(
            ours == volume.replayed_by_e2fsck(),
            "{options} {open}: e2fsck replays something else"
        );
    }
}

/// Asserts that the journal has the checksums that debugfs was asked to use.
fn check_features(volume: &Volume, options: &str, open: &str) {
    let found = read_superblock(&volume.area(volume.load())).expect("a good superblock").incompat;
    if let (Some(version), true) =
        (open.strip_prefix("-c -v "), options.starts_with("metadata_csum"))
    {
        let wanted = if version == "2" { Incompat::CSUM_V2 } else { Incompat::CSUM_V3 };
        assert_eq!(found & (Incompat::CSUM_V2 | Incompat::CSUM_V3), wanted, "{options} {open}");
    }
}

/// Gives the journal the features that Linux would choose at a mount.
pub fn set_journal_features(volume: &Volume, open: &str) {
    let data = volume.image.with_extension("data");
    std::fs::write(&data, vec![1; BLOCK as usize]).expect("the data");
    volume.debugfs(&format!("jo {open}\njw -b 20039 {}\njc\njr\n", data.display()));
}

#[test]
fn logs_that_we_wrote_are_replayed_by_e2fsck() {
    for (options, open) in [
        ("^metadata_csum,^64bit", ""),
        ("^metadata_csum,64bit", ""),
        ("^metadata_csum,64bit", "-c -v 2"),
        ("^metadata_csum,^64bit", "-c -v 2"),
        // Without `metadata_csum` debugfs uses `Compat::CHECKSUM` whatever version is asked for.
        // With it, debugfs uses version 2.
        ("metadata_csum,64bit", "-c -v 2"),
        ("metadata_csum,^64bit", "-c -v 2"),
        ("metadata_csum,64bit", "-c -v 3"),
        ("metadata_csum,^64bit", "-c -v 3"),
    ] {
        let volume = Volume::new(options);
        set_journal_features(&volume, open);
        check_features(&volume, options, open);
        let device = volume.load();
        write_log(&volume, device.clone());
        volume.store(&device);
        volume.debugfs("feature needs_recovery\n");
        let dump = run("debugfs", &["-R", "logdump"], &volume.image, &[0]);
        assert!(
            dump.contains("type 5 (revoke table)"),
            "{options} {open}: no revokes in the log:\n{dump}"
        );
        assert!(
            !dump.to_lowercase().contains("checksum"),
            "{options} {open}: debugfs complains:\n{dump}"
        );
        let ours = replayed_by_us(&volume);
        assert!(ours[1].iter().any(|byte| *byte != 0), "{options} {open}: nothing was replayed");
        assert!(
            ours == volume.replayed_by_e2fsck(),
            "{options} {open}: e2fsck replays something else"
        );
        let clean = run("e2fsck", &["-fn"], &volume.image, &[0]);
        assert!(!clean.contains("recovering"), "{clean}");
    }
}

/// Writes a log that wraps and ends in a crash.
fn write_log(volume: &Volume, device: Arc<dyn BlockDevice>) {
    let area = volume.area(device.clone());
    let buffers = BufferCache::new(device, BLOCK, Budget::new(4 << 20));
    let journal =
        Journal::open(JournalOptions::default(), buffers.clone(), area, Simulated::new(1))
            .expect("an empty log");
    let mut random = fastrand::Rng::with_seed(5);
    let mut number = 0_u64;
    while journal.stats().log_blocks.get() < 4500 {
        let handle = journal.start(24).expect("memory does not fail");
        for _ in 0..16 {
            let pba = Pba(random.u64(HOMES));
            number += 1;
            if random.u8(..6) == 0 {
                handle.forget(pba).expect("no error");
                continue;
            }
            let buffer = handle.get_create_access(pba).expect("memory does not fail");
            let mut guard = handle.get_write_access(&buffer).expect("no error");
            guard.fill(number as u8);
            if random.bool() {
                guard[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
            }
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit_and_wait(tid).expect("memory does not fail");
    }
}
