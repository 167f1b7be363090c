//! The feature shared_blocks: files with equal contents have the same blocks. e2fsck accepts it,
//! Linux and Cairn read every file, and neither writes.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_ext4::mkfs::populate::Population;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::judge::{KernelMount, debugfs};
use cairn_testkit::tree::{SnapshotOptions, digest_path, digest_volume};
use cairn_vfs::FileSystem;

use crate::host::HostTree;
use crate::support::{fill, judged, options};

const FEATURES: &str = "^has_journal,^resize_inode,read-only,shared_blocks";
const PLAIN: &str = "^has_journal,^resize_inode,read-only";

/// Equal files, files that differ in one byte, in their size or in their holes, and files with many
/// extents.
fn tree(at: &Path) {
    let write = |name: &str, bytes: &[u8]| std::fs::write(at.join(name), bytes).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    let mut other = large.clone();
    other[2_999_999] ^= 1;
    write("large", &large);
    write("same-as-large", &large);
    write("other", &other);
    write("shorter", &large[..2_999_000]);
    write("ends-with-zeros", &[&large[..2_999_000], &[0; 500]].concat());
    (0..40).for_each(|nth| write(&format!("small{nth}"), &large[..5000 + nth % 4]));
    std::fs::hard_link(at.join("large"), at.join("link")).unwrap();
    for (name, step) in [("spread", 4), ("as-spread", 4), ("elsewhere", 5)] {
        let file = std::fs::File::create(at.join(name)).unwrap();
        for piece in 0..600 {
            file.write_all_at(&[(piece % 255) as u8 + 1; 4096], piece * step * 4096).unwrap();
        }
    }
}

fn made(source: &Path, features: &str, threads: usize, image: &Path) -> Vec<u8> {
    let tree = Arc::new(HostTree::scan(source).unwrap());
    fill(tree, &options(features, 4096), 0, threads, image);
    std::fs::read(image).unwrap()
}

#[test]
fn equal_files_have_their_blocks_together() {
    let directory = tempfile::tempdir().unwrap();
    let (source, image) = (directory.path().join("source"), directory.path().join("image"));
    std::fs::create_dir(&source).unwrap();
    tree(&source);
    let plain = made(&source, PLAIN, 2, &image);
    std::fs::remove_file(&image).unwrap();
    let shared = made(&source, FEATURES, 2, &image);
    // What `large`, `shorter`, `spread` and 36 of the small files would have again.
    let (saved, again) = (plain.len() - shared.len(), 2 * 733 * 4096 + 600 * 4096 + 36 * 8192);
    assert!(saved >= again && saved < again + (1 << 20), "{saved} bytes saved, not {again}");
    let blocks = |name: &str| debugfs(&image, &format!("blocks /{name}"));
    assert_eq!(blocks("large"), blocks("same-as-large"));
    assert_eq!(blocks("shorter"), blocks("ends-with-zeros"));
    assert_ne!(blocks("large"), blocks("other"));
    let facts = |snapshot: cairn_testkit::tree::Snapshot| {
        let snapshot = snapshot.without(b"lost+found");
        snapshot.without_fact("links", |path, _| path.is_empty())
    };
    let expected = facts(digest_path(&source, SnapshotOptions::default()).unwrap());
    facts(judged(&image)).assert_same(&expected);
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(&image, OpenOptions::write()).unwrap());
    let open = |words: &str| {
        Ext4::open(device.clone(), Threads::new(), &MountOptions::parse(words).unwrap()).unwrap()
    };
    let reason = open("").read_only_reason().expect("it cannot be written").to_string();
    assert!(reason.contains("unshare_blocks"), "{reason}");
    let volume = open("ro");
    facts(digest_volume(&*volume, SnapshotOptions::default()).unwrap()).assert_same(&expected);
    volume.unmount().unwrap();
    drop((volume, device));
    // Linux refuses to mount it writable, or mounts it read-only.
    if let Ok(mount) = KernelMount::try_new(&image, "rw") {
        assert!(std::fs::write(mount.path().join("new"), b"x").is_err(), "Linux would write it");
        mount.unmount();
    }
    std::fs::remove_file(&image).unwrap();
    assert!(made(&source, FEATURES, 1, &image) == shared, "it depends on the threads");
}

#[test]
fn with_a_journal_it_is_refused() {
    let source = Arc::new(cairn_testkit::made::Made::new());
    let planned = Population::new(source, &options("shared_blocks", 4096), 0, &*Threads::new());
    let error = planned.err().expect("refused").to_string();
    assert!(error.contains("leave the journal out"), "{error}");
}
