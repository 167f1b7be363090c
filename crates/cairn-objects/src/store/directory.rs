//! [`DirectoryStore`]: objects as files of a directory.
//!
//! An object is written beside its name, synced, and then gets its name: by a link, which fails if
//! the name is taken, or by a rename under the directory's lock. The directory that holds the name
//! is synced before the answer. A tag is the file's modification time, which a replacement raises.
//! The file is locked until it has its name, so one that is not locked belongs to nobody.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::memory;
use cairn_base::system_error;

use super::memory::{clamp, conflict, missing};
use super::{Condition, Error, ErrorKind, Listed, Object, Result, Store, Tag};

/// Names of unfinished files begin with this; objects' names do not.
const UNFINISHED: &str = ".new-";
/// The file whose lock a replacement holds.
const LOCK: &str = ".lock";
/// What a process that was killed while it looked at the store has left is here.
const PROBES: &str = "probe/";
/// What may be somebody's is removed when it is older than this.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Numbers unfinished files of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A store in a directory of the host.
pub struct DirectoryStore {
    root: PathBuf,
}

impl DirectoryStore {
    /// The store in `root`, which need not exist before the first PUT.
    #[must_use]
    pub const fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes a file beside `path`, durably. The caller gives it its name, and then closes it.
    fn unfinished(&self, path: &Path, parts: &[Bytes]) -> io::Result<(PathBuf, File)> {
        let folder = path.parent().unwrap_or(&self.root);
        self.make(folder)?;
        let (unfinished, mut file) = loop {
            let number = NEXT.fetch_add(1, Relaxed);
            let name = folder.join(format!("{UNFINISHED}{}-{number}", std::process::id()));
            let file = match OpenOptions::new().write(true).create_new(true).open(&name) {
                // Of a process that had this number before, or on another host.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            // Where there are no locks, an hour has to do.
            let _ = file.lock();
            // A sweep may have come before the lock.
            if file.metadata()?.nlink() > 0 {
                break (name, file);
            }
        };
        let mut write = || {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.sync_all()
        };
        write().inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
        Ok((unfinished, file))
    }

    /// Makes a directory below the root, and those above it, durably.
    fn make(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
        if let Some(above) = above {
            self.make(above)?;
        }
        match fs::create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        above.map_or(Ok(()), sync)
    }

    /// Names the file, unless another has the name.
    fn create(&self, path: &Path, parts: &[Bytes]) -> io::Result<Option<Tag>> {
        if path.exists() {
            return Ok(None);
        }
        let (unfinished, file) = self.unfinished(path, parts)?;
        let linked = fs::hard_link(&unfinished, path).map_err(swept);
        let removed = fs::remove_file(&unfinished);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            linked => linked.and(removed)?,
        }
        drop(file);
        sync(path.parent().unwrap_or(&self.root))?;
        Ok(Some(tag(&fs::metadata(path)?)))
    }

    /// Replaces the file, if it has the tag.
    fn replace(&self, path: &Path, parts: &[Bytes], wanted: &Tag) -> io::Result<Option<Tag>> {
        let lock = OpenOptions::new().create(true).append(true).open(self.root.join(LOCK))?;
        lock.lock()?;
        let before = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            before => before?,
        };
        if tag(&before) != *wanted {
            return Ok(None);
        }
        let (unfinished, file) = self.unfinished(path, parts)?;
        let later = || -> io::Result<()> {
            let old = before.modified()?;
            let mut step = Duration::from_nanos(1);
            // A filesystem may keep whole seconds only.
            while file.metadata()?.modified()? <= old && step <= Duration::from_secs(10) {
                file.set_modified(old + step)?;
                step *= 10;
            }
            file.sync_all()?;
            fs::rename(&unfinished, path).map_err(swept)
        };
        later().inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
        sync(path.parent().unwrap_or(&self.root))?;
        let tag = tag(&fs::metadata(path)?);
        drop(lock);
        Ok(Some(tag))
    }

    /// Removes below a folder what killed processes have left. How much that was.
    fn sweep_in(&self, folder: &Path) -> io::Result<u64> {
        let mut swept = 0;
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            let is_probe = folder.ends_with(PROBES);
            if path.is_dir() {
                swept += self.sweep_in(&path)?;
            } else if name.starts_with(UNFINISHED.as_bytes()) || is_probe {
                let removed = remove_abandoned(&path, is_probe);
                swept += match removed {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                    removed => u64::from(removed?),
                };
            }
        }
        Ok(swept)
    }

    fn walk(&self, folder: &Path, prefix: &str, found: &mut Vec<Listed>) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let Ok(name) = path.strip_prefix(&self.root) else { continue };
            let Some(name) = name.to_str() else { continue };
            if path.is_dir() {
                let inside = format!("{name}/");
                if inside.starts_with(prefix) || prefix.starts_with(&inside) {
                    self.walk(&path, prefix, found)?;
                }
            } else if name.starts_with(prefix) && !is_hidden(&path) {
                let size = match fs::metadata(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    metadata => metadata?.len(),
                };
                found.push(Listed { name: name.to_owned(), size });
            }
        }
        Ok(())
    }
}

