//! Temporary names of outputs that are not whole: `.NAME.XXXXXX.unfinished`, beside `NAME`.
//!
//! A file or directory with such a name is locked as long as its process lives. One that is not was
//! left by a process that was killed, and is removed when the next output of this user is made in
//! its directory. The letters follow from the number of its inode and from its name: what somebody
//! else has called so is not removed. [`abandon`] removes those of this process, for a process that
//! a signal ends.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cairn::block::lock_making;
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

/// How a temporary name ends.
const END: &str = ".unfinished";
/// Letters before the end that tell names apart.
const LETTERS: usize = 6;
/// Longest name of a file.
const NAME_MAX: usize = 255;
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
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    // `named` waits for this lock, for ever.
    std::mem::forget(unfinished);
}

/// Forgets a temporary name, and then does what the name must not be removed after.
pub(crate) fn named<T>(temporary: PathBuf, name: impl FnOnce() -> T) -> T {
    let mut unfinished = unfinished();
    unfinished.retain(|path| *path != temporary);
    name()
}

/// Makes an empty file with a temporary name in a directory, after what killed processes have left
/// there was removed. The umask restricts the mode.
///
/// # Errors
/// The directory cannot be written.
pub(crate) fn file(directory: &Path, name: &OsStr, mode: u32) -> io::Result<NamedTempFile> {
    sweep(directory);
    let made = tempfile::Builder::new()
        .prefix(&prefix(name))
        .suffix(END)
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)?;
    // Where there are no locks, nothing is ever removed.
    let _ = lock_making(made.as_file());
    let (file, path) = made.into_parts();
    let own = own_name(directory, name, &path, file.metadata()?.ino())?;
    path.keep().map_err(|kept| kept.error)?;
    let own = TempPath::try_from_path(own)?;
    unfinished().push(own.to_path_buf());
    Ok(NamedTempFile::from_parts(file, own))
}

/// A directory with a temporary name. It is removed if it does not get another.
pub(crate) struct Directory {
    path: PathBuf,
    is_kept: bool,
    /// Locked.
    _opened: File,
}

impl Directory {
    /// Makes one, which nobody else can enter, after what killed processes have left beside it was
    /// removed.
    ///
    /// # Errors
    /// The directory above it cannot be written.
    pub(crate) fn new(above: &Path, name: &OsStr) -> io::Result<Self> {
        sweep(above);
        let made = tempfile::Builder::new().prefix(&prefix(name)).suffix(END).tempdir_in(above)?;
        let opened = File::open(made.path())?;
        // As for files.
        let _ = flock(&opened, FlockOperation::NonBlockingLockExclusive);
        let path = own_name(above, name, made.path(), opened.metadata()?.ino())?;
        let _ = made.keep();
        unfinished().push(path.clone());
        Ok(Self { path, is_kept: false, _opened: opened })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It has got another name.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Gives what was made at `path` the name that its inode has here.
fn own_name(directory: &Path, name: &OsStr, path: &Path, ino: u64) -> io::Result<PathBuf> {
    let begin = prefix(name).into_vec();
    let end = [&letters(ino, &begin)[..], END.as_bytes()].concat();
    let own = directory.join(OsString::from_vec([begin, end].concat()));
    match renameat_with(CWD, path, CWD, &own, RenameFlags::NOREPLACE) {
        // The filesystem cannot do that.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::rename(path, &own)?,
        renamed => renamed?,
    }
    Ok(own)
}

/// How the temporary name of a file begins.
fn prefix(name: &OsStr) -> OsString {
    let most = NAME_MAX - END.len() - LETTERS - 2;
    let name = name.as_bytes();
    let name = name.get(..most).unwrap_or(name);
    OsString::from_vec([b".", name, b"."].concat())
}

/// The letters of an inode behind the beginning of its name (FNV-1a).
fn letters(ino: u64, begin: &[u8]) -> [u8; LETTERS] {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let bytes = ino.to_le_bytes();
    let mut hash = bytes.iter().chain(begin).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The last bytes are in the upper bits by now.
    hash ^= hash >> 32;
    std::array::from_fn(|_| {
        let digit = usize::try_from(hash % 62).unwrap_or(0);
        hash /= 62;
        ALPHABET.get(digit).copied().unwrap_or(b'0')
    })
}

/// True if a name is the temporary one of this inode.
fn is_own(name: &[u8], ino: u64) -> bool {
    let Some(begin) = name.strip_suffix(END.as_bytes()) else { return false };
    let Some((begin, found)) = begin.split_last_chunk::<LETTERS>() else { return false };
    let is_prefix = begin.len() > 1 && begin.starts_with(b".") && begin.ends_with(b".");
    is_prefix && *found == letters(ino, begin)
}

/// Removes files and directories of this user that killed processes have left in a directory. What
/// cannot be removed stays.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_bytes().ends_with(END.as_bytes()) {
            // It may just have been removed, or have got its name.
            let _ = remove_dead(&entry.path(), entry.file_name().as_bytes());
        }
    }
}

