//! [`Metadata`] of a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cairn_vfs::{Attributes, FileKind, Timestamp};

/// What a volume knows about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata(Attributes);

impl Metadata {
    pub(super) const fn new(attributes: Attributes) -> Self {
        Self(attributes)
    }

    /// All attributes, as the volume has them.
    #[must_use]
    pub const fn attributes(&self) -> &Attributes {
        &self.0
    }

    /// Kind of the file.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        self.0.kind
    }

    /// True for a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0.kind == FileKind::Regular
    }

    /// True for a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0.kind == FileKind::Directory
    }

    /// True for a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileKind::Symlink
    }

    /// Size in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
    pub const fn len(&self) -> u64 {
        self.0.size
    }

    /// Permission bits (`0o7777`).
    #[must_use]
    pub const fn permissions(&self) -> u32 {
        self.0.permissions
    }

    /// Owner and group.
    #[must_use]
    pub const fn owner(&self) -> (u32, u32) {
        (self.0.uid, self.0.gid)
    }

    /// Last change of the contents.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        time(self.0.mtime)
    }

    /// Last access.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        time(self.0.atime)
    }

    /// Creation, if the volume keeps it.
    #[must_use]
    pub fn created(&self) -> Option<SystemTime> {
        self.0.crtime.map(time)
    }
}

/// A time that the system's clock cannot have is 1970.
fn time(stamp: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(stamp.seconds.unsigned_abs());
    let base = match stamp.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    let found =
        base.and_then(|base| base.checked_add(Duration::from_nanos(stamp.nanoseconds.into())));
    found.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-2, 750_000_000), (4_102_444_800, 1)] {
            let stamp = Timestamp { seconds, nanoseconds };
            assert_eq!(Timestamp::from(time(stamp)), stamp);
        }
        for seconds in [i64::MIN, i64::MAX] {
            // Whatever the system's clock can have.
            let found = time(Timestamp { seconds, nanoseconds: 999_999_999 });
            assert_eq!(found < UNIX_EPOCH, seconds < 0 && found != UNIX_EPOCH);
        }
    }
}
