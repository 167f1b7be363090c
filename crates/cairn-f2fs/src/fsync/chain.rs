//! What the fsyncs of a volume share: how long the chain behind the checkpoint is, and what they
//! cost.

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::stats::{Counter, Report};
use cairn_cache::durability::{FlushOrigin, Mark};

use crate::error::Result;
use crate::inode::Inode;

/// The shared state and the counters of a volume's fsyncs.
pub(crate) struct Fsyncs {
    chain: Mutex<Chain>,
    /// Counters.
    pub(crate) stats: FsyncStats,
}

/// Counters of fsyncs.
#[derive(Debug, Default)]
pub struct FsyncStats {
    /// Calls.
    pub(crate) calls: Counter,
    /// Served by nodes for roll-forward.
    pub nodes: Counter,
    /// Served by a checkpoint.
    pub checkpoints: Counter,
    /// Served by a flush alone, or nothing.
    pub(crate) data_only: Counter,
    /// Flushes of the device.
    pub flushes: Counter,
    /// Fsyncs that another one's flush served.
    pub(crate) flushes_shared: Counter,
}

/// The nodes written after a checkpoint.
#[derive(Default)]
struct Chain {
    /// The checkpoint's.
    version: u64,
    nodes: u64,
}

impl FsyncStats {
    /// The counters, by name.
    #[must_use]
    pub(crate) fn report(&self) -> Report {
        Report::new()
            .with("calls", self.calls.get())
            .with("by_nodes", self.nodes.get())
            .with("by_checkpoint", self.checkpoints.get())
            .with("data_only", self.data_only.get())
            .with("flushes", self.flushes.get())
            .with("flushes_shared", self.flushes_shared.get())
    }
}

impl Default for Fsyncs {
    fn default() -> Self {
        let chain = Mutex::new(Rank::Leaf, Chain::default());
        Self { chain, stats: FsyncStats::default() }
    }
}

impl Fsyncs {
    /// Adds nodes written after the checkpoint `version`. Returns their number.
    pub(super) fn extend_chain(&self, version: u64, nodes: u64) -> u64 {
        let mut chain = self.chain.lock();
        if chain.version != version {
            *chain = Chain { version, nodes: 0 };
        }
        chain.nodes += nodes;
        chain.nodes
    }

    /// Waits until the inode's written blocks are on the medium.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn flush(&self, inode: &Inode, written: Option<Mark>) -> Result<()> {
        match inode.ledger.cover(written)? {
            FlushOrigin::Already => {}
            FlushOrigin::Shared => self.stats.flushes_shared.add(1),
            FlushOrigin::Flushed => self.stats.flushes.add(1),
        }
        Ok(())
    }
}
