//! Blocks in use that a damaged SIT calls free: nothing is written over them.
//!
//! A SIT block has no checksum. So a segment takes blocks, is discarded or is reset with its zone
//! only after its summary was asked, once in a mount: a free block to which the named pointer
//! leads is in use, and is counted from then on.
//!
//! All free blocks of a segment are asked for if the sums of the SIT are not those of the
//! checkpoint. (Fewer blocks in use are possible: the checkpoint also counts those that `fallocate`
//! has reserved, which have no address yet.) While the sums agree, the question is a sample that
//! costs few reads ([`Coverage::Sample`]): it is complete unless the blocks had many owners. One
//! block that is in use deepens the question, for all segments.
//!
//! A node that the SIT calls free proves nothing: the NAT may be the one that is wrong, and lead to
//! an old version of the node. The same is true of data to which such a node leads. Neither is
//! counted, so that a repair finds what it needs, and the segment is left alone.
//!
//! The pointers are read from the device without a lock, and may be those of a node that is being
//! written. So the next checkpoint, which stops all changes, asks for these blocks again
//! ([`Segments::take_kept`]).

use super::log::LogState;
use super::proof::{Coverage, Found, Kept, Named, Proof};
use super::{CHECKPOINT_SECTIONS, Segments, State};
use crate::error::{Error, Result};
use crate::format::log::AllocType;
use crate::format::{BlockAddr, Log, SegNo, bits};

impl State {
    /// Must the segment's summary be asked before its free blocks are written?
    pub(super) fn is_doubted(&self, segno: SegNo) -> bool {
        self.doubt.is_left(segno)
    }

    /// All blocks are asked for from now on, also in segments that a sample has passed. Not so
    /// where a log stands: it may have written blocks there, and goes on to the next one.
    fn deepen(&mut self) {
        if self.doubt.coverage() == Coverage::All {
            return;
        }
        let asked = self.logs.each_ref().map(LogState::segno).into_iter();
        let asked: Vec<SegNo> = asked.filter(|segno| !self.doubt.is_left(*segno)).collect();
        self.doubt.deepen();
        asked.into_iter().for_each(|segno| self.doubt.settle(segno));
    }
}

impl Segments {
    /// Sets who tells which blocks are in use. Called before the first block is placed.
    pub(crate) fn set_proof(&self, proof: Box<dyn Proof>) {
        assert!(self.proof.set(proof).is_ok(), "the proof is set once");
    }

    /// Is the block in use? Its segment is asked if the SIT calls it free.
    #[must_use]
    pub(crate) fn is_in_use(&self, addr: BlockAddr) -> bool {
        if self.is_valid(addr) {
            return true;
        }
        // A segment that cannot be asked stays as the SIT has it.
        let place = self.layout.segment_of(addr);
        place.is_some_and(|(segno, _)| self.ask_segment(segno).is_ok()) && self.is_valid(addr)
    }

    /// As [`Segments::is_in_use`], for a block to which a pointer of the last checkpoint leads. If
    /// the SIT calls it free, one of the two is wrong, and no sample is enough any more.
    #[must_use]
    pub(crate) fn is_target_in_use(&self, addr: BlockAddr) -> bool {
        if self.is_valid(addr) {
            return true;
        }
        self.state.lock().deepen();
        self.is_in_use(addr)
    }