/// An unfinished file was removed, where locks do not hold others off: the PUT can be repeated.
fn swept(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            io::ErrorKind::Interrupted,
            "another process has removed what was written",
        ),
        _ => error,
    }
}

/// Removes a file whose writer has ended. `by_age`: nobody locks it.
fn remove_abandoned(path: &Path, by_age: bool) -> io::Result<bool> {
    let file = File::open(path)?;
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
    if !abandoned || fs::metadata(path)?.ino() != file.metadata()?.ino() {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn tag(metadata: &fs::Metadata) -> Tag {
    let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    Tag(format!("{seconds}.{nanoseconds:09}-{}", metadata.ino()))
}

fn error(name: &str, error: &io::Error) -> Error {
    use io::ErrorKind as K;
    let kind = match error.kind() {
        K::NotFound => return missing(name),
        K::PermissionDenied | K::ReadOnlyFilesystem => ErrorKind::Denied,
        K::StorageFull | K::FileTooLarge | K::QuotaExceeded => ErrorKind::Full,
        K::Unsupported => ErrorKind::Unsupported,
        K::OutOfMemory | K::Interrupted => ErrorKind::Transient,
        _ => ErrorKind::Failed,
    };
    let advice = "look at the directory of the store";
    Error::new(kind, format!("{name}: {}", system_error::with_remedy(error, advice)))
}

fn read(file: &mut File, range: Range<u64>) -> io::Result<Bytes> {
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut bytes = memory::zeroed("an object", len).map_err(io::Error::other)?;
    file.seek(SeekFrom::Start(range.start))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}

impl Store for DirectoryStore {
    fn put(&self, name: &str, parts: &[Bytes], condition: Condition<'_>) -> Result<Tag> {
        let path = self.path(name);
        let put = match condition {
            Condition::IfAbsent => self.create(&path, parts),
            Condition::IfMatch(tag) => self.replace(&path, parts, tag),
        };
        put.map_err(|source| error(name, &source))?.ok_or_else(|| conflict(name))
    }

    fn get(&self, name: &str) -> Result<Object> {
        let get = || {
            let mut file = File::open(self.path(name))?;
            let metadata = file.metadata()?;
            let bytes = read(&mut file, 0..metadata.len())?;
            Ok(Object { bytes, tag: tag(&metadata) })
        };
        get().map_err(|source| error(name, &source))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let open = || {
            let file = File::open(self.path(name))?;
            let size = file.metadata()?.len();
            Ok((file, size))
        };
        let (mut file, size) = open().map_err(|source| error(name, &source))?;
        let range = clamp(name, size, &range)?;
        read(&mut file, range).map_err(|source| error(name, &source))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        self.walk(&self.root, prefix, &mut found).map_err(|source| error(prefix, &source))?;
        found.retain(|listed| after.is_none_or(|after| listed.name.as_str() > after));
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(error(name, &source)),
            _ => Ok(()),
        }
    }

    fn sweep(&self) -> Result<u64> {
        self.sweep_in(&self.root).map_err(|source| error(UNFINISHED, &source))
    }
}
