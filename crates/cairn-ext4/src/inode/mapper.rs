//! Connects the file cache with the block map: look-up, reservation, placement, and the ticket that
//! maps blocks when their data is on the device.

use std::sync::Arc;

use cairn_base::{FileBlock, Pba};
use cairn_cache::mapper::{FileMapper, MapError, Mapping, Place, Placement, Run, WriteTicket};
use cairn_cache::status::Extent as Known;

use crate::alloc::{Allocation, Class};
use crate::error::Result;
use crate::format::inode::InodeFlags;
use crate::inode::{Inode, State};
use crate::map::Progress;
use crate::op::Operations;
use crate::txn::Handle;

/// Maps one inode's data. It is created for each call and holds only references.
pub(crate) struct InodeMapper<'v> {
    ops: &'v Arc<Operations>,
    inode: &'v Arc<Inode>,
}

impl<'v> InodeMapper<'v> {
    /// Creates a mapper for `inode`.
    #[must_use]
    pub(crate) fn new(ops: &'v Arc<Operations>, inode: &'v Arc<Inode>) -> Self {
        Self { ops, inode }
    }

    /// The largest known run at `block`. The map is read if the status cache has no entry.
    pub(crate) fn find(
        ops: &Operations,
        inode: &Inode,
        state: &mut State,
        block: FileBlock,
    ) -> Result<Known> {
        if let Some(known) = state.status.find(block) {
            return Ok(known);
        }
        let mapped = ops.map_of(inode, state).lookup(&state.record.block, block)?;
        state.status.remember(mapped);
        // `remember` does not overwrite delayed ranges, so a part of the hole may be delayed: look
        // it up again.
        Ok(state.status.find(block).unwrap_or(mapped))
    }

    fn mapping_at(&self, run: Run) -> Result<Mapping> {
        let mut state = self.inode.state.write();
        let known = Self::find(self.ops, self.inode, &mut state, run.start)?;
        Ok(known.mapping_from(run.start))
    }
}

impl FileMapper for InodeMapper<'_> {
    fn lookup(&self, run: Run) -> Result<Mapping, MapError> {
        {
            let state = self.inode.state.read();
            if let Some(known) = state.status.find(run.start) {
                return Ok(known.mapping_from(run.start));
            }
        }
        Ok(self.mapping_at(run)?)
    }

    fn reserve(&self, run: Run) -> Result<Mapping, MapError> {
        let mut state = self.inode.state.write();
        let known = Self::find(self.ops, self.inode, &mut state, run.start)?;
        let mut before = known.mapping_from(run.start);
        before.run.len = before.run.len.min(run.len);
        if before.place == Place::Hole {
            let extents = state.record.flags.contains(InodeFlags::EXTENTS);
            let largest = crate::map::max_file_blocks(extents, self.ops.layout.block_size);
            if run.start.get() >= largest {
                return Err(MapError::TooLarge);
            }
            before.run.len = before.run.len.min(largest - run.start.get());
            // A part of the run may fit when the volume is nearly full, so the run is halved until
            // it is one block.
            loop {
                match self.ops.space.reserve(before.run.len, Class::of_call()) {
                    Ok(()) => break,
                    Err(_) if before.run.len > 1 => before.run.len = before.run.len.div_ceil(2),
                    Err(error) => return Err(error.into()),
                }
            }
            state.status.delay(before.run);
            state.delayed += before.run.len;
        }
        Ok(before)
    }

    fn reserves_ahead(&self) -> bool {
        true
    }

    fn release(&self, run: Run) {
        let mut state = self.inode.state.write();
        let released = state.status.undelay(run);
        state.delayed -= released;
        drop(state);
        self.ops.space.release(released);
    }

    fn place(&self, run: Run) -> Result<Placement, MapError> {
        let mut state = self.inode.state.write();
        let known = Self::find(self.ops, self.inode, &mut state, run.start)?;
        let at = known.mapping_from(run.start);
        let len = at.run.len.min(run.len);
        let (start, len, work) = match at.place {
            Place::Mapped(pba) => (pba, len, Work::Overwrite),
            Place::Unwritten(pba) => (pba, len, Work::Convert),
            Place::Delayed => {
                let goal = Self::goal(self.ops, self.inode, &mut state, run.start)?;
                let extents = state.record.flags.contains(InodeFlags::EXTENTS);
                drop(state);
                let most = crate::map::max_run(extents, self.ops.layout.block_size);
                let want = u32::try_from(len).unwrap_or(u32::MAX).min(most);
                let allocation = self.ops.space.allocate_reserved(goal, want)?;
                (allocation.start, u64::from(allocation.len), Work::Fresh(allocation))
            }
            Place::Hole | Place::Inline(_) => {
                return Err(MapError::Other(Arc::new(crate::Corrupt::Mapping {
                    ino: self.inode.ino,
                    at: run.start,
                    pba: Pba(0),
                    what: "dirty block without a reservation of space",
                    value: run.len,
                })));
            }
        };
        let run = Run { start: run.start, len };
        let ticket = Ticket {
            ops: self.ops.clone(),
            inode: self.inode.clone(),
            run,
            start,
            work: Some(work),
        };
        Ok(Placement { run, start, ticket: Box::new(ticket) })
    }
}

