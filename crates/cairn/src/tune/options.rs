//! What changes in a volume.

use std::path::PathBuf;

use uuid::Uuid;

pub use cairn_ext4::resize::Resized;
pub use cairn_ext4::tune::{OnErrors, Reserved, TuneOptions as Ext4TuneOptions};

/// What changes. By default nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TuneOptions {
    /// Label: at most 16 bytes on ext4, 511 UTF-16 units on F2FS.
    pub label: Option<String>,
    /// UUID.
    pub uuid: Option<UuidWish>,
    /// ext4: everything else. Label and UUID in it are not looked at.
    pub ext4: Ext4TuneOptions,
    /// F2FS: extensions of files that are written once, to add, or with `^` to remove.
    pub cold: Vec<String>,
    /// F2FS: extensions of files that change often.
    pub hot: Vec<String>,
    /// F2FS: devices behind the first one.
    pub devices: Vec<PathBuf>,
}

/// A new UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UuidWish {
    /// This one.
    Is(Uuid),
    /// A random one.
    Random,
}

/// The new size of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeWish {
    /// Bytes.
    Bytes(u64),
    /// Bytes more than now.
    More(u64),
    /// Bytes less than now.
    Less(u64),
    /// As large as the image, the partition or the device.
    Most,
    /// As small as its files allow.
    Least,
}
