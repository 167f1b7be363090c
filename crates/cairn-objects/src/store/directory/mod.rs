//! [`DirectoryStore`]: objects as files of a directory.
//!
//! An object is written beside its name, synced, and then gets its name: by a link, which fails if
//! the name is taken, or by a rename under the directory's lock. The directory that holds the name
//! is synced before the answer. A tag is the file's modification time, which a replacement raises.
//! The file is locked until it has its name, so one that is not locked belongs to nobody.
//!
//! Links of other users in directories that all may write are not followed
//! ([`cairn_base::host`]), neither in the place of the store nor below it.

mod place;
mod walk;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{host, memory, system_error};

use super::memory::{clamp, conflict, missing};
use super::{Condition, Error, ErrorKind, Listed, Object, Result, Store, Stranger, Swept, Tag};
use place::{behind, real, unfollowed};
use walk::{UNFINISHED, Walk};

/// The file whose lock a replacement holds.
const LOCK: &str = ".lock";
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

    /// The file of an object, which is no link.
    fn path(&self, name: &str) -> io::Result<PathBuf> {
        behind(&self.root, name)
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

    /// The lock that a replacement holds. Any open file would do to lock it, so only those who may
    /// write the directory may open it.
    fn lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).mode(0o600);
        let lock = host::open_regular(&self.path(LOCK)?, options)?;
        let (found, folder) = (lock.metadata()?, fs::metadata(&self.root)?.mode());
        let [group, others] =
            [0o020, 0o002].map(|writes| if folder & writes != 0 { writes * 3 } else { 0 });
        let mode = 0o600 | group | others;
        if found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o777 != mode {
            // A filesystem without modes has none to change.
            let _ = lock.set_permissions(fs::Permissions::from_mode(mode));
        }
        lock.lock()?;
        Ok(lock)
    }

    /// Replaces the file, if it has the tag.
    fn replace(&self, path: &Path, parts: &[Bytes], wanted: &Tag) -> io::Result<Option<Tag>> {
        let lock = self.lock()?;
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
    let advice = match kind {
        ErrorKind::Full => "make room there",
        ErrorKind::Denied => "see the owner and mode of the directory and what is in it",
        _ => "look at the directory of the store",
    };
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
        let put = self.path(name).and_then(|path| match condition {
            Condition::IfAbsent => self.create(&path, parts),
            Condition::IfMatch(tag) => self.replace(&path, parts, tag),
        });
        let failed = |source: io::Error| match source.kind() {
            // A PUT makes what directories it needs.
            io::ErrorKind::NotFound => {
                let place = self.root.display();
                let detail = format!(
                    "{name}: the directory {place} cannot be made here: name one on a disk of \
                     this system"
                );
                Error::new(ErrorKind::Failed, detail)
            }
            _ => error(name, &source),
        };
        put.map_err(failed)?.ok_or_else(|| conflict(name))
    }

    fn get(&self, name: &str) -> Result<Object> {
        let get = || {
            let mut file = host::open_regular(&self.path(name)?, File::options().read(true))?;
            let metadata = file.metadata()?;
            let bytes = read(&mut file, 0..metadata.len())?;
            Ok(Object { bytes, tag: tag(&metadata) })
        };
        get().map_err(|source| error(name, &source))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let open = || {
            let file = host::open_regular(&self.path(name)?, File::options().read(true))?;
            let size = file.metadata()?.len();
            Ok((file, size))
        };
        let (mut file, size) = open().map_err(|source| error(name, &source))?;
        let range = clamp(name, size, &range)?;
        read(&mut file, range).map_err(|source| error(name, &source))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        let walked = Walk::all(&self.root, prefix).map_err(|source| error(prefix, &source))?;
        let mut found = walked.objects;
        found.retain(|listed| after.is_none_or(|after| listed.name.as_str() > after));
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        match unfollowed(&self.root, name).and_then(fs::remove_file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(error(name, &source)),
            _ => Ok(()),
        }
    }

    fn sweep(&self) -> Result<Swept> {
        walk::sweep(&self.root).map_err(|source| error(UNFINISHED, &source))
    }

    fn strangers(&self) -> Result<Vec<Stranger>> {
        let walked = Walk::all(&self.root, "").map_err(|source| error("", &source))?;
        Ok(walked.strangers)
    }

    fn is_foreign(&self, name: &str) -> bool {
        unfollowed(&self.root, name).and_then(|path| host::is_foreign(&path)).unwrap_or(false)
    }

    fn holds(&self, path: &Path) -> bool {
        real(path).starts_with(real(&self.root))
    }

    fn is_made(&self) -> Result<bool> {
        let made = || self.path("volumes").map(|path| path.is_dir());
        made().map_err(|source| error("volumes", &source))
    }
}
