//! Blocks in use that a damaged SIT calls free: nothing is written over them.
//!
//! The SIT is doubted if its sums are not those of the checkpoint. (Fewer blocks in use are
//! possible: the checkpoint also counts those that `fallocate` has reserved, which have no address
//! yet.) Then a segment takes blocks, is discarded or is reset with its zone only after its summary
//! was asked: a free block to which the named pointer leads, or a node to which the NAT leads, is
//! in use. It is counted from then on. A volume whose sums agree pays nothing for this, and damage
//! that keeps the sums is not noticed.
//!
//! The pointers are read from the device without a lock, and may be those of a node that is being
//! written. So the next checkpoint, which stops all changes, asks for these blocks again
//! ([`Segments::take_kept`]).

use super::proof::{Doubt, Kept, Proof};
use super::{CHECKPOINT_SECTIONS, Owner, Segments, State};
use crate::error::{Error, Result};
use crate::format::log::AllocType;
use crate::format::{BlockAddr, Log, SegNo, bits};

impl State {
    /// Must the segment's summary be asked before its free blocks are written?
    pub(super) fn is_doubted(&self, segno: SegNo) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.is_left(segno))
    }
}

impl Segments {
    /// Is the SIT doubted?
    #[must_use]
    pub(crate) fn is_doubted(&self) -> bool {
        self.state.lock().doubt.is_some()
    }

    /// Sets who tells which blocks are in use. Called before the first block is placed.
    pub(crate) fn set_proof(&self, proof: Box<dyn Proof>) {
        assert!(self.proof.set(proof).is_ok(), "the proof is set once");
    }

    /// Is the block in use? If the SIT is doubted, its segment is asked.
    #[must_use]
    pub(crate) fn is_in_use(&self, addr: BlockAddr) -> bool {
        if self.is_valid(addr) || !self.is_doubted() {
            return self.is_valid(addr);
        }
        // A segment that cannot be asked stays as the SIT has it.
        let place = self.layout.segment_of(addr);
        place.is_some_and(|(segno, _)| self.ask_segment(segno).is_ok()) && self.is_valid(addr)
    }

    /// Asks for the free blocks of a segment, and counts those that are in use. Of a zone, all
    /// segments are asked, because it is written in order.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn ask(&self, segno: SegNo) -> Result<()> {
        if self.zones.get().is_none() {
            return self.ask_segment(segno);
        }
        let section = self.layout.section_of(segno);
        Self::segments_of(&self.layout, section).try_for_each(|segno| self.ask_segment(segno))
    }

    pub(super) fn ask_segment(&self, segno: SegNo) -> Result<()> {
        let (blocked, log) = {
            let state = self.state.lock();
            if !state.is_doubted(segno) {
                return Ok(());
            }
            (state.table.blocked_map(segno), state.table.log(segno))
        };
        for kept in self.in_use(segno, &blocked)? {
            let log = match (log.is_node() == kept.is_node, kept.is_node) {
                (true, _) => log,
                (false, true) => Log::WarmNode,
                (false, false) => Log::WarmData,
            };
            match self.take_in(kept.addr, log, kept.owner) {
                Ok(()) => {
                    let mut state = self.state.lock();
                    state.doubt.iter_mut().for_each(|doubt| doubt.keep(kept));
                }
                // Another thread was faster, or the segment holds blocks of the other kind.
                Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut state = self.state.lock();
        state.doubt.iter_mut().for_each(|doubt| doubt.settle(segno));
        Ok(())
    }

    /// The blocks of a segment that are not blocked and nevertheless in use.
    fn in_use(&self, segno: SegNo, blocked: &[u8]) -> Result<Vec<Kept>> {
        let Some(proof) = self.proof.get() else { return Ok(Vec::new()) };
        let owners = match self.owners(segno) {
            // Whose the blocks are is not known.
            Err(Error::Corrupt(_)) => return Ok(Vec::new()),
            owners => owners?,
        };
        let open = (0..self.layout.usable_blocks(segno))
            .filter(|block| !bits::test(blocked, usize::from(*block)));
        let named: Vec<(BlockAddr, Owner)> = open
            .filter_map(|block| Some((self.layout.address(segno, block), owners.get(block)?)))
            .filter(|(_, owner)| self.layout.is_nid(owner.nid))
            .collect();
        let is_node = owners.is_node;
        let used = if is_node { proof.nodes(&named)? } else { proof.data(&named)? };
        Ok(used.into_iter().map(|(addr, owner)| Kept { addr, is_node, owner }).collect())
    }

    /// Asks for the segments that the logs are in, and moves a log on if a block that it would
    /// write is in use. Called before the first block is placed. Returns whether a log has moved.
    ///
    /// # Errors
    /// A log finds no room; or the device failed.
    pub(crate) fn ask_logs(&self) -> Result<bool> {
        let mut moved = false;
        for log in Log::ALL {
            let segno = self.state.lock().logs[log.index()].segno();
            self.ask(segno)?;
            if self.stands_before_used(log) {
                self.resume_log(log, CHECKPOINT_SECTIONS)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Is the next block of the log in use, or one that it will append to?
    fn stands_before_used(&self, log: Log) -> bool {
        let state = self.state.lock();
        let position = state.logs[log.index()].position;
        let map = state.table.valid_map(position.segno);
        let from = usize::from(position.blkoff);
        let end = match position.alloc {
            AllocType::Lfs => self.layout.usable_blocks(position.segno).into(),
            AllocType::Ssr => from + 1,
        };
        bits::next_set(&map, from, end).is_some()
    }

    /// Asks for all segments among these.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn ask_all(&self, mut segments: impl Iterator<Item = SegNo>) -> Result<()> {
        match self.is_doubted() {
            true => segments.try_for_each(|segno| self.ask_segment(segno)),
            false => Ok(()),
        }
    }

    /// The blocks that were called free and are in use, found since the last call.
    #[must_use]
    pub(crate) fn take_kept(&self) -> Vec<Kept> {
        let mut state = self.state.lock();
        state.doubt.as_mut().map(Doubt::take_kept).unwrap_or_default()
    }
}
