//! Logs that the superblocks do not speak of: a journal that is called empty, a volume that asks
//! for no recovery, a wrong superblock without a backup beside a log.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::Report;
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_ext4::SuperblockChoice;
use cairn_ext4::tune::{TuneOptions, tune};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, command, mke2fs};

use crate::damaged_log::{BLOCK, Counts, Crashed, FILES, is_refused, mounted};
use crate::repaired::{complaint, injected, plan, snapshot};
use crate::support::{check, edit_superblock};

const NO_SUMS: &str = "^metadata_csum,^metadata_csum_seed";
/// Where the superblock has `s_feature_incompat`, and the bit of a recovery.
const INCOMPAT: u64 = 1024 + 96;
const RECOVER: u8 = 4;

fn report(device: &MemoryDevice) -> Report {
    check(Arc::new(device.fork())).unwrap()
}

fn codes(device: &MemoryDevice) -> Vec<&'static str> {
    report(device).counts.iter().map(|(kind, _)| kind.code).collect()
}

/// A repair of this scope, after which nothing is left.
#[track_caller]
fn mended(device: &MemoryDevice, scope: Scope, at: &std::path::Path) -> MemoryDevice {
    let planned = plan(device.fork(), scope).unwrap();
    let left = planned.after.count();
    assert_eq!(left, 0, "{:?}, {:?}", planned.after.findings, planned.steps.kept());
    let losing = planned.steps.losing().filter(|_| scope == Scope::Accounting).count();
    assert_eq!(losing, 0, "{:?}", planned.steps.kept());
    let after = device.fork();
    planned.apply(&after, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
    assert_eq!(complaint(&after, at), None);
    after
}

/// Linux mounts the volume and forgets the log. Here nobody does.
#[test]
fn a_log_that_its_superblock_calls_empty_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::with(&at, NO_SUMS);
    let device = crashed.device.fork();
    device.write_at(crashed.journal[0] * BLOCK + 28, vec![0; 4]).unwrap();
    assert!(codes(&device).contains(&"ext4.journal.field"), "{:?}", codes(&device));
    assert!(is_refused(&device, "ro") && is_refused(&device, ""));
    let after = mended(&device, Scope::Accounting, &hurt);
    assert_eq!(crashed.lost(mounted(&after).as_ref()), [""; 0]);
    let runtime: Arc<dyn Runtime> = Threads::new();
    let (device, mut counts) = (Arc::new(device), Counts::default());
    let opened = cairn_ext4::rescue::open(device, SuperblockChoice::Best, &runtime);
    opened.unwrap().tree(&mut counts);
    assert!(counts.files > FILES, "{} files: {:?}", counts.files, counts.losses);
}

/// Linux looks at the descriptors before it replays the log.
#[test]
fn a_descriptor_that_the_log_has_right_is_found_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::with(&at, NO_SUMS);
    assert_eq!(codes(&crashed.device), [""; 0]);
    // The places of the bitmap of blocks and of the table of inodes.
    for field in [0, 8] {
        let device = crashed.device.fork();
        device.write_at(2 * BLOCK + field + 2, vec![1]).unwrap();
        assert_eq!(codes(&device), ["ext4.group.unreplayed"], "{field}");
        write_image(&device, &hurt).unwrap();
        assert!(KernelMount::try_new(&hurt, "").is_err(), "{field}");
        let after = mended(&device, Scope::Accounting, &hurt);
        assert_eq!(crashed.lost(mounted(&after).as_ref()), [""; 0], "{field}");
    }
}

/// A power cut between a mount and its first transaction leaves an empty log.
#[test]
fn an_empty_log_of_a_volume_in_use_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    mke2fs(&at, 8 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", NO_SUMS]);
    for _ in 0..2 {
        let mount = KernelMount::new(&at, "");
        std::fs::write(mount.path().join("old"), "in place").unwrap();
        mount.unmount();
    }
    let mount = KernelMount::new(&at, "commit=600");
    let device = read_image(&at).unwrap();
    mount.unmount();
    assert_eq!(device.read_at(INCOMPAT, 1).unwrap()[0] & RECOVER, RECOVER);
    assert!(!codes(&device).contains(&"ext4.journal.field"), "{:?}", codes(&device));
    assert!(!is_refused(&device, "ro") && !is_refused(&device, ""));
}

