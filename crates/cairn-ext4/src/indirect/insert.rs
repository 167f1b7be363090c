//! Maps a hole.

use std::ops::Range;

use cairn_base::Pba;
use cairn_base::units::{as_index, as_u64, stored};
use cairn_cache::mapper::Run;

use super::{entries, first_of, load};
use crate::error::Result;
use crate::format::extent::ROOT_BYTES;
use crate::format::indirect::{SLOTS, decode, encode, max_blocks, slot_range, span};
use crate::map::MapContext;
use crate::txn::Handle;

/// Maps the hole `run` to the blocks from `pba` on, which are marked in use. Returns the number of
/// blocks added.
///
/// # Errors
/// [`cairn_vfs::Error::NoSpace`] if no block is free or addressable with 32 bits,
/// [`cairn_vfs::Error::TooLarge`] beyond the last possible block; the map is damaged or maps the
/// run already.
pub(crate) fn insert(
    context: &MapContext<'_>,
    handle: &Handle,
    i_block: &mut [u8; ROOT_BYTES],
    run: Run,
    pba: Pba,
) -> Result<i64> {
    let start = run.start.get();
    let Some(end) =
        start.checked_add(run.len).filter(|end| *end <= max_blocks(context.layout.block_size))
    else {
        return Err(cairn_vfs::Error::TooLarge.into());
    };
    assert!(
        context.bounds().holds(pba, run.len),
        "blocks outside the volume and its own are never mapped"
    );
    if pba.get().saturating_add(run.len) > u64::from(u32::MAX) {
        // The pointers have 32 bits.
        return Err(cairn_vfs::Error::NoSpace.into());
    }
    let mut filling = Filling { context, handle, range: start..end, pba, fresh: Vec::new() };
    let mut slots = decode(i_block);
    let mut needed = 0_usize;
    for (slot, pointer) in slots.iter().enumerate().take(SLOTS) {
        let (level, base) = slot_range(slot, context.layout.block_size);
        needed = needed.saturating_add(filling.count(*pointer, level, base)?);
    }
    filling.fresh = context.allocate(handle, needed, pba)?;
    // The first allocated block is used first, so that pointer blocks are in file order.
    filling.fresh.reverse();
    for (slot, pointer) in slots.iter_mut().enumerate().take(SLOTS) {
        let (level, base) = slot_range(slot, context.layout.block_size);
        *pointer = filling.fill(*pointer, level, base)?;
    }
    encode(&slots, i_block);
    assert!(filling.fresh.is_empty(), "an insert uses the blocks it counted");
    Ok(as_u64(needed).saturating_add(run.len).cast_signed())
}

struct Filling<'a> {
    context: &'a MapContext<'a>,
    handle: &'a Handle,
    range: Range<u64>,
    /// Address of the range's first block.
    pba: Pba,
    fresh: Vec<Pba>,
}

impl Filling<'_> {
    fn per_block(&self) -> usize {
        as_index(self.context.layout.block_size) / 4
    }

    fn touches(&self, level: u32, base: u64) -> bool {
        base < self.range.end
            && self.range.start < base.saturating_add(span(level, self.context.layout.block_size))
    }

    fn children(&self, level: u32, base: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let each = span(level.saturating_sub(1), self.context.layout.block_size);
        let count = self.per_block();
        entries(base, each, count, &self.range)
            .map(move |index| (index, first_of(base, index, each)))
    }

    /// Number of pointer blocks that are missing below a pointer. Fails if a data block is mapped.
    fn count(&self, pointer: u32, level: u32, base: u64) -> Result<usize> {
        if !self.touches(level, base) {
            return Ok(0);
        }
        if level == 0 {
            if pointer != 0 {
                let site = self.context.site(Pba(0));
                return Err(site
                    .corrupt(base, "blocks to be mapped are mapped already", pointer.into())
                    .into());
            }
            return Ok(0);
        }
        let pointers = if pointer == 0 { Vec::new() } else { load(self.context, pointer, base)?.1 };
        let mut missing = usize::from(pointer == 0);
        if level == 1 && pointer == 0 {
            return Ok(missing);
        }
        for (index, child) in self.children(level, base) {
            let pointer = pointers.get(index).copied().unwrap_or(0);
            missing =
                missing.saturating_add(self.count(pointer, level.saturating_sub(1), child)?);
        }
        Ok(missing)
    }

    /// Maps the part of the range that lies below a pointer. Returns the new pointer.
    fn fill(&mut self, pointer: u32, level: u32, base: u64) -> Result<u32> {
        if !self.touches(level, base) {
            return Ok(pointer);
        }
        if level == 0 {
            return Ok(narrow(Pba(self
                .pba
                .get()
                .saturating_add(base.saturating_sub(self.range.start)))));
        }
        let (buffer, mut pointers, pointer) = if pointer == 0 {
            let pba = self
                .fresh
                .pop()
                .unwrap_or_else(|| panic!("an insert needs more blocks than were counted"));
            let count = self.per_block();
            (self.handle.create(pba)?, vec![0; count], narrow(pba))
        } else {
            let (pba, pointers) = load(self.context, pointer, base)?;
            (self.context.buffers.get(pba)?, pointers, pointer)
        };
        let before = pointers.clone();
        for (index, child) in self.children(level, base) {
            if let Some(entry) = pointers.get_mut(index) {
                *entry = self.fill(*entry, level.saturating_sub(1), child)?;
            }
        }
        if pointers != before {
            encode(&pointers, &mut self.handle.write(&buffer)?);
        }
        Ok(pointer)
    }
}

fn narrow(pba: Pba) -> u32 {
    stored(pba.get())
}
