//! Checks that durable changes survive: a bounded search over all short histories.
//!
//! A directory `d` with one file `f` exists and is durable. The [steps](Step) of a history work on
//! a *target*: that file, or the last created one. Another event may come [between](Meanwhile).
//! Then the history is [made durable](Persist). The promises:
//!
//! - `sync`, a remount to read-only, and `chattr +S` on everything: everything is as before the
//!   cut;
//! - an fsync of a file: its contents, attributes, owner and names are, and no removed name leads
//!   to it;
//! - an fsync of a directory, or `chattr +D`: its names are, with the type of each inode;
//! - damage that stops the volume (`errors=remount-ro`, `errors=panic`): earlier promises hold;
//!   nothing changes afterwards, and `errors=panic` writes nothing but the record of the error.
//!
//! Two words are not in the grammar. An *idmapped* mount changes only the owners in requests,
//! before they reach a filesystem: [`Step::Own`] covers it. The options `sync` and `dirsync` belong
//! to the mount: the kernel and the FUSE adapter ask for fsyncs, and the crash search of
//! `cairn-cli`'s test `mounted::synchronous` goes through both.

mod found;
mod grammar;
mod history;
mod search;
mod world;

use std::ops::Range;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::RecordLog;

use crate::damage::flip;

pub use crate::opened::Opened;
pub use grammar::{Meanwhile, Persist, Step};
pub use history::{History, histories};
pub use search::{Broken, Seen, examine, examine_cut, search};

/// The file of [`Damage`], in the root directory.
pub const DAMAGED: &[u8] = b"damaged";

/// Returns what is wrong with a volume.
pub type Judge<'a> = &'a dyn Fn(&MemoryDevice) -> Result<(), String>;

/// Opens a volume, or says why it cannot be opened.
pub type Open<'a> = &'a dyn Fn(Arc<dyn BlockDevice>) -> Result<Opened, String>;

/// Gives a volume that nobody has mounted another size.
pub type Resize<'a> = &'a dyn Fn(Arc<dyn BlockDevice>) -> Result<(), String>;

/// A volume whose file [`DAMAGED`] cannot be read because one byte of its record is wrong.
pub struct Damage {
    device: MemoryDevice,
    at: u64,
    /// Byte ranges of the superblocks, in which the volume records the error.
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

    /// Repairs the damage in a copy, so that a judge finds only other errors.
    fn undo(&self, device: &MemoryDevice) {
        flip(device, self.at);
    }
}

/// A kind of filesystem.
pub struct Subject<'a> {
    /// A fresh volume.
    pub fresh: MemoryDevice,
    /// A volume with damage, if a checksum detects it.
    pub damage: Option<Damage>,
    /// All words for all pairs of steps. Otherwise the newest words take turns.
    pub every_word: bool,
    /// How many of a history's last cuts are examined.
    pub cuts: usize,
    /// Opens a volume, with recovery if it is needed.
    pub open: Open<'a>,
    /// A foreign judge's finding about an unmounted volume.
    pub judge: Judge<'a>,
    /// The same about a volume that was not unmounted and that the judge recovers. None if it
    /// cannot.
    pub judge_cut: Option<Judge<'a>>,
    /// Recovers the volume and changes its size.
    pub resize: Option<Resize<'a>>,
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
