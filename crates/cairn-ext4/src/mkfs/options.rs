//! What a new volume is to be.

use uuid::Uuid;

/// What to make. The defaults are mke2fs's.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Label, at most 16 bytes.
    pub label: Option<String>,
    /// UUID; random if absent. With a UUID the directory hash seed follows from it, so that the image is reproducible.
    pub uuid: Option<Uuid>,
    /// Features to add, or with `^` to leave out, relative to the defaults; in mke2fs's words. `none` clears the defaults.
    pub features: Vec<String>,
    /// Bytes a block; chosen by size if absent.
    pub block_size: Option<u32>,
    /// Bytes an inode record; 256 if absent.
    pub inode_size: Option<u32>,
    /// Inodes; from the ratio if absent.
    pub inodes: Option<u32>,
    /// Bytes of the volume for each inode; by size if absent.
    pub inode_ratio: Option<u64>,
    /// Journal size in bytes; by size if absent.
    pub journal_size: Option<u64>,
    /// Per cent of the blocks reserved for root; 5 if absent.
    pub reserved_percent: Option<f64>,
    /// Owner and group of the root directory; 0 and 0 if absent.
    pub root_owner: Option<(u32, u32)>,
    /// Bytes of the volume; the whole device if absent.
    pub size: Option<u64>,
    /// Time of all timestamps, in seconds since the epoch; `SOURCE_DATE_EPOCH` or now if absent.
    pub time: Option<i64>,
}
