//! How to open a volume.

use std::path::PathBuf;

/// How to open a volume.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Write nothing. An unclean journal is replayed in memory. [`crate::FileSystem::remount`] with
    /// `rw` opens the volume for writing.
    pub read_only: bool,
    /// Keep all changes in memory, and drop them with the volume. The image is only read.
    pub ephemeral: bool,
    /// Fail with [`Cause::ReadOnly`](crate::Cause::ReadOnly) if the volume can only be read: its
    /// features, the device or `ro` among the mount options forbid writing. Without this it is
    /// opened for reading. No effect with `read_only`.
    pub must_write: bool,
    /// The volume is on a whole block device, which the kernel will claim for a mount: see
    /// [`Volume::take_claim`](super::Volume::take_claim). Without effect on other images, and
    /// if the image is not written.
    pub hand_over: bool,
    /// Mount options with the kernel's names, separated by commas.
    pub mount_options: String,
    /// The further devices of an F2FS volume that spans several, in order. If this is empty, they
    /// are looked for beside the image, under the names in the volume's superblock, and must be
    /// recognised by their contents.
    pub devices: Vec<PathBuf>,
    /// For reproducible images: the time of everything that is written, in seconds since 1970. The
    /// same calls on the same volume then write the same bytes. Only the thread that opens the
    /// volume may use it.
    pub fixed_time: Option<i64>,
}

impl OpenOptions {
    /// Reading only.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    /// True if the image itself is written.
    #[must_use]
    pub(crate) fn writes_image(&self) -> bool {
        !self.read_only && !self.ephemeral
    }

    /// The mount options, with `ro` among them if nothing is to be written.
    #[must_use]
    pub(crate) fn as_mount_options(&self) -> String {
        match (self.read_only, self.mount_options.is_empty()) {
            (false, _) => self.mount_options.clone(),
            (true, true) => "ro".into(),
            (true, false) => format!("{},ro", self.mount_options),
        }
    }
}
