//! [`Places`]: the place of each node in its logs, and its node numbers.
//!
//! A log is a sequence of blocks. Nodes and contents follow each other in the order of ids. Inode
//! numbers follow the ids, too; behind them come the numbers of all other nodes: for each inode the
//! attribute node, then direct nodes, then indirect ones.

use super::survey::{Need, Survey};
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{Log, Nid};

/// Blocks of a segment.
const SEGMENT: u64 = BLOCKS_PER_SEGMENT as u64;

/// Where one inode and its contents are, in blocks from the start of each log.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Its contents.
    pub(super) data: u32,
    /// Its inode; attribute node and direct nodes follow.
    pub(super) node: u32,
    /// Its indirect nodes.
    pub(super) cold: u32,
    /// The number of its first node beside the inode.
    pub(super) nid: Nid,
}

/// The first block of a part of a log: it is the `skip`th block that node `id` has in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) id: u32,
    pub(super) skip: u32,
}

/// Where everything is.
pub(super) struct Places {
    of: Vec<Place>,
    /// Blocks of each log.
    blocks: [u64; Log::COUNT],
    /// Where the segments of each log begin.
    segments: [Vec<Start>; Log::COUNT],
    /// The first unused node number.
    pub(super) next_nid: u64,
    /// The number of the first quota file, if there are some.
    pub(super) first_quota: Nid,
}

/// Blocks that a node has in a log.
pub(super) fn span(need: &Need, log: Log) -> u32 {
    match log {
        Log::HotNode | Log::WarmNode if need.node_log() == log => need.span(),
        Log::ColdNode => need.indirects,
        log if !log.is_node() && need.data_log == log => need.blocks,
        _ => 0,
    }
}

/// The number of an inode.
pub(super) fn ino(id: u32) -> Nid {
    Nid(Nid::ROOT.get() + id)
}

impl Places {
    /// Places all nodes.
    pub(super) fn new(survey: &Survey) -> Self {
        let mut blocks = [0; Log::COUNT];
        let mut next_nid = u64::from(Nid::ROOT.get()) + survey.nodes.len() as u64;
        let mut take = |log: Log, count: u32| {
            let blocks: &mut u64 = log.of_mut(&mut blocks);
            let at = *blocks;
            *blocks += u64::from(count);
            // A tree with more blocks fits no volume, and is never written.
            at as u32
        };
        let place = |need: &Need| {
            let nid = Nid(next_nid as u32);
            next_nid += u64::from(need.further_nodes());
            Place {
                data: take(need.data_log, need.blocks),
                node: take(need.node_log(), need.span()),
                cold: take(Log::ColdNode, need.indirects),
                nid,
            }
        };
        let of = survey.nodes.iter().map(place).collect();
        let segments = Log::ALL.map(|log| starts(survey, log, SEGMENT));
        Self { of, blocks, segments, next_nid, first_quota: ino(survey.hidden) }
    }

    /// The place of a node.
    pub(super) fn of(&self, id: u32) -> &Place {
        &self.of[id as usize]
    }

    /// Blocks of a log.
    pub(super) fn blocks(&self, log: Log) -> u64 {
        *log.of(&self.blocks)
    }

    /// Blocks of all logs.
    pub(super) fn all_blocks(&self) -> u64 {
        self.blocks.iter().sum()
    }

    /// Blocks of all nodes.
    pub(super) fn node_blocks(&self) -> u64 {
        Log::NODE.into_iter().map(|log| self.blocks(log)).sum()
    }

    /// Segments of a log. The last one has room for its next block.
    pub(super) fn segments(&self, log: Log) -> u64 {
        self.blocks(log) / SEGMENT + 1
    }

    /// Where a segment of a log begins. None if it is empty.
    pub(super) fn segment(&self, log: Log, number: u64) -> Option<Start> {
        log.of(&self.segments).get(number as usize).copied()
    }

    /// The inode that has a node beside the inodes, and the place of the node among these.
    pub(super) fn holder(&self, nid: Nid) -> (u32, u32) {
        let behind = self.of.partition_point(|place| place.nid <= nid);
        // Inodes without such nodes have the number of the next one's.
        let id = behind - 1;
        (id as u32, nid.get() - self.of[id].nid.get())
    }
}

/// The first blocks of the parts of a log, of `step` blocks each.
pub(super) fn starts(survey: &Survey, log: Log, step: u64) -> Vec<Start> {
    let (mut starts, mut at, mut next) = (Vec::new(), 0, 0);
    for (id, need) in (0..).zip(&survey.nodes) {
        let end = at + u64::from(span(need, log));
        while next < end {
            starts.push(Start { id, skip: (next - at) as u32 });
            next += step;
        }
        at = end;
    }
    starts
}