/// Linux refuses to mount such a volume read-only, and else clears the log; e2fsck replays it.
#[test]
fn a_log_without_the_flag_of_a_recovery_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::with(&at, NO_SUMS);
    let device = crashed.device.fork();
    let flags = device.read_at(INCOMPAT, 1).unwrap()[0];
    device.write_at(INCOMPAT, vec![flags & !RECOVER]).unwrap();
    assert!(codes(&device).contains(&"ext4.superblock.contradicted"), "{:?}", codes(&device));
    let after = mended(&device, Scope::Accounting, &hurt);
    assert_eq!(crashed.lost(mounted(&after).as_ref()), [""; 0]);
    // So do a mount, a rescue, and who changes the volume without one.
    assert_eq!(crashed.lost(mounted(&device).as_ref()), [""; 0]);
    let (runtime, mut counts): (Arc<dyn Runtime>, _) = (Threads::new(), Counts::default());
    let shared = Arc::new(device.fork());
    let opened = cairn_ext4::rescue::open(shared.clone(), SuperblockChoice::Best, &runtime);
    opened.unwrap().tree(&mut counts);
    assert!(counts.files > FILES, "{} files: {:?}", counts.files, counts.losses);
    let label = TuneOptions { label: Some("other".into()), ..TuneOptions::default() };
    tune(shared.clone(), runtime, &label).unwrap();
    assert_eq!(complaint(&shared, &hurt), None);
    assert_eq!(crashed.lost(mounted(&shared).as_ref()), [""; 0]);
    write_image(&device, &hurt).unwrap();
    command("e2fsck").arg("-fy").arg(&hurt).output().expect("e2fsck starts");
    assert_eq!(crashed.lost(mounted(&read_image(&hurt).unwrap()).as_ref()), [""; 0]);
}

/// The write that marks the log as empty was lost when the volume was unmounted. It was changed
/// since: Linux clears the log, and nobody replays it over what is newer.
#[test]
fn a_log_that_is_older_than_the_volume_is_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::with(&at, NO_SUMS);
    // Linux replays the log, removes what it has, and makes something else.
    let mount = KernelMount::new(&at, "");
    std::fs::remove_dir_all(mount.path().join("dir")).unwrap();
    std::fs::create_dir(mount.path().join("newer")).unwrap();
    std::fs::write(mount.path().join("newer/file"), "newer").unwrap();
    mount.unmount();
    let device = read_image(&at).unwrap();
    // The time of the last write: later than all commits.
    let wtime = 1024 + 48;
    let written = u32::from_le_bytes(*device.read_at(wtime, 4).unwrap().first_chunk().unwrap());
    device.write_at(wtime, (written + 10).to_le_bytes().to_vec()).unwrap();
    let sound = snapshot(device.fork());
    // The log of the first session, or only its superblock: the second one has written over the
    // first blocks of it.
    for blocks in [1, crashed.journal.len()] {
        let device = device.fork();
        for block in &crashed.journal[..blocks] {
            let old = crashed.device.read_at(block * BLOCK, BLOCK as usize).unwrap();
            device.write_at(block * BLOCK, old.to_vec()).unwrap();
        }
        sound.assert_same(&snapshot(device.fork()));
        assert_eq!(codes(&device), ["ext4.journal.field"], "{blocks}");
        sound.assert_same(&snapshot(mended(&device, Scope::Accounting, &hurt)));
        // A mount that writes marks the log as empty.
        let shared = Arc::new(device.fork());
        let runtime: Arc<dyn Runtime> = Threads::new();
        let label = TuneOptions { label: Some("other".into()), ..TuneOptions::default() };
        tune(shared.clone(), runtime, &label).unwrap();
        assert_eq!(complaint(&shared, &hurt), None, "{blocks}");
        sound.assert_same(&snapshot(shared.fork()));
        write_image(&device, &hurt).unwrap();
        KernelMount::new(&hurt, "").unmount();
        sound.assert_same(&snapshot(read_image(&hurt).unwrap()));
    }
}