    /// Asks for the free blocks of a segment. Of a zone, all segments are asked, because it is
    /// written in order.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn ask(&self, segno: SegNo) -> Result<()> {
        if self.zones.get().is_none() {
            return self.ask_segment(segno);
        }
        let section = self.layout.section_of(segno);
        let segments = || Self::segments_of(&self.layout, section);
        segments().try_for_each(|segno| self.ask_segment(segno))?;
        let free = &mut self.state.lock().table.free;
        if segments().any(|segno| free.is_avoided(segno)) {
            segments().for_each(|segno| free.avoid(segno));
        }
        Ok(())
    }

    pub(super) fn ask_segment(&self, segno: SegNo) -> Result<()> {
        loop {
            let (blocked, log, coverage) = {
                let state = self.state.lock();
                if !state.is_doubted(segno) {
                    return Ok(());
                }
                (state.table.blocked_map(segno), state.table.log(segno), state.doubt.coverage())
            };
            let found = match self.led_to(segno, &blocked, coverage) {
                // While the sums agree, what cannot be read is no reason to refuse a write.
                Err(error) if coverage == Coverage::Sample => {
                    tracing::debug!(%segno, %error, "a segment is not asked");
                    Vec::new()
                }
                found => found?,
            };
            let (proven, unproven): (Vec<Found>, Vec<Found>) = found
                .into_iter()
                .partition(|found| found.holder.is_some_and(|holder| self.is_valid(holder)));
            if coverage == Coverage::Sample && !proven.is_empty() {
                tracing::warn!(%segno, "the SIT calls blocks free that are in use");
                self.state.lock().deepen();
                continue;
            }
            proven.into_iter().try_for_each(|found| self.keep(found.kept, log))?;
            let mut state = self.state.lock();
            if !unproven.is_empty() {
                tracing::warn!(%segno, "the NAT leads to nodes that the SIT calls free");
                state.table.free.avoid(segno);
            }
            unproven.into_iter().for_each(|found| state.doubt.keep(found.kept));
            // Another thread may have deepened the question.
            if state.doubt.coverage() == coverage {
                state.doubt.settle(segno);
            }
        }
    }

    /// Counts a block of data that the SIT calls free.
    fn keep(&self, kept: Kept, log: Log) -> Result<()> {
        let log = if log.is_node() { Log::WarmData } else { log };
        match self.take_in(kept.addr, log, kept.owner) {
            Ok(()) => self.state.lock().doubt.keep(kept),
            // Another thread was faster, or the segment holds blocks of the other kind.
            Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The blocks of a segment that are not blocked, and to which something leads.
    fn led_to(&self, segno: SegNo, blocked: &[u8], coverage: Coverage) -> Result<Vec<Found>> {
        let Some(proof) = self.proof.get() else { return Ok(Vec::new()) };
        let owners = match self.owners(segno) {
            // Whose the blocks are is not known.
            Err(Error::Corrupt(_)) => return Ok(Vec::new()),
            owners => owners?,
        };
        let open = (0..self.layout.usable_blocks(segno))
            .filter(|block| !bits::test(blocked, usize::from(*block)));
        let named: Named = open
            .filter_map(|block| Some((self.layout.address(segno, block), owners.get(block)?)))
            .filter(|(_, owner)| self.layout.is_nid(owner.nid))
            .collect();
        let is_node = owners.is_node;
        let found = |addr, owner, holder| Found { kept: Kept { addr, is_node, owner }, holder };
        if is_node {
            let nodes = proof.nodes(named, coverage)?.into_iter();
            return Ok(nodes.map(|(addr, owner)| found(addr, owner, None)).collect());
        }
        let data = proof.data(named, coverage)?.into_iter();
        Ok(data.map(|(addr, owner, holder)| found(addr, owner, Some(holder))).collect())
    }

    /// Asks for the segments that the logs are in, and moves a log on if a block that it would
    /// write is in use. Called before the first block is placed. Returns whether a log has moved.
    ///
    /// # Errors
    /// A log finds no room; or the device failed.
    pub(crate) fn ask_logs(&self) -> Result<bool> {
        let coverage = || self.state.lock().doubt.coverage();
        let current = || self.state.lock().logs.each_ref().map(LogState::segno);
        let before = coverage();
        current().into_iter().try_for_each(|segno| self.ask(segno))?;
        if coverage() != before {
            // Nothing is placed yet: the samples of the other logs are not enough.
            let segments = current();
            let mut state = self.state.lock();
            segments.into_iter().for_each(|segno| state.doubt.reopen(segno));
            drop(state);
            segments.into_iter().try_for_each(|segno| self.ask(segno))?;
        }
        let mut moved = false;
        for log in Log::ALL {
            if self.stands_before_used(log) {
                self.resume_log(log, CHECKPOINT_SECTIONS)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Is the next block of the log in use, or one that it will append to, or is the segment left
    /// alone?
    fn stands_before_used(&self, log: Log) -> bool {
        let state = self.state.lock();
        let position = state.logs[log.index()].position;
        if state.table.free.is_avoided(position.segno) {
            return true;
        }
        let map = state.table.valid_map(position.segno);
        let from = usize::from(position.blkoff);
        let end = match position.alloc {
            AllocType::Lfs => self.layout.usable_blocks(position.segno).into(),
            AllocType::Ssr => from + 1,
        };
        bits::next_set(&map, from, end).is_some()
    }

    /// Asks for all of these segments.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn ask_all(&self, mut segments: impl Iterator<Item = SegNo>) -> Result<()> {
        segments.try_for_each(|segno| self.ask_segment(segno))
    }

    /// As [`Segments::ask_all`], for those of them with free blocks that were not discarded.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn ask_undiscarded(&self, segments: impl Iterator<Item = SegNo>) -> Result<()> {
        let undiscarded = |segno: &SegNo| {
            let map = self.state.lock().table.undiscarded.of(*segno);
            map.iter().any(|byte| *byte != 0)
        };
        self.ask_all(segments.filter(undiscarded))
    }

    /// The blocks that were called free and are in use, found since the last call.
    #[must_use]
    pub(crate) fn take_kept(&self) -> Vec<Kept> {
        self.state.lock().doubt.take_kept()
    }
}
