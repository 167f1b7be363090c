//! The file cache's mapper for writes, over the node tree of a file.
//!
//! A write reserves its holes ([`super::map`]), so write-back does not fail for lack of space.
//! Write-back allocates slots in nodes, and then blocks: at the end of a data log, or in place
//! where Linux does that. A new block is in the SIT when it is allocated, and in the node only when
//! its data is written. If the write fails, the new block is freed and the old one stays. Slots
//! without an address stay, and read as zeros.
//!
//! Locking: all of it happens with [`crate::operation_lock::OperationLock::lock_data`] held, so a
//! checkpoint does not see the state in between. Pointers of different blocks change under shared
//! inode.data. Nodes are added under shared inode.data, by one thread at a time
//! ([`delayed::allocate_slots`]), and removed under exclusive inode.data.

use std::marker::PhantomData;
use std::sync::Arc;

use cairn_base::Pba;
use cairn_cache::mapper::{FileMapper, MapError, Mapping, Place, Placement, Run, WriteTicket};
use cairn_vfs::root_reserved;

use super::read_mapper::ReadMapper;
use super::tree::{self, Pointer};
use super::{Inode, delayed, freed};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::inode::Advise;
use crate::format::{BlockAddr, Log};
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::operation_lock::DataGuard;
use crate::segment::{self, Mode};
use crate::space::Reservation;
use crate::store::Store;

/// Linux always overwrites in place on volumes of up to this many main segments: 16 GiB.
const SMALL_VOLUME: u32 = 8192;
/// On larger volumes an fsync of up to this many dirty blocks overwrites in place.
pub(crate) const SMALL_FSYNC: u64 = 8;

/// Whether blocks with an address are overwritten in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// If the volume is small, or the file rarely changes.
    Usual,
    /// A small fsync: if the mode allows it.
    SmallFsync,
    /// Never: after a crash the old contents must be there.
    Elsewhere,
}

/// Maps one file for writing.
pub(crate) struct InodeMapper<'a> {
    ops: &'a Operations,
    inode: &'a Arc<Inode>,
    reader: ReadMapper<'a>,
    policy: Policy,
    _inside: PhantomData<&'a ()>,
}

/// Slots of one node that get addresses.
struct Slots {
    /// The first.
    pointer: Pointer,
    count: u32,
}

impl<'a> InodeMapper<'a> {
    /// A mapper for one call of the cache.
    #[must_use]
    pub(crate) fn new(
        ops: &'a Operations,
        inode: &'a Arc<Inode>,
        inside: &'a DataGuard<'a>,
    ) -> Self {
        Self::with_policy(ops, inode, inside, Policy::Usual)
    }

    /// As [`InodeMapper::new`], with another policy.
    #[must_use]
    pub(crate) fn with_policy(
        ops: &'a Operations,
        inode: &'a Arc<Inode>,
        inside: &'a DataGuard<'a>,
        policy: Policy,
    ) -> Self {
        let reader = ReadMapper::stable(&ops.disk, inode, inside);
        Self { ops, inode, reader, policy, _inside: PhantomData }
    }

    fn try_reserve(&self, run: Run) -> Result<Mapping> {
        let start = run.start.get();
        let largest = self.inode.state.read().record.shape().max_blocks();
        if start >= largest {
            return Err(cairn_vfs::Error::TooLarge.into());
        }
        let mut before = self.reader.find_any(run)?;
        before.run.len = before.run.len.min(run.len).min(largest - start);
        let store = self.ops.store()?;
        self.ops.inodes.limit_space(store);
        if before.place == Place::Hole {
            before.run.len = delayed::reserve(store, self.inode, start, before.run.len)?;
        } else if matches!(before.place, Place::Mapped(_)) && store.checkpoints.is_disabled() {
            // It gets a new address. The old one may be that of the last checkpoint.
            let room = store.space.available(root_reserved::may_be_used());
            before.run.len = before.run.len.min(room);
            if room == 0 {
                return Err(Error::NO_SPACE);
            }
        }
        Ok(before)
    }

