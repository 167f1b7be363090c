//! The file that is built: it has a temporary name beside the wanted one until it is whole.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use cairn::{Claim, ImageSpec, host, keeps_size};
use cairn_base::names::Escaped;
use tempfile::NamedTempFile;

use crate::before::Before;
use crate::error::{Error, Result};
use crate::extents::next_data;
use crate::temporary::{self, named};

/// What messages call standard output.
pub(crate) const STDOUT: &str = "standard output";
/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

/// An output that is not whole yet. It is removed if it does not become whole.
pub(crate) struct Unfinished {
    file: NamedTempFile,
    path: PathBuf,
    /// What it may replace.
    before: Before,
}

/// The directory of a path.
pub(crate) fn directory(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Checks that a name is one of an image that can be built.
///
/// # Errors
/// It says more of a file than its name, or is that of a part of a disk, or of an encrypted disk,
/// that is not there.
pub(crate) fn check_name(path: &Path) -> Result<()> {
    if is_stdout(path) {
        return Ok(());
    }
    let image = ImageSpec::parse(path.as_os_str()).map_err(Error::image)?;
    if keeps_size(&image) {
        let why = match image.key {
            _ if image.exists() => return Ok(()),
            Some(_) => {
                "a key opens an encrypted disk, and there is none: encrypt one first (cryptsetup \
                 luksFormat), or leave the key out"
            }
            None => "a part of a disk is written over, and there is no such disk: make one first",
        };
        return Err(Error::Usage(format!("{}: {why}", path.escaped())));
    }
    if image.file().is_some_and(|file| file != path) {
        return Err(Error::Usage(format!(
            "{}: a plain file is built, so ?format= and ?io= cannot follow its name: leave them \
             out",
            path.escaped()
        )));
    }
    Ok(())
}

/// Claims the image that will be replaced, so that nobody has it mounted meanwhile.
///
/// # Errors
/// It is in use, or a repair of it was interrupted.
pub(crate) fn claim(path: &Path) -> Result<Option<Claim>> {
    if is_stdout(path) {
        return Ok(None);
    }
    let image = ImageSpec::parse(path.as_os_str()).map_err(Error::image)?;
    if keeps_size(&image) {
        // Whoever writes it has it.
        return Ok(None);
    }
    cairn::refuse_interrupted(&image).map_err(Error::image)?;
    let is_replaced = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    is_replaced.then(|| cairn::claim(&image)).transpose().map_err(Error::image)
}

/// True if a name stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// The file or directory that a name stands for: see [`host::behind_links`].
///
/// # Errors
/// As there.
pub(crate) fn place(path: &Path) -> Result<PathBuf> {
    host::behind_links(path).map_err(|error| Error::host(path, error))
}

/// Bytes that the filesystem of a file has left for this user, if it tells.
pub(crate) fn room(file: &File) -> Option<u64> {
    let stats = rustix::fs::fstatvfs(file).ok()?;
    stats.f_bavail.checked_mul(stats.f_frsize)
}

/// Checks that [`replace`] could make or replace a file, and changes nothing.
///
/// # Errors
/// As [`replace`].
pub fn check_replaceable(path: &Path) -> Result<()> {
    let file = Unfinished::create(path, true)?;
    let temporary = file.path().to_owned();
    named(temporary, || drop(file));
    Ok(())
}

/// Makes a file with these contents, or gives it to one that is there, which keeps its owner and
/// permission bits. Others find the old file or the new one, and never a part.
///
/// # Errors
/// The path is that of something else than a regular file, or of a link of another user in a
/// directory that all may write; or its directory cannot be written.
pub fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    let file = Unfinished { before: Before::Anything, ..Unfinished::create(path, true)? };
    file.keep_owner().map_err(|error| Error::host(path, error))?;
    file.file().write_all(contents).map_err(|error| Error::host(path, error))?;
    file.finish()
}

/// A directory that is not whole yet. It is removed if it does not become whole.
pub(crate) struct UnfinishedDirectory {
    directory: temporary::Directory,
    path: PathBuf,
}

