//! Trees of sload.f2fs, compared with what Cairn reads.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cairn_base::Ino;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_path, digest_volume};
use cairn_vfs::{FileKind, FileSystem, IoFlags, Seek};

use crate::support::{MIB, image, open};

/// sload.f2fs sets its own times, and the root of a volume is not the root of the tree.
fn digests(tree: &Path, volume: &dyn FileSystem) -> (Snapshot, Snapshot) {
    let options = SnapshotOptions { times: false, ..SnapshotOptions::default() };
    let right = digest_path(tree, options).unwrap().without(b"");
    let found = digest_volume(volume, options).unwrap().without(b"").without(b"lost+found");
    (right, found)
}

/// Sizes around every border: inline data, one block, the inode's pointers, a direct node, an
/// indirect node.
pub fn populate(root: &Path) {
    let mut random = fastrand::Rng::with_seed(5);
    let sizes = [
        0,
        1,
        100,
        3488,
        3489,
        3492,
        3692,
        3693,
        4096,
        4097,
        873 << 12,
        (873 << 12) + 1,
        923 << 12,
        13 << 20,
    ];
    for size in sizes {
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(size).collect();
        std::fs::write(root.join(format!("of {size} bytes")), bytes).unwrap();
    }
    let many = root.join("many");
    std::fs::create_dir(&many).unwrap();
    for index in 0..3000 {
        let name = format!("{index:0width$}", width = 1 + index % 200);
        std::fs::write(many.join(name), [index as u8]).unwrap();
    }
    let mut deep = root.to_owned();
    for level in 0..30 {
        deep = deep.join(format!("level{level}"));
        std::fs::create_dir(&deep).unwrap();
        std::fs::write(deep.join("file"), [level]).unwrap();
    }
    std::fs::write(root.join("x".repeat(255)), b"longest name").unwrap();
    std::fs::write(root.join("naïve \u{1f980} name"), b"crab").unwrap();
    symlink("of 100 bytes", root.join("short link")).unwrap();
    symlink("d/".repeat(2000), root.join("long link")).unwrap();
    std::fs::hard_link(root.join("of 1 bytes"), root.join("hard link")).unwrap();
    for (name, mode) in [("of 0 bytes", 0o4755), ("of 1 bytes", 0o000), ("many", 0o1777)] {
        std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(root.join("of 100 bytes"), Some(12_345), Some(7000)).unwrap();
}

#[test]
fn whole_trees_are_equal() {
    let tree = tempfile::tempdir().unwrap();
    populate(tree.path());
    let feature_sets: [&[&str]; 4] = [
        &[],
        &[
            "-O",
            "extra_attr,inode_checksum,inode_crtime,lost_found,sb_checksum,quota,project_quota",
        ],
        &["-s", "2"],
        &["-i"],
    ];
    for arguments in feature_sets {
        let volume = open(image(256 * MIB, arguments, Some(tree.path()))).unwrap();
        let (right, found) = digests(tree.path(), &*volume);
        right.assert_same(&found);
        check_listing(&*volume);
        check_holes(&*volume);
        volume.unmount().unwrap();
        assert!(volume.getattr(volume.root()).is_err(), "after unmount");
    }
}

fn find(volume: &dyn FileSystem, path: &[&str]) -> Ino {
    path.iter()
        .fold(volume.root(), |parent, name| volume.lookup(parent, name.as_bytes()).unwrap().ino)
}

/// A listing continues after any entry.
fn check_listing(volume: &dyn FileSystem) {
    let many = find(volume, &["many"]);
    let list = |at: u64, count: usize| {
        let mut entries = Vec::new();
        volume
            .readdir(many, at, &mut |entry| {
                entries.push(entry);
                entries.len() < count
            })
            .unwrap();
        entries
    };
    let all = list(0, usize::MAX);
    assert_eq!(all.len(), 3002);
    assert!(all[0].name == b"." && all[1].name == b"..");
    assert!(all[2..].iter().all(|entry| entry.kind == Some(FileKind::Regular)));
    let mut pieces = Vec::new();
    while let Some(last) =
        list(pieces.last().map_or(0, |entry: &cairn_vfs::DirEntry| entry.next), 7).last().cloned()
    {
        pieces.extend(list(pieces.last().map_or(0, |entry| entry.next), 7));
        assert_eq!(pieces.last(), Some(&last));
    }
    assert_eq!(pieces, all);
    assert!(matches!(volume.lookup(many, b"not there"), Err(cairn_vfs::Error::NotFound)));
    assert!(matches!(volume.lookup(many, &[b'n'; 256]), Err(cairn_vfs::Error::NameTooLong)));
    assert_eq!(volume.lookup(many, b"..").unwrap().ino, volume.root());
    assert_eq!(volume.lookup(many, b".").unwrap().ino, many);
}

/// Files of sload.f2fs have no holes before their end.
fn check_holes(volume: &dyn FileSystem) {
    let file = find(volume, &[&format!("of {} bytes", 13 << 20)]);
    assert_eq!(volume.seek(file, 5000, Seek::Data).unwrap(), 5000);
    assert_eq!(volume.seek(file, 5000, Seek::Hole).unwrap(), 13 << 20);
    assert!(volume.seek(file, 13 << 20, Seek::Data).is_err());
    let mut covered = 0;
    volume
        .extents(file, 0, u64::MAX, true, &mut |extent| {
            assert_eq!(extent.logical, covered);
            covered += extent.length;
            true
        })
        .unwrap();
    assert_eq!(covered, 13 << 20);
    let mut whole = vec![0; 13 << 20];
    assert_eq!(volume.read(file, 0, &mut whole, IoFlags::DIRECT).unwrap(), 13 << 20);
    let mut piece = [0; 10_000];
    assert_eq!(volume.read(file, 8_000_001, &mut piece, IoFlags::empty()).unwrap(), 10_000);
    assert_eq!(piece, whole[8_000_001..][..10_000]);
    assert_eq!(volume.read(file, (13 << 20) - 1, &mut piece, IoFlags::empty()).unwrap(), 1);
}

#[test]
fn nothing_can_be_written_and_the_reason_is_told() {
    let volume = open(image(64 * MIB, &[], None)).unwrap();
    let root = volume.root();
    match volume.unlink(root, b"x") {
        Err(cairn_vfs::Error::ReadOnly(reason)) => {
            assert_eq!(&*reason, "opened for reading")
        }
        other => panic!("{other:?}"),
    }
    assert!(volume.fsync(root, 0, false).is_ok() && volume.sync().is_ok());
    let stats = volume.statfs().unwrap();
    assert!(stats.free_blocks > 0 && stats.free_blocks < stats.blocks);
}