/// The write that told of the first transaction since the mount was lost: the superblock of the
/// journal is the one from before, which calls the log empty. Linux mounts the volume without it.
#[test]
fn a_log_that_its_superblock_is_older_than_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for features in [NO_SUMS, "metadata_csum", "fast_commit"] {
        let crashed = Crashed::with(&at, features);
        let device = crashed.device.fork();
        let first = crashed.journal[0];
        let word = device.read_at(first * BLOCK + 24, 4).unwrap();
        let tail = u32::from_be_bytes(word[..4].try_into().unwrap());
        // After an empty log, Linux leaves out a number.
        set_field(&device, first, 24, tail - 1);
        set_field(&device, first, 28, 0);
        let found = codes(&device);
        assert!(found.contains(&"ext4.journal.field"), "{features}: {found:?}");
        assert!(is_refused(&device, "ro") && is_refused(&device, ""), "{features}");
        let after = mended(&device, Scope::Accounting, &hurt);
        assert_eq!(crashed.lost(mounted(&after).as_ref()), [""; 0], "{features}");
        // Without the descriptor of the first transaction, the rest is not replayed alone.
        let start = crashed.device.read_at(first * BLOCK + 28, 4).unwrap();
        let start = u32::from_be_bytes(start[..4].try_into().unwrap()) as usize;
        let lacking = device.fork();
        lacking.write_at(crashed.journal[start] * BLOCK, vec![0; 1024]).unwrap();
        let found = codes(&lacking);
        assert!(found.contains(&"ext4.journal.replay"), "{features}: {found:?}");
        // Numbers of earlier transactions prove nothing.
        set_field(&device, first, 24, tail + 1000);
        assert!(!codes(&device).contains(&"ext4.journal.field"), "{features}");
    }
}

/// The time of the newest commit block of the journal.
fn last_commit(crashed: &Crashed) -> u64 {
    let blocks = crashed.journal.iter();
    let blocks = blocks.map(|block| crashed.device.read_at(block * BLOCK, 64).unwrap());
    let commits = blocks.filter(|block| block[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2]);
    commits.map(|block| u64::from_be_bytes(block[48..56].try_into().unwrap())).max().unwrap()
}

/// The volume was changed by debugfs in the second of the last commit, after the log was replayed;
/// and the superblock of the journal is the old one.
fn changed_after(crashed: &Crashed, at: &std::path::Path, change: &str) -> [MemoryDevice; 2] {
    let replayed = mended(&crashed.device, Scope::Accounting, at);
    write_image(&replayed, at).unwrap();
    let commands = at.with_extension("commands");
    let now = last_commit(crashed);
    std::fs::write(&commands, format!("set_current_time @{now}\n{change}\n")).unwrap();
    command("debugfs").arg("-wf").arg(&commands).arg(at).output().expect("debugfs starts");
    let sound = read_image(at).unwrap();
    let written = u32::try_from(now).unwrap();
    sound.write_at(1024 + 48, written.to_le_bytes().to_vec()).unwrap();
    let device = sound.fork();
    let block = crashed.journal[0] * BLOCK;
    device.write_at(block, crashed.device.read_at(block, 1024).unwrap().to_vec()).unwrap();
    [sound, device]
}

/// Seconds do not tell that the volume is newer; times of its inodes do.
#[test]
fn a_log_of_the_second_of_the_last_change_is_judged_by_inodes() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::with(&at, NO_SUMS);
    for change in ["", "rm \"/dir/file 3\"\nrm /old\nmkdir /newer"] {
        let [sound, device] = changed_after(&crashed, &hurt, change);
        let sound = snapshot(sound);
        assert_eq!(sound.get(b"old").is_some(), change.is_empty());
        assert_eq!(codes(&device), ["ext4.journal.field"], "{change}");
        sound.assert_same(&snapshot(device.fork()));
        sound.assert_same(&snapshot(mended(&device, Scope::Accounting, &hurt)));
    }
}

