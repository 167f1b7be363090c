//! A temporary directory in which a test may mount. Nothing stays mounted when the test ends, even
//! if it fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The directory. When it is dropped, all mounts in it are detached, the latest first, and it is
/// removed.
#[derive(Debug)]
pub struct Place(TempDir);

impl Place {
    /// Makes one in the system's directory for temporary files.
    #[must_use]
    pub fn new() -> Self {
        tempfile::tempdir().expect("a temporary directory").into()
    }

    /// Makes one in this directory.
    #[must_use]
    pub fn inside(parent: &Path) -> Self {
        tempfile::tempdir_in(parent).expect("a temporary directory").into()
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl From<TempDir> for Place {
    fn from(dir: TempDir) -> Self {
        Self(dir)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for point in mounted_below(self.path()).iter().rev() {
            // A detached daemon ends by itself. If a mount cannot be detached, the removal of the
            // directory fails.
            let _ = Command::new("umount").arg("-l").arg(point).stderr(Stdio::null()).status();
        }
    }
}

/// Names of temporary directories have no letters that the table escapes.
fn mounted_below(directory: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(directory)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::judge;

    #[test]
    fn what_a_failed_test_has_mounted_does_not_stay() {
        assert!(judge::is_root(), "needs root, to mount: run it with sudo");
        let kept = std::panic::catch_unwind(|| {
            let place = Place::new();
            let point = place.path().join("point");
            fs::create_dir(&point).unwrap();
            judge::run("mount", ["-t", "tmpfs", "place", point.to_str().unwrap()]);
            fs::create_dir(point.join("upper")).unwrap();
            judge::run("mount", ["-t", "tmpfs", "place", point.join("upper").to_str().unwrap()]);
            assert_eq!(mounted_below(place.path()).len(), 2);
            std::panic::panic_any(place.path().to_owned());
        });
        let directory = *kept.unwrap_err().downcast::<PathBuf>().unwrap();
        assert!(!directory.exists() && mounted_below(&directory).is_empty());
    }
}
