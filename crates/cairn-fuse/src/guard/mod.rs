//! Near full, nobody is told "written" for what cannot be stored.
//!
//! With its writeback cache the kernel takes a write and answers it at once; we hear of it later,
//! when there is nobody left to be told that there is no space. But before each write it asks for
//! the attributes of the file if those that it has are stale, with the flag that there is a handle;
//! and an error of that question is the error of the write. So near full the attributes of regular
//! files are good for that one use, and the question is a request for room: it is granted if the
//! write fits beside everything that was granted before and that we have not received yet. What the
//! kernel holds is then fetched, which tells how much room there really is, and what does not fit
//! is refused.
//!
//! The same question keeps what is immutable, or open for appending only, from being written
//! through a descriptor that was open before; and once the volume has stopped, everything.
//!
//! *Near* is where the room comes close to what the kernel may hold without having asked
//! ([`bound`]). On the way there, the attributes that the kernel has are made stale, those of files
//! that are being written first. Far from full, a write costs two comparisons.
//!
//! A single write whose length cannot be seen ([`intent`]) counts as [`UNSEEN`] bytes. Memory that
//! is mapped cannot be guarded: there is no question before it changes. But it can be told from
//! what was granted ([`promises`]), and takes no root-reserved blocks unless all who have the file
//! open for writing may ([`crate::writers`]).
//!
//! Locking: one mutex, never held while the kernel is asked or told something. All that waits for
//! the kernel is done by a thread of its own, which keeps the questions that it cannot answer at
//! once; no thread that serves requests waits for it.

mod bound;
mod intent;
mod keeper;
mod promises;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cairn_base::Ino;
use cairn_vfs::{Attributes, FileKind, FileSystem, InodeFlags, fiemap};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::counters::Counters;
use crate::wire::Reply;
use crate::wire::abi::AttrOut;
pub(crate) use intent::Intent;
pub(crate) use keeper::{Keeper, Mounted};
use promises::{Promised, Promises};

/// A write of unseen length is taken for this long.
const UNSEEN: u64 = 1 << 20;
/// Blocks that a write may take beside its data: both its ends, and what maps them.
const EXTRA_BLOCKS: u64 = 4;
/// A block of mapping serves so much data at the least.
const MAPPED: u64 = 512;

/// A question that is not answered yet.
pub(crate) struct Ask {
    /// Whoever asks may have root-reserved blocks.
    pub(crate) reserved: bool,
    pub(crate) node: u64,
    pub(crate) ino: Ino,
    /// Bytes a block.
    pub(crate) block: u32,
    pub(crate) intent: Intent,
    /// The answer, if it fits.
    pub(crate) answer: AttrOut,
    pub(crate) reply: Reply,
}

#[derive(Default)]
struct State {
    /// Bytes that the kernel was allowed to take, or may have taken, and that are not known to have
    /// arrived.
    granted: u64,
    /// Where that goes to.
    promised: Promises,
    /// What was promised before the kernel last handed over what it held. A write that was slow to
    /// reach the kernel's cache is still among it.
    promised_before: Promises,
    /// Bytes that may still arrive of what the kernel took unasked.
    unasked: u64,
    /// Data that was promised, by all that is known, takes root-reserved blocks for somebody who
    /// may not use them: find out what was.
    settle: bool,
    /// When something was granted last.
    last: Option<Instant>,
    asked: Vec<Ask>,
    /// Nodes written while the kernel is being told: they come first.
    written: Vec<u64>,
    /// The room has passed one of the marks.
    look: bool,
    ended: bool,
}

/// See the module.
pub(crate) struct Guard {
    /// The kernel collects writes.
    on: bool,
    telling: AtomicBool,
    /// The volume has stopped.
    stopped: AtomicBool,
    /// Rooms below and above which to look again.
    low: AtomicU64,
    high: AtomicU64,
    state: Mutex<State>,
    wake: Condvar,
    counters: Arc<Counters>,
}

impl Guard {
    pub(crate) fn new(on: bool, counters: Arc<Counters>) -> Self {
        Self {
            on,
            telling: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            low: AtomicU64::new(0),
            high: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            wake: Condvar::new(),
            counters,
        }
    }

    fn is_near(&self) -> bool {
        self.counters.room.near_full.load(Ordering::Acquire)
    }

    /// True if the kernel is to ask again before it writes to this file.
    pub(crate) fn watches(&self, found: &Attributes) -> bool {
        let protected = found.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        self.on
            && found.kind == FileKind::Regular
            && (protected || self.is_near() || self.refuses())
    }

