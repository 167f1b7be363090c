//! Bitmaps that call inodes and blocks in use free, on volumes with and without checksums of
//! bitmaps: no new file takes them, and a repair finds the old files as they were.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::judge::debugfs;
use cairn_testkit::tree::Snapshot;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::injected::image_of;
use crate::repaired::{complaint, injected, repaired, snapshot};

const FORMATS: [&[&str]; 4] = [
    &["-t", "ext2", "-b", "1024", "-N", "1024"],
    &["-t", "ext3", "-b", "1024", "-N", "1024"],
    &["-t", "ext4", "-b", "1024", "-N", "1024", "-O", "^metadata_csum,^metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-N", "1024"],
];

const NAMES: [&str; 6] =
    ["/file", "/tree", "/tree/below", "/fast", "/slow", "\"/tree/a name of some length 7\""];

/// Makes files in a new directory and in the root's. Groups that are damaged take none.
fn fill(device: Arc<MemoryDevice>) -> usize {
    let fs = Ext4::open(device, Threads::new(), &MountOptions::default()).unwrap();
    let mut made = 0;
    let parent = fs.lookup(fs.root(), b"new").unwrap().ino;
    for number in 0..600 {
        let name = format!("{number}").into_bytes();
        let file = fs.create(parent, &name, NewInode::Regular, 0o600, &Caller::ROOT);
        let Ok(file) = file else { break };
        let written = fs.write(file.ino, 0, &[0xe5; 2000], IoFlags::empty());
        fs.forget(file.ino, 1);
        made += usize::from(written.is_ok());
    }
    // What the volume said of its damage is seen in its state.
    let _ = fs.unmount();
    made
}

/// What was there before the new files.
fn old_files(device: MemoryDevice) -> Snapshot {
    snapshot(device).without(b"new").without_times_of_directories_and(b"new")
}

fn judge(device: MemoryDevice, sound: &Snapshot, what: &str, at: &Path) {
    let device = Arc::new(device);
    let made = fill(device.clone());
    old_files(device.fork()).assert_same(sound);
    let (plan, after) = repaired(&device, Scope::Accounting).expect(what);
    assert!(plan.steps.losing().next().is_none(), "{what}");
    old_files(after.fork()).assert_same(sound);
    assert_eq!(complaint(&after, at), None, "{what}, {made} new files");
}

fn sound(path: &Path, args: &[&str]) -> Snapshot {
    image_of(path, 16 << 20, args);
    let hurt = path.with_extension("made");
    injected(path, &hurt, "mkdir /new");
    std::fs::rename(&hurt, path).unwrap();
    old_files(cairn_testkit::crash::read_image(path).unwrap())
}

#[test]
fn no_new_file_takes_an_inode_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in FORMATS {
        let sound = sound(&path, args);
        for name in NAMES {
            let what = format!("{args:?}: {name}");
            let device = injected(&path, &hurt, &format!("freei {name}"));
            judge(device, &sound, &what, &hurt);
        }
    }
}

#[test]
fn no_new_file_takes_a_block_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in FORMATS {
        let sound = sound(&path, args);
        for name in ["/file", "/tree", "/tree/below", "/slow"] {
            let what = format!("{args:?}: {name}");
            let blocks = debugfs(&path, &format!("blocks {name}"));
            let block = blocks.split_whitespace().last().unwrap();
            let device = injected(&path, &hurt, &format!("freeb {block}"));
            judge(device, &sound, &what, &hurt);
        }
    }
}
