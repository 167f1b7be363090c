//! What an error, or an end that was asked for, means for the calls that follow: the same questions to every format.

use std::sync::Arc;

use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, OpenMode};

/// After a shutdown that somebody asked for (EXT4_IOC_SHUTDOWN, F2FS_IOC_SHUTDOWN) nobody is told that something is durable: fsync, fdatasync
/// and sync fail with EIO, of a file with new data as of one that has been on the disk for long, as Linux has it.
///
/// # Panics
/// Otherwise.
pub fn an_fsync_after_a_shutdown_fails(open: &dyn Fn() -> Arc<dyn FileSystem>) {
    for flush_log in [false, true] {
        let fs = open();
        let [old, new] = [&b"old"[..], b"new"].map(|name| {
            let ino = fs.create(fs.root(), name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
            fs.write(ino, 0, name, IoFlags::empty()).unwrap();
            ino
        });
        let handle = fs.open(old, OpenMode { write: true, direct: false }).unwrap();
        fs.fsync(old, handle, false).unwrap();
        fs.shutdown(flush_log).unwrap();
        for (what, told) in [
            ("fsync of what was durable", fs.fsync(old, handle, false)),
            ("fsync of what was not", fs.fsync(new, 0, false)),
            ("fdatasync", fs.fsync(new, 0, true)),
            ("fsync of a directory", fs.fsync(fs.root(), 0, false)),
            ("sync", fs.sync()),
        ] {
            assert!(matches!(told, Err(Error::Io(_))), "{what}, flush_log {flush_log}: {told:?}");
        }
        fs.release(old, handle);
    }
}
