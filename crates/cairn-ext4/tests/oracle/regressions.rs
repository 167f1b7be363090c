//! A small test for each error that a longer test found.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_ext4::Ext4;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{dumpe2fs, e2fsck_preen};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, RenameMode, SetAttributes};

use crate::support::{judge, open, volume};

const BLOCK: u64 = 1024;

fn create(fs: &Ext4, parent: Ino, name: &str, new: NewInode<'_>) -> Ino {
    fs.create(parent, name.as_bytes(), new, 0o755, &Caller::ROOT).unwrap().ino
}

fn cut(fs: &Ext4, ino: Ino, size: u64) {
    fs.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

/// Contents that are unique to the block.
fn contents(len: u64) -> Vec<u8> {
    (0..len / 8).flat_map(|n| (n | 0xda7a << 48).to_le_bytes()).collect()
}

/// Writes until the volume is full. Returns the written bytes.
fn fill(fs: &Ext4, ino: Ino) -> Vec<u8> {
    let data = contents(8 << 20);
    let mut at = 0;
    while at < data.len() {
        let end = data.len().min(at + 65_536);
        match fs.write(ino, at as u64, &data[at..end], IoFlags::empty()) {
            Ok(0) => break,
            Ok(done) => at += done,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    data[..at].to_vec()
}

fn read(fs: &Ext4, name: &str) -> Vec<u8> {
    let found = fs.lookup(fs.root(), name.as_bytes()).unwrap();
    let mut buf = vec![0; usize::try_from(found.size).unwrap()];
    let mut at = 0;
    while at < buf.len() {
        at += fs.read(found.ino, at as u64, &mut buf[at..], IoFlags::empty()).unwrap();
    }
    buf
}

/// A truncation also frees empty nodes of the tree. It once reserved no credits for that.
#[test]
fn truncation_has_credits_for_the_nodes_it_empties() {
    let device = volume(32 << 20, &["-t", "ext4", "-b", "1024"]);
    let fs = open(&device, "");
    for step in [1, 7, 84, 85, 500] {
        let ino = create(&fs, fs.root(), &format!("file{step}"), NewInode::Regular);
        // Every other block: as many extents as blocks, in a tree of two levels.
        for n in 0..1000 {
            fs.write(ino, n * 2 * BLOCK, &[n as u8; BLOCK as usize], IoFlags::empty()).unwrap();
        }
        fs.fsync(ino, 0, false).unwrap();
        for left in (0..1000).rev().step_by(step) {
            cut(&fs, ino, left * 2 * BLOCK);
        }
        cut(&fs, ino, 0);
        fs.forget(ino, 1);
    }
    fs.unmount().unwrap();
    judge(&device);
}

/// For a name in the first block, that block's buffer was once locked before the directory's inode.
#[test]
fn a_rename_over_a_name_asks_the_directory_before_the_buffer() {
    let device = volume(16 << 20, &["-t", "ext4", "-b", "1024"]);
    let fs = open(&device, "");
    for count in [2, 300] {
        let dir = create(&fs, fs.root(), &format!("dir{count}"), NewInode::Directory);
        for n in 0..count {
            let ino = create(&fs, dir, &format!("a name of some length {n}"), NewInode::Regular);
            fs.forget(ino, 1);
        }
        for n in 1..count {
            let name = format!("a name of some length {n}");
            fs.rename(dir, b"a name of some length 0", dir, name.as_bytes(), RenameMode::Replace)
                .unwrap();
            fs.rename(dir, name.as_bytes(), dir, b"a name of some length 0", RenameMode::Replace)
                .unwrap();
        }
        fs.forget(dir, 1);
    }
    fs.unmount().unwrap();
    judge(&device);
}

/// Blocks of directories and long link targets are in the log. Once they are a file's, recovery
/// must not write them.
#[test]
fn recovery_leaves_alone_what_took_the_blocks_of_deleted_directories_and_links() {
    for (name, new) in [("dir", NewInode::Directory), ("link", NewInode::Symlink(&[b't'; 900]))] {
        let device = volume(4 << 20, &["-t", "ext4", "-b", "1024"]);
        let fs = open(&device, "");
        for n in 0..20 {
            let ino = create(&fs, fs.root(), &format!("{name}{n}"), new.clone());
            fs.forget(ino, 1);
        }
        fs.sync().unwrap();
        for n in 0..20 {
            let entry = format!("{name}{n}");
            let gone = if name == "dir" {
                fs.rmdir(fs.root(), entry.as_bytes())
            } else {
                fs.unlink(fs.root(), entry.as_bytes())
            };
            gone.unwrap();
        }
        fs.sync().unwrap();
        // Every free block gets contents, the freed ones among them.
        let file = create(&fs, fs.root(), "file", NewInode::Regular);
        let written = fill(&fs, file);
        assert!(written.len() > 1 << 20);
        fs.fsync(file, 0, false).unwrap();
        // The power fails: the log does not change.
        let crashed = Arc::new(device.fork());
        drop(fs);
        let fs = open(&crashed, "");
        assert!(read(&fs, "file") == written, "{name}: recovery wrote over a synced file");
        fs.unmount().unwrap();
        judge(&crashed);
    }
}

/// Offset of the journal's superblock.
fn journal_superblock(device: &MemoryDevice) -> u64 {
    let blocks = device.geometry().size / BLOCK;
    let is_it = |block: &u64| {
        device.read_at(block * BLOCK, 8).unwrap()[..] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4]
    };
    (0..blocks).find(is_it).expect("the volume has a journal") * BLOCK
}

/// The error that stopped a journal is copied to the volume until the next check, and the journal's
/// record is cleared.
#[test]
fn an_error_that_stopped_the_journal_is_the_volumes_until_the_next_check() {
    let device =
        volume(8 << 20, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed"]);
    let errno = journal_superblock(&device) + 0x20;
    device.write_at(errno, (-5_i32).to_be_bytes().to_vec()).unwrap();
    let fs = open(&device, "");
    fs.forget(create(&fs, fs.root(), "new", NewInode::Regular), 1);
    fs.unmount().unwrap();
    assert_eq!(
        device.read_at(errno, 4).unwrap()[..],
        [0; 4],
        "the journal's error is there for ever"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(&device, file.path()).unwrap();
    let dump = dumpe2fs(file.path());
    assert!(dump.contains("clean with errors"), "{dump}");
    assert!(!dump.contains("Journal errno"), "{dump}");
    // e2fsck clears the record.
    assert!((0..=1).contains(&e2fsck_preen(file.path()).status));
    assert!(!dumpe2fs(file.path()).contains("with errors"));
    judge(&read_image(file.path()).unwrap());
}

/// e2fsck deletes the orphans of a replayed journal and leaves their slots in the orphan file.
#[test]
fn slots_of_orphans_that_e2fsck_deleted_are_dropped() {
    let device = volume(8 << 20, &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]);
    let fs = open(&device, "");
    for n in 0..5 {
        let ino = create(&fs, fs.root(), &format!("open{n}"), NewInode::Regular);
        fs.write(ino, 0, &contents(20_000), IoFlags::empty()).unwrap();
        fs.unlink(fs.root(), format!("open{n}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(&device.fork(), file.path()).unwrap();
    let verdict = e2fsck_preen(file.path());
    assert!((0..=1).contains(&verdict.status), "{}", verdict.output);
    let checked = Arc::new(read_image(file.path()).unwrap());
    let fs = open(&checked, "");
    fs.forget(create(&fs, fs.root(), "new", NewInode::Regular), 1);
    fs.unmount().unwrap();
    judge(&checked);
}
