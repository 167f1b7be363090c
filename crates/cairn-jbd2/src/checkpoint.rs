//! Checkpointing: committed blocks go home, are flushed, and only then does the tail of the log move.

use std::collections::HashSet;

use cairn_base::Pba;

use crate::error::{Error, Result};
use crate::home;
use crate::journal::Journal;
use crate::recovery::write_superblock;

impl Journal {
    /// Frees at least `log_blocks` of the log if there is that much to free, oldest transactions first. If somebody else is at it,
    /// waits for them instead.
    ///
    /// # Errors
    /// The journal has stopped, or the device failed (which stops it).
    pub fn checkpoint(&self, log_blocks: u32) -> Result<()> {
        {
            let mut state = self.state.lock();
            if let Some(reason) = &state.aborted {
                return Err(Error::Aborted(reason.clone()));
            }
            if state.checkpointing {
                drop(state);
                self.wait(|state| !state.checkpointing);
                return Ok(());
            }
            state.checkpointing = true;
        }
        let done = self.checkpoint_alone(log_blocks);
        {
            let mut state = self.state.lock();
            state.checkpointing = false;
            state.going_home = HashSet::new();
        }
        if let Err(error) = &done {
            self.abort(&format!("writing blocks home failed: {error}"));
        }
        self.changed.notify();
        done
    }

    /// Brings everything committed home.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`].
    pub fn checkpoint_all(&self) -> Result<()> {
        while !self.state.lock().checkpoint.is_empty() {
            self.checkpoint(u32::MAX)?;
        }
        Ok(())
    }

    fn checkpoint_alone(&self, log_blocks: u32) -> Result<()> {
        let blocks = {
            let mut state = self.state.lock();
            let blocks = state.checkpoint.oldest(log_blocks);
            state.going_home = blocks.iter().map(|(pba, _, _)| *pba).collect::<HashSet<Pba>>();
            blocks
        };
        let device = self.buffers.device();
        if !blocks.is_empty() {
            let images = blocks.iter().map(|(pba, _, image)| (*pba, image.clone()));
            home::write(&**device, self.area.block_size, images)?;
            device.flush()?;
            self.stats().checkpoint_blocks.add(blocks.len() as u64);
        }
        let (superblock, freed) = {
            let mut state = self.state.lock();
            // An error elsewhere may have been about these very blocks: the tail stays.
            if let Some(reason) = &state.aborted {
                return Err(Error::Aborted(reason.clone()));
            }
            for (pba, tid, _) in &blocks {
                state.checkpoint.written(*pba, *tid);
            }
            state.going_home = HashSet::new();
            let (freed, transactions) = state.checkpoint.retire();
            self.stats().checkpointed.add(transactions);
            if freed == 0 && transactions == 0 {
                return Ok(());
            }
            // Nothing left to replay: the tail is where the next transaction will be, and it has the next number after the last
            // one committed.
            let (tid, start) = match state.checkpoint.front() {
                Some(front) => front,
                None => (state.committed.next(), state.committing_start()),
            };
            state.superblock.start = start;
            state.superblock.sequence = tid;
            (state.superblock.clone(), (freed, start, tid))
        };
        // Freed blocks may not be overwritten before the tail on the medium has passed them.
        write_superblock(&self.area, &superblock)?;
        let (blocks, start, tid) = freed;
        self.state.lock().log.advance_tail(start, tid, blocks);
        Ok(())
    }
}
