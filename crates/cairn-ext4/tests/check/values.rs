//! Values of attributes in inodes of their own: the hash of the inode, that of the entry, and the
//! bytes; the two that agree are right.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{self, KernelMount, mke2fs};

use crate::repaired::{complaint, injected, place_of, repaired, snapshot};

/// A file with a value of more than a block, and the inode of the value.
fn volume(path: &Path) -> (MemoryDevice, u32) {
    mke2fs(path, 8 << 20, &["-t", "ext4", "-b", "1024", "-O", "ea_inode,^metadata_csum"]);
    let mount = KernelMount::new(path, "");
    let file = mount.path().join("file");
    std::fs::write(&file, "contents").unwrap();
    rustix::fs::setxattr(&file, "user.big", &[b'v'; 3000], rustix::fs::XattrFlags::empty())
        .unwrap();
    mount.unmount();
    let has_flag = |ino: &u32| {
        let request = format!("stat <{ino}>");
        judge::run("debugfs", ["-R", &request, path.to_str().unwrap()]).contains("Flags: 0x2")
    };
    let value = (11..20).find(has_flag).expect("an inode with the value");
    (read_image(path).unwrap(), value)
}

#[test]
fn the_hash_of_a_value_that_contradicts_two_others_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, value) = volume(&path);
    let before = snapshot(sound.fork());
    let device = injected(&path, &hurt, &format!("sif <{value}> atime 0x12345678"));
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
    assert_eq!((codes, plan.after.count()), (vec!["ext4.value.hash"], 0));
    assert!(complaint(&after, &hurt).is_none());
    before.assert_same(&snapshot(after.fork()));
    // The kernel compares all three.
    write_image(&after, &hurt).unwrap();
    let mount = KernelMount::new(&hurt, "ro");
    let mut read = vec![0; 4000];
    let len = rustix::fs::getxattr(mount.path().join("file"), "user.big", &mut read).unwrap();
    assert_eq!(read[..len], [b'v'; 3000]);
    mount.unmount();
    // With two wrong ones the value is not taken for right.
    let request = format!("bmap <{value}> 0");
    let block = judge::run("debugfs", ["-R", &request, path.to_str().unwrap()]);
    let block: u64 = block.lines().find_map(|line| line.parse().ok()).unwrap();
    device.write_at(block * 1024, b"other".to_vec()).unwrap();
    let (plan, after) = repaired(&device, Scope::All).unwrap();
    assert!(plan.steps.losing().any(|step| step.kind.code == "ext4.xattr.value"));
    assert!(complaint(&after, &hurt).is_none());
}

/// Of values in the inode itself an entry may lack the hash, but not here: Linux compares it.
#[test]
fn an_entry_without_a_hash_of_its_value_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, _) = volume(&path);
    let device = sound.fork();
    // The only entry, behind the fields and the mark.
    device.write_at(place_of(&path, "/file") + 160 + 4 + 12, vec![0; 4]).unwrap();
    assert!(complaint(&device, &hurt).is_some());
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
    assert_eq!((codes, plan.after.count()), (vec!["ext4.xattr.hash"], 0));
    assert_eq!(complaint(&after, &hurt), None);
    snapshot(sound).assert_same(&snapshot(after));
}

/// Readers compare a value with its hash, and refuse a hole in it.
#[test]
fn a_value_that_no_reader_accepts_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, value) = volume(&path);
    let request = format!("bmap <{value}> 1");
    let block = judge::run("debugfs", ["-R", &request, path.to_str().unwrap()]);
    let block: u64 = block.lines().find_map(|line| line.parse().ok()).unwrap();
    let other = sound.fork();
    other.write_at(block * 1024 + 9, b"x".to_vec()).unwrap();
    let with_hole = injected(&path, &hurt, &format!("sif <{value}> block[3] 3"));
    let unwritten = injected(&path, &hurt, &format!("sif <{value}> block[4] 32771"));
    for (what, device) in [("a byte", other), ("a hole", with_hole), ("unwritten", unwritten)] {
        let (plan, _) = repaired(&device, Scope::Accounting).expect(what);
        assert!(plan.after.count() > 0, "{what}: nothing is found");
        let (plan, after) = repaired(&device, Scope::All).expect(what);
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let loss = "Lost of /file: the extended attribute user.big.";
        assert!(lost.iter().any(|step| step.contains(loss)), "{what}: {lost:?}");
        assert!(complaint(&after, &hurt).is_none(), "{what}");
        snapshot(after);
    }
}

