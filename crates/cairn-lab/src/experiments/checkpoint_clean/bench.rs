//! A journal with a long checkpoint list, and one block that is committed over and over.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_base::{FileBlock, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_jbd2::{CheckpointClean, Journal, JournalArea, JournalOptions};

use crate::error::{Error, Result};

const BLOCK: u32 = 1024;
/// Log blocks of a transaction: descriptor, metadata block, commit block.
const LOG_BLOCKS: u32 = 3;

/// A journal with a long checkpoint list.
pub(super) struct Bench {
    buffers: Arc<BufferCache>,
    journal: Arc<Journal>,
    /// The block that each commit changes.
    hot: u64,
}

impl Bench {
    /// Lists the transactions. The log has room for `more` commits.
    pub(super) fn new(listed: u32, more: u32) -> Result<Self> {
        // The log never fills, so nothing is checkpointed.
        let log_blocks = (listed + more) * LOG_BLOCKS + 4096;
        let hot = u64::from(log_blocks);
        let size = (hot + 1 + u64::from(listed)) * u64::from(BLOCK);
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(size));
        device.write_at(0, superblock(log_blocks))?;
        let extents = vec![(FileBlock(0), Pba(0), u64::from(log_blocks))];
        let area = JournalArea { device: device.clone(), block_size: BLOCK, extents, since: 0 };
        let buffers = BufferCache::new(device, BLOCK, Budget::new(4 << 30));
        let options = JournalOptions::default();
        let journal =
            Journal::open(options, buffers.clone(), area, Threads::new()).map_err(failed)?;
        let bench = Self { buffers, journal, hot };
        (0..u64::from(listed)).try_for_each(|number| bench.commit(hot + 1 + number))?;
        Ok(bench)
    }

    fn commit(&self, block: u64) -> Result<()> {
        let handle = self.journal.start(1).map_err(failed)?;
        let buffer = self.buffers.get(Pba(block)).map_err(failed)?;
        handle.get_write_access(&buffer).map_err(failed)?[0] ^= 1;
        let tid = handle.tid();
        drop(handle);
        self.journal.commit_and_wait(tid).map_err(failed)
    }

    /// Writes zeros to the log where the next `more` commits go.
    pub(super) fn touch_log(&self, listed: u32, more: u32) -> Result<()> {
        let block = |transactions: u32| u64::from(transactions * LOG_BLOCKS + 1) * u64::from(BLOCK);
        let bytes = block(listed + more) - block(listed);
        let zeros = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.buffers.device().write_at(block(listed), zeros)?;
        Ok(())
    }

    /// Sets the mode. The first commit of a mode may have more to clean.
    pub(super) fn begin(&self, mode: &str) -> Result<()> {
        let name = mode.split_once('=').map_or(mode, |(_, name)| name);
        let mode = CheckpointClean::named(name)
            .ok_or_else(|| Error::Program(format!("no mode {name}")))?;
        self.journal.set_checkpoint_clean(mode);
        self.commit_again()
    }

    /// Commits the block that was committed before.
    pub(super) fn commit_again(&self) -> Result<()> {
        self.commit(self.hot)
    }

    /// Blocks looked at and freed by searches so far.
    pub(super) fn looked_and_freed(&self) -> (u64, u64) {
        let stats = self.journal.stats();
        (stats.clean_steps.get(), stats.freed.get())
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Program(format!("the journal failed: {error}"))
}

/// A version 2 journal superblock of an empty log: magic, block type, block size, blocks, first
/// block, sequence, users.
fn superblock(blocks: u32) -> Vec<u8> {
    let mut block = vec![0_u8; BLOCK as usize];
    for (at, value) in [
        (0x00, 0xc03b_3998),
        (0x04, 4),
        (0x0c, BLOCK),
        (0x10, blocks),
        (0x14, 1),
        (0x18, 1),
        (0x40, 1),
    ] {
        block[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
    }
    block
}
