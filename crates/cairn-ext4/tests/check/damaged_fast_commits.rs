//! Fast commits of which a block is damaged, or that cannot be replayed: what the kernel refuses is
//! refused, and a repair keeps what e2fsck keeps.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_ext4::{Error, Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, command, debugfs, mke2fs};
use cairn_testkit::tree::{SnapshotOptions, digest_volume};

use crate::forms::rescued;
use crate::repaired::{complaint, plan};

const BLOCK: u64 = 1024;
const FILES: usize = 12;

/// Twelve files, each in a fast commit of its own.
fn crashed(at: &Path, features: &str) -> (MemoryDevice, Vec<u64>) {
    let features = format!("fast_commit{features}");
    let args = ["-t", "ext4", "-b", "1024", "-N", "512", "-J", "size=4", "-O", &features];
    mke2fs(at, 24 << 20, &args);
    let mount = KernelMount::new(at, "commit=600");
    let directory = mount.path().join("d");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("old"), "old").unwrap();
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    for number in 0..FILES {
        let mut file = File::create(directory.join(format!("f{number}"))).unwrap();
        file.write_all(format!("contents {number}\n").repeat(200).as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
    let device = read_image(at).unwrap();
    mount.unmount();
    write_image(&device, at).unwrap();
    let journal = journal(at);
    let word = |at: u64| {
        let bytes = device.read_at(journal[0] * BLOCK + at, 4).unwrap();
        u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize
    };
    let (all, fast) = (word(0x10), word(0x54));
    let is_used = |block: &u64| device.read_at(*block * BLOCK, 8).unwrap()[..8] != [0; 8];
    let used: Vec<u64> = journal[all - fast..all].iter().copied().filter(is_used).collect();
    (device, used)
}

/// The files that a mount shows. `None` if it is refused.
fn files(device: &MemoryDevice) -> Option<Vec<String>> {
    let options = MountOptions::parse("ro").unwrap();
    let volume = match Ext4::open(Arc::new(device.fork()), Threads::new(), &options) {
        Ok(volume) => volume,
        Err(Error::Unreplayable(_)) => return None,
        Err(error) => panic!("{error}"),
    };
    let tree = digest_volume(&*volume, SnapshotOptions::default()).unwrap();
    let names = (0..FILES).map(|number| format!("d/f{number}"));
    Some(names.filter(|name| tree.get(name.as_bytes()).is_some()).collect())
}

#[test]
fn a_damaged_fast_commit_is_treated_as_by_linux_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, used) = crashed(&at, "");
    assert_eq!(files(&sound).map(|names| names.len()), Some(FILES));
    assert!(used.len() >= FILES, "{} blocks of fast commits", used.len());
    let last = used.len() - 1;
    // The block, a byte of it that changes or all of it, and whether the volume is refused.
    for (index, byte, is_refused) in [
        (0, Some(20), true),
        (0, Some(100), true),
        (0, None, true),
        (3, Some(20), true),
        (3, None, true),
        (last, Some(20), false),
        (last, None, false),
    ] {
        let device = sound.fork();
        let place = used[index] * BLOCK;
        let mut block = device.read_at(place, 1024).unwrap().to_vec();
        match byte {
            Some(byte) => block[byte] ^= 0x10,
            None => block.fill(0xa5),
        }
        device.write_at(place, block).unwrap();
        write_image(&device, &hurt).unwrap();
        let by_linux = KernelMount::try_new(&hurt, "").map(KernelMount::unmount);
        let ours = files(&device);
        assert_eq!(ours.is_none(), is_refused, "{index}, {byte:?}");
        assert!(by_linux.is_ok() || is_refused, "{index}, {byte:?}: Linux refuses it");
        let planned = plan(device.fork(), Scope::All).unwrap();
        let after = device.fork();
        planned.apply(&after, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
        assert_eq!(complaint(&after, &at), None, "{index}, {byte:?}");
        write_image(&device, &hurt).unwrap();
        for _ in 0..2 {
            command("e2fsck").arg("-fy").arg(&hurt).output().expect("e2fsck starts");
        }
        let theirs = files(&read_image(&hurt).unwrap()).unwrap();
        let kept = files(&after).unwrap();
        assert!(theirs.iter().all(|name| kept.contains(name)), "{kept:?} of {theirs:?}");
    }
}

