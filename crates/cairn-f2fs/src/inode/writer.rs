//! The bridge between the file cache and the node tree of a file that is written.
//!
//! A write makes its holes `NEW` slots ([`Writer::reserve`]): they count as used from then on, whoever crashes finds zeros
//! there, and the write-back cannot fail for want of space. Write-back goes to the end of a data log, or in place where
//! Linux would do that. New addresses stand in the SIT from the placement on and in the node only when their data has been
//! written: a write that fails gives them back and leaves the old block where it was.
//!
//! Locking: all of it happens inside [`crate::gate::Gate::data`], so a checkpoint sees neither of these halves. Pointers
//! of different blocks change under inode.data shared; nodes come and go only under inode.data alone.

use std::marker::PhantomData;
use std::sync::Arc;

use cairn_cache::mapper::{FileMapper, MapError, Mapping, Place, Placement, Run, WriteTicket};

use super::mapper::InodeMapper;
use super::tree::{self, Pointer};
use super::{Inode, sync};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::inode::Advise;
use crate::format::{BlockAddr, Log};
use crate::gate::Moving;
use crate::segment::{self, Mode};
use crate::space::Promise;
use crate::store::Store;
use crate::volume::Volume;

/// Main segments up to which Linux overwrites in place always: 16 GiB.
const SMALL_VOLUME: u32 = 8192;
/// Dirty blocks up to which an fsync overwrites in place on larger volumes.
pub const SMALL_FSYNC: u64 = 8;

/// May blocks that have an address be overwritten?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Where the volume is small, or the file hardly changes.
    Usual,
    /// A small fsync: wherever the mode allows it.
    SmallFsync,
    /// Never: the old contents must be what a crash finds.
    Elsewhere,
}

/// Maps one file for writing.
pub struct Writer<'a> {
    volume: &'a Volume,
    inode: &'a Arc<Inode>,
    reader: InodeMapper<'a>,
    policy: Policy,
    _inside: PhantomData<&'a ()>,
}

impl<'a> Writer<'a> {
    /// A mapper for one call of the cache.
    #[must_use]
    pub fn new(volume: &'a Volume, inode: &'a Arc<Inode>, inside: &'a Moving<'a>) -> Self {
        Self::with_policy(volume, inode, inside, Policy::Usual)
    }

    /// As [`Writer::new`], with another policy.
    #[must_use]
    pub fn with_policy(volume: &'a Volume, inode: &'a Arc<Inode>, _inside: &'a Moving<'a>, policy: Policy) -> Self {
        Self { volume, inode, reader: InodeMapper::new(volume, inode), policy, _inside: PhantomData }
    }

    fn try_reserve(&self, run: Run) -> Result<Mapping> {
        let start = run.start.get();
        let largest = self.inode.state.read().record.shape().max_blocks();
        if start >= largest {
            return Err(cairn_vfs::Error::TooLarge.into());
        }
        let mut before = self.reader.find(run)?;
        before.run.len = before.run.len.min(run.len).min(largest - start);
        if before.place == Place::Hole {
            before.run.len = fill(self.volume, self.inode, start, before.run.len)?;
        }
        Ok(before)
    }

    fn try_place(&self, run: Run) -> Result<Placement> {
        let store = self.volume.store()?;
        let found = tree::find(store, self.inode, run.start.get())?;
        let pointer = found.map_err(|_| self.lost(run, 0))?;
        let most = u32::try_from(run.len).unwrap_or(u32::MAX).min(pointer.rest);
        let old = pointer.get_run(most);
        let reserved = old.iter().take_while(|addr| **addr != BlockAddr::NULL && **addr != BlockAddr::COMPRESS).count();
        let first = old.first().filter(|_| reserved > 0).ok_or_else(|| self.lost(run, 0))?;
        let mut may = self.in_place(store);
        if first.is_address() && may {
            let follows = |index: u32, addr: &BlockAddr| first.get().checked_add(index) == Some(addr.get());
            let len = (0..).zip(&old).take_while(|(index, addr)| follows(*index, addr)).count() as u64;
            if !store.segments.is_cleaning(first.pba(), len) {
                sync::note_data(self.inode);
                store.segments.stats.in_place.add(len);
                let run = Run { start: run.start, len };
                return Ok(Placement { run, start: first.pba(), ticket: Box::new(InPlace) });
            }
            // It is being copied elsewhere.
            may = false;
        }
        drop_hint(self.volume, self.inode);
        let in_place = |addr: &BlockAddr| addr.is_address() && may;
        let count = old[..reserved].iter().take_while(|addr| !in_place(addr)).count();
        let owners: Vec<segment::Owner> = (0..count as u32).map(|index| pointer.after(index).owner()).collect();
        let placed = store.segments.place(self.log(), &owners)?;
        sync::note_data(self.inode);
        let count = placed.count as u32;
        let ticket = Moved { store: store.clone(), pointer, start: placed.address, count, done: false };
        let run = Run { start: run.start, len: count.into() };
        Ok(Placement { run, start: placed.address.pba(), ticket: Box::new(ticket) })
    }