    /// Nothing is written any more.
    fn refuses(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// From now on nothing is written. True if that is news: what the kernel has is to be made
    /// stale.
    pub(crate) fn refuse(&self) -> bool {
        self.on && !self.stopped.swap(true, Ordering::AcqRel)
    }

    /// Fails if the file, or the volume, does not take what is about to be written.
    pub(crate) fn check(
        &self,
        fs: &dyn FileSystem,
        flags: InodeFlags,
        intent: Intent,
    ) -> Result<(), Errno> {
        if self.refuses() && intent != Intent::Reads {
            fs.check_stopped().map_err(|error| Errno::from_raw_os_error(error.errno()))?;
        }
        check_protection(flags, intent)
    }

    /// Something of this file has arrived from the kernel.
    pub(crate) fn arrived(&self, fs: &dyn FileSystem, node: u64) {
        if !self.on {
            return;
        }
        let room = fs.room(false);
        let look =
            room < self.low.load(Ordering::Relaxed) || room > self.high.load(Ordering::Relaxed);
        let telling = self.telling.load(Ordering::Relaxed);
        if look || telling {
            let mut state = self.state.lock();
            state.look |= look;
            if telling {
                state.written.push(node);
            }
            self.wake.notify_one();
        }
    }

    /// True if somebody may have been told that data which arrives from the kernel's cache is
    /// written. What is left comes from shared mappings, and nobody was promised room for it.
    pub(crate) fn has_promised(&self, fs: &dyn FileSystem, node: u64, range: &Range<u64>) -> bool {
        if !self.on || !self.is_near() {
            return self.on;
        }
        let mut state = self.state.lock();
        let unasked = state.unasked > 0;
        state.unasked = state.unasked.saturating_sub(range.end - range.start);
        let of = |promises: &Promises| promises.of(node, range, unasked);
        let promised = of(&state.promised).max(of(&state.promised_before));
        if promised == Promised::ToOthers && fs.room(false) < range.end - range.start {
            state.settle = true;
            self.wake.notify_one();
        }
        promised != Promised::Not
    }

    /// Answers a question, now or when it is known whether there is room.
    pub(crate) fn answer(&self, fs: &dyn FileSystem, ask: Ask) {
        if !self.is_near() || ask.intent == Intent::Reads {
            return ask.grant();
        }
        self.counters.room.asked.add(1);
        let mut state = self.state.lock();
        // Who waits has come first.
        if state.asked.is_empty() && state.fits(fs, &ask) {
            drop(state);
            return ask.grant();
        }
        state.asked.push(ask);
        self.wake.notify_one();
    }

    /// There is room for it, or it needs none.
    fn admits(&self, fs: &dyn FileSystem, ask: &Ask) -> bool {
        self.state.lock().fits(fs, ask) || ask.has_blocks(fs)
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        // The connection has ended: nobody hears the answers.
        state.asked.clear();
        self.wake.notify_one();
    }
}

impl State {
    /// Counts a write in, if there is room for it beside all that was granted.
    fn fits(&mut self, fs: &dyn FileSystem, ask: &Ask) -> bool {
        let need = ask.need();
        let fits = self.granted.checked_add(need).is_some_and(|sum| sum <= fs.room(ask.reserved));
        if fits {
            self.granted += need;
            self.last = Some(Instant::now());
            self.promised.add(ask.node, &ask.reach(), ask.reserved);
        }
        fits
    }
}

impl State {
    /// The kernel may have taken something unasked. It is among so many bytes that arrive next.
    fn expect_unasked(&mut self, bytes: u64) {
        self.promised.anywhere = true;
        self.unasked = bytes;
    }

    /// Counts in what the kernel has taken unasked.
    fn grant_anywhere(&mut self, bytes: u64) {
        self.granted = self.granted.saturating_add(bytes);
        self.promised.anywhere = true;
    }
}

impl Ask {
    fn grant(self) {
        self.reply.send(&Ok(self.answer));
    }

    /// Bytes that the write may take.
    fn need(&self) -> u64 {
        let len = match self.intent {
            Intent::Writes { len: Some(len), .. } => len,
            _ => UNSEEN,
        };
        len.saturating_add(len / MAPPED).saturating_add(EXTRA_BLOCKS * u64::from(self.block))
    }

    /// The bytes that are written, if they are known and inside the file of this size.
    fn range(&self, size: u64) -> Option<Range<u64>> {
        let Intent::Writes { append: Some(false), offset: Some(offset), len } = self.intent else {
            return None;
        };
        let end = match len {
            Some(len) => offset.checked_add(len)?,
            // As much of it as there is.
            None => size.min(offset.checked_add(UNSEEN)?),
        };
        (offset < end && end <= size).then_some(offset..end)
    }

    /// Where the write may go to.
    fn reach(&self) -> Range<u64> {
        match self.intent {
            Intent::Writes { append: Some(false), offset: Some(offset), len: Some(len) } => {
                offset..offset.saturating_add(len)
            }
            _ => 0..u64::MAX,
        }
    }

    /// True if all blocks of the write are the file's already.
    fn has_blocks(&self, fs: &dyn FileSystem) -> bool {
        // The kernel may have handed over more since the question was asked.
        let Some(range) = fs.getattr(self.ino).ok().and_then(|found| self.range(found.size)) else {
            return false;
        };
        holes(fs, self.ino, range).is_ok_and(|holes| holes == 0)
    }
}

/// Bytes of a range that have no blocks yet.
fn holes(fs: &dyn FileSystem, ino: Ino, range: Range<u64>) -> cairn_vfs::Result<u64> {
    let (mut holes, mut at) = (0, range.start);
    fs.extents(ino, range.start, range.end - range.start, false, &mut |extent| {
        if extent.flags & fiemap::DATA_INLINE == 0 {
            holes += extent.logical.clamp(at, range.end) - at;
            at = extent.logical.saturating_add(extent.length).clamp(at, range.end);
        }
        at < range.end
    })?;
    Ok(holes + (range.end - at))
}

/// Whether a file with these flags takes what is about to be written.
fn check_protection(flags: InodeFlags, intent: Intent) -> Result<(), Errno> {
    let forbidden = match intent {
        Intent::Reads => false,
        Intent::Writes { append, .. } => {
            // Where it cannot be seen, the write will tell.
            append.is_some() && flags.contains(InodeFlags::IMMUTABLE)
                || append == Some(false) && flags.contains(InodeFlags::APPEND)
        }
    };
    if forbidden { Err(Errno::PERM) } else { Ok(()) }
}