/// The blocks of the journal.
fn journal(at: &Path) -> Vec<u64> {
    debugfs(at, "blocks <8>").split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// A repair of all, and what it lists as lost.
fn repaired_all(device: &MemoryDevice) -> (MemoryDevice, String) {
    let planned = plan(device.fork(), Scope::All).unwrap();
    let after = device.fork();
    planned.apply(&after, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
    let lost: Vec<_> = planned.steps.losing().map(ToString::to_string).collect();
    (after, lost.join("\n"))
}

/// The fast commits behind a transaction of which a block is damaged are kept, as e2fsck keeps
/// them, or listed as lost; and not listed where there are none. Without its commit block, a
/// transaction is proved by them.
#[test]
fn fast_commits_behind_a_damaged_transaction_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, used) = crashed(&at, "");
    let without = sound.fork();
    used.iter().for_each(|block| without.write_at(block * BLOCK, vec![0; 1024]).unwrap());
    let is_used = |block: &&u64| sound.read_at(**block * BLOCK, 8).unwrap()[..8] != [0; 8];
    let logged: Vec<u64> = journal(&at)[1..200].iter().filter(is_used).copied().collect();
    let last = *logged.last().unwrap();
    let (mut damaged, whole) = (0, rescued(&sound).files);
    let is_chosen = |(number, block): &(usize, u64)| number % 4 == 1 || *block == last;
    for (_, block) in logged.into_iter().enumerate().filter(is_chosen) {
        let device = sound.fork();
        device.write_at(block * BLOCK, vec![0; 1024]).unwrap();
        if files(&device).is_some() {
            // It is none of a transaction that is to be replayed.
            continue;
        }
        damaged += 1;
        let (after, lost) = repaired_all(&device);
        assert_eq!(complaint(&after, &at), None, "block {block}");
        write_image(&device, &hurt).unwrap();
        for _ in 0..2 {
            command("e2fsck").arg("-fy").arg(&hurt).output().expect("e2fsck starts");
        }
        let theirs = files(&read_image(&hurt).unwrap()).unwrap();
        let kept = files(&after).unwrap();
        let keeps = theirs.iter().all(|name| kept.contains(name));
        assert!(keeps, "block {block}: {kept:?} of {theirs:?}: {lost}");
        if kept.len() == FILES {
            assert!(rescued(&device).files.keys().eq(whole.keys()), "block {block}: rescued");
        }
        let is_listed = lost.contains("fast commits");
        assert_eq!(is_listed, kept.len() < FILES, "block {block}: {kept:?}: {lost}");
        without.write_at(block * BLOCK, vec![0; 1024]).unwrap();
        if block != last {
            let (_, lost) = repaired_all(&without);
            assert!(!lost.is_empty() && !lost.contains("fast commits"), "block {block}: {lost}");
        }
        without.write_at(block * BLOCK, sound.read_at(block * BLOCK, 1024).unwrap()).unwrap();
    }
    assert!(damaged > 2, "{damaged} damaged");
}

/// Blocks of clusters are not allocated, so that nothing of a replay is right: it is not shown, and
/// not repaired without losses.
#[test]
fn fast_commits_of_a_volume_with_clusters_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let (device, used) = crashed(&at, ",bigalloc");
    assert!(!used.is_empty(), "the kernel made no fast commits");
    assert!(files(&device).is_none(), "they are replayed");
    let planned = plan(device, Scope::Accounting).unwrap();
    assert!(planned.changes.is_empty() && planned.after.count() > 0);
}