/// e2fsck, too, connects the inode of a value that no attribute refers to.
#[test]
fn a_value_without_an_attribute_becomes_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, value) = volume(&path);
    let device = sound.fork();
    // The attributes in the inode.
    device.write_at(place_of(&path, "/file") + 160, vec![0; 96]).unwrap();
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
    assert_eq!(codes, ["ext4.inode.blocks", "ext4.value.unreachable"]);
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0));
    assert_eq!(complaint(&after, &hurt), None);
    let mount = KernelMount::new(&hurt, "ro");
    let kept = mount.path().join(format!("lost+found/#{value}"));
    assert_eq!(std::fs::read(kept).unwrap(), [b'v'; 3000]);
    mount.unmount();
}

/// Attributes are no names: the inode of a value has one link, however many share it.
#[test]
fn the_inode_of_a_value_has_one_link() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, value) = volume(&path);
    let device = injected(&path, &hurt, &format!("sif <{value}> links_count 2"));
    assert!(complaint(&device, &hurt).is_some());
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
    assert_eq!((codes, plan.after.count()), (vec!["ext4.inode.links"], 0));
    assert_eq!(complaint(&after, &hurt), None);
    snapshot(sound).assert_same(&snapshot(after));
}

/// The hash of a value begins with the UUID, also where nothing else has a checksum: what another
/// UUID makes of all values costs none of them.
#[test]
fn a_wrong_byte_of_the_uuid_costs_no_value() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (one, _) = volume(&path);
    let request = format!("ea_set -f {} /second user.other", hurt.display());
    std::fs::write(&hurt, [b'w'; 5000]).unwrap();
    judge::run(
        "debugfs",
        ["-w", "-R", &format!("write {} second", hurt.display()), &path.display().to_string()],
    );
    judge::run("debugfs", ["-w", "-R", &request, &path.display().to_string()]);
    // debugfs does not count the blocks.
    let (_, two) = repaired(&read_image(&path).unwrap(), Scope::Accounting).unwrap();
    for (sound, at, change) in
        [(&one, 104, 1_u8), (&two, 104, 0x80), (&two, 119, 4), (&one, 110, 0xff)]
    {
        let device = sound.fork();
        let byte = device.read_at(1024 + at, 1).unwrap()[0];
        device.write_at(1024 + at, vec![byte ^ change]).unwrap();
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
        let what = format!("byte {at} ^ {change:#x}: {codes:?}");
        assert_eq!(
            (codes, plan.after.count()),
            (vec!["ext4.superblock.contradicted"], 0),
            "{what}"
        );
        assert_eq!(plan.steps.losing().count(), 0, "{what}");
        assert_eq!(after.read_at(1024 + at, 1).unwrap()[0], byte, "{what}");
        assert_eq!(complaint(&after, &hurt), None, "{what}");
        snapshot(sound.fork()).assert_same(&snapshot(after));
    }
}

/// One wrong bit of the place of a value, whose bytes are others then: the hash says which place is
/// right, with and without a journal.
#[test]
fn a_wrong_bit_of_the_place_of_a_value_costs_no_attribute() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (sound, value) = volume(&path);
    let place = place_of(&path, &format!("<{value}>")) + 40 + 12 + 8;
    let without = injected(&path, &hurt, "feature ^has_journal");
    for (sound, bits) in [(&sound, 0..12), (&without, 0..6)] {
        for bit in bits {
            let device = sound.fork();
            let at = place + bit / 8;
            let byte = device.read_at(at, 1).unwrap()[0];
            device.write_at(at, vec![byte ^ 1 << (bit % 8)]).unwrap();
            let (plan, after) = repaired(&device, Scope::All).unwrap();
            let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
            assert_eq!((lost, plan.after.count()), (vec![], 0), "bit {bit}");
            assert_eq!(complaint(&after, &hurt), None, "bit {bit}");
            snapshot(sound.fork()).assert_same(&snapshot(after));
        }
    }
}