    fn try_place(&self, run: Run) -> Result<Placement> {
        let store = self.ops.store()?;
        delayed::allocate_slots(self.ops, self.inode, run)?;
        let mut in_place = self.in_place(store);
        if in_place
            && let Mapping { run: known, place: Place::Mapped(start) } =
                self.reader.find_any(run)?
        {
            let run = Run { start: run.start, len: known.len.min(run.len) };
            // Cleaning may be copying the block, and a damaged pointer may lead to another's.
            if !store.segments.is_cleaning(start, run.len) && self.is_own(store, run, start)? {
                store.segments.stats.in_place.add(run.len);
                return Ok(Placement {
                    run,
                    start,
                    ticket: Box::new(InPlace { inode: self.inode.clone() }),
                });
            }
            in_place = false;
        }
        let (slots, owners) = self.slots(store, run, in_place)?;
        self.inode.drop_hint(&self.ops.inodes);
        let placed = place_run(store, data_log(self.inode), &owners)?;
        let run = Run { start: run.start, len: placed.count as u64 };
        let (mount, store, inode) = (self.ops.mount.clone(), store.clone(), self.inode.clone());
        let ticket = Moved { mount, store, inode, slots, run, start: placed.address, done: false };
        Ok(Placement { run, start: placed.address.pba(), ticket: Box::new(ticket) })
    }

    /// Is the block at the start of a run the file's own? A wrong pointer begins a run.
    fn is_own(&self, store: &Store, run: Run, start: Pba) -> Result<bool> {
        let Ok(pointer) = tree::find(store, self.inode, run.start.get())? else {
            return Ok(false);
        };
        let addr = pointer.get();
        Ok(addr.pba() != start || !freed::is_anothers(&self.ops.disk, store, pointer.owner(), addr))
    }

    /// The slots at the head of the run that may get new addresses, at least one, and the owners of
    /// their blocks.
    fn slots(
        &self,
        store: &Store,
        run: Run,
        in_place: bool,
    ) -> Result<(Vec<Slots>, Vec<segment::Owner>)> {
        let (mut slots, mut owners) = (Vec::new(), Vec::new());
        let mut left = run.len;
        while left > 0 {
            let Ok(pointer) = tree::find(store, self.inode, run.start.get() + owners.len() as u64)?
            else {
                break;
            };
            let most = u32::try_from(left).unwrap_or(u32::MAX).min(pointer.rest);
            let movable = |addr: &BlockAddr| {
                let stays = in_place && addr.is_address();
                !(stays || matches!(*addr, BlockAddr::NULL | BlockAddr::COMPRESS))
            };
            let count =
                pointer.get_run(most).iter().take_while(|addr| movable(addr)).count() as u32;
            owners.extend(pointer.owners(count));
            if count > 0 {
                slots.push(Slots { pointer, count });
            }
            if count < most {
                break;
            }
            left -= u64::from(count);
        }
        if slots.is_empty() { Err(self.lost(run)) } else { Ok((slots, owners)) }
    }

    /// A dirty block without a slot is damage, because the write reserved one.
    fn lost(&self, run: Run) -> Error {
        let what = "a written block has no slot in the node tree";
        Corrupt::Mapping { ino: self.inode.nid, block: run.start.get(), what, value: run.len }
            .into()
    }

    fn in_place(&self, store: &Store) -> bool {
        // While checkpoints are disabled, the last one must stay complete, with its data.
        let never = store.segments.mode() == Mode::Lfs || store.checkpoints.is_disabled();
        if never || self.policy == Policy::Elsewhere {
            return false;
        }
        let cold = self.inode.state.read().record.advise.contains(Advise::COLD);
        self.policy == Policy::SmallFsync || cold || store.layout.main_segments <= SMALL_VOLUME
    }
}

/// The log that the contents of a file go to.
pub(super) fn data_log(inode: &Inode) -> Log {
    let advise = inode.state.read().record.advise;
    if advise.contains(Advise::HOT) {
        Log::HotData
    } else if advise.contains(Advise::COLD) {
        Log::ColdData
    } else {
        Log::WarmData
    }
}

/// Places as many contiguous blocks as possible, also across the end of a segment.
fn place_run(store: &Store, log: Log, owners: &[segment::Owner]) -> Result<segment::Placed> {
    let mut placed = store.segments.place(log, owners)?;
    while placed.count < owners.len() {
        let end = BlockAddr(placed.address.get() + placed.count as u32);
        match store.segments.place_at(log, &owners[placed.count..], end) {
            Ok(Some(more)) => {
                placed = segment::Placed { count: placed.count + more.count, ..placed }
            }
            // The allocated part is returned. A request for the rest gets the error.
            Ok(None) | Err(_) => break,
        }
    }
    Ok(placed)
}

