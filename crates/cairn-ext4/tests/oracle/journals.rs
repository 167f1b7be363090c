//! Logs with each kind of checksum, recovered by Cairn, by the kernel and by e2fsck; power cuts and
//! failures during recovery; damaged logs.

use std::path::Path;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_testkit::crash::{Cut, Recording, Volatile, read_image, write_image};
use cairn_testkit::judge::{KernelMount, command, dumpe2fs, mke2fs, run};
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::checked::assert_clean;
use crate::e2fsprogs;
use crate::support::{judge, open, try_open, volume};

const BLOCK: u64 = 1024;
/// Free blocks of the volume, which the log changes.
const HOMES: std::ops::Range<u64> = 20_000..20_024;

/// The blocks that the log changes.
fn homes(device: &MemoryDevice) -> Vec<Vec<u8>> {
    HOMES.map(|block| device.read_at(block * BLOCK, 1024).unwrap().to_vec()).collect()
}

fn debugfs(image: &Path, requests: &str) {
    let script = image.with_extension("script");
    std::fs::write(&script, requests).unwrap();
    run("debugfs", [Path::new("-w"), Path::new("-f"), &script, image]);
}

fn journal_only(image: &Path) {
    let output = command("e2fsck").args(["-fy", "-E", "journal_only"]).arg(image).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
}

