//! What cryptsetup makes is opened, in all forms that are in use.

use cairn_block::BlockDevice;
use cairn_luks::{Error, inspect, recognise};

use crate::cryptsetup::{LUKS1, LUKS2, PASSPHRASE, Place, file, open, open_with, run};

fn opens(size: u64, options: &[&str]) -> (Place, std::path::PathBuf) {
    let place = Place::new();
    let path = place.format(size, options);
    let disk = open(&path, false);
    assert!(disk.geometry().size > 0 && disk.geometry().read_only, "{options:?}");
    assert!(recognise(&*file(&path, false)));
    let error = open_with(&path, "wrong", false).unwrap_err();
    assert!(matches!(error, Error::WrongPassphrase(1)), "{options:?}: {error}");
    (place, path)
}

#[test]
fn headers_of_version_1() {
    for more in [
        &["--hash", "sha1", "--key-size", "256"][..],
        &["--hash", "sha512", "--key-size", "512"],
        &["--cipher", "aes-cbc-essiv:sha256", "--key-size", "256"],
    ] {
        let (_place, path) = opens(4 << 20, &[&LUKS1[..], more].concat());
        let info = inspect(&*file(&path, false)).unwrap();
        assert_eq!((info.version, info.sector_size, info.keyslots), (1, 512, 1));
        assert!(run("cryptsetup", &["luksUUID", path.to_str().unwrap()]).starts_with(&info.uuid));
    }
}

#[test]
fn headers_of_version_2() {
    for more in [
        &["--hash", "sha512", "--sector-size", "512", "--key-size", "256", "--label", "mine"][..],
        &["--hash", "sha1", "--sector-size", "4096"],
    ] {
        let (_place, path) = opens(20 << 20, &[&LUKS2[..], more].concat());
        let info = inspect(&*file(&path, false)).unwrap();
        assert_eq!((info.version, info.cipher.as_str()), (2, "aes-xts-plain64"));
        assert_eq!(info.label == "mine", more.contains(&"mine"));
        assert_eq!(u64::from(info.sector_size), more[3].parse::<u64>().unwrap());
    }
    for kdf in ["argon2i", "argon2id"] {
        let cost = ["--pbkdf-force-iterations", "4", "--pbkdf-memory", "64"];
        let kind = ["--type", "luks2", "--pbkdf", kdf, "--pbkdf-parallel", "2"];
        opens(20 << 20, &[&kind[..], &cost].concat());
    }
}

#[test]
fn any_keyslot_opens_and_the_second_header_does() {
    let (place, path) = opens(20 << 20, &LUKS2);
    std::fs::write(place.path("other"), "another one").unwrap();
    let (key, other, text) = (place.text("key"), place.text("other"), path.to_str().unwrap());
    let add = ["luksAddKey", "--batch-mode", "--key-file", &key];
    let add = [&add[..], &LUKS2[2..], &[text, &other]].concat();
    run("cryptsetup", &add);
    open_with(&path, "another one", false).unwrap();
    let ignored = ["config", "--key-slot", "1", "--priority", "ignore", text];
    run("cryptsetup", &ignored);
    assert!(open_with(&path, "another one", false).is_err());
    // The first header is damaged; then both are.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    open(&path, false);
    bytes[..4096].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    open(&path, false);
    bytes[0x4000 + 5000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(open_with(&path, PASSPHRASE, false).is_err());
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    let place = Place::new();
    let path = place.format(4 << 20, &LUKS1);
    let sound = std::fs::read(&path).unwrap();
    // Version 1 has no checksum.
    let refused = |at: usize, name: &[u8]| {
        let mut bytes = sound.clone();
        bytes[at..at + name.len()].copy_from_slice(name);
        std::fs::write(&path, &bytes).unwrap();
        open_with(&path, PASSPHRASE, false).unwrap_err().to_string()
    };
    let serpent = refused(8, b"serpent\0");
    assert!(serpent.contains("the cipher serpent-xts-plain64"), "{serpent}");
    let hash = refused(72, b"ripemd160\0");
    assert!(hash.contains("the hash function \"ripemd160\""), "{hash}");
    let version = refused(6, &[0, 3]);
    assert!(version.contains("version 3"), "{version}");
    let place = Place::new();
    std::fs::File::create(place.path("data")).unwrap().set_len(4 << 20).unwrap();
    std::fs::File::create(place.path("head")).unwrap().set_len(20 << 20).unwrap();
    let head = place.text("head");
    place.cryptsetup(
        "luksFormat",
        &place.path("data"),
        &[&LUKS2[..], &["--header", &head]].concat(),
    );
    let detached = open_with(&place.path("head"), PASSPHRASE, false).unwrap_err().to_string();
    assert!(detached.contains("a detached header"), "{detached}");
    let none = open_with(&place.path("data"), PASSPHRASE, false).unwrap_err();
    assert!(matches!(none, Error::NotLuks), "{none}");
}
