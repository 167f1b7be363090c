//! The running transaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Pba, Tid};
use cairn_cache::block::Buffer;

use crate::format::blocks::BlockLayout;
use crate::log_space;

/// Called when a transaction is durable (`true`) or never will be.
pub type Hook = Box<dyn FnOnce(bool) + Send>;

/// The transaction that handles join.
pub struct Running {
    /// Its number.
    pub tid: Tid,
    /// When its first handle started.
    pub started: Duration,
    /// Handles that joined it so far.
    pub joined: u32,
    /// Open handles.
    pub handles: u32,
    /// Credits of open handles that are not used yet.
    pub promised: u32,
    /// Revoke blocks that handles set aside beyond the one that each open handle has.
    pub revoke_blocks: u32,
    /// Buffers changed in it.
    pub buffers: HashMap<Pba, Arc<Buffer>>,
    /// Blocks whose older copies must not be replayed.
    pub revokes: HashSet<Pba>,
    /// To be called when it is durable.
    pub hooks: Vec<Hook>,
    /// No handle may join any more.
    pub locked: bool,
    /// When somebody first asked for its commit.
    pub requested: Option<Duration>,
    /// The daemon is to commit it: whoever asked does not wait.
    pub for_daemon: bool,
    /// Callers that wait for its commit.
    pub waiters: u32,
    /// When it was closed to new handles.
    pub closed: Duration,
    /// Longest wait of a handle that joined it.
    pub longest_wait: Duration,
}

impl Running {
    /// An empty transaction.
    pub fn new(tid: Tid, started: Duration) -> Self {
        Self {
            tid,
            started,
            joined: 0,
            handles: 0,
            promised: 0,
            revoke_blocks: 0,
            buffers: HashMap::new(),
            revokes: HashSet::new(),
            hooks: Vec::new(),
            locked: false,
            requested: None,
            for_daemon: false,
            waiters: 0,
            closed: started,
            longest_wait: Duration::ZERO,
        }
    }

    /// Copies it may come to hold.
    pub fn copies(&self) -> u32 {
        u32::try_from(self.buffers.len()).unwrap_or(u32::MAX).saturating_add(self.promised)
    }

    /// Log blocks it may come to need if a handle with so many credits joins, or gets so many more. Each open handle may start one
    /// revoke block; what it needs beyond is in `revoke_blocks`.
    pub fn needs_with(&self, layout: &BlockLayout, credits: u32) -> u32 {
        let copies = self.copies().saturating_add(credits);
        log_space::needed(layout, copies, self.revoke_count()).saturating_add(self.handles + 1 + self.revoke_blocks)
    }

    /// Revokes it holds.
    pub fn revoke_count(&self) -> u32 {
        u32::try_from(self.revokes.len()).unwrap_or(u32::MAX)
    }
}
