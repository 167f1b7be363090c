//! Checks that durable changes survive: a bounded search over all short histories, and concurrent
//! callers.
//!
//! A directory `d` with one file `f` is there and durable. The [steps](Step) of a history work on a
//! *target*: that file, or the last one that was made. Something may come [between](Meanwhile), and
//! then the history is [made durable](Persist). What is promised:
//!
//! - of `sync`, of a volume that turns read-only, and where everything has `chattr +S`: everything
//!   is as it was;
//! - of a file: its contents, attributes, owner and names are, and no name that it gave up leads to
//!   it;
//! - of a directory, also one with `chattr +D`: its names are, and what kind of thing each leads
//!   to;
//! - where damage stops the volume (`errors=remount-ro`, `errors=panic`): what was promised before;
//!   nothing changes after, and nothing but the record of it is written after `errors=panic`.
//!
//! Two words are not in the grammar. An *idmapped* mount changes owners in requests and nothing
//! else, before they reach a filesystem: an owner is [`Step::Own`]. The options `sync` and
//! `dirsync` belong to the mount: the kernel and the FUSE adapter ask for fsyncs, and the crash
//! search of `cairn-cli`'s test `mounted::synchronous` goes through both.

mod found;
mod grammar;
mod search;
mod shared;
mod world;

use std::ops::Range;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::RecordLog;
use cairn_vfs::FileSystem;

use crate::damage::flip;

pub use grammar::{Meanwhile, Persist, Step};
pub use search::{Seen, search};
pub use shared::both_hear_of_a_failed_flush;

/// The file of [`Damage`], in the root directory.
pub const DAMAGED: &[u8] = b"damaged";

/// An open volume.
pub struct Opened {
    /// The volume.
    pub fs: Arc<dyn FileSystem>,
    /// Drops all inodes from memory that may go.
    pub evict: Box<dyn Fn()>,
}

/// Returns what is wrong with a volume.
pub type Judge<'a> = &'a dyn Fn(&MemoryDevice) -> Result<(), String>;

/// A volume whose file [`DAMAGED`] cannot be read because one byte of its record is wrong.
pub struct Damage {
    device: MemoryDevice,
    at: u64,
    /// Where the superblocks are, in which the volume records it.
    superblocks: Range<u64>,
}

impl Damage {
    /// Flips bits at byte `at` of a volume that has the file.
    #[must_use]
    pub fn new(device: MemoryDevice, at: u64, superblocks: Range<u64>) -> Self {
        flip(&device, at);
        Self { device, at, superblocks }
    }

    /// True if nothing but superblocks was written from a moment on.
    fn only_recorded(&self, log: &RecordLog, from: u64) -> bool {
        let later = log.events.iter().zip(&log.spans).filter(|(_, span)| span.submitted >= from);
        later.filter_map(|(event, _)| event.range()).all(|range| {
            self.superblocks.contains(&range.start) && range.end <= self.superblocks.end
        })
    }

    /// Mends a copy, so that a judge finds nothing else.
    fn undo(&self, device: &MemoryDevice) {
        flip(device, self.at);
    }
}

/// A kind of filesystem.
pub struct Subject<'a> {
    /// A fresh volume.
    pub fresh: MemoryDevice,
    /// Another with damage, where a checksum notices it.
    pub damage: Option<Damage>,
    /// How many of a history's last cuts are looked at.
    pub cuts: usize,
    /// Opens one; recovers it if need be.
    pub open: &'a dyn Fn(Arc<dyn BlockDevice>) -> Opened,
    /// A foreign judge's complaint about a volume that was closed.
    pub judge: Judge<'a>,
    /// The same about one that was not, and that the judge recovers itself: None if it cannot.
    pub judge_cut: Option<Judge<'a>>,
}

impl Subject<'_> {
    /// The start of a history.
    fn start(&self, meanwhile: Meanwhile) -> &MemoryDevice {
        match &self.damage {
            Some(damage) if meanwhile.has_damage() => &damage.device,
            _ => &self.fresh,
        }
    }
}
