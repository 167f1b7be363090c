//! Images that are no volume, incomplete or unsupported are refused with the reason. A full volume
//! loses nothing.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_ext4::Error;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, open, try_open, volume};

/// Byte offsets of superblock fields.
const INCOMPAT: u64 = 1024 + 0x60;
const RO_COMPAT: u64 = 1024 + 0x64;

fn set_bits(device: &MemoryDevice, at: u64, bits: u32) {
    let old = device.read_at(at, 4).unwrap();
    let old = u32::from_le_bytes(old[..4].try_into().unwrap());
    device.write_at(at, (old | bits).to_le_bytes().to_vec()).unwrap();
}

/// Without checksums, so that a field can be changed alone.
fn plain() -> Arc<MemoryDevice> {
    volume(4 << 20, &["-t", "ext4", "-O", "^metadata_csum,^metadata_csum_seed"])
}

fn refusal(device: Arc<dyn BlockDevice>, options: &str) -> Error {
    match try_open(device, options) {
        Ok(_) => panic!("a volume that must be refused opens"),
        Err(error) => error,
    }
}

#[test]
fn what_is_no_volume_is_refused() {
    for size in [0, 1, 1023, 1024, 2047, 2048, 4096, 1 << 20] {
        let error = refusal(Arc::new(MemoryDevice::new(size)), "ro");
        assert!(matches!(error, Error::NotExt4 { found: 0 }), "{size} bytes: {error}");
    }
    let noise: Vec<u8> =
        (0..65_536_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let error = refusal(Arc::new(MemoryDevice::from_image(&noise)), "ro");
    assert!(matches!(error, Error::NotExt4 { .. }), "{error}");
}

#[test]
fn truncated_images_are_refused() {
    let whole = plain();
    for size in [4096, 65_536, 1 << 20, (4 << 20) - 4096] {
        let bytes = whole.read_at(0, size).unwrap();
        for options in ["ro", ""] {
            let error = refusal(Arc::new(MemoryDevice::from_image(&bytes)), options);
            assert!(matches!(error, Error::Corrupt(_)), "{size} bytes, `{options}`: {error}");
        }
    }
}

#[test]
fn unknown_incompatible_features_are_refused_by_their_bit() {
    for (bits, name) in [(0x4000_0000, "feature_i30"), (0x1_0000, "encrypt"), (0x100, "mmp")] {
        let device = plain();
        set_bits(&device, INCOMPAT, bits);
        let told = match try_open(device, "") {
            Err(Error::Feature(reason)) => reason,
            Err(error) => panic!("{name}: {error}"),
            Ok(fs) => fs
                .create(fs.root(), b"f", NewInode::Regular, 0o644, &Caller::ROOT)
                .unwrap_err()
                .to_string(),
        };
        assert!(told.to_lowercase().contains(name), "{name} is not named: {told}");
    }
}

#[test]
fn what_cannot_be_maintained_is_read_only() {
    for (bits, name) in [(0x200, "bigalloc"), (0x100, "quota"), (0x4000_0000, "feature_r30")] {
        let device = plain();
        set_bits(&device, RO_COMPAT, bits);
        let told = match try_open(device, "") {
            // A cluster size that does not fit its feature may be refused altogether.
            Err(error) => error.to_string(),
            Ok(fs) => {
                assert!(fs.lookup(fs.root(), b"lost+found").is_ok());
                let error = fs
                    .create(fs.root(), b"f", NewInode::Regular, 0o644, &Caller::ROOT)
                    .unwrap_err();
                assert_eq!(error.errno(), 30, "{name}: {error}");
                error.to_string()
            }
        };
        assert!(told.to_lowercase().contains(name), "{name} is not named: {told}");
    }
}

#[test]
fn real_volumes_with_unsupported_features_name_them() {
    for (args, name) in [
        (&["-t", "ext4", "-O", "bigalloc"][..], "bigalloc"),
        (&["-t", "ext4", "-O", "quota"], "quota"),
        (&["-t", "ext4", "-O", "casefold"], "casefold"),
        (&["-t", "ext4", "-O", "encrypt"], "encrypt"),
        (&["-t", "ext4", "-O", "mmp"], "mmp"),
    ] {
        let device = volume(16 << 20, args);
        let told = match try_open(device.clone(), "") {
            Err(error) => error.to_string(),
            Ok(fs) => {
                let made = fs.create(fs.root(), b"f", NewInode::Regular, 0o644, &Caller::ROOT);
                let error = made.expect_err(name).to_string();
                fs.unmount().unwrap();
                error
            }
        };
        assert!(told.contains(name), "{name} is not named: {told}");
        judge(&device);
    }
}

/// Writes until the volume is full. Returns the sizes of the files.
fn fill(fs: &dyn FileSystem) -> Vec<(Vec<u8>, usize)> {
    let mut files = Vec::new();
    for number in 0_u32.. {
        let name = format!("file {number}").into_bytes();
        let made = match fs.create(fs.root(), &name, NewInode::Regular, 0o644, &Caller::ROOT) {
            Ok(made) => made,
            Err(error) => {
                assert_eq!(error.errno(), 28, "{error}");
                break;
            }
        };
        let data = vec![number as u8 | 1; 100_000];
        let mut size = 0;
        while size < 1 << 20 {
            match fs.write(made.ino, size as u64, &data, IoFlags::empty()) {
                Ok(count) => size += count,
                Err(error) => {
                    assert_eq!(error.errno(), 28, "{error}");
                    break;
                }
            }
        }
        fs.forget(made.ino, 1);
        files.push((name, size));
        if size < 1 << 20 {
            break;
        }
    }
    files
}

fn check(fs: &dyn FileSystem, files: &[(Vec<u8>, usize)]) {
    for (number, (name, size)) in files.iter().enumerate() {
        let found = fs.lookup(fs.root(), name).unwrap();
        assert_eq!(found.size, *size as u64, "{}", name.escape_ascii());
        let mut buf = vec![0; size + 1];
        assert_eq!(fs.read(found.ino, 0, &mut buf, IoFlags::empty()).unwrap(), *size);
        assert!(
            buf[..*size].iter().all(|byte| *byte == number as u8 | 1),
            "{}",
            name.escape_ascii()
        );
        fs.forget(found.ino, 1);
    }
}

#[test]
fn a_full_volume_loses_nothing_and_recovers() {
    for args in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let device = volume(16 << 20, args);
        let mut fs = open(&device, "");
        for _ in 0..3 {
            let files = fill(&*fs);
            assert!(files.len() > 5, "only {} files", files.len());
            check(&*fs, &files);
            fs.sync().unwrap();
            check(&*fs, &files);
            fs.unmount().unwrap();
            judge(&device);
            fs = open(&device, "");
            check(&*fs, &files);
            for (name, _) in &files {
                fs.unlink(fs.root(), name).unwrap();
            }
        }
        fs.unmount().unwrap();
        judge(&device);
    }
}
