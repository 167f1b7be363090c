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

/// A directory that is encrypted otherwise than all that lies in it, which agrees.
#[test]
fn the_policy_of_a_directory_is_that_of_what_lies_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, ARGS);
    let names = ["/enc", "/enc/a name of 16 byte", "/enc/another of 16 bytes"];
    for request in [
        "mkdir /enc".to_owned(),
        format!("write /dev/null \"{}\"", names[1]),
        format!("write /dev/null \"{}\"", names[2]),
    ] {
        injected(&path, &hurt, &request);
        std::fs::copy(&hurt, &path).unwrap();
    }
    let sound = read_image(&path).unwrap();
    for name in names {
        let record = place_of(&path, &format!("\"{name}\""));
        give_context(&sound, record);
        mark(&sound, record);
    }
    assert_eq!(complaint(&sound, &hurt), None);
    assert_eq!(codes(&sound), [""; 0]);
    // A byte of the key's identifier, and the version, without which there is no context.
    let context = place_of(&path, names[0]) + 256 - CONTEXT as u64;
    for (byte, scope) in [(12, Scope::Accounting), (0, Scope::All)] {
        let device = sound.fork();
        device.write_at(context + byte, vec![0x77]).unwrap();
        assert!(codes(&device).contains(&"ext4.encryption.policy"), "{:?}", codes(&device));
        let (plan, after) = repaired(&device, scope).unwrap();
        let steps: Vec<_> = plan.steps.kept().iter().map(ToString::to_string).collect();
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{steps:?}");
        let bytes = |device: &MemoryDevice| device.read_at(context, CONTEXT).unwrap().to_vec();
        assert_eq!(bytes(&after), bytes(&sound), "{byte}");
        assert_eq!(complaint(&after, &hurt), None, "{byte}");
    }
}
