//! The file that is built: it has a temporary name beside the wanted one until it is whole.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cairn::{Claim, ImageSpec, Part};
use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::extents::next_data;

/// What messages call standard output.
pub(crate) const STDOUT: &str = "standard output";
/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

/// An output that is not whole yet. It is removed if it does not become whole.
pub(crate) struct Unfinished {
    file: NamedTempFile,
    path: PathBuf,
}

/// The directory of a path.
pub(crate) fn directory(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Temporary names of this process.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the files that are not whole. For a process that is about to end: nothing gets its name
/// after it.
pub fn abandon() {
    let mut unfinished = unfinished();
    for path in unfinished.drain(..) {
        // It may just have been removed.
        let _ = fs::remove_file(path);
    }
    // `finish` waits for this lock, for ever.
    std::mem::forget(unfinished);
}

/// Claims the image that will be replaced, so that nobody has it mounted meanwhile.
///
/// # Errors
/// It is in use, or the name is one of a part of a disk.
pub(crate) fn claim(path: &Path) -> Result<Option<Claim>> {
    if is_stdout(path) {
        return Ok(None);
    }
    let image = ImageSpec::parse(path.as_os_str()).map_err(Error::image)?;
    if image.part != Part::Whole {
        let name = path.display();
        return Err(Error::Usage(format!(
            "{name}: a whole file is built: for a part of a disk, `cairn mkfs '{name}'`, then \
             `cairn put`"
        )));
    }
    let is_replaced = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    is_replaced.then(|| cairn::claim(&image)).transpose().map_err(Error::image)
}

/// True if a name stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Bytes that the filesystem of a file has left for this user, if it tells.
pub(crate) fn room(file: &File) -> Option<u64> {
    let stats = rustix::fs::fstatvfs(file).ok()?;
    stats.f_bavail.checked_mul(stats.f_frsize)
}

impl Unfinished {
    /// Creates an empty file that never gets another name, in `TMPDIR`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn hidden() -> Result<Self> {
        let directory = std::env::temp_dir();
        let file = tempfile::Builder::new().prefix(".cairn.").tempfile_in(&directory);
        let file = file.map_err(|error| Error::host(&directory, error))?;
        unfinished().push(file.path().to_owned());
        Ok(Self { path: file.path().to_owned(), file })
    }

    /// Creates an empty file beside `path`.
    ///
    /// # Errors
    /// `path` exists and `overwrite` is not set, is not a regular file, or its directory cannot be
    /// written.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Result<Self> {
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                return Err(Error::Usage(format!(
                    "{}: is not a regular file: give a new file",
                    path.display()
                )));
            }
            Ok(found) if !overwrite && found.len() > 0 => {
                return Err(Error::Usage(format!(
                    "{}: exists: add --force to replace it",
                    path.display()
                )));
            }
            _ => {}
        }
        // A link keeps its place: its target is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = path.file_name().unwrap_or_default().to_os_string();
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        // The umask applies.
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory(&path))
            .map_err(|error| Error::host(directory(&path), error))?;
        unfinished().push(file.path().to_owned());
        Ok(Self { file, path })
    }

    /// Device and inode of the file, and of the one that it will replace.
    pub(crate) fn own(&self) -> Vec<(u64, u64)> {
        let files = [self.file.as_file().metadata().ok(), fs::metadata(&self.path).ok()];
        files.into_iter().flatten().map(|file| (file.dev(), file.ino())).collect()
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn file(&self) -> &fs::File {
        self.file.as_file()
    }

    /// Sets the size. What lies behind it is lost, and what is new reads as zeros.
    ///
    /// # Errors
    /// The host refuses the size.
    pub(crate) fn resize(&self, size: u64) -> Result<()> {
        self.file.as_file().set_len(size).map_err(|error| Error::host(&self.path, error))
    }

    /// Writes the file to a stream, from front to back, holes as zeros.
    ///
    /// # Errors
    /// The file cannot be read, or the stream `name` not written.
    pub(crate) fn stream(&self, to: &mut dyn Write, name: &Path) -> Result<()> {
        let (from, mut piece) = (self.file.as_file(), vec![0; PIECE]);
        let failed = |error| Error::host(&self.path, error);
        let sent = |error| Error::host(name, error);
        let size = from.metadata().map_err(failed)?.len();
        let mut at = 0;
        while at < size {
            let data = next_data(from, at, size).map_err(failed)?.unwrap_or(size..size);
            piece.fill(0);
            while at < data.start {
                let len = usize::try_from(data.start - at).unwrap_or(PIECE).min(PIECE);
                to.write_all(piece.get(..len).unwrap_or_default()).map_err(sent)?;
                at += len as u64;
            }
            while at < data.end {
                let len = usize::try_from(data.end - at).unwrap_or(PIECE).min(PIECE);
                let part = piece.get_mut(..len).unwrap_or_default();
                from.read_exact_at(part, at).map_err(failed)?;
                to.write_all(part).map_err(sent)?;
                at += len as u64;
            }
        }
        to.flush().map_err(sent)
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> Result<()> {
        let synced: io::Result<()> = self.file.as_file().sync_all();
        synced.map_err(|error| Error::host(&self.path, error))?;
        let mut unfinished = unfinished();
        unfinished.retain(|path| path != self.file.path());
        let named = self.file.persist(&self.path);
        named.map(drop).map_err(|error| Error::host(&self.path, error.error))
    }
}