impl UnfinishedDirectory {
    /// Creates an empty directory beside `path`, which nobody else can enter.
    ///
    /// # Errors
    /// `path` exists and is not an empty directory, or the directory above it cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let place = place(path)?;
        match fs::read_dir(&place).map(|mut entries| entries.next().is_some()) {
            Ok(true) => {
                let why = "is not empty: give a new directory";
                return Err(Error::Usage(format!("{}: {why}", path.escaped())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let why = "is not a directory: give a new one";
                return Err(Error::Usage(format!("{}: {why}", path.escaped())));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::host(path, error));
            }
            _ => {}
        }
        // `.` has neither a name nor a directory above it.
        let place = fs::canonicalize(&place).unwrap_or(place);
        let above = directory(&place);
        let made = temporary::Directory::new(&above, place.file_name().unwrap_or_default());
        let made = made.map_err(|error| Error::unmade(path, &above, error))?;
        Ok(Self { directory: made, path: place })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Device and inode of the directory.
    pub(crate) fn own(&self) -> Vec<(u64, u64)> {
        let found = fs::metadata(self.directory.path()).ok();
        found.into_iter().map(|of| (of.dev(), of.ino())).collect()
    }

    /// Gives the directory its name.
    pub(crate) fn finish(self) -> Result<()> {
        let failed = |error| Error::host(&self.path, error);
        let opened = File::open(self.directory.path()).map_err(failed)?;
        rustix::fs::syncfs(opened).map_err(|error| failed(error.into()))?;
        let Self { directory, path } = self;
        named(directory.path().to_owned(), || {
            fs::rename(directory.path(), &path).map_err(|error| Error::host(&path, error))?;
            // Its temporary name is gone.
            directory.keep();
            Ok(())
        })
    }
}

impl Unfinished {
    /// Creates an empty file that never gets another name, in `TMPDIR`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn hidden() -> Result<Self> {
        let directory = std::env::temp_dir();
        let file = temporary::file(&directory, OsStr::new("cairn"), 0o600);
        let file = file.map_err(|source| Error::Scratch { directory, source })?;
        Ok(Self { path: file.path().to_owned(), file, before: Before::Anything })
    }

    /// Creates an empty file beside `path`; if that is a symbolic link, beside the file that it
    /// leads to, which is made or replaced.
    ///
    /// # Errors
    /// `path` exists and `overwrite` is not set, is not a regular file or is a link of another user
    /// in a directory that all may write; or its directory cannot be written.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Result<Self> {
        let place = place(path)?;
        // Not the place: /dev/stdout leads to a name that is no file's.
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                return Err(Error::Usage(format!(
                    "{}: is a directory: the image comes first, then its sources: give a new file",
                    path.escaped()
                )));
            }
            Ok(found) if !found.is_file() => {
                return Err(Error::Usage(format!(
                    "{}: is not a regular file: give a new file",
                    path.escaped()
                )));
            }
            Ok(found) if !overwrite && found.len() > 0 => {
                return Err(Error::Exists { subject: path.escaped() });
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::host(path, error));
            }
            Err(_) if path.as_os_str().as_bytes().ends_with(b"/") => {
                return Err(Error::Usage(format!(
                    "{}: a slash at its end is that of a directory: name a file",
                    path.escaped()
                )));
            }
            _ => {}
        }
        let above = directory(&place);
        let before = Before::at(&place, overwrite);
        let file = temporary::file(&above, place.file_name().unwrap_or_default(), 0o666);
        let file = file.map_err(|error| Error::unmade(path, &above, error))?;
        Ok(Self { file, path: place, before })
    }

    /// Device and inode of the file, and of the one that it will replace.
    pub(crate) fn own(&self) -> Vec<(u64, u64)> {
        let files = [self.file.as_file().metadata().ok(), fs::metadata(&self.path).ok()];
        files.into_iter().flatten().map(|file| (file.dev(), file.ino())).collect()
    }

    /// Refuses to replace a file that it is made of.
    ///
    /// # Errors
    /// The source is the file that this one becomes.
    pub(crate) fn refuse_source(&self, source: &Path, opened: &File) -> Result<()> {
        let found = opened.metadata().map_err(|error| Error::host(source, error))?;
        if self.own().contains(&(found.dev(), found.ino())) {
            let why = "is the source, and the file that is made: give another name";
            return Err(Error::Usage(format!("{}: {why}", source.escaped())));
        }
        Ok(())
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

    /// Where the file has data, up to a size.
    ///
    /// # Errors
    /// The system fails.
    pub(crate) fn data(&self, size: u64) -> Result<Vec<Range<u64>>> {
        let (mut found, mut at) = (Vec::new(), 0);
        let failed = |error| Error::host(&self.path, error);
        while let Some(data) = next_data(self.file(), at, size).map_err(failed)? {
            at = data.end;
            found.push(data);
        }
        Ok(found)
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
        let Self { file, path, before } = self;
        named(file.path().to_owned(), || before.replace(file, &path))?;
        // The name is durable as well.
        let synced = File::open(directory(&path)).and_then(|above| above.sync_all());
        match synced {
            // A directory may be written and not be read.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                Err(Error::host(directory(&path), error))
            }
            _ => Ok(()),
        }
    }

    /// Gives the file owner, group and permission bits of the one that it will replace.
    fn keep_owner(&self) -> io::Result<()> {
        let Ok(old) = fs::symlink_metadata(&self.path) else { return Ok(()) };
        let new = self.file().metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            fchown(self.file(), Some(old.uid()), Some(old.gid()))?;
        }
        self.file().set_permissions(Permissions::from_mode(old.mode() & 0o777))
    }
}
