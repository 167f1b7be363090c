//! [`MkfsOptions`]: the options of mkfs.

use uuid::Uuid;

/// The options of mkfs. The defaults are those of mke2fs.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Label, at most 16 bytes.
    pub label: Option<String>,
    /// UUID; random if absent. If it is given, the directory hash seed follows from it, so that the
    /// image is reproducible.
    pub uuid: Option<Uuid>,
    /// Seed of directory hashes; without it, it follows from the UUID, or is random.
    pub hash_seed: Option<Uuid>,
    /// Features to add, or with `^` to drop, relative to the defaults, in the words of mke2fs.
    /// `none` clears the defaults.
    pub features: Vec<String>,
    /// Bytes of a block; by size if absent.
    pub block_size: Option<u32>,
    /// Bytes of an inode record; 256 if absent.
    pub inode_size: Option<u32>,
    /// Number of inodes; by the ratio if absent.
    pub inodes: Option<u32>,
    /// Bytes of the volume for each inode; by size if absent.
    pub inode_ratio: Option<u64>,
    /// Journal size in bytes; by size if absent.
    pub journal_size: Option<u64>,
    /// Percentage of the blocks reserved for root; 5 if absent.
    pub reserved_percent: Option<f64>,
    /// Owner and group of the root directory; 0 and 0 if absent.
    pub root_owner: Option<(u32, u32)>,
    /// Bytes of the volume; the whole device if absent.
    pub size: Option<u64>,
    /// Time of all timestamps, in seconds since 1970; `SOURCE_DATE_EPOCH` or now if absent.
    pub time: Option<i64>,
}