impl FileMapper for InodeMapper<'_> {
    fn lookup(&self, run: Run) -> Result<Mapping, MapError> {
        self.reader.lookup(run)
    }

    fn reserve(&self, run: Run) -> Result<Mapping, MapError> {
        Ok(self.try_reserve(run)?)
    }

    fn reserves_ahead(&self) -> bool {
        true
    }

    fn release(&self, run: Run) {
        self.reader.release(run);
    }

    fn place(&self, run: Run) -> Result<Placement, MapError> {
        Ok(self.try_place(run)?)
    }
}

/// Gives slots to the holes of at most `len` blocks from `start` on: with little space to fewer,
/// but at least one. Returns how many blocks have slots now. The caller holds
/// [`crate::operation_lock::OperationLock::lock_data`] and inode.data exclusively.
///
/// # Errors
/// No space for a single one, a node is damaged, or the device failed.
pub(crate) fn fill(ops: &Operations, inode: &Arc<Inode>, start: u64, len: u64) -> Result<u64> {
    let store = ops.store()?;
    ops.inodes.limit_space(store);
    let mut len = len;
    let reservation = loop {
        match store.space.reserve(len + most_nodes(len)) {
            Ok(reservation) => break reservation,
            Err(_) if len > 1 => len = len.div_ceil(2),
            Err(_) => break store.space.reserve(needed(store, inode, start)?)?,
        }
    };
    fill_with(ops, inode, start, len, reservation)?;
    Ok(len)
}

fn fill_with(
    ops: &Operations,
    inode: &Arc<Inode>,
    start: u64,
    len: u64,
    reservation: Reservation,
) -> Result<()> {
    inode.drop_hint(&ops.inodes);
    let mut op = ops.begin_reserved(reservation)?;
    let mut at = start;
    while at < start + len {
        let pointer = tree::make(&mut op, inode, at)?;
        let count = u32::try_from(start + len - at).unwrap_or(u32::MAX).min(pointer.rest);
        let filled = pointer.fill_run(count);
        op.reservation.take(filled.into());
        if filled > 0 {
            tree::count_blocks(&op, inode, filled.into());
        }
        at += u64::from(count);
    }
    inode.map.forget(Run { start: cairn_base::FileBlock(start), len });
    Ok(())
}

/// Most nodes that this many blocks need: direct ones, and indirect ones above them.
pub(crate) const fn most_nodes(blocks: u64) -> u64 {
    let direct = blocks / 1016 + 2;
    direct + direct / 1018 + 3
}

/// Blocks that one block at `block` needs now, with its nodes.
fn needed(store: &Store, inode: &Inode, block: u64) -> Result<u64> {
    let shape = inode.state.read().record.shape();
    let Some(path) = shape.locate(block) else { return Ok(1) };
    Ok(match tree::find(store, inode, block)? {
        Ok(pointer) => u64::from(pointer.get() == BlockAddr::NULL),
        // Assumes that all nodes of the path are missing: this costs little accuracy, because few
        // blocks are left.
        Err(_) => 1 + path.depth as u64,
    })
}

/// Ticket of an overwrite in place, after which the map does not change.
struct InPlace {
    inode: Arc<Inode>,
}

impl WriteTicket for InPlace {
    fn complete(self: Box<Self>, _file_end: u64) -> Result<(), MapError> {
        self.inode.ledger.wrote();
        Ok(())
    }
}

/// Blocks with new addresses.
struct Moved {
    mount: Arc<MountState>,
    store: Arc<Store>,
    inode: Arc<Inode>,
    /// At least one for each block of the run.
    slots: Vec<Slots>,
    run: Run,
    start: BlockAddr,
    done: bool,
}

impl WriteTicket for Moved {
    fn complete(mut self: Box<Self>, _file_end: u64) -> Result<(), MapError> {
        self.done = true;
        self.inode.ledger.wrote();
        let (mut at, end) = (self.start.get(), self.start.get() + self.run.len as u32);
        let mut given_up = Vec::new();
        for Slots { pointer, count } in &self.slots {
            let count = (end - at).min(*count);
            given_up.push((pointer, pointer.set_run(BlockAddr(at), count)));
            at += count;
        }
        self.inode.map.mapped(self.run, self.start.pba());
        for (pointer, old) in given_up {
            let kept = pointer.give_up(&self.mount, &self.inode, &old)?;
            self.store.space.keep(kept);
        }
        Ok(())
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        for addr in (self.start.get()..self.start.get() + self.run.len as u32).map(BlockAddr) {
            self.store.segments.give_up(addr);
            // Cannot fail: the blocks have just been placed.
            let _ = self.store.segments.invalidate(addr);
        }
    }
}
