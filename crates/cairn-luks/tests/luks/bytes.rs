//! The bytes that others encrypted, and that others decrypt.

use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::cryptsetup::{LUKS1, LUKS2, PASSPHRASE, Place, file, open, run};

/// Another byte in each sector.
fn plain(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 % 251 + at % 3) as u8).collect()
}

#[test]
fn qemu_and_we_read_each_other_in_version_1() {
    for options in [
        &["--cipher", "aes-xts-plain64", "--key-size", "512", "--hash", "sha256"][..],
        &["--cipher", "aes-xts-plain", "--key-size", "256", "--hash", "sha1"],
        &["--cipher", "aes-cbc-essiv:sha256", "--key-size", "256", "--hash", "sha512"],
    ] {
        let place = Place::new();
        // The data begins at 2 MiB.
        let path = place.format(3 << 20, &[&LUKS1[..], options].concat());
        let bytes = plain(1 << 20);
        std::fs::write(place.path("raw"), &bytes).unwrap();
        let secret = format!("secret,id=s,data={PASSPHRASE}");
        let text = path.to_str().unwrap();
        let image = format!("driver=luks,key-secret=s,file.driver=file,file.filename={text}");
        let convert = ["convert", "--object", &secret];
        let (raw, back) = (place.text("raw"), place.text("back"));
        let to = ["-n", "-f", "raw", "--target-image-opts", &raw, &image];
        run("qemu-img", &[&convert[..], &to].concat());
        let disk = open(&path, true);
        assert!(disk.read_at(0, bytes.len()).unwrap()[..] == bytes, "{options:?}");
        assert!(disk.read_at(513 * 512, 3 * 512).unwrap()[..] == bytes[513 * 512..516 * 512]);
        let mut bytes = bytes;
        bytes[4096..9 * 4096].fill(7);
        bytes[700 * 512..701 * 512].fill(0);
        disk.write_at(4096, vec![7; 8 * 4096]).unwrap();
        disk.write_zeroes(700 * 512, 512).unwrap();
        disk.discard(0, 4096).unwrap();
        disk.flush().unwrap();
        assert!(disk.read_at(0, bytes.len()).unwrap()[..] == bytes, "{options:?}");
        drop(disk);
        let from = ["--image-opts", &image, "-O", "raw", &back];
        run("qemu-img", &[&convert[..], &from].concat());
        assert!(std::fs::read(&back).unwrap() == bytes, "{options:?}");
        // The header is as it was.
        place.cryptsetup("open", &path, &["--test-passphrase"]);
    }
}

/// cryptsetup encrypts a file in place; it needs no device mapper for that. Encrypting is
/// deterministic: what we write must be the same bytes.
#[test]
fn cryptsetup_and_we_encrypt_alike_in_version_2() {
    for size in ["512", "4096"] {
        let place = Place::new();
        let path = place.path("device");
        let mut bytes = plain(2 << 20);
        std::fs::write(&path, &bytes).unwrap();
        // The last 32 MiB make room for the header.
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(34 << 20).unwrap();
        let more = ["--encrypt", "--reduce-device-size", "32M", "--sector-size", size];
        place.cryptsetup("reencrypt", &path, &[&LUKS2[..], &more].concat());
        let theirs = std::fs::read(&path).unwrap();
        let disk = open(&path, true);
        assert_eq!(disk.geometry().logical_block.to_string(), size);
        assert!(disk.read_at(0, bytes.len()).unwrap()[..] == bytes, "{size}");
        disk.write_zeroes(0, 2 << 20).unwrap();
        assert!(disk.read_at(0, 2 << 20).unwrap().iter().all(|byte| *byte == 0));
        disk.write_at(0, bytes.clone()).unwrap();
        drop(disk);
        assert!(std::fs::read(&path).unwrap() == theirs, "{size}: the same bytes");
        bytes.clear();
        place.cryptsetup("open", &path, &["--test-passphrase"]);
    }
}

#[test]
fn sectors_are_the_smallest_unit_and_the_end_is_the_end() {
    let place = Place::new();
    let path = place.format(20 << 20, &[&LUKS2[..], &["--sector-size", "4096"]].concat());
    let disk = open(&path, true);
    assert_eq!(disk.geometry().size, 4 << 20);
    assert!(disk.write_at(512, vec![0; 512]).is_err());
    assert!(disk.read_at(4 << 20, 4096).is_err());
    drop(disk);
    assert!(open(&path, false).write_at(0, vec![0; 4096]).is_err());
    assert_eq!(file(&path, false).geometry().size, 20 << 20);
}