impl InodeMapper<'_> {
    /// The block behind the mapping of the block before this one, or the inode's group.
    pub(crate) fn goal(
        ops: &Operations,
        inode: &Inode,
        state: &mut State,
        block: FileBlock,
    ) -> Result<Pba> {
        if let Some(before) = block.get().checked_sub(1) {
            let known = Self::find(ops, inode, state, FileBlock(before))?;
            if let Place::Mapped(pba) | Place::Unwritten(pba) =
                known.mapping_from(FileBlock(before)).place
            {
                return Ok(Pba(pba.get() + 1));
            }
        }
        Ok(ops.space.goal_of(inode.ino))
    }
}

/// What the completion of a write changes in the map.
enum Work {
    /// Nothing: the blocks are mapped and written.
    Overwrite,
    /// Preallocated blocks become written.
    Convert,
    /// Allocated blocks are marked in the bitmap and mapped.
    Fresh(Allocation),
}

/// The ticket of one placement; see [`WriteTicket`].
struct Ticket {
    ops: Arc<Operations>,
    inode: Arc<Inode>,
    run: Run,
    start: Pba,
    work: Option<Work>,
}

impl WriteTicket for Ticket {
    fn complete(mut self: Box<Self>, file_end: u64) -> Result<(), MapError> {
        let work = self.work.take().expect("a ticket is completed once");
        self.inode.ledger.wrote();
        if matches!(work, Work::Overwrite) && !self.raises_disksize(file_end) {
            return Ok(());
        }
        match self.ops.begin(self.ops.credits.map_extent) {
            Ok(mut handle) => {
                if matches!(work, Work::Convert) {
                    self.convert(&mut handle)?;
                }
                Ok(self.map(&handle, work, file_end)?)
            }
            Err(error) => {
                self.cancel(work);
                Err(error.into())
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.cancel(work);
        }
    }
}

impl Ticket {
    /// True if this write raises the size on disk.
    fn raises_disksize(&self, file_end: u64) -> bool {
        self.inode.state.read().moves_disksize(self.run, file_end)
    }

    /// Frees the blocks of a write that failed or cannot be mapped. The reservation stays with the
    /// dirty data.
    fn cancel(&self, work: Work) {
        if let Work::Fresh(allocation) = work {
            self.ops.space.cancel(allocation);
        }
    }

    /// Marks the blocks written, in as many transactions as needed.
    fn convert(&self, handle: &mut Handle) -> Result<()> {
        let ops = &self.ops;
        loop {
            let progress = {
                let mut state = self.inode.state.write();
                let state = &mut *state;
                let source = ops.space.for_mapping();
                let map = ops.map_with(&self.inode, state, &source);
                let budget = handle.credits_left().saturating_sub(ops.credits.attributes);
                let (progress, grown) =
                    map.convert_written(handle, &mut state.record.block, self.run, budget)?;
                state.account(&ops.layout, grown);
                self.inode.write_inode(ops, handle, state)?;
                progress
            };
            if progress == Progress::Done {
                return Ok(());
            }
            ops.ensure_credits(handle, ops.credits.map_extent)?;
        }
    }

    fn map(&self, handle: &Handle, work: Work, file_end: u64) -> Result<()> {
        let mut state = self.inode.state.write();
        let state = &mut *state;
        match work {
            Work::Overwrite => {}
            Work::Convert => state.status.set_mapped(self.run, self.start),
            Work::Fresh(allocation) => {
                self.ops.map_allocation(
                    handle,
                    &self.inode,
                    state,
                    allocation.clone(),
                    self.run.start,
                    false,
                )?;
                let reserved = state.status.undelay(self.run);
                state.status.set_mapped(self.run, self.start);
                state.delayed -= reserved;
                self.ops.space.use_reservation(&allocation, reserved);
            }
        }
        state.size_written(self.run, file_end);
        self.inode.write_inode(&self.ops, handle, state)?;
        handle.finish();
        Ok(())
    }
}
