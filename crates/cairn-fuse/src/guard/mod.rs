//! Near full, write(2) fails for data that cannot be stored.
//!
//! With its writeback cache the kernel takes a write and answers it at once. The data arrives here
//! later, when the writer can no longer be told that there is no space. But before each write the
//! kernel asks for the file's attributes if its copy is stale, with the flag that there is a
//! handle, and an error of that question is the error of the write. So near full the attributes of
//! regular files are valid for one use only, and the question is a request for room. It is granted
//! if the write fits beside all writes that were granted before and have not arrived yet. Otherwise
//! the kernel's dirty data is fetched, which shows how much room there really is, and a write that
//! still does not fit is refused.
//!
//! The same question refuses writes to immutable and append-only files through descriptors that
//! were open before, and all writes once the volume has stopped.
//!
//! A volume is *near full* when its room comes close to the data that the kernel may hold without
//! having asked ([`bound`]). At that point the kernel's attributes are made stale, first those of
//! files that are being written. Far from full, a write costs two comparisons.
//!
//! A write whose length is unknown ([`intent`]) counts as [`UNSEEN`] bytes. Mapped memory cannot be
//! guarded: the kernel does not ask before it changes. But its pages are told from granted writes
//! ([`grants`]), and take root-reserved blocks only if all users who have the file open for
//! writing may use them ([`crate::writers`]).
//!
//! Locking: one mutex, never held during a call to the kernel. A thread of its own ([`Keeper`])
//! does all work that waits for the kernel, and keeps the questions that it cannot answer at once.
//! Threads that serve requests do not wait for it.

mod bound;
mod grants;
mod intent;
mod keeper;
mod under_way;

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
use grants::{Granted, Grants};
pub(crate) use intent::Intent;
pub(crate) use keeper::{Keeper, Mounted};
use under_way::{UnderWay, Write, Writer};

/// The assumed length of a write of unknown length.
const UNSEEN: u64 = 1 << 20;
/// Blocks that a write may take beside its data, for both its ends and their mapping.
const EXTRA_BLOCKS: u64 = 4;
/// A block of mapping serves at least this many blocks of data.
const MAPPED: u64 = 512;

/// A question that is not answered yet.
pub(crate) struct Ask {
    /// True if the sender may use root-reserved blocks.
    pub(crate) reserved: bool,
    /// The thread that waits for the answer.
    pub(crate) thread: u32,
    pub(crate) node: u64,
    pub(crate) ino: Ino,
    /// Size of a block in bytes.
    pub(crate) block: u32,
    pub(crate) intent: Intent,
    /// The answer if the write fits.
    pub(crate) answer: AttrOut,
    pub(crate) reply: Reply,
}

#[derive(Default)]
struct State {
    /// Bytes that the kernel was allowed to take, or may have taken, and that have not certainly
    /// arrived.
    granted: u64,
    /// The files and ranges of these bytes.
    grants: Grants,
    /// The same, from before the last fetch. A write that was slow to reach the kernel's cache is
    /// still among them.
    earlier_grants: Grants,
    /// Bytes of the granted writes that the last fetch could not wait for.
    left: u64,
    /// Granted writes that may not have reached the kernel's cache.
    under_way: UnderWay,
    /// Bytes that the kernel took without a question and may still send.
    unasked: u64,
    /// Granted data seems to take root-reserved blocks for a user who may not use them: fetch all
    /// data, so that the grants are known.
    settle: bool,
    /// Time of the last grant.
    last: Option<Instant>,
    asked: Vec<Ask>,
    /// Nodes written while the kernel is being told to ask. They are told first.
    written: Vec<u64>,
    /// The room has passed one of the marks.
    look: bool,
    ended: bool,
}

/// The guard of one mount.
pub(crate) struct Guard {
    /// True if the kernel collects writes.
    on: bool,
    telling: AtomicBool,
    /// The volume has stopped.
    stopped: AtomicBool,
    /// Marks: if the room is below `low` or above `high`, the thread looks again.
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

