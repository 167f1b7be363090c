//! The block allocator: chooses blocks for a request and changes their state.
//!
//! A request gets the run at its goal if that is long enough. Otherwise it gets a run in the first
//! group behind the goal that can satisfy it, where locked groups are skipped, or else the longest
//! run of the volume. On a RAID, the run in such a group and the longest run begin at a stripe
//! ([`super::stripe`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::sabotage::Safeguard;
use cairn_base::told::TOLD;
use cairn_base::{Ino, Pba};

use super::reservations::Class;
use super::stripe::Alignment;
use super::{Allocation, Inner, Space, no_space};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::groups::{Group, GroupState};
use crate::space::Freed;
use crate::txn::Handle;

/// A request of at least this many blocks without a goal begins in another part of the group than
/// the last one.
const STREAM_REQUEST: u32 = 256;
/// Number of parts of a group.
const STREAMS: u32 = 16;
/// Searches before a reserved block counts as lost. Each search may miss blocks that another thread
/// is giving back.
const SEARCHES: usize = 64;

/// A run inside a group.
#[derive(Clone, Copy)]
struct Found {
    group: u32,
    start: u32,
    len: u32,
}

impl Space {
    /// The preferred place of an inode's first block: the start of the inode's group.
    #[must_use]
    pub(crate) fn goal_of(&self, ino: Ino) -> Pba {
        let group = self.inner.layout.inode_group(ino).map_or(0, |(group, _)| group);
        self.inner.layout.group_first_block(group)
    }

    /// Allocates up to `want` blocks near `goal` in memory, without a reservation, for a class of
    /// users.
    ///
    /// # Errors
    /// No space; see [`Space::pending_free`].
    pub(crate) fn allocate_for(&self, goal: Pba, want: u32, class: Class) -> Result<Allocation> {
        let reservations = &self.inner.reservations;
        let got = reservations.take_up_to(want.into(), class).ok_or_else(no_space)?;
        let got = u32::try_from(got).expect("at most what was wanted");
        match self.inner.search_persistently(goal, got) {
            Ok(found) => {
                reservations.add_free((got - found.len).into());
                Ok(self.inner.allocation(found, false))
            }
            Err(error) => {
                reservations.add_free(got.into());
                Err(error)
            }
        }
    }

    /// Allocates up to `want` blocks for data with a reservation. The reservation stays until
    /// [`Space::use_reservation`].
    ///
    /// # Errors
    /// A bitmap cannot be read or contradicts its group descriptor.
    pub(crate) fn allocate_reserved(&self, goal: Pba, want: u32) -> Result<Allocation> {
        let found = self.inner.search_persistently(goal, want)?;
        Ok(self.inner.allocation(found, true))
    }

    /// Uses up `reserved` blocks of a reservation, because the allocation's data is mapped. They
    /// are fewer than the allocation if a truncation has released some.
    pub(crate) fn use_reservation(&self, allocation: &Allocation, reserved: u64) {
        if allocation.from_reservation {
            self.inner.reservations.convert(reserved, allocation.len.into());
        }
    }

    /// Marks an allocation's blocks in use in `handle`: bitmap and descriptor.
    ///
    /// # Errors
    /// The device or the journal failed, or the bitmap contradicts the allocation.
    pub(crate) fn mark(&self, handle: &Handle, allocation: &Allocation) -> Result<()> {
        self.inner.change(handle, allocation, true)
    }

    /// Undoes [`Space::mark`] in the same handle, and cancels the allocation.
    ///
    /// # Errors
    /// As [`Space::mark`].
    pub(crate) fn unmark(&self, handle: &Handle, allocation: Allocation) -> Result<()> {
        self.inner.change(handle, &allocation, false)?;
        self.cancel(allocation);
        Ok(())
    }

    /// Cancels an allocation whose data was not written. A reservation stays. Blocks that were
    /// marked stay in use; [`Space::unmark`] or a free undoes that.
    pub(crate) fn cancel(&self, allocation: Allocation) {
        if allocation.marked.load(Ordering::Acquire) {
            return;
        }
        let (number, start) = self.inner.group_and_offset(&allocation);
        self.inner.add_to_map(number, start, allocation.len, false);
        if !allocation.from_reservation {
            self.inner.reservations.add_free(allocation.len.into());
        }
    }

    /// Allocates one metadata block and marks it in use.
    pub(super) fn allocate_one(&self, handle: &Handle, goal: Pba, class: Class) -> Result<Pba> {
        let allocation = self.allocate_for(goal, 1, class)?;
        match self.mark(handle, &allocation) {
            Ok(()) => Ok(allocation.start),
            Err(error) => {
                self.cancel(allocation);
                Err(error)
            }
        }
    }

