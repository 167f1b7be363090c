//! The cost of an fsync: nodes, flushes, checkpoints.

use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, RenameMode};

use crate::support::{open, volume};

/// Nodes written, flushes, checkpoints.
fn spent(fs: &F2fs, work: impl FnOnce()) -> (u64, u64, u64) {
    let store = fs.store().cloned().unwrap();
    let now = || {
        let fsyncs = fs.fsync_stats();
        (store.nodes.stats.written.get(), fsyncs.flushes.get(), fsyncs.checkpoints.get())
    };
    let before = now();
    work();
    let after = now();
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

fn costs(options: &str, in_place: bool) {
    let device = volume(64 << 20, &[]);
    let fs = open(device, options);
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let far = 1500 * 4096;
    let write =
        |at: u64| assert_eq!(fs.write(ino, at, &[7; 4096], IoFlags::empty()).unwrap(), 4096);
    write(far);
    // A new file: its inode and its node, with the mark that makes the entry.
    assert_eq!(spent(&fs, || fs.fsync(ino, 0, false).unwrap()), (2, 1, 0), "{options}: new");
    assert_eq!(spent(&fs, || fs.fsync(ino, 0, false).unwrap()), (0, 0, 0), "{options}: again");
    fs.sync().unwrap();
    write(far);
    let nodes = u64::from(!in_place);
    assert_eq!(
        spent(&fs, || fs.fsync(ino, 0, true).unwrap()),
        (nodes, 1, 0),
        "{options}: fdatasync of an overwrite"
    );
    write(far);
    let (nodes, flushes, checkpoints) = spent(&fs, || fs.fsync(ino, 0, false).unwrap());
    assert!(
        nodes <= 2 && (flushes, checkpoints) == (1, 0),
        "{options}: fsync of an overwrite wrote {nodes} nodes"
    );
    // A hard link: roll-forward knows one name only.
    fs.link(ino, fs.root(), b"other").unwrap();
    assert_eq!(spent(&fs, || fs.fsync(ino, 0, false).unwrap()).2, 1, "{options}: two names");
    fs.unmount().unwrap();
}

/// Does three writes with an fsync each. Returns the number of checkpoints.
fn checkpoints_of_fsyncs(fs: &F2fs, ino: cairn_base::Ino) -> u64 {
    let fsyncs = || {
        for round in 0..3 {
            fs.write(ino, 4096 * round, &[round as u8; 4096], IoFlags::empty()).unwrap();
            fs.fsync(ino, 0, false).unwrap();
        }
    };
    spent(fs, fsyncs).2
}

/// An fsync of a file with one name, whatever names it had before, writes only its nodes once a
/// checkpoint has that name.
#[test]
fn a_file_that_was_renamed_or_linked_takes_one_checkpoint_and_no_more() {
    let fs = open(volume(64 << 20, &[]), "");
    let root = fs.root();
    let make = |name: &str| {
        let ino =
            fs.create(root, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        fs.fsync(ino, 0, false).unwrap();
        ino
    };
    let renamed = make("one");
    fs.rename(root, b"one", root, b"two", RenameMode::Replace).unwrap();
    assert_eq!(checkpoints_of_fsyncs(&fs, renamed), 1, "renamed");
    fs.rename(root, b"two", root, b"three", RenameMode::Replace).unwrap();
    fs.sync().unwrap();
    assert_eq!(checkpoints_of_fsyncs(&fs, renamed), 0, "renamed, and a checkpoint has it");
    for (goes, stays) in [(&b"second"[..], &b"first"[..]), (b"first", b"second")] {
        let linked = make("first");
        fs.link(linked, root, b"second").unwrap();
        assert_eq!(checkpoints_of_fsyncs(&fs, linked), 3, "two names");
        fs.unlink(root, goes).unwrap();
        assert_eq!(checkpoints_of_fsyncs(&fs, linked), 1, "one name is left");
        fs.unlink(root, stays).unwrap();
    }
    // After an eviction the state is read from the disk.
    let forgotten = make("before");
    fs.rename(root, b"before", root, b"after", RenameMode::Replace).unwrap();
    fs.sync().unwrap();
    fs.forget(forgotten, 1);
    fs.inodes().table.shrink();
    assert_eq!(checkpoints_of_fsyncs(&fs, forgotten), 0, "renamed, forgotten and read again");
    fs.unmount().unwrap();
}

#[test]
fn an_fsync_writes_few_nodes_and_flushes_once() {
    costs("", true);
    costs("mode=lfs", false);
}
