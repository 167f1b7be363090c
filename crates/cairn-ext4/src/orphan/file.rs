//! The orphan file: blocks of inode numbers, so that concurrent operations change different blocks.

use std::sync::Arc;

use cairn_base::{Ino, Pba};
use cairn_cache::block::Buffer;

use crate::checksum::InodeSeed;
use crate::error::Result;
use crate::format::orphan;
use crate::store::Store;
use crate::txn::Handle;

/// One slot of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    block: usize,
    index: usize,
}

/// The blocks of the file, and which slots are in use.
pub(crate) struct OrphanFile {
    seed: InodeSeed,
    blocks: Vec<Block>,
    /// The slot at which the last free one was found.
    hint: usize,
}

struct Block {
    pba: Pba,
    taken: Vec<bool>,
    free: usize,
}

impl OrphanFile {
    /// Reads the file, whose blocks are `blocks` in order. Returns it with its orphans.
    ///
    /// # Errors
    /// A block cannot be read or is not an orphan block.
    pub(crate) fn open(
        store: &Store,
        seed: InodeSeed,
        blocks: &[Pba],
    ) -> Result<(Self, Vec<(Ino, Slot)>)> {
        let mut found = Vec::new();
        let mut table = Vec::with_capacity(blocks.len());
        for (number, pba) in blocks.iter().enumerate() {
            let image = store.buffers.get(*pba)?.image();
            let inos = orphan::decode(&image, *pba, seed)?;
            found.extend(
                inos.iter()
                    .enumerate()
                    .filter(|(_, ino)| ino.get() != 0)
                    .map(|(index, ino)| (*ino, Slot { block: number, index })),
            );
            table.push(Block { pba: *pba, free: inos.len(), taken: vec![false; inos.len()] });
        }
        Ok((Self { seed, blocks: table, hint: 0 }, found))
    }

    /// Marks a slot that was found at mount as in use.
    pub(crate) fn adopt(&mut self, slot: Slot) {
        self.set_taken(slot, true);
    }

    /// # Panics
    /// The file has no such slot: slots come from the file.
    fn set_taken(&mut self, slot: Slot, taken: bool) {
        let block = self.blocks.get_mut(slot.block);
        let place =
            block.and_then(|block| Some((block.taken.get_mut(slot.index)?, &mut block.free)));
        let (place, free) = place.unwrap_or_else(|| panic!("{slot:?} is not in the orphan file"));
        match (std::mem::replace(place, taken), taken) {
            (false, true) => *free = free.strict_sub(1),
            (true, false) => *free = free.strict_add(1),
            _ => {}
        }
    }

    /// Writes `ino` to a free slot. `None` if the file is full.
    ///
    /// # Errors
    /// A block cannot be read, or the journal was aborted.
    pub(crate) fn take_slot(
        &mut self,
        store: &Store,
        handle: &Handle,
        ino: Ino,
    ) -> Result<Option<Slot>> {
        let mut from_hint =
            self.blocks.iter().enumerate().cycle().skip(self.hint).take(self.blocks.len());
        let free_slot = |(number, block): (usize, &Block)| {
            let index = (block.free > 0).then(|| block.taken.iter().position(|taken| !taken))??;
            Some(Slot { block: number, index })
        };
        let Some(slot) = from_hint.find_map(free_slot) else { return Ok(None) };
        self.write(store, handle, slot, ino)?;
        self.adopt(slot);
        self.hint = slot.block;
        Ok(Some(slot))
    }

    /// Empties a slot.
    ///
    /// # Errors
    /// A block cannot be read, or the journal was aborted.
    pub(crate) fn release(&mut self, store: &Store, handle: &Handle, slot: Slot) -> Result<()> {
        self.write(store, handle, slot, Ino(0))?;
        self.set_taken(slot, false);
        Ok(())
    }

    fn write(&self, store: &Store, handle: &Handle, slot: Slot, ino: Ino) -> Result<()> {
        let block = self.blocks.get(slot.block);
        let pba = block.unwrap_or_else(|| panic!("{slot:?} is not in the orphan file")).pba;
        let buffer: Arc<Buffer> = store.buffers.get(pba)?;
        let mut block = handle.write(&buffer)?;
        orphan::set(&mut block, pba, self.seed, slot.index, ino);
        Ok(())
    }
}
