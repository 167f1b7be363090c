//! Logs with every kind of checksum, recovered by Cairn, by the kernel and by e2fsck: the same volume each time.

use std::path::Path;
use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, assert_clean, command, dumpe2fs, mke2fs, run};
use cairn_testkit::tree::{SnapshotOptions, digest_volume};
use cairn_vfs::FileSystem;

use crate::e2fsprogs;
use crate::support::open;

const BLOCK: u64 = 1024;
/// Free blocks of the volume that the log is about.
const HOMES: std::ops::Range<u64> = 20_000..20_024;

/// The blocks that the log is about.
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
    let mut bytes: Vec<u8> = (0..20 * 1024_u32).map(|n| (n / 1024 * 7 + n % 251 + 1) as u8).collect();
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
        assert!(dumpe2fs(&image).contains(journal), "the journal of {features} {open_with} is of another kind");

        let ours = Arc::new(read_image(&image).unwrap());
        open(&ours, "").unmount().unwrap();
        assert!(homes(&ours)[0].iter().any(|byte| *byte != 0), "{features} {open_with}: nothing was replayed");
        assert!(homes(&ours)[3].iter().all(|byte| *byte == 0), "{features} {open_with}: a revoked block was replayed");

        let by_linux = dir.path().join("kernel");
        std::fs::copy(&image, &by_linux).unwrap();
        KernelMount::new(&by_linux, "").unmount();
        let by_e2fsck = dir.path().join("e2fsck");
        std::fs::copy(&image, &by_e2fsck).unwrap();
        journal_only(&by_e2fsck);
        for other in [&by_linux, &by_e2fsck] {
            assert!(homes(&read_image(other).unwrap()) == homes(&ours), "{features} {open_with}: {other:?} differs");
            assert_clean(other);
        }
        write_image(&*ours, &image).unwrap();
        assert_clean(&image);
    }
}

/// The logs that e2fsprogs' tests recover, among them those of kernels that wrote the second kind of checksum.
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