/// Removes what a process of this user has made that does not live any more.
fn remove_dead(path: &Path, name: &[u8]) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let is_ours = |found: &fs::Metadata| found.uid() == user && is_own(name, found.ino());
    let seen = fs::symlink_metadata(path)?;
    if !is_ours(&seen) || !seen.is_file() && !seen.is_dir() {
        return Ok(());
    }
    // What has taken its place may be a link, or a FIFO.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let opened =
        File::options().read(seen.is_dir()).write(seen.is_file()).custom_flags(flags).open(path)?;
    let is_dead = match seen.is_dir() {
        true => flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok(),
        false => lock_making(&opened)?,
    };
    // Its process may have given it its name, and another file this one, before the lock.
    let there = fs::symlink_metadata(path)?;
    let is_there = same(&there, &seen) && same(&opened.metadata()?, &seen);
    match is_dead && is_there {
        true if seen.is_dir() => fs::remove_dir_all(path),
        true => fs::remove_file(path),
        false => Ok(()),
    }
}

fn same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Leaves a file as a killed process would.
    fn dead(directory: &Path, name: &str) -> PathBuf {
        let made = file(directory, OsStr::new(name), 0o600).unwrap();
        made.keep().unwrap().1
    }

    fn dead_directory(above: &Path, name: &str) -> PathBuf {
        let made = Directory::new(above, OsStr::new(name)).unwrap();
        fs::create_dir(made.path().join("below")).unwrap();
        fs::write(made.path().join("below/file"), "half").unwrap();
        let path = made.path().to_owned();
        made.keep();
        path
    }

    #[test]
    fn temporary_names_are_told_from_others() {
        for begin in [".image.", ".a.b.", ".."] {
            let own = [begin.as_bytes(), &letters(7, begin.as_bytes()), END.as_bytes()].concat();
            assert!(is_own(&own, 7) && !is_own(&own, 8) && !is_own(&own[1..], 7), "{begin}");
            assert!(!is_own(&own[..own.len() - 1], 7), "{begin}");
        }
        assert!(!is_own(END.as_bytes(), 7) && !is_own(b".a1B2c3.unfinished", 7));
        // Neighbours differ in all letters, nearly always.
        let all: std::collections::HashSet<_> = (0..1000).map(|ino| letters(ino, b".a.")).collect();
        assert_eq!(all.len(), 1000);
    }

    /// Files of processes that live, of other users, and what only looks like ours stay. Root makes
    /// them.
    #[test]
    fn only_what_the_dead_have_left_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        assert!(rustix::process::geteuid().is_root(), "root makes files of others");
        let live = file(place.path(), OsStr::new("live"), 0o600).unwrap();
        let live_directory = Directory::new(place.path(), OsStr::new("directory")).unwrap();
        // Somebody's backup of what a build had left, and what is called like that.
        let other = dead(place.path(), "other");
        chown(&other, Some(2000), None).unwrap();
        let copied = dead(place.path(), "copied");
        fs::copy(&copied, at("copy")).unwrap();
        fs::remove_file(&copied).unwrap();
        fs::rename(at("copy"), &copied).unwrap();
        let moved = dead(place.path(), "moved");
        fs::rename(&moved, at(".moved.away00.unfinished")).unwrap();
        fs::write(at(".a.notes0.unfinished"), "mine").unwrap();
        fs::write(at("aim"), "x").unwrap();
        symlink("aim", at(".a.link00.unfinished")).unwrap();
        fs::create_dir(at(".a.folder.unfinished")).unwrap();
        let fifo = at(".a.fifo00.unfinished");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let left = || fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left(), 10);
        dead(place.path(), "dead");
        dead_directory(place.path(), "dead-directory");
        assert_eq!(left(), 11, "the second removes the first");
        sweep(place.path());
        assert_eq!(left(), 10);
        assert!(live.path().exists() && live_directory.path().exists() && other.exists());
        let (path, _) = (live.path().to_owned(), live.keep().unwrap());
        sweep(place.path());
        assert!(!path.exists());
        drop(live_directory);
        assert_eq!(left(), 8);
        // A long name is cut.
        let long = file(place.path(), OsStr::from_bytes(&[b'n'; 255]), 0o600).unwrap();
        assert_eq!(long.path().file_name().unwrap().len(), NAME_MAX);
    }

    /// While others sweep, no file of a process that lives is lost.
    #[test]
    fn a_sweep_takes_nothing_from_the_living() {
        let place = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let makers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..300 {
                            let made = file(place.path(), OsStr::new("a"), 0o600).unwrap();
                            let below = Directory::new(place.path(), OsStr::new("b")).unwrap();
                            assert!(made.path().exists() && below.path().exists());
                        }
                    })
                })
                .collect();
            while makers.iter().any(|maker| !maker.is_finished()) {
                sweep(place.path());
            }
        });
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
