//! Frees a run, and the pointer blocks that become empty.

use std::ops::Range;

use cairn_base::Pba;
use cairn_cache::mapper::Run;

use super::{entries, first_of, load};
use crate::error::{Error, Result};
use crate::format::extent::ROOT_BYTES;
use crate::format::indirect::{SLOTS, decode, encode, max_blocks, slot_range, span};
use crate::map::{Budget, MapContext, Progress};
use crate::space::Freed;
use crate::txn::Handle;

/// Credits for one array of data pointers: the array and the two above it, each written or freed.
const ARRAY_CREDITS: u32 = 9;

/// Frees the blocks of `run` from its end backwards. A call changes about `budget` metadata
/// blocks and always makes progress. Returns the number of blocks added, which is negative.
///
/// # Errors
/// A pointer is invalid, the device failed, or the journal was aborted.
pub(crate) fn remove(
    context: &MapContext<'_>,
    handle: &Handle,
    i_block: &mut [u8; ROOT_BYTES],
    run: Run,
    budget: u32,
) -> Result<(Progress, i64)> {
    let size = context.layout.block_size;
    let end = run.start.get().saturating_add(run.len).min(max_blocks(size));
    let mut freeing = Freeing {
        context,
        handle,
        range: run.start.get()..end,
        budget: Budget::new(context.layout, budget),
        run: None,
        blocks: 0,
        stopped: None,
    };
    let mut slots = decode(i_block);
    for (slot, pointer) in slots.iter_mut().enumerate().take(SLOTS).rev() {
        let (level, base) = slot_range(slot, size);
        *pointer = freeing.free(*pointer, level, base);
    }
    encode(&slots, i_block);
    freeing.flush();
    match freeing.stopped {
        None => Ok((Progress::Done, freeing.blocks)),
        Some(Stop::Budget) => Ok((Progress::More, freeing.blocks)),
        Some(Stop::Failed(error)) => Err(error),
    }
}

enum Stop {
    Budget,
    Failed(Error),
}

struct Freeing<'a> {
    context: &'a MapContext<'a>,
    handle: &'a Handle,
    range: Range<u64>,
    budget: Budget<'a>,
    /// Data blocks that were removed from the map and not freed yet: start and count.
    run: Option<(u64, u64)>,
    blocks: i64,
    /// Why the walk ends early. The arrays on its path are still written.
    stopped: Option<Stop>,
}

impl Freeing<'_> {
    fn fail(&mut self, error: impl Into<Error>) {
        if !matches!(self.stopped, Some(Stop::Failed(_))) {
            self.stopped = Some(Stop::Failed(error.into()));
        }
    }

    /// Frees what lies in the range below a pointer, from the end on. Returns the new pointer.
    fn free(&mut self, pointer: u32, level: u32, base: u64) -> u32 {
        let reach = span(level, self.context.layout.block_size);
        if pointer == 0
            || self.stopped.is_some()
            || base >= self.range.end
            || base.saturating_add(reach) <= self.range.start
        {
            return pointer;
        }
        if level == 0 {
            return self.free_data(pointer, base);
        }
        if level == 1 && !self.budget.set_aside(ARRAY_CREDITS) {
            self.stopped = Some(Stop::Budget);
            return pointer;
        }
        match load(self.context, pointer, base) {
            Ok((pba, pointers)) => self.free_array(pba, pointer, pointers, level, base),
            Err(error) => {
                self.fail(error);
                pointer
            }
        }
    }

    fn free_array(
        &mut self,
        pba: Pba,
        pointer: u32,
        mut pointers: Vec<u32>,
        level: u32,
        base: u64,
    ) -> u32 {
        let each = span(level.saturating_sub(1), self.context.layout.block_size);
        let mut changed = false;
        for index in entries(base, each, pointers.len(), &self.range).rev() {
            let Some(entry) = pointers.get_mut(index) else { break };
            let left = self.free(*entry, level.saturating_sub(1), first_of(base, index, each));
            changed |= left != *entry;
            *entry = left;
        }
        if pointers.iter().all(|pointer| *pointer == 0) {
            self.blocks = self.blocks.saturating_sub(1);
            if let Err(error) = self.context.source.free(self.handle, pba, 1, Freed::Metadata) {
                self.fail(error);
            }
            return 0;
        }
        if changed && let Err(error) = self.write(pba, &pointers) {
            self.fail(error);
        }
        pointer
    }

    fn write(&self, pba: Pba, pointers: &[u32]) -> Result<()> {
        let buffer = self.context.buffers.get(pba)?;
        encode(pointers, &mut self.handle.write(&buffer)?);
        Ok(())
    }

    fn free_data(&mut self, pointer: u32, base: u64) -> u32 {
        let block = u64::from(pointer);
        if !self.context.bounds().holds(Pba(block), 1) {
            self.fail(self.context.site(Pba(0)).corrupt(
                base,
                "data block outside the volume or in its metadata",
                block,
            ));
            return pointer;
        }
        if self.budget.afford(Pba(block), 1) == 0 {
            self.stopped = Some(Stop::Budget);
            return pointer;
        }
        self.blocks = self.blocks.saturating_sub(1);
        self.run = match self.run {
            Some((start, count)) if start == block.saturating_add(1) => {
                Some((block, count.saturating_add(1)))
            }
            Some((start, count)) if start.saturating_add(count) == block => {
                Some((start, count.saturating_add(1)))
            }
            _ => {
                self.flush();
                Some((block, 1))
            }
        };
        0
    }

    fn flush(&mut self) {
        if let Some((start, count)) = self.run.take()
            && let Err(error) =
                self.context.source.free(self.handle, Pba(start), count, Freed::Data)
        {
            self.fail(error);
        }
    }
}