    /// A dirty block without a slot: somebody else's damage, as a write makes the slot first.
    fn lost(&self, run: Run, value: u64) -> Error {
        let what = "a written block has no slot in the node tree";
        Corrupt::Mapping { ino: self.inode.nid, block: run.start.get(), what, value }.into()
    }

    fn in_place(&self, store: &Store) -> bool {
        if store.segments.mode() == Mode::Lfs || self.policy == Policy::Elsewhere {
            return false;
        }
        let cold = self.inode.state.read().record.advise.contains(Advise::COLD);
        self.policy == Policy::SmallFsync || cold || store.layout.main_segments <= SMALL_VOLUME
    }

    fn log(&self) -> Log {
        let advise = self.inode.state.read().record.advise;
        if advise.contains(Advise::HOT) {
            Log::HotData
        } else if advise.contains(Advise::COLD) {
            Log::ColdData
        } else {
            Log::WarmData
        }
    }
}

impl FileMapper for Writer<'_> {
    fn lookup(&self, run: Run) -> Result<Mapping, MapError> {
        self.reader.lookup(run)
    }

    fn reserve(&self, run: Run) -> Result<Mapping, MapError> {
        Ok(self.try_reserve(run)?)
    }

    /// What was reserved and not written stays reserved, and reads as zeros.
    fn release(&self, _run: Run) {}

    fn place(&self, run: Run) -> Result<Placement, MapError> {
        Ok(self.try_place(run)?)
    }
}

/// The hint of the largest extent must be right if it is there: it goes before the first pointer changes.
pub fn drop_hint(volume: &Volume, inode: &Arc<Inode>) {
    if inode.state.read().record.ext.len == 0 {
        return;
    }
    let mut state = inode.state.write();
    state.record.ext = Default::default();
    inode.touch(volume, &mut state);
}

/// Reserves the holes of blocks from `start` on, `len` at most: under pressure fewer, but at least one. Returns how many
/// blocks have slots now. Inside [`crate::gate::Gate::data`], with inode.data alone.
///
/// # Errors
/// No space for a single one, a node is damaged, or the device failed.
pub fn fill(volume: &Volume, inode: &Arc<Inode>, start: u64, len: u64) -> Result<u64> {
    let store = volume.store()?;
    let mut len = len;
    let promise = loop {
        match store.space.reserve(len + most_nodes(len)) {
            Ok(promise) => break promise,
            Err(_) if len > 1 => len = len.div_ceil(2),
            Err(_) => break store.space.reserve(needed(store, inode, start)?)?,
        }
    };
    fill_with(volume, inode, start, len, promise)?;
    Ok(len)
}

fn fill_with(volume: &Volume, inode: &Arc<Inode>, start: u64, len: u64, promise: Promise) -> Result<()> {
    drop_hint(volume, inode);
    let mut op = volume.enter_with(promise)?;
    let mut at = start;
    while at < start + len {
        let pointer = tree::make(&mut op, inode, at)?;
        let count = u32::try_from(start + len - at).unwrap_or(u32::MAX).min(pointer.rest);
        let filled = pointer.fill_run(count);
        op.promise.take(filled.into());
        if filled > 0 {
            tree::count_blocks(&op, inode, filled.into());
        }
        at += u64::from(count);
    }
    Ok(())
}

/// Nodes that so many blocks may need: direct ones, and indirect ones above them.
pub const fn most_nodes(blocks: u64) -> u64 {
    let direct = blocks / 1016 + 2;
    direct + direct / 1018 + 3
}

/// Blocks that one block at `block` needs now, with its nodes.
fn needed(store: &Store, inode: &Inode, block: u64) -> Result<u64> {
    let shape = inode.state.read().record.shape();
    let Some(path) = shape.locate(block) else { return Ok(1) };
    Ok(match tree::find(store, inode, block)? {
        Ok(pointer) => u64::from(pointer.get() == BlockAddr::NULL),
        // How far the way goes is not worth finding out: the last blocks of a volume are few.
        Err(_) => 1 + path.depth as u64,
    })
}

/// An overwrite in place owes nothing.
struct InPlace;

impl WriteTicket for InPlace {
    fn complete(self: Box<Self>, _file_end: u64) -> Result<(), MapError> {
        Ok(())
    }
}

/// Blocks with new addresses.
struct Moved {
    store: Arc<Store>,
    pointer: Pointer,
    start: BlockAddr,
    count: u32,
    done: bool,
}

impl WriteTicket for Moved {
    fn complete(mut self: Box<Self>, _file_end: u64) -> Result<(), MapError> {
        self.done = true;
        let old = self.pointer.set_run(self.start, self.count);
        let mut freed: Vec<BlockAddr> = old.into_iter().filter(|addr| addr.is_address()).collect();
        self.store.segments.invalidate_all(&mut freed).map_err(Error::from)?;
        Ok(())
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        for addr in (self.start.get()..self.start.get() + self.count).map(BlockAddr) {
            // They were placed a moment ago.
            let _ = self.store.segments.invalidate(addr);
        }
    }
}
