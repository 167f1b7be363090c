//! What lies in the directory of a store: objects, what killed processes have left, and what is
//! neither.

use std::fs::{self, DirEntry, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cairn_base::{host, system_error};
use rustix::io::Errno;

use crate::store::{Listed, Stranger, Swept};

/// Names of unfinished files begin with this; objects' names do not.
pub(super) const UNFINISHED: &str = ".new-";
/// What a process that was killed while it looked at the store has left is here.
const PROBES: &str = "probe/";
/// What may be somebody's is removed when it is older than this.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A walk over the names that begin with a prefix.
pub(super) struct Walk<'p> {
    prefix: &'p str,
    /// In no order.
    pub(super) objects: Vec<Listed>,
    /// What was left out.
    pub(super) strangers: Vec<Stranger>,
}

impl<'p> Walk<'p> {
    /// Walks over a store.
    ///
    /// # Errors
    /// A folder that the prefix names cannot be read. Others are strangers.
    pub(super) fn all(root: &Path, prefix: &'p str) -> io::Result<Self> {
        let mut walk = Self { prefix, objects: Vec::new(), strangers: Vec::new() };
        walk.folder(&host::behind_links(root)?, "")?;
        Ok(walk)
    }

    /// The names of a folder begin with `above`.
    fn folder(&mut self, folder: &Path, above: &str) -> io::Result<()> {
        for entry in entries(folder)? {
            let (path, name) = named(&entry?, above);
            let inside = format!("{name}/");
            // What cannot be read there would be missed.
            let is_asked_for = self.prefix.starts_with(&inside);
            if !is_asked_for && !name.starts_with(self.prefix) && inside != self.prefix {
                continue;
            }
            match self.entry(&path, &name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if is_refused(&error) && !is_asked_for => {
                    self.strangers.push(stranger(name, &error));
                }
                walked => walked?,
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, name: &str) -> io::Result<()> {
        let place = host::behind_links(path)?;
        let metadata = fs::symlink_metadata(&place)?;
        if metadata.is_dir() {
            return self.folder(&place, &format!("{name}/"));
        }
        if !metadata.is_file() {
            let reason = "it is neither a file nor a directory".to_owned();
            self.strangers.push(Stranger { name: name.to_owned(), reason });
        } else if name.starts_with(self.prefix) && !is_hidden(path) {
            self.objects.push(Listed { name: name.to_owned(), size: metadata.len() });
        }
        Ok(())
    }
}

/// The entries of a folder; none, if it is not there.
fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        entries => Some(entries?),
    };
    Ok(entries.into_iter().flatten())
}

/// Path and name of an entry. Objects' names are UTF-8.
fn named(entry: &DirEntry, above: &str) -> (PathBuf, String) {
    (entry.path(), format!("{above}{}", entry.file_name().to_string_lossy()))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// True if another user's file or link is in the way, not the storage.
fn is_refused(error: &io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied || Errno::from_io_error(error) == Some(Errno::LOOP)
}

fn stranger(name: String, error: &io::Error) -> Stranger {
    Stranger { name, reason: system_error::words(error) }
}

/// Removes what killed processes have left.
pub(super) fn sweep(root: &Path) -> io::Result<Swept> {
    let mut swept = Swept::default();
    sweep_in(&host::behind_links(root)?, "", &mut swept)?;
    Ok(swept)
}

fn sweep_in(folder: &Path, above: &str, swept: &mut Swept) -> io::Result<()> {
    for entry in entries(folder)? {
        let (path, name) = named(&entry?, above);
        match sweep_one(&path, &name, above == PROBES, swept) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if is_refused(&error) => swept.left.push(stranger(name, &error)),
            done => done?,
        }
    }
    Ok(())
}

fn sweep_one(path: &Path, name: &str, is_probe: bool, swept: &mut Swept) -> io::Result<()> {
    let place = host::behind_links(path)?;
    let metadata = fs::symlink_metadata(&place)?;
    if metadata.is_dir() {
        return sweep_in(&place, &format!("{name}/"), swept);
    }
    let file = place.file_name().unwrap_or_default().as_encoded_bytes();
    if metadata.is_file() && (is_probe || file.starts_with(UNFINISHED.as_bytes())) {
        swept.files += u64::from(remove_abandoned(&place, is_probe)?);
    }
    Ok(())
}

/// Removes a file whose writer has ended. `by_age`: nobody locks it.
fn remove_abandoned(path: &Path, by_age: bool) -> io::Result<bool> {
    let file = host::open_regular(path, File::options().read(true))?;
    let is_old = || -> io::Result<bool> {
        let age = file.metadata()?.modified()?.elapsed().unwrap_or_default();
        Ok(age >= ABANDONED)
    };
    let abandoned = match file.try_lock() {
        Err(TryLockError::WouldBlock) => false,
        Ok(()) if !by_age => true,
        _ => is_old()?,
    };
    // The writer may have given it its name, and another file this one, before the lock.
    if !abandoned || fs::symlink_metadata(path)?.ino() != file.metadata()?.ino() {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true)
}
