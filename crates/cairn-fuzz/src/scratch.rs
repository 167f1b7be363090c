//! A file for what is only read from files. It is made once for each thread, in memory if the
//! system has a place for that.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

thread_local! {
    static DIRECTORY: TempDir = directory();
}

fn directory() -> TempDir {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("cairn-fuzz-");
    let made = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir());
    made.expect("a directory for temporary files")
}

/// A path in the directory.
pub(crate) fn path(name: &str) -> PathBuf {
    DIRECTORY.with(|directory| directory.path().join(name))
}

/// The directory.
pub(crate) fn folder() -> PathBuf {
    DIRECTORY.with(|directory| directory.path().to_owned())
}

/// Writes a file, and gives its path.
pub(crate) fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = path(name);
    std::fs::write(&path, bytes).expect("the file can be written");
    path
}

/// Removes a file that may be there.
pub(crate) fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}
