//! File data in the log (`data=journal`), and blocks that fast commits free and use again
//! (`data=writeback`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, mke2fs};
use cairn_testkit::tree::{SnapshotOptions, digest_path, digest_volume};
use cairn_vfs::{FileSystem, IoFlags};

use crate::checked::assert_clean;
use crate::support::{open, open_image};

/// Read only, nothing is replayed to the device: data is read from the log, also past the cache.
#[test]
fn data_of_the_log_is_read_without_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    mke2fs(&at, 32 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=4"]);
    let mount = KernelMount::new(&at, "data=journal,commit=600");
    let path = mount.path().join("file");
    let mut data: Vec<u8> = (0..300_000_u32).map(|at| (at % 249) as u8 | 1).collect();
    // A block that begins as those of the log do is escaped there.
    data[4096..4100].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
    std::fs::write(&path, &data).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"written again", 70_000).unwrap();
    data[70_000..70_013].copy_from_slice(b"written again");
    file.sync_all().unwrap();
    let device = Arc::new(read_image(&at).unwrap());
    drop(file);
    mount.unmount();
    for options in ["ro", ""] {
        let fs = open(&Arc::new(device.fork()), options);
        let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
        for flags in [IoFlags::empty(), IoFlags::DIRECT] {
            let mut read = vec![0; data.len().next_multiple_of(4096)];
            let done = fs.read(ino, 0, &mut read, flags).unwrap();
            assert!(read[..done] == data[..], "'{options}', {flags:?}: other data");
        }
        fs.forget(ino, 1);
    }
}

/// With `data=writeback`, Linux gives the blocks of a removed file to another one before the next
/// full commit.
#[test]
fn blocks_that_fast_commits_use_again_stay_in_use() {
    const COMPARED: SnapshotOptions =
        SnapshotOptions { times: false, sectors: true, directory_links: true };
    let dir = tempfile::tempdir().unwrap();
    let (live, at) = (dir.path().join("live"), dir.path().join("image"));
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "fast_commit"];
    mke2fs(&live, 24 << 20, &args);
    let mount = KernelMount::new(&live, "data=writeback,commit=600");
    let write = |name: &str, len: usize| {
        let path = mount.path().join(name);
        std::fs::write(&path, vec![name.as_bytes()[0]; len]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    };
    write("victim", 9 << 20);
    write("filler", 6 << 20);
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    for round in 0..3 {
        let gone = if round == 0 { "victim".to_owned() } else { format!("big{}", round - 1) };
        std::fs::remove_file(mount.path().join(gone)).unwrap();
        write(&format!("small{round}"), 5000);
        write(&format!("big{round}"), 7 << 20);
    }
    std::fs::copy(&live, &at).unwrap();
    let shown = digest_path(mount.path(), COMPARED).unwrap();
    mount.unmount();
    for options in ["ro", ""] {
        let fs = open_image(&at, options);
        shown.assert_same(&digest_volume(&*fs, COMPARED).unwrap());
        fs.unmount().unwrap();
    }
    assert_clean(&at);
}
