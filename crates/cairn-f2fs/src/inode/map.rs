//! The part of a file's map that is kept in memory, and the reservations of its delayed blocks.
//!
//! A write only reserves space for blocks and for the nodes that will point to them: the block is
//! *delayed*. Write-back allocates slots in nodes for delayed blocks
//! ([`super::delayed::allocate_slots`]) just before they get addresses. A reservation that is not
//! used never reaches the device.
//!
//! # What may be remembered
//!
//! Pointers of a file change under its inode.data, and when cleaning moves blocks. A change under
//! inode.data updates the map ([`FileMap::mapped`], [`FileMap::forget`]). Cleaning raises
//! [`crate::operation_lock::OperationLock::moves`], which invalidates all earlier entries. An entry
//! may be added ([`FileMap::remember`]) only under a lock that cleaning waits for
//! ([`crate::operation_lock::OperationLock::lock_reading`],
//! [`crate::operation_lock::OperationLock::lock_data`]), and only if nothing has changed since the
//! look-up began.
//!
//! Locking: `state` after Mapping and before nodes, held for look-ups; `allocating_slots` with
//! [`crate::operation_lock::OperationLock::lock_data`] held and before the operation lock, held
//! while nodes are read and made.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::units::as_u64;
use cairn_cache::mapper::{Mapping, Place, Run};
use cairn_cache::status::{Extent, ExtentStatus, State as Known};

use crate::error::Result;
use crate::format::path::TreeShape;
use crate::space::{Reservation, Space};

/// The runs of a file's map that are in memory, and its reservations.
pub(crate) struct FileMap {
    state: Mutex<State>,
    pub(super) allocating_slots: Mutex<()>,
}

#[derive(Default)]
struct State {
    status: ExtentStatus,
    /// The number of moves by cleaning that `status` includes.
    moves: u64,
    /// Raised when pointers change, so that the result of an earlier look-up is not stored.
    changes: u64,
    /// Space for the delayed blocks and for `nodes`, exactly.
    reservation: Option<Reservation>,
    /// Nodes that are missing for delayed blocks, by their offsets in the tree.
    nodes: BTreeSet<u32>,
}

/// The state when a look-up in the nodes began; see [`FileMap::remember`].
pub(crate) struct LookupStamp {
    moves: u64,
    changes: u64,
}

impl FileMap {
    /// An empty map of the inode with number `order`.
    #[must_use]
    pub(crate) fn new(order: u64) -> Self {
        let allocating_slots = Mutex::new_ordered(Rank::Slots, order, ());
        Self { state: Mutex::new_ordered(Rank::FileMap, order, State::default()), allocating_slots }
    }

    /// The known mapping at a block and to the end of its run. `moves` is the count of the
    /// [operation lock](crate::operation_lock::OperationLock::moves).
    #[must_use]
    pub(crate) fn find(&self, block: FileBlock, moves: u64) -> Option<Mapping> {
        let mut state = self.state.lock();
        state.follow(moves);
        state.status.find(block).map(|known| known.mapping_from(block))
    }

    /// The stamp to take before the nodes are read.
    #[must_use]
    pub(crate) fn stamp(&self, moves: u64) -> LookupStamp {
        let mut state = self.state.lock();
        state.follow(moves);
        LookupStamp { moves: state.moves, changes: state.changes }
    }

    /// Stores a mapping that was read from nodes after `stamp`, unless a pointer has changed since.
    /// Delayed blocks stay delayed.
    pub(crate) fn remember(&self, stamp: &LookupStamp, found: &Mapping) {
        let known = match found.place {
            Place::Hole => Known::Hole,
            Place::Mapped(pba) => Known::Mapped(pba),
            Place::Unwritten(pba) => Known::Unwritten(pba),
            Place::Delayed | Place::Inline(_) => return,
        };
        let mut state = self.state.lock();
        if (state.moves, state.changes) == (stamp.moves, stamp.changes) {
            state.status.remember(Extent {
                start: found.run.start,
                len: found.run.len,
                state: known,
            });
        }
    }

    /// Blocks of the run have got these addresses.
    pub(crate) fn mapped(&self, run: Run, start: cairn_base::Pba) {
        let mut state = self.state.lock();
        state.changes = state.changes.strict_add(1);
        state.status.set_mapped(run, start);
    }

    /// Forgets blocks whose pointers have changed, or are about to change. Delayed blocks stay
    /// delayed.
    pub(crate) fn forget(&self, run: Run) {
        let mut state = self.state.lock();
        state.changes = state.changes.strict_add(1);
        state.status.forget(run);
    }

    /// As [`FileMap::forget`], for all blocks from this one on.
    pub(crate) fn forget_from(&self, block: u64) {
        self.forget(Run { start: FileBlock(block), len: u64::MAX.saturating_sub(block) });
    }

