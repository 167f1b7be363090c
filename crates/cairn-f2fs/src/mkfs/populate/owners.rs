//! The owners of the blocks of a log, for summaries.

use super::nodes::pieces;
use super::places::{Start, ino, span};
use super::plan::{Further, Plan};
use crate::format::summary::{Summary, SummaryBlock};
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{Log, Nid};

impl Plan {
    /// The owners of `count` blocks of a log.
    pub(super) fn owners(&self, log: Log, start: Start, count: u64) -> Vec<Summary> {
        let count = count as usize;
        let mut owners = Vec::with_capacity(count);
        let (mut id, mut skip) = (start.id, start.skip);
        while owners.len() < count {
            let room = count - owners.len();
            let span = span(&self.survey.nodes[id as usize], log).saturating_sub(skip);
            let blocks = skip..skip + span.min(u32::try_from(room).unwrap_or(u32::MAX));
            match log {
                Log::ColdNode => owners
                    .extend(blocks.map(|number| of_node(self.nid(id, Further::Indirect(number))))),
                log if log.is_node() => owners.extend(blocks.map(|number| match number {
                    0 => of_node(ino(id)),
                    // The attribute node and the direct nodes have the first numbers.
                    number => of_node(Nid(self.places.of(id).nid.get() + number - 1)),
                })),
                _ => self.data_owners(id, skip, blocks.len(), &mut owners),
            }
            (id, skip) = (id + 1, 0);
        }
        owners
    }

    /// The owners of `count` blocks of contents.
    fn data_owners(&self, id: u32, skip: u32, count: usize, owners: &mut Vec<Summary>) {
        if count == 0 {
            return;
        }
        let (mut skip, mut left) = (skip, count);
        let runs = self.survey.runs(id, &self.survey.source.node(id));
        for piece in pieces(self.survey.settings.shape, &runs) {
            let len = u32::from(piece.len);
            if skip >= len {
                skip -= len;
                continue;
            }
            let nid = match piece.direct {
                None => ino(id),
                Some(number) => self.nid(id, Further::Direct(number)),
            };
            let taken = left.min((len - skip) as usize);
            let slots = (piece.slot..).skip(skip as usize).take(taken);
            left -= taken;
            owners.extend(slots.map(|ofs_in_node| Summary { nid, version: 0, ofs_in_node }));
            skip = 0;
            if left == 0 {
                return;
            }
        }
        unreachable!("node {id} has the blocks that were counted");
    }

    /// The summaries of `count` full segments of a log, from the `first`th on.
    pub(super) fn summaries(&self, log: Log, first: u64, count: u64, out: &mut [u8]) {
        const SEGMENT: usize = BLOCKS_PER_SEGMENT as usize;
        let start = self.places.segment(log, first).expect("the segment is full");
        let owners = self.owners(log, start, count * SEGMENT as u64);
        let blocks = out.chunks_mut(crate::format::units::BLOCK_SIZE);
        for (owners, block) in owners.chunks(SEGMENT).zip(blocks) {
            let summary =
                SummaryBlock { entries: owners.to_vec(), ..SummaryBlock::empty(log.is_node()) };
            block.copy_from_slice(&summary.encode());
        }
    }
}

fn of_node(nid: Nid) -> Summary {
    Summary { nid, ..Summary::default() }
}
