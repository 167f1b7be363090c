//! What all parts of the walk share, and what each thread has of its own.
//!
//! Locking: `failure` and `scratch` are leaves, held only for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_check::{Finding, Findings, Progress};

use super::claims::Claims;
use super::contradicted::Contradicted;
use super::cycles::Cycles;
use super::lacking::Lacking;
use super::last_names::LastNames;
use super::nodes::Nodes;
use super::notes::Notes;
use super::quota_walk::Quota;
use super::volume::Volume;
use crate::blocks::{self, Blocks, Spare};
use crate::checkpoint::summaries::CurrentSummaries;
use crate::error::{Error, Result};
use crate::format::Features;
use crate::format::layout::Layout;
use crate::format::summary::SummaryBlock;
use crate::format::units::{BlockAddr, SegNo};

/// Most summary blocks that a thread keeps: 6 KiB each.
const KEPT_SUMMARIES: usize = 256;
/// Most bytes of buffers that a thread keeps.
const KEPT_BUFFERS: usize = 4 << 20;

/// What the walk has counted.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Blocks in use: nodes, data, reserved slots, marks of compressed clusters.
    pub(super) blocks: AtomicU64,
    /// Nodes.
    pub(super) nodes: AtomicU64,
    /// Inodes.
    pub(super) inodes: AtomicU64,
    /// Directories.
    pub(super) directories: AtomicU64,
    /// Files and directories in several pieces.
    pub(super) fragmented: AtomicU64,
}

impl Totals {
    /// Adds to one of the counts.
    pub(super) fn add(count: &AtomicU64, number: u64) {
        count.fetch_add(number, Relaxed);
    }

    /// One of the counts.
    pub(super) fn get(count: &AtomicU64) -> u64 {
        count.load(Relaxed)
    }
}

/// What a thread keeps from one step to the next.
#[derive(Default)]
pub(super) struct Scratch {
    /// Summary blocks of the summary area; `None` for one of no known type.
    summaries: std::collections::HashMap<SegNo, Option<Arc<SummaryBlock>>>,
    spare: Spare,
}

/// What the threads of the walk share.
pub(super) struct Context {
    pub(super) volume: Volume,
    /// The volume's.
    pub(super) layout: Arc<Layout>,
    pub(super) findings: Findings,
    pub(super) nodes: Nodes,
    pub(super) claims: Claims,
    /// Owners of the blocks in the current segments, if they are known.
    pub(super) current: Option<CurrentSummaries>,
    pub(super) totals: Totals,
    pub(super) progress: Progress,
    /// What is known of quota, if the volume counts it.
    pub(super) quota: Option<Quota>,
    /// Data pointers that were exchanged.
    pub(super) cycles: Cycles,
    pub(super) contradicted: Contradicted,
    /// Blocks that inodes count and that were not found.
    pub(super) lacking: Lacking,
    /// What is known of the last names of inodes without one.
    pub(super) last_names: LastNames,
    /// A block of a directory has no name in it. Writers free such a block.
    pub(super) has_blank: AtomicBool,
    /// What a repair wants to know, if there is one.
    pub(super) notes: Option<Notes>,
    failure: Mutex<Option<Error>>,
    scratch: Mutex<Vec<Scratch>>,
}

impl Context {
    /// The start of a walk.
    ///
    /// # Errors
    /// There is no memory for the tables.
    pub(super) fn new(
        volume: Volume,
        current: Option<CurrentSummaries>,
        findings: Findings,
        progress: Progress,
        notes: Option<Notes>,
    ) -> Result<Self> {
        let layout = volume.layout.clone();
        Ok(Self {
            nodes: Nodes::new(&layout)?,
            claims: Claims::new(&layout)?,
            totals: Totals::default(),
            quota: layout.features.contains(Features::QUOTA_INO).then(Quota::default),
            cycles: Cycles::default(),
            contradicted: Contradicted::new(&volume.loaded.checkpoint),
            lacking: Lacking::default(),
            last_names: LastNames::default(),
            has_blank: AtomicBool::new(false),
            failure: Mutex::new(Rank::Leaf, None),
            scratch: Mutex::new(Rank::Leaf, Vec::new()),
            volume,
            layout,
            findings,
            current,
            progress,
            notes,
        })
    }

    /// Adds a finding.
    pub(super) fn add(&self, finding: Finding) {
        if let Some(notes) = &self.notes {
            notes.add(&finding);
        }
        self.findings.add(finding);
    }

    /// Runs a step with what this thread keeps. False if the walk must end: the device failed, or
    /// the user has ended the check.
    pub(super) fn step(&self, step: impl FnOnce(&mut Scratch) -> Result<()>) -> bool {
        let mut scratch = self.scratch.lock().pop().unwrap_or_default();
        let result = step(&mut scratch);
        self.scratch.lock().push(scratch);
        if let Err(error) = result {
            self.failure.lock().get_or_insert(error);
            return false;
        }
        !self.progress.is_cancelled()
    }

    /// The error that ended a step.
    pub(super) fn failure(&self) -> Result<()> {
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    /// Reads blocks, in rising order of their addresses.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn read(&self, scratch: &mut Scratch, addrs: &[BlockAddr]) -> Result<Blocks> {
        blocks::read_many_into(&*self.volume.device, addrs, &mut scratch.spare)
    }

    /// Looks at a block.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn with_block<T>(
        &self,
        scratch: &mut Scratch,
        addr: BlockAddr,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let blocks = self.read(scratch, &[addr])?;
        let seen = blocks.iter().next().map(look);
        scratch.recycle(blocks);
        Ok(seen)
    }

    /// The summary block of a segment in the summary area; `None` if it is of no known type.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn summary(
        &self,
        scratch: &mut Scratch,
        segno: SegNo,
    ) -> Result<Option<Arc<SummaryBlock>>> {
        if let Some(known) = scratch.summaries.get(&segno) {
            return Ok(known.clone());
        }
        let address = self.layout.summary_address(segno);
        let block = blocks::read(&*self.volume.device, address, 1)?;
        let decoded = SummaryBlock::decode(&block).ok().map(Arc::new);
        if scratch.summaries.len() >= KEPT_SUMMARIES {
            scratch.summaries.clear();
        }
        scratch.summaries.insert(segno, decoded.clone());
        Ok(decoded)
    }
}

impl Scratch {
    /// Keeps the buffers of blocks that are no longer needed.
    pub(super) fn recycle(&mut self, blocks: Blocks) {
        blocks.recycle(&mut self.spare, KEPT_BUFFERS);
    }
}
