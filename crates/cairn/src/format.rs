//! The formats Cairn knows, and the one place that chooses between them.

use std::fmt;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_vfs::FileSystem;

use crate::error::Cause;
use crate::volume::OpenOptions;

mod ext4;

pub(crate) use ext4::make as make_ext4;

/// A filesystem format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// ext2, ext3 and ext4: one format with different features.
    Ext4,
}

impl Format {
    /// The name used by `mkfs -t` and `mount -t`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ext4].into_iter().find(|format| format.name() == name)
    }
}

impl Info {
    /// Its format.
    #[must_use]
    pub fn format(&self) -> Format {
        match self {
            Self::Ext4(_) => Format::Ext4,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a volume says about itself; serialises to the object that `cairn info --json` prints.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Info {
    /// Of an ext4 volume.
    Ext4(Box<cairn_ext4::Info>),
}

/// Which format the device holds, if any.
///
/// # Errors
/// The device fails.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<Format>, Cause> {
    Ok(ext4::probe(device)?.then_some(Format::Ext4))
}

/// What the volume on the device says, if there is one that we know.
///
/// # Errors
/// The device fails, or the superblock is damaged.
pub fn inspect(device: &dyn BlockDevice) -> Result<Option<Info>, Cause> {
    Ok(ext4::inspect(device)?.map(|info| Info::Ext4(Box::new(info))))
}

pub(crate) fn open(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &OpenOptions,
) -> Result<Arc<dyn FileSystem>, Cause> {
    match format {
        Format::Ext4 => ext4::open(device, runtime, options),
    }
}
