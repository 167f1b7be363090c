//! [`Contradicted`]: the segments whose summaries contradict pointers. Wrong pointers, and
//! such as were exchanged, are those of a few nodes. If the pointers of more nodes contradict the
//! summary of a segment, the summary is an old one. Those of the logs for data are in one block of
//! the pack. And the blocks of the NAT with an entry that is an old one: so may be the others.
//!
//! Memory: at most [`MOST`] segments with five nodes each, as many pointers that seem to have been
//! exchanged or moved, and as many blocks of the NAT.
//!
//! Locking: one lock, a leaf.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_check::Finding;

use super::claims::Use;
use crate::format::checkpoint::Checkpoint;
use crate::format::layout::Layout;
use crate::format::units::{BlockAddr, Nid, SegNo};
use crate::format::{Log, Summary};

/// Most segments, and most pointers.
const MOST: usize = 1 << 16;
/// Nodes whose pointers may be wrong, and not the summary.
const MOST_NODES: usize = 4;

/// A pointer that seems to have been exchanged, or moved.
pub(super) struct Turned {
    pub(super) segno: SegNo,
    /// What is found if the pointer is wrong, and if the summary is.
    pub(super) pointer: Finding,
    pub(super) summary: Finding,
    /// The block, and the owner that it has.
    pub(super) addr: BlockAddr,
    pub(super) owner: (Use, Summary),
}

#[derive(Default)]
struct Kept {
    nodes: BTreeMap<SegNo, BTreeSet<Nid>>,
    turned: Vec<Turned>,
    nat_blocks: BTreeSet<u32>,
}

pub(super) struct Contradicted {
    kept: Mutex<Kept>,
    /// The segments of the logs for data.
    data_logs: [SegNo; 3],
}

impl Contradicted {
    /// Nothing of a volume.
    pub(super) fn new(checkpoint: &Checkpoint) -> Self {
        let data_logs = [Log::HotData, Log::WarmData, Log::ColdData];
        let data_logs = data_logs.map(|log| checkpoint.log(log).segno);
        Self { kept: Mutex::new(Rank::Leaf, Kept::default()), data_logs }
    }

    /// The segment that stands for all whose summaries are in the same block.
    fn first_of(&self, segno: SegNo) -> SegNo {
        let [first, ..] = self.data_logs;
        if self.data_logs.contains(&segno) { first } else { segno }
    }

    /// Notes a node with a pointer to a block of the segment that the summary gives to another one.
    pub(super) fn add(&self, segno: SegNo, nid: Nid) {
        let segno = self.first_of(segno);
        let mut kept = self.kept.lock();
        if kept.nodes.len() < MOST || kept.nodes.contains_key(&segno) {
            let nodes = kept.nodes.entry(segno).or_default();
            if nodes.len() <= MOST_NODES {
                nodes.insert(nid);
            }
        }
    }

    /// Notes the block of the NAT with the entry of a node, which is an old one.
    pub(super) fn add_entry(&self, nid: Nid) {
        let mut kept = self.kept.lock();
        if kept.nat_blocks.len() < MOST {
            kept.nat_blocks.insert(Layout::nat_place(nid).0);
        }
    }

    /// The blocks of the NAT with old entries.
    pub(super) fn nat_blocks(&self) -> BTreeSet<u32> {
        self.kept.lock().nat_blocks.clone()
    }

    /// Keeps a pointer until all are known. False if there is no room.
    pub(super) fn keep(&self, turned: Turned) -> bool {
        let mut kept = self.kept.lock();
        let has_room = kept.turned.len() < MOST;
        if has_room {
            kept.turned.push(turned);
        }
        has_room
    }

    /// Takes what was kept.
    pub(super) fn take(&self) -> Vec<Turned> {
        std::mem::take(&mut self.kept.lock().turned)
    }

    /// Is the summary of the segment an old one?
    pub(super) fn is_old(&self, segno: SegNo) -> bool {
        let segno = self.first_of(segno);
        self.kept.lock().nodes.get(&segno).is_some_and(|nodes| nodes.len() > MOST_NODES)
    }
}