    /// Frees blocks in `handle`. They can be allocated again after its commit.
    pub(super) fn free_blocks(
        &self,
        handle: &Handle,
        start: Pba,
        count: u64,
        kind: Freed,
    ) -> Result<()> {
        let layout = &self.inner.layout;
        let (group, bit) = layout.group_and_offset(start).unwrap_or((u32::MAX, u32::MAX));
        if !layout.contains(start, count) {
            let (field, value, problem) = ("freed block", start.get(), "outside the volume");
            return Err(Corrupt::Group { group, field, value, problem }.into());
        }
        if self.inner.groups.is_metadata(start, count) {
            return Err(Corrupt::Bitmap {
                what: "block",
                group,
                bit,
                state: "belongs to the volume's structures",
            }
            .into());
        }
        let (mut at, end) = (start.get(), start.get() + count);
        while at < end {
            let (group, bit) =
                layout.group_and_offset(Pba(at)).expect("the range lies in the volume");
            let room = u64::from(layout.group_blocks(group) - bit);
            let len = u32::try_from(room.min(end - at)).expect("at most a group");
            if kind == Freed::Metadata {
                for pba in at..at + u64::from(len) {
                    handle.forget(Pba(pba))?;
                }
            }
            self.free_in_group(handle, group, bit, len)?;
            at += u64::from(len);
        }
        Ok(())
    }

    fn free_in_group(&self, handle: &Handle, number: u32, start: u32, len: u32) -> Result<()> {
        let inner = &self.inner;
        let mut state = inner.groups.group(number).lock();
        // The map is built before the bitmap changes, so that it has the blocks as busy.
        inner.load(number, &mut state)?;
        for (start, len) in inner.parts_to_free(number, &state, start, len)? {
            inner.groups.change_blocks(handle, number, &mut state, start, len, false)?;
        }
        drop(state);
        inner.pending_blocks.fetch_add(len.into(), Ordering::Relaxed);
        let inner = inner.clone();
        let release = move |durable| {
            if durable {
                let first = inner.layout.group_first_block(number).get();
                let discarded = inner.discard(Pba(first + u64::from(start)), len.into());
                let open = inner.open_part(number, start, len);
                if open > 0 && inner.add_to_map(number, start, open, discarded) {
                    inner.reservations.add_free(open.into());
                }
            }
            inner.pending_blocks.fetch_sub(len.into(), Ordering::Relaxed);
        };
        if Safeguard::FreedBlocks.is_off() {
            release(true);
        } else {
            handle.on_commit(Box::new(release));
        }
        Ok(())
    }
}

impl Inner {
    fn allocation(&self, found: Found, from_reservation: bool) -> Allocation {
        let start = Pba(self.layout.group_first_block(found.group).get() + u64::from(found.start));
        Allocation {
            start,
            len: found.len,
            from_reservation,
            marked: Arc::new(AtomicBool::new(false)),
        }
    }

    fn group_and_offset(&self, allocation: &Allocation) -> (u32, u32) {
        self.layout.group_and_offset(allocation.start).expect("allocations lie in the volume")
    }

    fn change(&self, handle: &Handle, allocation: &Allocation, used: bool) -> Result<()> {
        let (number, start) = self.group_and_offset(allocation);
        let mut state = self.groups.group(number).lock();
        self.groups.change_blocks(handle, number, &mut state, start, allocation.len, used)?;
        allocation.marked.store(used, Ordering::Release);
        Ok(())
    }

    /// Adds blocks to the group's map. False if the group is not used any more. `discarded`: the
    /// device was told.
    fn add_to_map(&self, number: u32, start: u32, len: u32, discarded: bool) -> bool {
        let group = self.groups.group(number);
        let mut state = group.lock();
        state.trimmed &= discarded;
        let Some(map) = state.map.as_mut() else { return false };
        map.add(start, len);
        publish(group, &state);
        true
    }

