//! How to open a volume.

use std::path::PathBuf;

/// How to open a volume.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Write nothing at all; an unclean journal is replayed in memory.
    /// [`crate::FileSystem::remount`] with `rw` opens it for writing.
    pub read_only: bool,
    /// Mount options with the kernel's names, separated by commas.
    pub mount_options: String,
    /// The devices behind the first one, in order, of an F2FS volume that lies on several. If there
    /// are none here, they are looked for beside the image under the names that the volume has for
    /// them, and must be recognised by their contents.
    pub devices: Vec<PathBuf>,
    /// For images that can be made again bit by bit: the time of everything that is written, in
    /// seconds since 1970. Nothing is left to chance then: the same calls on the same volume write
    /// the same bytes. Only the thread that opens the volume may use it.
    pub fixed_time: Option<i64>,
}

impl OpenOptions {
    /// Reading only.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}