/// Copies, one of which looks like a log block; revokes; copies of revoked blocks.
fn write_log(image: &Path, open: &str) {
    let data = image.with_extension("data");
    let mut bytes: Vec<u8> =
        (0..20 * 1024_u32).map(|n| (n / 1024 * 7 + n % 251 + 1) as u8).collect();
    bytes[3 * 1024..][..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
    std::fs::write(&data, bytes).unwrap();
    for step in [
        format!("jw -b 20000-20015 {}", data.display()),
        "jw -r 20003-20005,20009".to_owned(),
        format!("jw -b 20004,20020-20022 {}", data.display()),
    ] {
        debugfs(image, &format!("jo {open}\n{step}\njc\n"));
    }
}

#[test]
fn cairn_the_kernel_and_e2fsck_recover_the_same() {
    for (features, open_with, journal) in [
        ("^metadata_csum,^metadata_csum_seed,64bit", "", "journal_64bit"),
        ("metadata_csum,64bit", "-c -v 2", "journal_checksum_v2"),
        ("metadata_csum,^64bit", "-c -v 2", "journal_checksum_v2"),
        ("metadata_csum,64bit", "-c -v 3", "journal_checksum_v3"),
        ("metadata_csum,^64bit", "-c -v 3", "journal_checksum_v3"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        mke2fs(&image, 32 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", features]);
        write_log(&image, open_with);
        assert!(
            dumpe2fs(&image).contains(journal),
            "the journal of {features} {open_with} is of another kind"
        );

        let ours = Arc::new(read_image(&image).unwrap());
        open(&ours, "").unmount().unwrap();
        assert!(
            homes(&ours)[0].iter().any(|byte| *byte != 0),
            "{features} {open_with}: nothing was replayed"
        );
        assert!(
            homes(&ours)[3].iter().all(|byte| *byte == 0),
            "{features} {open_with}: a revoked block was replayed"
        );

        let by_linux = dir.path().join("kernel");
        std::fs::copy(&image, &by_linux).unwrap();
        KernelMount::new(&by_linux, "").unmount();
        let by_e2fsck = dir.path().join("e2fsck");
        std::fs::copy(&image, &by_e2fsck).unwrap();
        journal_only(&by_e2fsck);
        for other in [&by_linux, &by_e2fsck] {
            assert!(
                homes(&read_image(other).unwrap()) == homes(&ours),
                "{features} {open_with}: {other:?} differs"
            );
            assert_clean(other);
        }
        write_image(&ours, &image).unwrap();
        assert_clean(&image);
    }
}

/// The logs that e2fsprogs' tests recover, among them those of kernels that wrote the second kind
/// of checksum.
#[test]
#[ignore = "needs images that are not in the repository: scripts/e2fsprogs-images fetches them"]
fn e2fsprogs_logs_are_recovered_as_by_e2fsck() {
    for name in ["j_recover_csum2_32bit", "j_recover_csum2_64bit", "j_recover_csum3_64bit"] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let contents = e2fsprogs::contents(&e2fsprogs::directory().join(name).join("image.bz2"));
        let ours = Arc::new(MemoryDevice::from_image(&contents));
        std::fs::write(&image, contents).unwrap();
        let options = SnapshotOptions { times: true, sectors: true, directory_links: true };
        let fs = open(&ours, "");
        let found = digest_volume(&*fs, options).unwrap();
        fs.unmount().unwrap();
        journal_only(&image);
        let theirs = open(&Arc::new(read_image(&image).unwrap()), "ro");
        digest_volume(&*theirs, options).unwrap().assert_same(&found);
        println!("{name}: {} entries", found.len());
    }
}

/// A crash with a log to replay, open files without a name, and a file that was being truncated.
fn crashed() -> Arc<MemoryDevice> {
    let device = volume(8 << 20, &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]);
    let fs = open(&device, "");
    let create = |name: &str, new| {
        fs.create(fs.root(), name.as_bytes(), new, 0o755, &Caller::ROOT).unwrap().ino
    };
    for n in 0..30 {
        let ino = create(&format!("file{n}"), NewInode::Regular);
        fs.write(ino, 0, &vec![n as u8 + 1; 3000 * (n + 1)], IoFlags::empty()).unwrap();
        fs.forget(create(&format!("dir{n}"), NewInode::Directory), 1);
        if n % 3 == 0 {
            fs.fsync(ino, 0, false).unwrap();
            fs.unlink(fs.root(), format!("file{n}").as_bytes()).unwrap();
        } else {
            fs.forget(ino, 1);
        }
    }
    fs.sync().unwrap();
    Arc::new(device.fork())
}

/// Recovers and returns the tree. The volume must be clean.
fn tree_of(device: &Arc<MemoryDevice>) -> Snapshot {
    let fs = open(device, "");
    let tree =
        digest_volume(&*fs, SnapshotOptions { times: true, sectors: true, directory_links: true })
            .unwrap();
    fs.unmount().unwrap();
    judge(device);
    tree
}

/// A recovery after a power cut in the recovery has the same result. Some hundred states, spread
/// over all its writes.
#[test]
fn recovery_may_be_cut_anywhere() {
    let before = crashed();
    let expected = tree_of(&Arc::new(before.fork()));
    let recording = Recording::start(before.fork());
    try_open(recording.device(), "").unwrap().unmount().unwrap();
    let log = recording.finish();
    let end = log.log().end;
    let states = (0..=end).flat_map(|moment| {
        [Volatile::Lost, Volatile::Kept, Volatile::Random(moment)]
            .map(|volatile| Cut { moment, volatile })
    });
    let mut seen = 0;
    for cut in states.step_by(usize::try_from(end / 40 + 1).unwrap()) {
        let device = Arc::new(log.device(cut));
        println!("{cut}");
        expected.assert_same(&tree_of(&device));
        seen += 1;
    }
    assert!(seen >= 30, "{seen} states of {end} moments");
}

/// The same with a device that fails one write or flush of the recovery: the open fails, and the
/// next one does it all.
#[test]
fn recovery_may_fail_at_every_write_and_flush() {
    let before = crashed();
    let expected = tree_of(&Arc::new(before.fork()));
    let mut failed = 0;
    for operation in [Operation::Write, Operation::Flush] {
        for nth in 1.. {
            let device = Arc::new(before.fork());
            let fault = Arc::new(Fault::new(device.clone()));
            fault.fail(operation, nth, Lasting::Forever);
            let outcome = try_open(fault.clone(), "");
            let came = fault.count(operation) >= nth;
            if let Ok(fs) = outcome {
                let _ = fs.unmount();
            } else {
                assert!(came, "the open failed without a fault");
                failed += 1;
            }
            if !came {
                break;
            }
            expected.assert_same(&tree_of(&device));
        }
    }
    assert!(failed >= 4, "{failed} opens failed");
}

/// Durable changes are lost, so the log must not just end there: Linux refuses to mount, too.
#[test]
fn a_damaged_commit_block_makes_the_volume_one_that_is_refused() {
    let device = crashed();
    let fs = open(&Arc::new(device.fork()), "ro");
    assert!(fs.lookup(fs.root(), b"dir29").is_ok());
    let blocks = device.geometry().size / BLOCK;
    let kind = |block: u64| device.read_at(block * BLOCK, 12).unwrap();
    let is_commit = |block: &u64| kind(*block)[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];
    // The newest, by its number.
    let last =
        (0..blocks).filter(is_commit).max_by_key(|block| kind(*block)[8..12].to_vec()).unwrap();
    // The nanoseconds of the commit: an earlier time would make it a block of an older lap.
    device.write_at(last * BLOCK + 57, vec![0xff; 3]).unwrap();

    for options in ["ro", ""] {
        match try_open(device.clone(), options) {
            Err(cairn_ext4::Error::Unreplayable(why)) => {
                assert!(why.to_string().contains("commit block"), "{why}");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it is opened"),
        }
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(&device, file.path()).unwrap();
    assert!(KernelMount::try_new(file.path(), "").is_err(), "the kernel mounts it");
    let output = command("e2fsck").arg("-fy").arg(file.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("was corrupt, replay was aborted"), "{text}");
    let repaired = Arc::new(read_image(file.path()).unwrap());
    judge(&repaired);
    open(&repaired, "").unmount().unwrap();
    judge(&repaired);
}
