//! [`Offline::commit`]: many blocks change together, through the log.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_jbd2::{Journal, JournalOptions};

use super::{Blocks, Offline, Switch};
use crate::error::{Error, Result};
use crate::format::features::{Incompat, RoCompat};
use crate::format::superblock::{OFFSET, SIZE, Superblock};

/// The state of a volume whose change has failed and left nothing.
pub(crate) const UNCHANGED: &str = "the volume is as it was, and clean: make room on the host or \
                                    replace the device, and try again";

impl Offline {
    /// Blocks that one commit can change beside the superblock; without a journal, any number.
    pub(crate) fn commit_limit(&self) -> usize {
        match &self.journal {
            // A descriptor of the log has tags for 32 blocks or more.
            Some(area) => {
                let half = area.blocks() / 2;
                usize::try_from(half - half / 32).unwrap_or(usize::MAX).saturating_sub(8)
            }
            None => usize::MAX,
        }
    }

    /// Changes blocks and the superblock together. Without a journal, and without room for a record
    /// ([`Switch`]), only e2fsck can finish what a crash interrupts.
    ///
    /// # Errors
    /// There are more blocks than [`Offline::commit_limit`], or the device failed.
    pub(crate) fn commit(&mut self, blocks: Blocks, superblock: Superblock) -> Result<()> {
        if blocks.len() > self.commit_limit() {
            return Err(Error::Option(format!(
                "{} blocks must change at once, which the journal has no room for: make the \
                 journal larger",
                blocks.len()
            )));
        }
        if self.journal.is_none() {
            return Switch::prepare(self, superblock, blocks)?.make(self, UNCHANGED);
        }
        self.claim_commit(&blocks)?;
        self.commit_to_log(&blocks, &superblock)?;
        // The flush before it makes the blocks durable.
        self.write_superblock(superblock)
    }

    fn commit_to_log(&mut self, blocks: &Blocks, superblock: &Superblock) -> Result<()> {
        let journal = self.start_journal()?;
        let size = u64::from(self.layout.block_size);
        let credits = u32::try_from(blocks.len()).unwrap_or(u32::MAX).saturating_add(1);
        {
            let handle = journal.start(credits)?;
            for (pba, bytes) in blocks {
                let buffer = self.buffers.get(*pba)?;
                handle.get_write_access(&buffer)?.copy_from_slice(bytes);
            }
            let buffer = self.buffers.get(Pba(OFFSET / size))?;
            let offset = usize::try_from(OFFSET % size).unwrap_or(0);
            let mut block = handle.get_write_access(&buffer)?;
            if let Some(place) = block.get_mut(offset..offset + SIZE) {
                place.copy_from_slice(&marked(superblock).encode());
            }
        }
        self.stop_journal(&journal)
    }

    /// Marks the volume as one that needs recovery, and opens its journal. Who is done calls
    /// [`Offline::stop_journal`], and writes a superblock without the mark.
    ///
    /// # Errors
    /// There is no journal, or the device failed.
    pub(crate) fn start_journal(&mut self) -> Result<Arc<Journal>> {
        let Some(area) = self.journal.clone() else {
            return Err(Error::Option("the volume has no journal".into()));
        };
        let unmarked = self.superblock.clone();
        self.write_superblock(marked(&unmarked))?;
        // The superblock in memory stays the one that is written in the end.
        self.superblock = unmarked;
        let options = JournalOptions {
            checksums: Some(self.layout.features.ro_compat(RoCompat::METADATA_CSUM)),
            wide: self.layout.features.incompat(Incompat::BITS_64),
            alone: true,
            ..JournalOptions::default()
        };
        Ok(Journal::open(options, self.buffers.clone(), area, self.runtime.clone())?)
    }

    /// Writes everything home, and empties the journal.
    ///
    /// # Errors
    /// The journal was aborted, or the device failed.
    pub(crate) fn stop_journal(&self, journal: &Journal) -> Result<()> {
        journal.force_commit()?;
        journal.checkpoint_all()?;
        Ok(journal.shutdown()?)
    }
}

/// The superblock of a volume that needs recovery.
fn marked(superblock: &Superblock) -> Superblock {
    let mut marked = superblock.clone();
    let mut features = marked.features();
    features.incompat |= Incompat::RECOVER;
    marked.set_features(features);
    marked
}