    /// Builds the group's map at its first use. No blocks are allocated in a damaged group any
    /// more.
    pub(super) fn load(&self, number: u32, state: &mut GroupState) -> Result<bool> {
        match self.groups.load_map(number, state) {
            Ok(map) => Ok(map.is_some()),
            Err(Error::Corrupt(defect)) => {
                let what = "no blocks are allocated in this group any more";
                tracing::error!(target: TOLD, %defect, "{what}");
                state.damaged = true;
                self.reservations.remove_free(state.desc.free_blocks.into());
                let group = self.groups.group(number);
                group.longest.store(0, Ordering::Relaxed);
                group.free_blocks.store(0, Ordering::Relaxed);
                self.note(defect);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn note(&self, defect: Corrupt) {
        self.defect.lock().get_or_insert(defect);
    }

    fn search_persistently(&self, goal: Pba, want: u32) -> Result<Found> {
        for _ in 0..SEARCHES {
            if let Some(found) = self.search(goal, want)? {
                return Ok(found);
            }
        }
        Err(self.defect.lock().clone().map_or_else(no_space, Error::from))
    }

    fn search(&self, goal: Pba, want: u32) -> Result<Option<Found>> {
        let (first, mut bit) = self.layout.group_and_offset(goal).unwrap_or((0, 0));
        if bit == 0 && want >= STREAM_REQUEST {
            // A new large file gets another part of the group, so that concurrently written files
            // do not interleave.
            let part = self.stream.fetch_add(1, Ordering::Relaxed) % STREAMS;
            bit = self.layout.group_blocks(first) / STREAMS * part;
            bit = self.alignment(first, self.stripes.unit_for(want)).next(bit).unwrap_or(bit);
        }
        if let Some(found) = self.search_goal(first, bit, want)? {
            return Ok(Some(found));
        }
        match self.stripes.unit_for(want) {
            1 => {}
            unit => {
                if let Some(found) = self.search_whole(first, bit, want, unit)? {
                    return Ok(Some(found));
                }
                if let Some(found) = self.search_longest(want, unit)? {
                    return Ok(Some(found));
                }
            }
        }
        if let Some(found) = self.search_whole(first, bit, want, 1)? {
            return Ok(Some(found));
        }
        self.search_longest(want, 1)
    }

    fn alignment(&self, group: u32, unit: u32) -> Alignment {
        Alignment::new(unit, self.layout.group_first_block(group).get())
    }

    fn search_goal(&self, number: u32, bit: u32, want: u32) -> Result<Option<Found>> {
        let group = self.groups.group(number);
        if bit == 0 || group.free_blocks.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut state = group.lock();
        if !self.load(number, &mut state)? {
            return Ok(None);
        }
        let run = state.map.as_ref().and_then(|map| map.at(bit, want));
        Ok(run.map(|run| take(group, number, &mut state, run)))
    }

    fn search_whole(&self, first: u32, bit: u32, want: u32, unit: u32) -> Result<Option<Found>> {
        for number in (first..self.groups.len()).chain(0..first) {
            let group = self.groups.group(number);
            if group.longest.load(Ordering::Relaxed) < want {
                continue;
            }
            let Some(mut state) = group.try_lock() else { continue };
            if !self.load(number, &mut state)? {
                continue;
            }
            let goal = if number == first { bit } else { 0 };
            match self.find(number, &mut state, goal, want, unit) {
                Some(run) if run.1 >= want => {
                    return Ok(Some(take(group, number, &mut state, run)));
                }
                _ => publish(group, &state),
            }
        }
        Ok(None)
    }

    /// The first run of `want` blocks in a loaded group that begins at a multiple of `unit`, or
    /// else the longest.
    fn find(
        &self,
        number: u32,
        state: &mut GroupState,
        goal: u32,
        want: u32,
        unit: u32,
    ) -> Option<(u32, u32)> {
        let map = state.map.as_mut()?;
        // This search of all runs makes the bound exact.
        let longest = map.find(goal, want)?;
        if unit == 1 {
            Some(longest)
        } else {
            map.find_aligned(goal, want, self.alignment(number, unit))
        }
    }

    /// The longest run of the volume. Each round ends the search or lowers one group's bound to its
    /// true value.
    fn search_longest(&self, want: u32, unit: u32) -> Result<Option<Found>> {
        for _ in 0..=self.groups.len() {
            let bounds = (0..self.groups.len())
                .map(|n| (self.groups.group(n).longest.load(Ordering::Relaxed), n));
            let Some((longest, number)) =
                bounds.max_by_key(|(longest, number)| (*longest, u32::MAX - number))
            else {
                break;
            };
            if longest == 0 {
                break;
            }
            let group = self.groups.group(number);
            let mut state = group.lock();
            if !self.load(number, &mut state)? {
                continue;
            }
            let run = self.find(number, &mut state, 0, want, unit);
            // The bound was too high, so another group may have a longer run.
            match run {
                Some(run) if run.1 >= want || run.1 >= longest / 2 => {
                    return Ok(Some(take(group, number, &mut state, run)));
                }
                _ => publish(group, &state),
            }
        }
        Ok(None)
    }
}

/// Takes a run out of the map of a loaded group.
fn take(group: &Group, number: u32, state: &mut GroupState, (start, len): (u32, u32)) -> Found {
    state.map.as_mut().expect("the group is loaded").take(start, len);
    publish(group, state);
    Found { group: number, start, len }
}

/// Updates the hints that are read without the lock.
pub(super) fn publish(group: &Group, state: &GroupState) {
    if let Some(map) = &state.map {
        group.longest.store(map.longest(), Ordering::Relaxed);
        group.free_blocks.store(map.free(), Ordering::Relaxed);
    }
}
