//! Temporary names of outputs that are not whole: `.NAME.XXXXXX.unfinished`, beside `NAME`.
//!
//! A file with such a name is locked as long as its process lives. One that is not was left by a
//! process that was killed, and is removed when the next output of this user is made in its
//! directory. [`abandon`] removes those of this process, for a process that a signal ends.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cairn::block::lock_making;
use rustix::fs::OFlags;
use tempfile::{NamedTempFile, TempDir};

/// How a temporary name ends.
const END: &str = ".unfinished";
/// Letters before the end that tell names apart.
const LETTERS: usize = 6;
/// Longest name of a file.
const NAME_MAX: usize = 255;
/// Tries to make a file that nobody takes for one of a killed process.
const TRIES: usize = 16;

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
    for _ in 0..TRIES {
        let file = tempfile::Builder::new()
            .prefix(&prefix(name))
            .rand_bytes(LETTERS)
            .suffix(END)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)?;
        // Another process may have found it before the lock. Where there are no locks, nothing is
        // ever removed.
        let is_taken = matches!(lock_making(file.as_file()), Ok(false));
        if !is_taken && file.as_file().metadata()?.nlink() > 0 {
            unfinished().push(file.path().to_owned());
            return Ok(file);
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Makes a directory with a temporary name, which nobody else can enter.
///
/// # Errors
/// The directory above it cannot be written.
pub(crate) fn directory(above: &Path, name: &OsStr) -> io::Result<TempDir> {
    let made = tempfile::Builder::new()
        .prefix(&prefix(name))
        .rand_bytes(LETTERS)
        .suffix(END)
        .tempdir_in(above)?;
    unfinished().push(made.path().to_owned());
    Ok(made)
}

/// How the temporary name of a file begins.
fn prefix(name: &OsStr) -> OsString {
    let most = NAME_MAX - END.len() - LETTERS - 2;
    let name = name.as_bytes();
    let name = name.get(..most).unwrap_or(name);
    OsString::from_vec([b".", name, b"."].concat())
}

fn is_temporary(name: &[u8]) -> bool {
    let Some(name) = name.strip_prefix(b".").and_then(|name| name.strip_suffix(END.as_bytes()))
    else {
        return false;
    };
    let mut parts = name.rsplitn(2, |byte| *byte == b'.');
    let letters = parts.next().unwrap_or_default();
    letters.len() == LETTERS
        && letters.iter().all(u8::is_ascii_alphanumeric)
        && parts.next().is_some()
}

/// Removes files of this user that killed processes have left in a directory. What cannot be
/// removed stays.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if is_temporary(entry.file_name().as_bytes()) {
            // It may just have been removed, or have got its name.
            let _ = remove_dead(&entry.path(), entry.ino());
        }
    }
}

/// Removes a regular file of this user whose process does not live any more.
fn remove_dead(path: &Path, ino: u64) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |found: &fs::Metadata| found.is_file() && found.uid() == own;
    if !is_own(&fs::symlink_metadata(path)?) {
        return Ok(());
    }
    // What has taken its place may be a link, or a FIFO.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let file = File::options().write(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !is_own(&found) || found.ino() != ino || !lock_making(&file)? {
        return Ok(());
    }
    // Its process may have given it its name, and another file this one, before the lock.
    let there = fs::symlink_metadata(path)?;
    if (there.dev(), there.ino()) == (found.dev(), found.ino()) {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn temporary_names_are_told_from_others() {
        for name in [".image.a1B2c3.unfinished", ".a.b.a1B2c3.unfinished", "..a1B2c3.unfinished"] {
            assert!(is_temporary(name.as_bytes()), "{name}");
        }
        for name in [
            "image.a1B2c3.unfinished",
            ".image.a1B2c.unfinished",
            ".a1B2c3.unfinished",
            ".image.a1B2c-.unfinished",
            ".image.a1B2c3.unfinishe",
            ".image.a1B2c3",
        ] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }

    /// Files of processes that live, of other users, and what is no file stay. Root makes them.
    #[test]
    fn only_what_the_dead_have_left_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        assert!(rustix::process::geteuid().is_root(), "root makes files of others");
        for name in [".a.dead00.unfinished", ".a.live00.unfinished", ".a.other0.unfinished", "aim"]
        {
            fs::write(at(name), "half").unwrap();
        }
        chown(at(".a.other0.unfinished"), Some(2000), None).unwrap();
        symlink("aim", at(".a.link00.unfinished")).unwrap();
        fs::create_dir(at(".a.folder.unfinished")).unwrap();
        let fifo = at(".a.fifo00.unfinished");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let live = File::options().write(true).open(at(".a.live00.unfinished")).unwrap();
        assert!(lock_making(&live).unwrap());
        let made = file(place.path(), OsStr::new("b"), 0o600).unwrap();
        assert!(is_temporary(made.path().file_name().unwrap().as_bytes()));
        let left = || fs::read_dir(place.path()).unwrap().count();
        assert!(!at(".a.dead00.unfinished").exists());
        assert_eq!(left(), 7);
        drop((live, made));
        // A long name is cut.
        let long = file(place.path(), OsStr::from_bytes(&[b'n'; 255]), 0o600).unwrap();
        assert_eq!(long.path().file_name().unwrap().len(), NAME_MAX);
        assert!(!at(".a.live00.unfinished").exists());
        assert_eq!(left(), 6);
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
                            assert!(made.path().exists());
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
