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
pub struct Slot {
    block: usize,
    index: usize,
}

/// The blocks of the file, and which slots are in use.
pub struct OrphanFile {
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
    pub fn open(store: &Store, seed: InodeSeed, blocks: &[Pba]) -> Result<(Self, Vec<(Ino, Slot)>)> {
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
    pub fn adopt(&mut self, slot: Slot) {
        let block = &mut self.blocks[slot.block];
        if !std::mem::replace(&mut block.taken[slot.index], true) {
            block.free -= 1;
        }
    }

    /// Writes `ino` to a free slot. `None` if the file is full.
    ///
    /// # Errors
    /// A block cannot be read, or the journal was aborted.
    pub fn take_slot(&mut self, store: &Store, handle: &Handle, ino: Ino) -> Result<Option<Slot>> {
        let count = self.blocks.len();
        let Some(number) = (0..count).map(|step| (self.hint + step) % count).find(|n| self.blocks[*n].free > 0) else {
            return Ok(None);
        };
        let index = self.blocks[number].taken.iter().position(|taken| !taken).expect("a free slot was counted");
        let slot = Slot { block: number, index };
        self.write(store, handle, slot, ino)?;
        self.adopt(slot);
        self.hint = number;
        Ok(Some(slot))
    }

    /// Empties a slot.
    ///
    /// # Errors
    /// A block cannot be read, or the journal was aborted.
    pub fn release(&mut self, store: &Store, handle: &Handle, slot: Slot) -> Result<()> {
        self.write(store, handle, slot, Ino(0))?;
        let block = &mut self.blocks[slot.block];
        block.taken[slot.index] = false;
        block.free += 1;
        Ok(())
    }

    fn write(&self, store: &Store, handle: &Handle, slot: Slot, ino: Ino) -> Result<()> {
        let pba = self.blocks[slot.block].pba;
        let buffer: Arc<Buffer> = store.buffers.get(pba)?;
        let mut block = handle.write(&buffer)?;
        orphan::set(&mut block, pba, self.seed, slot.index, ino);
        Ok(())
    }
}
