//! Marks that say how a whole file is to be read: encryption, and fs-verity.

use std::path::Path;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, e2fsck_check};
use cairn_vfs::{Error, FileSystem, IoFlags, walk};

use crate::injected::image;
use crate::repaired::{complaint, injected, place_of, plan, repaired, snapshot};
use crate::support::check;

const ARGS: &[&str] =
    &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "encrypt,^metadata_csum,^metadata_csum_seed"];
const ENOKEY: i32 = 126;
const EUCLEAN: i32 = 117;
/// `i_flags` in a record, and its flag of encryption.
const FLAGS: u64 = 32;
const ENCRYPT: u32 = 0x800;
/// Where the attributes in a record of 256 bytes begin, with 32 bytes of further fields.
const ATTRIBUTES: u64 = 128 + 32;
/// Bytes of a context of version 2.
const CONTEXT: usize = 40;

/// Flips the mark of encryption.
fn mark(device: &MemoryDevice, record: u64) {
    let bytes = device.read_at(record + FLAGS, 4).unwrap().to_vec();
    let flags = u32::from_le_bytes(bytes.try_into().unwrap()) ^ ENCRYPT;
    device.write_at(record + FLAGS, flags.to_le_bytes().to_vec()).unwrap();
}

/// Gives an inode a context.
fn give_context(device: &MemoryDevice, record: u64) {
    let mut bytes = 0xea02_0000_u32.to_le_bytes().to_vec();
    // One entry: the length of its name, the namespace, where the value is behind the first entry,
    // no inode, the length of the value, no hash; then the name, and four zeros at the end.
    let room = 256 - usize::try_from(ATTRIBUTES).unwrap() - 4;
    bytes.extend([1, 9]);
    bytes.extend(u16::try_from(room - CONTEXT).unwrap().to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(u32::try_from(CONTEXT).unwrap().to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(*b"c\0\0\0");
    bytes.resize(4 + room - CONTEXT, 0);
    bytes.extend([2, 1, 4]);
    bytes.resize(4 + room, 5);
    device.write_at(record + ATTRIBUTES, bytes).unwrap();
}

/// The errno of reading what a path names: contents, names or a target.
fn errno(device: &MemoryDevice, path: &[u8]) -> i32 {
    let options = MountOptions::parse("ro").unwrap();
    let fs = Ext4::open(Arc::new(device.fork()), Threads::new(), &options).unwrap();
    let read = walk::resolve(&*fs, path, false).and_then(|found| match found.kind {
        cairn_vfs::FileKind::Directory => fs.readdir(found.ino, 0, &mut |_| true),
        cairn_vfs::FileKind::Symlink => fs.readlink(found.ino).map(drop),
        _ => contents(&*fs, found.ino),
    });
    read.map_or_else(|error| error.errno(), |()| 0)
}

fn contents(fs: &dyn FileSystem, ino: Ino) -> Result<(), Error> {
    let mut bytes = [0; 100];
    fs.read(ino, 0, &mut bytes, IoFlags::empty()).map(drop)
}

fn codes(device: &MemoryDevice) -> Vec<&'static str> {
    let report = check(Arc::new(device.fork())).unwrap();
    report.counts.iter().map(|(kind, _)| kind.code).collect()
}

/// Without a context nothing is encrypted: readers refuse the inode, and a repair takes the mark
/// away, and nothing else.
#[test]
fn a_mark_of_encryption_without_a_context_costs_no_contents() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, ARGS);
    let sound = read_image(&path).unwrap();
    for name in ["/file", "/tree", "/fast", "/slow"] {
        let device = sound.fork();
        mark(&device, place_of(&path, name));
        assert_eq!(codes(&device), ["ext4.encryption.flag"], "{name}");
        assert_eq!(errno(&device, name.as_bytes()), EUCLEAN, "{name}");
        write_image(&device, &hurt).unwrap();
        assert!(!e2fsck_check(&hurt).is_clean(), "{name}");
        assert!(plan(device.fork(), Scope::Accounting).unwrap().changes.is_empty(), "{name}");
        let (_, after) = repaired(&device, Scope::All).unwrap();
        assert_eq!(complaint(&after, &hurt), None, "{name}");
        snapshot(sound.fork()).assert_same(&snapshot(after));
    }
}