    /// Blocks reserved and without slots.
    #[must_use]
    pub(crate) fn delayed(&self) -> u64 {
        self.state.lock().status.delayed()
    }

    /// Releases the reservations of a run. Blocks without one are left alone.
    pub(crate) fn release(&self, run: Run, shape: TreeShape) {
        let mut state = self.state.lock();
        if state.status.undelay(run) > 0 {
            state.trim_reservation(shape);
        }
    }

    /// Reserves as much of a hole as there is space for, at least one block. Returns the number of
    /// blocks. `missing` returns which nodes are missing for this many blocks from the start.
    pub(super) fn reserve(
        &self,
        space: &Arc<Space>,
        start: u64,
        len: u64,
        missing: &[(u64, Vec<u32>)],
    ) -> Result<u64> {
        let mut state = self.state.lock();
        let mut len = len;
        loop {
            let lacking =
                missing.iter().take_while(|(first, _)| *first < start.saturating_add(len));
            let nodes: BTreeSet<u32> = lacking
                .flat_map(|(_, nodes)| nodes)
                .filter(|node| !state.nodes.contains(node))
                .copied()
                .collect();
            match space.reserve(len.saturating_add(as_u64(nodes.len()))) {
                Ok(more) => {
                    state.reservation = Some(match state.reservation.take() {
                        Some(reservation) => reservation.join(more),
                        None => more,
                    });
                    state.nodes.extend(nodes);
                    state.status.delay(Run { start: FileBlock(start), len });
                    return Ok(len);
                }
                Err(_) if len > 1 => len = len.div_ceil(2),
                Err(error) => return Err(error),
            }
        }
    }

    /// The first delayed blocks within `start..end`.
    pub(super) fn next_delayed(&self, start: u64, end: u64) -> Option<Run> {
        let state = self.state.lock();
        let mut at = start;
        while at < end {
            let known = state.status.next(FileBlock(at))?;
            if known.state == Known::Delayed {
                let part = known.clip(at, end)?;
                return Some(Run { start: part.start, len: part.len });
            }
            at = known.end();
        }
        None
    }

    /// Takes the reservation of a run and of the nodes on its path, as far as it still exists.
    pub(super) fn take(&self, run: Run, path: &[u32]) -> Option<Reservation> {
        let mut state = self.state.lock();
        let nodes = path.iter().filter(|node| state.nodes.contains(node)).count();
        state.reservation.as_mut().map(|reservation| {
            reservation.split(reservation.left().min(run.len.saturating_add(as_u64(nodes))))
        })
    }

    /// Returns the reservation after the slots could not be made.
    pub(super) fn put_back(&self, left: Reservation, shape: TreeShape) {
        let mut state = self.state.lock();
        state.reservation = Some(match state.reservation.take() {
            Some(reservation) => reservation.join(left),
            None => left,
        });
        state.trim_reservation(shape);
    }

    /// Records that the blocks of a run have slots, and that the nodes on its path exist.
    pub(super) fn slots_allocated(&self, run: Run, path: &[u32]) {
        let mut state = self.state.lock();
        state.changes = state.changes.strict_add(1);
        for node in path {
            state.nodes.remove(node);
        }
        state.status.undelay(run);
        state.status.set_unwritten(run, unaddressed(run.start.get()));
    }
}

impl State {
    fn follow(&mut self, moves: u64) {
        if self.moves < moves {
            self.moves = moves;
            self.status.shrink();
        }
    }

    /// Releases space that neither the delayed blocks nor the nodes on their paths need.
    fn trim_reservation(&mut self, shape: TreeShape) {
        if !self.nodes.is_empty() {
            let mut needed = BTreeSet::new();
            for run in self.status.delayed_ranges() {
                let (mut at, end) = (run.start.get(), run.start.get().saturating_add(run.len));
                while let Some(path) = shape.locate(at).filter(|_| at < end) {
                    needed.extend(
                        path.offsets
                            .get(1..=path.depth)
                            .unwrap_or_default()
                            .iter()
                            .filter(|node| self.nodes.contains(node)),
                    );
                    at = at.saturating_add(path.rest.into());
                }
            }
            self.nodes = needed;
        }
        let wanted = self.status.delayed().saturating_add(as_u64(self.nodes.len()));
        match self.reservation.take() {
            Some(mut reservation) if wanted > 0 => {
                // After a failure half way, reserved nodes may exist already, and existing ones may
                // be gone: the smaller amount is kept.
                drop(reservation.split(reservation.left().saturating_sub(wanted)));
                self.reservation = Some(reservation);
            }
            // All of it is released.
            other => drop(other),
        }
    }
}

/// Stands for the address of a block with a slot but without an address, so that such neighbours
/// form one run.
#[must_use]
pub(crate) const fn unaddressed(block: u64) -> cairn_base::Pba {
    cairn_base::Pba(block)
}
