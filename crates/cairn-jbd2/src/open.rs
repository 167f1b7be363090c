//! Opens a journal (`jbd2_journal_load`) and shuts it down (`jbd2_journal_destroy`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::Tid;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Event, Runtime};
use cairn_cache::block::BufferCache;

use crate::area::{FORCED, JournalArea, read_superblock, write_superblock};
use crate::checkpoint::keep_free::KeepFree;
use crate::checkpoint::list::CheckpointClean;
use crate::commit::daemon::CommitDaemon;
use crate::error::{Error, Result};
use crate::format::blocks::BlockLayout;
use crate::format::superblock::{MIN_JOURNAL_BLOCKS, Superblock};
use crate::format::{Compat, Incompat};
use crate::journal::Journal;
use crate::state::State;
use crate::state::batching::Batching;
use crate::state::checkpointing::Checkpointing;
use crate::state::committing::Committing;
use crate::state::log_space::{LogSpace, max_transaction_buffers};
use crate::state::running::Running;
use crate::stats::JournalStats;

/// How a journal is opened.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// The commit daemon commits a transaction at this age.
    pub commit_interval: Duration,
    /// `Some(true)` gives the log checksums of version 3, `Some(false)` takes its checksums away,
    /// `None` keeps what the log has.
    pub checksums: Option<bool>,
    /// The log gets 64-bit addresses even if the volume is small.
    pub wide: bool,
    /// What the checkpoint daemon keeps free of the log (`async_checkpoint`). Without it, a full
    /// log is checkpointed by the handle that finds it full.
    pub async_checkpoint: Option<KeepFree>,
    /// How checkpointed transactions are found (`checkpoint_clean`).
    pub checkpoint_clean: CheckpointClean,
    /// There is one transaction at a time, which can have half of the log. Otherwise it can have a
    /// quarter.
    pub alone: bool,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            checksums: None,
            wide: false,
            async_checkpoint: None,
            checkpoint_clean: CheckpointClean::default(),
            alone: false,
        }
    }
}

impl Journal {
    /// Opens a journal whose log is empty, and starts its daemons.
    ///
    /// # Errors
    /// The log is not empty, the superblock is damaged, an option is impossible, or the device
    /// failed.
    pub fn open(
        options: JournalOptions,
        buffers: Arc<BufferCache>,
        area: JournalArea,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Arc<Self>> {
        KeepFree::check(options.async_checkpoint)?;
        let mut superblock = read_superblock(&area)?;
        check_empty(&superblock)?;
        let needs_wide =
            buffers.device().geometry().size / u64::from(area.block_size) > u64::from(u32::MAX);
        choose_features(&mut superblock, &options, needs_wide);
        superblock.start = superblock.first;
        // The caller has read the error of the last mount. It does not concern this one.
        superblock.errno = 0;
        write_superblock(&area, &superblock, FORCED)?;
        let layout = BlockLayout::of(&superblock);
        let state = empty_state(&options, superblock.clone());
        let part = state.log.blocks() / if options.alone { 2 } else { 4 };
        let journal = Arc::new(Self {
            max_transaction_buffers: max_transaction_buffers(&layout, part),
            has_transaction_crc32: superblock.compat.contains(Compat::CHECKSUM)
                && !superblock.has_checksums(),
            area,
            buffers,
            runtime: runtime.clone(),
            layout,
            state: Mutex::new(Rank::Journal, state),
            changed: Event::new(),
            batch_complete: Event::new(),
            commit_wake: Arc::new(Event::new()),
            commit_daemon: Mutex::new(Rank::Leaf, None),
            postpones_commits: OnceLock::new(),
            checkpoint_wake: Arc::new(Event::new()),
            checkpoint_daemon: Mutex::new(Rank::CheckpointDaemon, None),
            stats: JournalStats::default(),
        });
        let daemon = Arc::new(CommitDaemon::new(&journal));
        *journal.commit_daemon.lock() =
            Some(runtime.spawn("jbd2", journal.commit_wake.clone(), daemon)?);
        journal.set_async_checkpoint(options.async_checkpoint)?;
        Ok(journal)
    }

    /// Commits and checkpoints everything, marks the log empty and stops the daemons.
    ///
    /// # Errors
    /// The journal was aborted, or the device failed.
    pub fn shutdown(&self) -> Result<()> {
        self.force_commit()?;
        self.stop_checkpoint_daemon();
        self.checkpoint_all()?;
        let daemon = self.commit_daemon.lock().take();
        if let Some(daemon) = daemon {
            daemon.stop();
        }
        let superblock = {
            let mut state = self.state.lock();
            state.superblock.start = 0;
            state.superblock.sequence = state.running.next_tid();
            state.superblock.clone()
        };
        write_superblock(&self.area, &superblock, FORCED)
            .inspect_err(|error| self.abort(&error.to_string()))?;
        self.state.lock().aborted = Some("closed".into());
        Ok(())
    }
}

fn check_empty(superblock: &Superblock) -> Result<()> {
    let bad = |what, value, expected| Err(Error::Corrupt { block: 0, what, value, expected });
    if superblock.start != 0 {
        return bad("s_start", u64::from(superblock.start), "0 (the log must be recovered first)");
    }
    if superblock.blocks < MIN_JOURNAL_BLOCKS {
        return bad("s_maxlen", u64::from(superblock.blocks), "at least 1024 blocks");
    }
    Ok(())
}

/// The state of a journal with an empty log.
fn empty_state(options: &JournalOptions, superblock: Superblock) -> State {
    let next_tid = superblock.sequence;
    State {
        running: Running::new(next_tid, options.commit_interval),
        committing: Committing::new(Tid(next_tid.0.wrapping_sub(1))),
        batching: Batching::default(),
        checkpointing: Checkpointing::new(options.checkpoint_clean),
        log: LogSpace::new(superblock.first, superblock.end()),
        superblock,
        aborted: None,
    }
}

/// Chooses the features of an empty log as Linux does. Revoke blocks are always allowed.
fn choose_features(superblock: &mut Superblock, options: &JournalOptions, needs_wide: bool) {
    superblock.incompat |= Incompat::REVOKE;
    if options.wide || needs_wide {
        superblock.incompat |= Incompat::BITS_64;
    }
    let Some(checksums) = options.checksums else { return };
    superblock.incompat.remove(Incompat::CSUM_V2);
    superblock.incompat.set(Incompat::CSUM_V3, checksums);
    superblock.compat.remove(Compat::CHECKSUM);
}