/// With a context, the contents are encrypted, whatever the flag says.
#[test]
fn a_context_proves_that_an_inode_is_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, ARGS);
    injected(&path, &hurt, "mkdir /empty");
    std::fs::copy(&hurt, &path).unwrap();
    for name in ["/file", "/empty"] {
        let encrypted = read_image(&path).unwrap();
        let record = place_of(&path, name);
        give_context(&encrypted, record);
        mark(&encrypted, record);
        assert_eq!(complaint(&encrypted, &hurt), None, "{name}");
        assert_eq!(codes(&encrypted), [""; 0], "{name}");
        assert_eq!(errno(&encrypted, name.as_bytes()), ENOKEY, "{name}");
        let device = encrypted.fork();
        mark(&device, record);
        assert_eq!(codes(&device), ["ext4.inode.flags"], "{name}");
        assert_eq!(errno(&device, name.as_bytes()), EUCLEAN, "{name}");
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{name}");
        assert_eq!(complaint(&after, &hurt), None, "{name}");
        assert_eq!(errno(&after, name.as_bytes()), ENOKEY, "{name}");
    }
}

/// Linux opens no file with the flag of fs-verity and without its tree of hashes. A file that has
/// one proves that the volume has the feature.
#[test]
fn a_mark_of_verity_without_the_feature_is_taken_away_or_proves_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let device = injected(&path, &hurt, "sif /file flags 0x180000");
    assert_eq!(codes(&device), ["ext4.inode.flags"]);
    let (_, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!(complaint(&after, &hurt), None);
    let kernel = KernelMount::new(&hurt, "ro");
    assert_eq!(std::fs::read(kernel.path().join("file")).unwrap(), vec![b'f'; 50_000]);
    kernel.unmount();
    let before = cut(&path, &hurt);
    assert_eq!(codes(&before), ["ext4.superblock.field"]);
    let (_, after) = repaired(&before, Scope::Accounting).unwrap();
    assert_eq!(complaint(&after, &hurt), None);
    let said = cairn_testkit::judge::dumpe2fs(&hurt);
    assert!(
        said.lines().any(|line| line.starts_with("Filesystem features") && line.contains("verity"))
    );
    let size = cairn_testkit::judge::debugfs(&hurt, "stat /file");
    assert!(size.contains("Size: 1000"), "{size}");
}

/// The volume with a file that has blocks behind its end, and the flag of fs-verity.
fn cut(sound: &Path, hurt: &Path) -> MemoryDevice {
    injected(sound, hurt, "sif /file flags 0x180000");
    let again = hurt.with_extension("again");
    injected(hurt, &again, "sif /file size 1000")
}

/// An encrypted directory and what lies in it.
const SECRETS: [&str; 3] = ["/enc", "/enc/a name of 16 byte", "/enc/another of 16 bytes"];

/// A volume with these, and the places of their records.
fn secrets(path: &Path, hurt: &Path) -> (MemoryDevice, [u64; 3]) {
    image(path, ARGS);
    for request in [
        "mkdir /enc".to_owned(),
        format!("write /dev/null \"{}\"", SECRETS[1]),
        format!("write /dev/null \"{}\"", SECRETS[2]),
    ] {
        injected(path, hurt, &request);
        std::fs::copy(hurt, path).unwrap();
    }
    let sound = read_image(path).unwrap();
    let records = SECRETS.map(|name| place_of(path, &format!("\"{name}\"")));
    for record in records {
        give_context(&sound, record);
        mark(&sound, record);
    }
    assert_eq!(complaint(&sound, hurt), None);
    assert_eq!(codes(&sound), [""; 0]);
    (sound, records)
}

