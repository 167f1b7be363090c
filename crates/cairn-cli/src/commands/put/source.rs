//! What `put` reads on the host: names, sizes, and where files have data.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::SeekFrom;

use crate::failure::{Failure, Outcome, Status};

/// `dir/.`, `.`, `dir/..` and `..` name no entry: they mean what is in the directory.
pub(super) fn means_contents(source: &Path) -> bool {
    let bytes = source.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    matches!(bytes.get(..end).and_then(|path| path.rsplit(|byte| *byte == b'/').next()), Some(b"." | b".."))
}

pub(super) fn is_standard_input(source: &Path) -> bool {
    source.as_os_str() == "-"
}

/// Bytes in the regular files of a tree, for the progress: what cannot be read is not counted.
pub(super) fn host_bytes(source: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(source) else { return 0 };
    match fs::read_dir(source) {
        Ok(entries) if metadata.is_dir() => entries.flatten().map(|entry| host_bytes(&entry.path())).sum(),
        _ if metadata.is_file() => metadata.len(),
        _ => 0,
    }
}

/// The last component of a host path.
pub(super) fn name_of(source: &Path) -> Outcome<Vec<u8>> {
    if is_standard_input(source) {
        return Err(Failure::usage("-: standard input has no name: give the file's whole path as the destination"));
    }
    if let Some(name) = source.file_name() {
        return Ok(name.as_bytes().to_vec());
    }
    let canonical = fs::canonicalize(source).map_err(|error| Failure::host(source, &error))?;
    canonical
        .file_name()
        .map(|name| name.as_bytes().to_vec())
        .ok_or_else(|| Failure::new(Status::Usage, format!("{}: give a new name for it", source.display())))
}

/// The next range with data at or after `at`; the whole rest where the host does not know holes.
pub(super) fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(rustix::io::Errno::INVAL) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?;
    Ok(Some((data, hole.min(size))).filter(|(data, hole)| data < hole))
}
