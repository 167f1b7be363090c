//! Multiple-mount protection: its block, judged by e2fsck, and volumes that another computer uses.

use std::path::Path;

use cairn_base::checksum::crc32c;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_ext4::Error;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{self, mke2fs};

use crate::repaired::{complaint, plan, repaired};
use crate::support::{check, edit_superblock, flags};

const BLOCK: u64 = 1024;

/// A volume of one group, or of two, of which the second one has a backup.
fn volume(path: &Path, size: u64) -> (MemoryDevice, u64) {
    mke2fs(path, size, &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "mmp"]);
    let device = read_image(path).unwrap();
    let block = device.read_at(1024 + 360, 8).unwrap();
    let block = u64::from_le_bytes(block[..8].try_into().unwrap());
    (device, block * BLOCK)
}

fn codes(device: &MemoryDevice) -> Vec<&'static str> {
    let found = check(std::sync::Arc::new(device.fork())).unwrap();
    found.counts.iter().map(|(kind, _)| kind.code).collect()
}

/// Is the repaired volume sound, with a block that says that nobody uses it?
fn assert_mended(after: &MemoryDevice, at: &Path) {
    let said = complaint(after, at);
    assert!(said.is_none(), "{}", said.unwrap_or_default());
    let said = judge::run("debugfs", ["-R", "dump_mmp", at.to_str().unwrap()]);
    assert!(said.contains("sequence: ff4d4d50"), "{said}");
}

#[test]
fn a_damaged_block_is_found_and_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, block) = volume(&path, 8 << 20);
    assert!(codes(&sound).is_empty());
    let damage: [(&str, u64, &[u8]); 4] = [
        ("ext4.metadata.bit", 500, &[1]),
        ("ext4.mmp.checksum", 1020, &[1, 2, 3, 4]),
        ("ext4.mmp.invalid", 0, &[0; 1024]),
        ("ext4.mmp.invalid", 4, &[5, 0, 0, 0]),
    ];
    for (code, at, bytes) in damage {
        let device = sound.fork();
        device.write_at(block + at, bytes.to_vec()).unwrap();
        let said = complaint(&device, &hurt).unwrap_or_default();
        assert!(said.contains("MMP") && codes(&device).contains(&code), "{code}: {said}");
        let is_losing = code == "ext4.mmp.invalid";
        if is_losing {
            let safe = plan(device.fork(), Scope::Accounting).unwrap();
            let made = safe.steps.kept().iter().any(|step| step.kind.code == code);
            assert!(!made && safe.after.count() > 0, "{:?}", safe.steps.kept());
        }
        let scope = if is_losing { Scope::All } else { Scope::Accounting };
        let (mended, after) = repaired(&device, scope).expect(code);
        assert_eq!((mended.steps.losing().count(), mended.after.count()), (is_losing.into(), 0));
        assert_mended(&after, &hurt);
    }
}

/// The number of the block: a backup has it; without one, another block is taken.
#[test]
fn a_lost_block_is_found_by_a_backup_or_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for (size, code) in [(12 << 20, "ext4.superblock.contradicted"), (8 << 20, "ext4.mmp.invalid")]
    {
        let (device, block) = volume(&path, size);
        for number in [0_u64, 1 << 40] {
            edit_superblock(&device, |bytes| {
                bytes[360..368].copy_from_slice(&number.to_le_bytes());
            });
            assert!(codes(&device).contains(&code), "{code}");
            let (mended, after) = repaired(&device, Scope::All).expect(code);
            assert_eq!(mended.after.count(), 0);
            let stored = after.read_at(1024 + 360, 8).unwrap();
            let stored = u64::from_le_bytes(stored[..8].try_into().unwrap());
            let is_kept = code == "ext4.superblock.contradicted";
            assert!(stored != 0 && (!is_kept || stored * BLOCK == block), "{stored}");
            assert_mended(&after, &hurt);
        }
    }
}

/// Such a volume is checked, and not repaired.
#[test]
fn a_volume_that_another_computer_uses_is_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, block) = volume(&dir.path().join("image"), 8 << 20);
    let used = sound.fork();
    let mut bytes = used.read_at(block, 1024).unwrap().to_vec();
    bytes[4..8].copy_from_slice(&[9, 0, 0, 0]);
    bytes[16..80].fill(0);
    bytes[16..21].copy_from_slice(b"other");
    let sum = crc32c(crc32c(!0, &used.read_at(1024 + 104, 16).unwrap()), &bytes[..1020]);
    bytes[1020..].copy_from_slice(&sum.to_le_bytes());
    used.write_at(block, bytes).unwrap();
    let report = check(std::sync::Arc::new(used.fork()));
    assert!(!flags(&report));
    let report = report.unwrap();
    assert!(report.no_repair.unwrap().contains("\"other\""));
    assert_eq!(report.in_use.as_deref(), Some("the computer \"other\""));
    assert!(plan(used.fork(), Scope::All).unwrap().changes.is_empty());
    edit_superblock(&used, |bytes| bytes[16] ^= 1);
    assert!(codes(&used).contains(&"ext4.superblock.free_inodes"));
    for scope in [Scope::Accounting, Scope::All] {
        let refused = plan(used.fork(), scope).err();
        assert!(matches!(refused, Some(Error::Refused(why)) if why.contains("\"other\"")));
    }
}

/// No program writes such a sequence; e2fsck goes no further.
#[test]
fn an_impossible_sequence_is_found_and_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (device, block) = volume(&path, 8 << 20);
    device.write_at(block + 4, 0xff6d_4d50_u32.to_le_bytes().to_vec()).unwrap();
    let uuid = device.read_at(1024 + 104, 16).unwrap();
    let sum = crc32c(crc32c(!0, &uuid), &device.read_at(block, 1020).unwrap());
    device.write_at(block + 1020, sum.to_le_bytes().to_vec()).unwrap();
    assert!(complaint(&device, &hurt).is_some());
    assert!(codes(&device).contains(&"ext4.mmp.invalid"), "{:?}", codes(&device));
    assert!(plan(device.fork(), Scope::Accounting).unwrap().after.count() > 0);
    let (_, after) = repaired(&device, Scope::All).unwrap();
    assert_mended(&after, &hurt);
}
