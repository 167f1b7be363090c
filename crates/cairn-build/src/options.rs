//! [`Options`]: what to build; [`Built`]: what was built.

use std::path::PathBuf;

use cairn::{Format, Tuning};
use cairn_vfs::Timestamp;
use uuid::Uuid;

use crate::delivery::Shape;
use crate::disk::options::DiskOptions;
use crate::read::Source;
use crate::rules::Rules;

/// How large the image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As large as the sources and the free space need, computed in advance.
    Auto,
    /// As small as it can be.
    Min,
    /// This many bytes.
    Exact(u64),
}

/// Free space that is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Free {
    /// Bytes.
    Bytes(u64),
    /// Per cent of the volume.
    Percent(f64),
}

/// What to build.
#[derive(Clone, Debug)]
pub struct Options {
    /// The image; `-` is standard output.
    pub output: PathBuf,
    /// Sources, later ones over earlier ones.
    pub sources: Vec<Source>,
    /// Format.
    pub format: Format,
    /// Size.
    pub size: Size,
    /// Free space, unless the size is exact.
    pub free: Free,
    /// Label.
    pub label: Option<String>,
    /// UUID. Without it, it follows from names, attributes and sizes.
    pub uuid: Option<Uuid>,
    /// Features, as for mkfs.
    pub features: Vec<String>,
    /// F2FS: how names are compared in directories that ignore case, as `utf8` or `utf8:strict`.
    pub casefold: Option<String>,
    /// ext4: inodes; without it, as many as the sources need, and some for the free space.
    pub inodes: Option<u32>,
    /// ext4: per cent of the blocks that are reserved for root.
    pub reserved_percent: f64,
    /// Changes of attributes, and what is left out.
    pub rules: Rules,
    /// Time of the volume. Without it, the newest time in the sources that is not later than `now`.
    pub time: Option<i64>,
    /// The present time.
    pub now: Timestamp,
    /// Replaces an image that exists.
    pub overwrite: bool,
    /// What the image is written as.
    pub shape: Shape,
    /// ext4: what is rarely asked for.
    pub tuning: Tuning,
    /// Owner of the root directory; that of the sources if absent.
    pub root_owner: Option<(u32, u32)>,
    /// ext4: nobody will write the volume. It has neither a journal nor room to grow, no inodes
    /// and no blocks that are free, unless the size is exact, and is marked.
    pub read_only: bool,
    /// Blocks of zeros in files become holes. All files are read once more for that.
    pub dig_holes: bool,
    /// The image is a disk with these partitions. What is said above is for the one that gets the
    /// sources.
    pub disk: Option<DiskOptions>,
}

/// What was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Bytes of the image.
    pub size: u64,
    /// UUID of the volume; of a disk, that of the disk.
    pub uuid: Uuid,
    /// Inodes of all volumes, the roots included.
    pub inodes: u64,
    /// How often the image, or the volume for which it took most, was written.
    pub passes: usize,
}
