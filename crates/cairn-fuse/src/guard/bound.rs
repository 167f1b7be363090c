//! The bound on the kernel's writeback cache: data that programs have written and the kernel has
//! not sent yet.
//!
//! The kernel bounds its dirty data for each mount (`/sys/class/bdi`) and for all mounts together
//! (`nr_dirty_threshold`). Root's mount sets the first bound: it follows the volume's room, so that
//! the kernel's dirty data is always a small part of that. An ordinary user's mount keeps the
//! kernel's default, a hundredth of the second bound.

use std::fs;
use std::path::{Path, PathBuf};

use crate::mounts;

/// The smallest bound that root's mount sets, in bytes: enough for a stream of large writes.
const FLOOR: u64 = 16 << 20;
/// The part of the room that the kernel may hold.
const PART: u64 = 16;
/// The kernel's default for a FUSE mount, in percent of the bound for all mounts.
const DEFAULT_PERCENT: u64 = 1;
/// Used if the kernel does not show its threshold: that of a machine with 64 GiB.
const UNKNOWN_THRESHOLD: u64 = 12 << 30;

/// The bound of one mount.
pub(crate) struct Bound {
    /// The mount's own settings.
    bdi: Option<PathBuf>,
    /// True if this process may change them.
    tunable: bool,
}

impl Bound {
    /// The bound of the mount with this device number (`major:minor`).
    pub(crate) fn new(device: Option<&str>, tunable: bool) -> Self {
        let bdi = device.map(mounts::settings);
        let tunable = tunable && bdi.as_deref().is_some_and(Path::is_dir);
        Self { bdi, tunable }
    }

    /// Sets the bound for this much room. Returns the bound in force, in bytes.
    pub(crate) fn follow(&self, room: u64) -> u64 {
        let threshold = threshold();
        if !self.tunable {
            return self.read(threshold);
        }
        let wanted = (room / PART).max(FLOOR);
        let settings = if wanted >= threshold {
            vec![("strict_limit", 0), ("max_ratio", 100)]
        } else if self.number("max_bytes").is_some() {
            vec![("max_bytes", wanted), ("strict_limit", 1)]
        } else {
            // Before Linux 6.2.
            vec![("max_ratio", (wanted * 100 / threshold).max(1)), ("strict_limit", 1)]
        };
        for (setting, value) in settings {
            self.write(setting, value);
        }
        self.read(threshold)
    }

    /// True if less room would make the bound smaller.
    pub(crate) fn can_shrink(&self, bound: u64) -> bool {
        self.tunable && bound > FLOOR
    }

    fn read(&self, threshold: u64) -> u64 {
        match (self.number("strict_limit"), self.number("max_bytes"), self.number("max_ratio")) {
            (Some(0), ..) => threshold,
            (Some(_), Some(bytes), _) => bytes,
            (Some(_), None, Some(percent)) => threshold / 100 * percent.max(1),
            _ => threshold / 100 * DEFAULT_PERCENT,
        }
    }

    fn number(&self, setting: &str) -> Option<u64> {
        fs::read_to_string(self.bdi.as_ref()?.join(setting)).ok()?.trim().parse().ok()
    }

    fn write(&self, setting: &str, value: u64) {
        let Some(path) = self.bdi.as_ref().map(|bdi| bdi.join(setting)) else { return };
        if let Err(error) = fs::write(&path, value.to_string()) {
            tracing::debug!("{} could not be changed: {error}", path.display());
        }
    }
}

/// The most dirty data that the kernel holds of all filesystems, in bytes.
fn threshold() -> u64 {
    let pages = fs::read_to_string("/proc/vmstat").ok().and_then(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("nr_dirty_threshold "))
            .and_then(|pages| pages.parse().ok())
    });
    pages.map_or(UNKNOWN_THRESHOLD, |pages: u64| {
        pages.saturating_mul(rustix::param::page_size() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(tunable: bool, settings: &[(&str, u64)]) -> (tempfile::TempDir, Bound) {
        let dir = tempfile::tempdir().unwrap();
        for (setting, value) in settings {
            fs::write(dir.path().join(setting), value.to_string()).unwrap();
        }
        let bdi = Some(dir.path().to_owned());
        (dir, Bound { bdi, tunable })
    }

    #[test]
    fn root_has_it_follow_the_room_down_to_a_floor() {
        let (_dir, bound) =
            bound(true, &[("strict_limit", 0), ("max_ratio", 100), ("max_bytes", 1 << 40)]);
        assert_eq!(bound.follow(1 << 30), 64 << 20);
        assert!(bound.can_shrink(64 << 20));
        assert_eq!(bound.follow(0), FLOOR);
        assert!(!bound.can_shrink(FLOOR));
        bound.follow(u64::MAX);
        assert_eq!(
            bound.number("strict_limit"),
            Some(0),
            "with room for all that, nothing holds the kernel back"
        );
    }

    #[test]
    fn a_user_has_what_the_kernel_gives() {
        let settings = [("strict_limit", 1), ("max_ratio", 1), ("max_bytes", 40 << 20)];
        let (dir, bound) = bound(false, &settings);
        assert_eq!(bound.follow(0), 40 << 20);
        fs::remove_file(dir.path().join("max_bytes")).unwrap();
        // The threshold follows the free memory.
        let is_a_hundredth = |found: u64| found.abs_diff(threshold() / 100) < threshold() / 200;
        assert!(is_a_hundredth(bound.follow(0)));
        assert!(!bound.can_shrink(1 << 30));
        assert!(is_a_hundredth(Bound::new(None, true).follow(0)));
    }
}
