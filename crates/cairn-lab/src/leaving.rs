//! What an experiment has outside of its process: directories, mounts, programs. A signal that ends
//! the process early takes them away ([`take_away`]).
//!
//! **Locking.** The list is a leaf. A mount is made under [`MOUNTING`], so that none appears when
//! the list has been read. A thread of an experiment that meets the end of the process stays where
//! it is ([`stay_if_ending`]): what it could tell would be a consequence of the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use tempfile::TempDir;

use crate::error::{Error, Result};

type Removal = Box<dyn FnOnce() + Send>;

/// What is there, in the order in which it was made.
static THERE: Mutex<Vec<(u64, Removal)>> = Mutex::new(Rank::Leaf, Vec::new());
/// Held while a mount is made.
static MOUNTING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
/// How much later a thread may handle a signal.
const SOON: Duration = Duration::from_millis(100);
static NEXT: AtomicU64 = AtomicU64::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

/// Something that is there until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept(u64);

/// Tells how something is taken away that is there from now on.
pub(crate) fn keep(removal: impl FnOnce() + Send + 'static) -> Kept {
    let number = NEXT.fetch_add(1, Relaxed);
    THERE.lock().push((number, Box::new(removal)));
    Kept(number)
}

impl Drop for Kept {
    fn drop(&mut self) {
        THERE.lock().retain(|(number, _)| *number != self.0);
    }
}

/// Nothing is taken away while this is held.
pub(crate) fn mounting() -> parking_lot::MutexGuard<'static, ()> {
    let guard = MOUNTING.lock();
    stay_if_ending();
    guard
}

/// As [`stay_if_ending`], where something has failed: a signal to a whole group of processes ends
/// programs, and this one may hear of that a little before it hears of the signal.
pub(crate) fn stay_if_ending_soon() {
    std::thread::sleep(SOON);
    stay_if_ending();
}

/// Stops the thread if the process is about to end.
pub(crate) fn stay_if_ending() {
    while ENDING.load(Relaxed) {
        std::thread::park();
    }
}

/// For a process that ends at once, without the ends of its functions: kills the programs that
/// experiments run, takes down their mounts and removes their directories, the newest first.
/// Experiments go no further.
pub fn take_away() {
    ENDING.store(true, Relaxed);
    let _guard = MOUNTING.lock();
    loop {
        let newest = THERE.lock().pop();
        match newest {
            Some((_, removal)) => removal(),
            None => return,
        }
    }
}

/// A directory for images and mount points, which is removed with what is in it.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
    _kept: Kept,
}

impl Scratch {
    /// A new directory in `place`.
    pub(crate) fn new(place: &Path) -> Result<Self> {
        Self::named(place, ".cairn-lab-")
    }

    /// A new directory whose name begins like this, and goes on with the number of the process.
    pub(crate) fn named(place: &Path, prefix: &str) -> Result<Self> {
        let prefix = format!("{prefix}{}-", std::process::id());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(place);
        let directory = directory.map_err(Error::host(place))?;
        let path: PathBuf = directory.path().to_owned();
        let kept = keep(move || drop(std::fs::remove_dir_all(path)));
        Ok(Self { directory, _kept: kept })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_not_taken_away_again() {
        let place = tempfile::tempdir().unwrap();
        let count = || THERE.lock().len();
        let before = count();
        let scratch = Scratch::new(place.path()).unwrap();
        let path = scratch.path().to_owned();
        assert!(path.is_dir() && count() > before);
        drop(scratch);
        assert!(!path.exists());
    }
}
