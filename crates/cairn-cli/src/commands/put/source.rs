//! What `put` reads on the host: names, sizes, and where files have data.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cairn_base::Ino;
use cairn_base::names::Escaped;
use rustix::fs::SeekFrom;

use crate::commands::destination::Place;
use crate::failure::{Failure, Outcome, Status};

/// True for `dir/.`, `.`, `dir/..` and `..`, which mean the contents of the directory.
pub(super) fn means_contents(source: &Path) -> bool {
    let bytes = source.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    matches!(
        bytes.get(..end).and_then(|path| path.rsplit(|byte| *byte == b'/').next()),
        Some(b"." | b"..")
    )
}

pub(super) fn is_standard_input(source: &Path) -> bool {
    source.as_os_str() == "-"
}

/// Bytes in the regular files of a tree, for the progress: what cannot be read is not counted.
pub(super) fn host_bytes(source: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(source) else { return 0 };
    match fs::read_dir(source) {
        Ok(entries) if metadata.is_dir() => {
            entries.flatten().map(|entry| host_bytes(&entry.path())).sum()
        }
        _ if metadata.is_file() => metadata.len(),
        _ => 0,
    }
}

/// The last component of a host path.
pub(super) fn name_of(source: &Path) -> Outcome<Vec<u8>> {
    if is_standard_input(source) {
        return Err(Failure::usage(
            "-: standard input has no name: give the file's whole path as the destination",
        ));
    }
    if let Some(name) = source.file_name() {
        return Ok(name.as_bytes().to_vec());
    }
    let canonical = fs::canonicalize(source).map_err(|error| Failure::host(source, &error))?;
    canonical.file_name().map(|name| name.as_bytes().to_vec()).ok_or_else(|| {
        Failure::new(Status::Usage, format!("{}: give a new name for it", source.escaped()))
    })
}

/// The next range with data at or after `at`; the whole rest if the host does not report holes.
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

/// A host path and its place on the volume.
pub(super) type Pending = (PathBuf, Place);

/// The entries of a host directory, the last name first: the image depends on the order of the
/// names, not on the host's order.
pub(super) fn inside(path: &Path, place: &Place, directory: Ino) -> Outcome<Vec<Pending>> {
    let failed = |error: io::Error| Failure::host(path, &error);
    let entries =
        fs::read_dir(path).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let mut names: Vec<OsString> = entries.iter().map(fs::DirEntry::file_name).collect();
    names.sort_by(|a, b| b.cmp(a));
    Ok(names
        .into_iter()
        .map(|name| (path.join(&name), place.below(directory, name.as_bytes())))
        .collect())
}

/// The host's device number in the image's encoding, which is that of the host's kernel.
pub(super) fn device_number(rdev: u64) -> u32 {
    cairn_vfs::encode_device(rustix::fs::major(rdev), rustix::fs::minor(rdev)).unwrap_or_default()
}