    /// True once the volume has stopped: all writes are refused.
    fn refuses(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Refuses all writes from now on. True at the first call: the caller then makes the kernel's
    /// attributes stale.
    pub(crate) fn refuse(&self) -> bool {
        self.on && !self.stopped.swap(true, Ordering::AcqRel)
    }

    /// Fails if the file or the volume refuses the intended write.
    pub(crate) fn check(
        &self,
        fs: &dyn FileSystem,
        flags: InodeFlags,
        intent: Intent,
    ) -> Result<(), Errno> {
        if self.refuses() && intent != Intent::Read {
            fs.check_stopped().map_err(|error| Errno::from_raw_os_error(error.errno()))?;
        }
        check_protection(flags, intent)
    }

    /// Data of this file has arrived from the kernel.
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

    /// True if data from the kernel's cache may belong to a granted write. Other data comes from
    /// shared mappings, which no grant covers.
    pub(crate) fn is_granted(&self, fs: &dyn FileSystem, node: u64, range: &Range<u64>) -> bool {
        if !self.on || !self.is_near() {
            return self.on;
        }
        let mut state = self.state.lock();
        let unasked = state.unasked > 0;
        state.unasked = state.unasked.saturating_sub(range.end - range.start);
        let of = |grants: &Grants| grants.of(node, range, unasked);
        let granted = of(&state.grants).max(of(&state.earlier_grants));
        if granted == Granted::WithoutReserved && fs.room(false) < range.end - range.start {
            state.settle = true;
            self.wake.notify_one();
        }
        granted != Granted::No
    }

    /// Answers a question, at once or when it is known whether there is room.
    pub(crate) fn answer(&self, fs: &dyn FileSystem, ask: Ask) {
        if !self.is_near() || ask.intent == Intent::Read {
            return ask.grant();
        }
        self.counters.room.asked.add(1);
        let writer = Writer::look(ask.thread);
        let mut state = self.state.lock();
        // Waiting questions came first.
        if state.asked.is_empty() && state.fits(fs, &ask, writer) {
            drop(state);
            return ask.grant();
        }
        state.asked.push(ask);
        self.wake.notify_one();
    }

    /// True if there is room for the write, or it needs none.
    fn admits(&self, fs: &dyn FileSystem, ask: &Ask) -> bool {
        let writer = Writer::look(ask.thread);
        self.state.lock().fits(fs, ask, writer) || ask.has_blocks(fs)
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        // The connection has ended, so the questions need no answer.
        state.asked.clear();
        self.wake.notify_one();
    }
}

impl State {
    /// Adds a write to the grants if there is room beside them. Without a writer, the write counts
    /// as ended at the next fetch.
    fn fits(&mut self, fs: &dyn FileSystem, ask: &Ask, writer: Option<Writer>) -> bool {
        let need = ask.need();
        let fits = self.granted.checked_add(need).is_some_and(|sum| sum <= fs.room(ask.reserved));
        if fits {
            self.granted += need;
            self.last = Some(Instant::now());
            self.grants.add(ask.node, &ask.reach(), ask.reserved);
            let (node, reach, reserved) = (ask.node, ask.reach(), ask.reserved);
            if let Some(writer) = writer {
                self.under_way.begin(writer, Write { node, reach, reserved, need });
            }
        }
        fits
    }

    /// Ends all grants, because the kernel's data is about to be fetched, except those of writes
    /// that have not reached the kernel's cache. Returns the bytes that it ends.
    fn end_grants(&mut self, ended: &[Writer]) -> u64 {
        self.under_way.end(ended);
        self.earlier_grants = std::mem::take(&mut self.grants);
        self.left = 0;
        for write in self.under_way.left() {
            self.grants.add(write.node, &write.reach, write.reserved);
            self.left += write.need;
        }
        self.granted.saturating_sub(self.left)
    }
}

impl State {
    /// The kernel may have taken data without a question. It is among the next `bytes` that arrive.
    fn expect_unasked(&mut self, bytes: u64) {
        self.grants.anywhere = true;
        self.unasked = bytes;
    }

    /// Adds data that the kernel has taken without a question.
    fn grant_anywhere(&mut self, bytes: u64) {
        self.granted = self.granted.saturating_add(bytes);
        self.grants.anywhere = true;
    }
}

impl Ask {
    fn grant(self) {
        self.reply.send(&Ok(self.answer));
    }

    /// Bytes that the write may take.
    fn need(&self) -> u64 {
        let len = match self.intent {
            Intent::Write { len: Some(len), .. } => len,
            _ => UNSEEN,
        };
        len.saturating_add(len / MAPPED).saturating_add(EXTRA_BLOCKS * u64::from(self.block))
    }

    /// The written range, if it is known and inside a file of this size.
    fn range(&self, size: u64) -> Option<Range<u64>> {
        let Intent::Write { append: Some(false), offset: Some(offset), len } = self.intent else {
            return None;
        };
        let end = match len {
            Some(len) => offset.checked_add(len)?,
            // Up to the end of the file.
            None => size.min(offset.checked_add(UNSEEN)?),
        };
        (offset < end && end <= size).then_some(offset..end)
    }

    /// The range that the write may touch.
    fn reach(&self) -> Range<u64> {
        match self.intent {
            Intent::Write { append: Some(false), offset: Some(offset), len: Some(len) } => {
                offset..offset.saturating_add(len)
            }
            _ => 0..u64::MAX,
        }
    }

    /// True if the file already has all blocks of the write.
    fn has_blocks(&self, fs: &dyn FileSystem) -> bool {
        if fs.statfs().is_ok_and(|stats| stats.overwrites_take_blocks) {
            return false;
        }
        // More data may have arrived since the question was asked.
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

/// Fails if a file with these flags refuses the intended write.
fn check_protection(flags: InodeFlags, intent: Intent) -> Result<(), Errno> {
    let forbidden = match intent {
        Intent::Read => false,
        Intent::Write { append, .. } => {
            // If the intent is unknown, the write itself is checked later.
            append.is_some() && flags.contains(InodeFlags::IMMUTABLE)
                || append == Some(false) && flags.contains(InodeFlags::APPEND)
        }
    };
    if forbidden { Err(Errno::PERM) } else { Ok(()) }
}
