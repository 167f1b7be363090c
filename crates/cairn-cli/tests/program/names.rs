//! Impossible names, in each place of an image that can have one: nothing is copied outside of the
//! destination, nothing panics, and the damage is reported.

use std::path::Path;

use cairn::{ImageSpec, OpenOptions};
use cairn_testkit::judge;
use cairn_vfs::{Caller, IoFlags, NewInode};

use crate::support::{cairn, in_dir, works};

/// The name that the bytes of the image are searched for.
const SOUND: &[u8; 24] = b"a-name-that-is-replaced!";

/// The replacements, of the same length.
const HOSTILE: [&[u8; 24]; 5] = [
    b"../../../../../escaped-1",
    b"/tmp/cairn-escaped-to-it",
    b"kept-below/../../escaped",
    b"with-NUL\0in-the-middle-x",
    b"a-slash-at-its-very-end/",
];

/// Replaces every occurrence of the name.
fn rename_in(image: &str, name: &[u8; 24]) -> String {
    let mut bytes = std::fs::read(image).unwrap();
    let places: Vec<usize> =
        bytes.windows(SOUND.len()).enumerate().filter(|(_, at)| at == SOUND).map(|w| w.0).collect();
    assert!(!places.is_empty(), "{image} does not hold the name");
    places.iter().for_each(|at| bytes[*at..at + name.len()].copy_from_slice(name));
    write_beside(image, &bytes)
}

fn write_beside(image: &str, bytes: &[u8]) -> String {
    let changed = format!("{image}.changed");
    std::fs::write(&changed, bytes).unwrap();
    changed
}

/// All paths in the directory that holds an image, but those below `inside`.
fn outside(directory: &Path, inside: &Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(at) = pending.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path == inside {
                continue;
            }
            if path.is_dir() {
                pending.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Copies the whole image out, lists it, and opens it for writing. `opens`: it can be opened for
/// writing.
fn meets(image: &str, opens: bool, what: &str) {
    let directory = Path::new(image).parent().unwrap();
    let out = directory.join("a/b/c/d/out");
    std::fs::create_dir_all(&out).unwrap();
    let before = outside(directory, &out);
    let (status, _, said) = cairn(&["get", image, "/", out.to_str().unwrap()]);
    assert_eq!(
        outside(directory, &out),
        before,
        "{what}: something was made outside the destination"
    );
    assert!(!Path::new("/tmp/cairn-escaped-to-it").exists(), "{what}");
    assert!(status == 4 && !said.contains("panicked"), "{what}: get exits with {status}: {said}");
    let (status, _, said) = cairn(&["ls", "-lR", image]);
    assert!(status == 4 && !said.contains("panicked"), "{what}: ls exits with {status}: {said}");
    let (status, _, said) = cairn(&["mkdir", image, "/made"]);
    assert!(!said.contains("panicked"), "{what}: {said}");
    assert_eq!(status, if opens { 0 } else { 4 }, "{what}: {said}");
    std::fs::remove_dir_all(directory.join("a")).unwrap();
}

/// A file that was fsynced and whose name no checkpoint knows: roll-forward takes it from the
/// inode.
fn fsynced(image: &str) {
    let volume = cairn::open(&ImageSpec::whole(image), &OpenOptions::default()).unwrap();
    let fs = volume.filesystem();
    let file = fs.create(fs.root(), SOUND, NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    fs.write(file.ino, 0, b"contents", IoFlags::empty()).unwrap();
    fs.fsync(file.ino, 0, false).unwrap();
    fs.shutdown(false).unwrap();
}

#[test]
fn names_of_the_roll_forward_chain_are_checked() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "-F", "-t", "f2fs", "--size", "64M", &image]);
    fsynced(&image);
    let sound = std::fs::read(&image).unwrap();
    let at = sound.windows(SOUND.len()).position(|at| at == SOUND).unwrap();
    for name in HOSTILE {
        meets(&rename_in(&image, name), false, &name.escape_ascii().to_string());
    }
    // The length stands before the name.
    for name in [&b""[..], b".", b"..", b"/"] {
        let mut bytes = sound.clone();
        bytes[at - 4] = u8::try_from(name.len()).unwrap();
        bytes[at..at + name.len()].copy_from_slice(name);
        meets(&write_beside(&image, &bytes), false, &format!("'{}'", name.escape_ascii()));
    }
    works(&["mkdir", &image, "/made"]);
    assert!(
        works(&["ls", &image]).contains("a-name-that-is-replaced!"),
        "the sound chain is replayed"
    );
    judge::assert_f2fs_clean(Path::new(&image));
}

/// A directory with the name and others beside it; `count` decides in which form it is stored.
fn filled(image: &str, count: usize) {
    let host = tempfile::tempdir().unwrap();
    let source = host.path().join("below");
    std::fs::create_dir(&source).unwrap();
    for index in 0..count {
        std::fs::write(source.join(format!("kept-{index}")), b"kept").unwrap();
    }
    std::fs::write(source.join(std::str::from_utf8(SOUND).unwrap()), b"hostile").unwrap();
    works(&["put", image, source.to_str().unwrap(), "/"]);
    // The root has it, too.
    works(&["put", image, source.join(std::str::from_utf8(SOUND).unwrap()).to_str().unwrap(), "/"]);
}

#[test]
fn names_of_entries_are_checked() {
    let formats: [(&str, &[&str], usize); 7] = [
        ("F2FS, inline entries and blocks", &["-t", "f2fs"], 3),
        ("F2FS, many blocks", &["-t", "f2fs"], 600),
        ("ext4, linear", &["-t", "ext4", "-O", "^metadata_csum"], 3),
        ("ext4, linear without index", &["-t", "ext4", "-O", "^metadata_csum,^dir_index"], 600),
        ("ext4, index", &["-t", "ext4", "-O", "^metadata_csum"], 600),
        ("ext4, in the inode", &["-t", "ext4", "-O", "^metadata_csum,inline_data"], 1),
        ("ext2", &["-t", "ext2"], 3),
    ];
    for (what, arguments, count) in formats {
        let (_dir, image) = in_dir("disk.img");
        if arguments[1] == "f2fs" {
            works(&[&["mkfs", "-F", "--size", "64M"], arguments, &[&image]].concat());
        } else {
            judge::mke2fs(Path::new(&image), 32 << 20, &[arguments, &["-I", "256"]].concat());
        }
        filled(&image, count);
        for name in HOSTILE {
            meets(&rename_in(&image, name), true, &format!("{what}: {}", name.escape_ascii()));
        }
    }
}
