//! The names of the formats.

use std::fmt;

/// A filesystem format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// ext2, ext3 and ext4: one format with different features.
    Ext4,
    /// F2FS.
    F2fs,
}

impl Format {
    /// All.
    pub const ALL: [Self; 2] = [Self::Ext4, Self::F2fs];

    /// The name used by `mkfs -t` and `mount -t`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::F2fs => "f2fs",
        }
    }

    /// The program of its makers that checks and repairs a volume.
    #[must_use]
    pub fn checker(self) -> &'static str {
        match self {
            Self::Ext4 => "e2fsck",
            Self::F2fs => "fsck.f2fs",
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