/// A mode that was changed leaves no time: nobody replays that log without a word.
#[test]
fn a_log_of_which_nothing_tells_the_age_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::with(&at, NO_SUMS);
    let [sound, device] = changed_after(&crashed, &hurt, "sif \"/dir/file 3\" mode 0100600");
    assert_eq!(codes(&device), ["ext4.journal.replay"]);
    assert!(is_refused(&device, "ro") && is_refused(&device, ""));
    assert!(plan(device.fork(), Scope::Accounting).unwrap().changes.is_empty());
    snapshot(sound).assert_same(&snapshot(mended(&device, Scope::All, &hurt)));
}

#[test]
fn a_start_without_a_log_is_set_to_none() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&at, 8 << 20, &["-t", "ext3", "-b", "1024", "-J", "size=1"]);
    let device = read_image(&at).unwrap();
    let blocks = cairn_testkit::judge::debugfs(&at, "blocks <8>");
    let first: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    device.write_at(first * BLOCK + 28, vec![0, 0, 0, 5]).unwrap();
    write_image(&device, &hurt).unwrap();
    assert!(KernelMount::try_new(&hurt, "ro").is_err());
    assert_eq!(codes(&device), ["ext4.journal.field"]);
    let after = mended(&device, Scope::Accounting, &hurt);
    assert_eq!(after.read_at(first * BLOCK + 28, 4).unwrap()[..], [0; 4]);
    KernelMount::new(&hurt, "ro").unmount();
}

/// Writes a word of the journal's superblock, with the checksum.
fn set_field(device: &MemoryDevice, journal: u64, at: usize, value: u32) {
    let mut block = device.read_at(journal * BLOCK, 1024).unwrap().to_vec();
    block[at..at + 4].copy_from_slice(&value.to_be_bytes());
    block[0xfc..0x100].fill(0);
    let sum = cairn_base::checksum::crc32c(!0, &block);
    block[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
    device.write_at(journal * BLOCK, block).unwrap();
}

/// Linux does not mount a volume with two kinds of checksums in the journal, and takes a log that
/// does not begin at block 1 for too short.
#[test]
fn fields_for_which_linux_does_not_mount_are_set() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::new(&at);
    let clean = dir.path().join("clean");
    mke2fs(&clean, 8 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let mount = KernelMount::new(&clean, "");
    std::fs::write(mount.path().join("file"), "contents").unwrap();
    mount.unmount();
    let clean = read_image(&clean).unwrap();
    for (device, at, value) in
        [(&clean, 0x24, 1), (&clean, 0x14, 2), (&clean, 0x14, 0x11), (&crashed.device, 0x24, 1)]
    {
        let changed = device.fork();
        let blocks = cairn_testkit::judge::debugfs(&dir.path().join("clean"), "blocks <8>");
        let first = match std::ptr::eq(device, &crashed.device) {
            true => crashed.journal[0],
            false => blocks.split_whitespace().next().unwrap().parse().unwrap(),
        };
        set_field(&changed, first, at, value);
        write_image(&changed, &hurt).unwrap();
        assert!(KernelMount::try_new(&hurt, "").is_err(), "{at:#x}: {value}");
        assert!(codes(&changed).contains(&"ext4.journal.field"), "{at:#x}: {value}");
        let after = mended(&changed, Scope::Accounting, &hurt);
        assert!(std::ptr::eq(device, &clean) || crashed.lost(mounted(&after).as_ref()).is_empty());
        KernelMount::new(&hurt, "").unmount();
    }
}

/// With another number than its first transaction has, the log looks like an empty one.
#[test]
fn a_log_with_another_number_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::new(&at);
    let first = crashed.journal[0];
    let word = crashed.device.read_at(first * BLOCK + 24, 4).unwrap();
    let right = u32::from_be_bytes(word[..4].try_into().unwrap());
    for number in [right + 1000, right.wrapping_sub(1)] {
        let device = crashed.device.fork();
        // Commits of the second of the mount may be of an earlier one.
        edit_superblock(&device, |bytes| {
            bytes[44..48].copy_from_slice(&1_700_000_000_u32.to_le_bytes());
            bytes[264..268].copy_from_slice(&1_700_000_000_u32.to_le_bytes());
        });
        set_field(&device, first, 24, number);
        assert!(codes(&device).contains(&"ext4.journal.field"), "{number}: {:?}", codes(&device));
        assert!(is_refused(&device, "ro") && is_refused(&device, ""), "{number}");
        let after = mended(&device, Scope::Accounting, &hurt);
        assert_eq!(crashed.lost(mounted(&after).as_ref()), [""; 0], "{number}");
    }
}

