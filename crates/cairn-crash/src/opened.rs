//! An open volume.

use std::sync::Arc;

use cairn_vfs::FileSystem;

/// Evicts all unused inodes from memory.
pub type Evict = Arc<dyn Fn() + Send + Sync>;

/// An open volume, and what the interface of filesystems does not offer.
pub struct Opened {
    /// The volume.
    pub fs: Arc<dyn FileSystem>,
    /// Evicts all unused inodes from memory.
    pub evict: Evict,
}