/// One wrong byte of a context costs nothing where its form, or the directory, shows the byte.
#[test]
fn a_wrong_byte_of_a_context_is_shown_by_its_form_or_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, [_, record, _]) = secrets(&path, &hurt);
    let (entry, value) = (record + ATTRIBUTES + 4, record + 256 - CONTEXT as u64);
    for (what, at, byte, code) in [
        ("the length of the name", entry, 3, "ext4.encryption.byte"),
        ("the prefix", entry + 1, 8, "ext4.encryption.byte"),
        ("the inode of the value", entry + 5, 1, "ext4.encryption.byte"),
        ("the length of the value", entry + 8, 44, "ext4.encryption.byte"),
        ("the name", entry + 16, b'd', "ext4.encryption.byte"),
        ("the version", value, 0x77, "ext4.encryption.byte"),
        ("the place", entry + 2, 7, "ext4.xattr.place"),
        ("the key", value + 12, 0x77, "ext4.encryption.inherited"),
        ("the mode", value + 1, 9, "ext4.encryption.inherited"),
    ] {
        let device = sound.fork();
        device.write_at(at, vec![byte]).unwrap();
        assert_eq!(codes(&device), [code], "{what}");
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{what}");
        let bytes = |device: &MemoryDevice| device.read_at(record, 256).unwrap().to_vec();
        assert_eq!(bytes(&after), bytes(&sound), "{what}");
    }
}

/// In an encrypted directory no mark is taken away: without a context the file is lost. One with
/// the policy of another directory loses its name.
#[test]
fn what_lies_in_an_encrypted_directory_keeps_its_mark() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, [_, record, _]) = secrets(&path, &hurt);
    let key = record + 256 - CONTEXT as u64 + 8;
    for (at, bytes, codes_before, loss) in [
        (record + ATTRIBUTES, vec![0; 96], ["context", "name"].as_slice(), "the file"),
        (key, vec![7; 16], &["name"], "the name"),
    ] {
        let device = sound.fork();
        device.write_at(at, bytes).unwrap();
        let expected: Vec<_> =
            codes_before.iter().map(|c| format!("ext4.encryption.{c}")).collect();
        assert_eq!(codes(&device), expected);
        assert!(plan(device.fork(), Scope::Accounting).unwrap().changes.is_empty());
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let expected = format!("Lost of {}: {loss}.", SECRETS[1]);
        assert!(lost.iter().any(|step| step.contains(&expected)), "{lost:?}");
        assert_eq!(complaint(&after, &hurt), None);
        let flags = after.read_at(record + FLAGS, 4).unwrap()[1];
        assert_eq!(flags != 0, loss == "the name");
    }
}

/// A directory that is encrypted otherwise than all that lies in it, which agrees.
#[test]
fn the_policy_of_a_directory_is_that_of_what_lies_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, records) = secrets(&path, &hurt);
    // A byte of the key's identifier, and the version with a mode, without which there is no
    // context.
    let context = records[0] + 256 - CONTEXT as u64;
    for (byte, wrong, scope) in
        [(12, vec![0x77], Scope::Accounting), (0, vec![0x77, 0], Scope::All)]
    {
        let device = sound.fork();
        device.write_at(context + byte, wrong).unwrap();
        assert!(codes(&device).contains(&"ext4.encryption.policy"), "{:?}", codes(&device));
        let (plan, after) = repaired(&device, scope).unwrap();
        let steps: Vec<_> = plan.steps.kept().iter().map(ToString::to_string).collect();
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{steps:?}");
        let bytes = |device: &MemoryDevice| device.read_at(context, CONTEXT).unwrap().to_vec();
        assert_eq!(bytes(&after), bytes(&sound), "{byte}");
        assert_eq!(complaint(&after, &hurt), None, "{byte}");
    }
}