/// A small volume has no backup. Beside a log, a wrong checksum of its superblock is no end either.
#[test]
fn a_superblock_without_a_backup_leads_to_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::new(&at);
    for byte in [0x78, 0x34] {
        let device = crashed.device.fork();
        let value = device.read_at(1024 + byte, 1).unwrap()[0];
        device.write_at(1024 + byte, vec![value ^ 3]).unwrap();
        assert!(codes(&device).contains(&"ext4.superblock.checksum"), "{:?}", codes(&device));
        let after = mended(&device, Scope::All, &hurt);
        assert_eq!(crashed.lost(mounted(&after).as_ref()), [""; 0], "byte {byte:#x}");
    }
}

/// A journal on another device is found, and left alone.
#[test]
fn a_journal_on_another_device_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&at, 8 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", NO_SUMS]);
    let both = injected(&at, &hurt, "ssv journal_dev 0x700");
    assert_eq!(codes(&both), ["ext4.superblock.field"]);
    mended(&both, Scope::Accounting, &hurt);
    // Without a number of its inode, the journal is on that device.
    std::fs::copy(&hurt, &at).unwrap();
    write_image(&both, &at).unwrap();
    let external = injected(&at, &hurt, "ssv journal_inum 0");
    let flags = external.read_at(INCOMPAT, 1).unwrap()[0];
    external.write_at(INCOMPAT, vec![flags | RECOVER]).unwrap();
    let found = report(&external);
    assert!(found.counts.iter().any(|(kind, _)| kind.code == "ext4.journal.replay"));
    assert!(found.no_repair.is_some_and(|why| why.contains("another device")));
    assert!(plan(external.fork(), Scope::All).unwrap().changes.is_empty());
    // The device of a journal is no volume.
    mke2fs(&at, 8 << 20, &["-b", "1024", "-O", "journal_dev"]);
    let error = check(Arc::new(read_image(&at).unwrap())).expect_err("it is refused");
    assert!(error.to_string().contains("journal"), "{error}");
}

/// A backup does not know what the journal on another device holds. Linux clears that journal, if
/// the superblock asks for no recovery.
#[test]
fn a_lost_superblock_asks_for_the_journal_on_another_device() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&at, 24 << 20, &["-t", "ext4", "-b", "1024", "-O", NO_SUMS]);
    injected(&at, &hurt, "ssv journal_dev 0x700");
    let device = injected(&hurt, &at, "ssv journal_inum 0");
    let first = device.read_at(1024, 1024).unwrap().to_vec();
    let mut backup = first.clone();
    backup[0x5a] = 1;
    device.write_at(8193 * BLOCK, backup).unwrap();
    device.write_at(1024, vec![0; 1024]).unwrap();
    let found = report(&device);
    assert!(found.no_repair.is_some_and(|why| why.contains("another device")));
    let planned = plan(device.fork(), Scope::Accounting).unwrap();
    let after = device.fork();
    planned.apply(&after, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
    let bytes = after.read_at(1024, 1024).unwrap();
    assert_eq!(bytes[0x60], first[0x60] | RECOVER);
    let left = codes(&after);
    assert!(left.contains(&"ext4.journal.replay"), "{left:?}");
    assert!(!left.contains(&"ext4.superblock.damaged"), "{left:?}");
    // Nothing is mended that the journal may have otherwise.
    for (device, scope) in
        [(&after, Scope::Accounting), (&after, Scope::All), (&device, Scope::All)]
    {
        assert!(plan(device.fork(), scope).unwrap().changes.is_empty());
    }
}
