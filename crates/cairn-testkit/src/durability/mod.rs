//! What a filesystem says is durable, is: a bounded search over all short histories, and callers that ask at once.

mod shared;
mod steps;

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_vfs::FileSystem;

pub use shared::both_hear_of_a_failed_flush;
pub use steps::{Persist, Seen, Step, search};

/// An open volume.
pub struct Opened {
    /// The volume.
    pub fs: Arc<dyn FileSystem>,
    /// Drops all inodes from memory that may go.
    pub evict: Box<dyn Fn()>,
}

/// Says what is wrong with a volume.
pub type Judge<'a> = &'a dyn Fn(&MemoryDevice) -> Result<(), String>;

/// A kind of filesystem.
pub struct Subject<'a> {
    /// A fresh volume.
    pub fresh: MemoryDevice,
    /// How many of a history's last cuts are looked at.
    pub cuts: usize,
    /// Opens one; recovers it if need be.
    pub open: &'a dyn Fn(Arc<dyn BlockDevice>) -> Opened,
    /// A foreign judge's complaint about a volume that was closed.
    pub judge: Judge<'a>,
    /// The same about one that was not, and that the judge recovers itself: None if it cannot.
    pub judge_cut: Option<Judge<'a>>,
}
