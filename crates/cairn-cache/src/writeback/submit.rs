//! Submitting: runs are placed, runs that are adjacent on the device are sent in one batch, and
//! tickets are completed in order.
//!
//! Several batches are in flight at once. The calling thread completes their tickets, never a
//! thread of the device.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::told::TOLD;
use cairn_base::{FileBlock, Pba};
use cairn_block::{Batch, Completion, Durability, ErrorKind, Request};

use super::collect::{Few, Piece, WriteOutcome};
use super::flushable::WritebackMode;
use super::no_room::is_refusal;
use crate::file::{CacheError, FileCache, FileState, Folio};
use crate::mapper::{FileMapper, MapError, Run, WriteTicket};

/// Most batches in flight.
const DEPTH: usize = 8;
/// A batch of this many bytes takes no further run.
const MERGED: u64 = 1 << 20;

/// A placed run with its data.
struct Placed {
    pieces: Few<Piece>,
    run: Run,
    start: Pba,
    ticket: Box<dyn WriteTicket>,
}

impl Placed {
    /// The block after it on the device.
    fn end(&self) -> u64 {
        self.start.get() + self.run.len
    }
}

/// A placed run whose data was sent to the device.
struct Sent {
    pieces: Few<(Arc<Folio>, Range<u32>)>,
    run: Run,
    ticket: Box<dyn WriteTicket>,
}

/// One batch: runs that are adjacent on the device, but not always in the file.
struct InFlight {
    sent: Few<Sent>,
    completion: Completion,
}

/// One caller's write-back.
struct Round<'a> {
    file: &'a Arc<FileState>,
    mapper: &'a dyn FileMapper,
    size: u64,
    /// Runs that are adjacent on the device and not sent yet.
    group: Few<Placed>,
    in_flight: VecDeque<InFlight>,
    error: Option<CacheError>,
    /// The mapper failed, or a probe found no room: another call would fail, too.
    refused: bool,
    /// The device had no room for earlier data: one block is written before the others, because
    /// F2FS takes new blocks for each attempt.
    probes: bool,
}

impl FileCache {
    /// Writes the dirty blocks that byte range `range` touches, in a file of `size` bytes. Blocks
    /// beyond the size are not written, and the device gets zeros for the bytes after the end.
    /// [`WritebackMode::Sync`] also waits for blocks that other threads are writing.
    ///
    /// # Errors
    /// The mapper or the device failed. [`FileCache::errors`] records the error, too. The data
    /// stays dirty unless the device takes no more writes.
    pub fn write_back(
        &self,
        mapper: &dyn FileMapper,
        range: Range<u64>,
        size: u64,
        mode: WritebackMode,
    ) -> Result<(), CacheError> {
        let file = &self.state;
        match mode {
            WritebackMode::Sync => self.reset_reservation(mapper),
            WritebackMode::Background => self.release_reservation(mapper),
        }
        let blocks = file.block_of(range.start)..file.blocks_for(range.end.min(size));
        if blocks.is_empty() || !file.has_unstable() {
            return Ok(());
        }
        // An fsync tries every block: the device may have room for some of them.
        let probes = mode == WritebackMode::Background && file.cache.no_room.pending().is_some();
        self.write_back_round(mapper, blocks.clone(), size, probes)?;
        if mode == WritebackMode::Sync {
            // The first round skips a block that is dirty *and* being written. After the wait the
            // second round can take it. If another thread takes it first, the second wait is for
            // that write.
            file.wait_writeback(&blocks);
            self.write_back_round(mapper, blocks.clone(), size, false)?;
            file.wait_writeback(&blocks);
        }
        Ok(())
    }

    fn write_back_round(
        &self,
        mapper: &dyn FileMapper,
        blocks: Range<u64>,
        size: u64,
        probes: bool,
    ) -> Result<(), CacheError> {
        let file = &self.state;
        let (group, in_flight, error) = (Few::new(), VecDeque::new(), None);
        let mut round =
            Round { file, mapper, size, group, in_flight, error, refused: false, probes };
        let mut cursor = blocks.start;
        while !round.refused {
            let pieces = file.collect(cursor..blocks.end);
            let Some(last) = pieces.last() else { break };
            cursor = last.start() + last.len();
            round.write_run(pieces);
        }
        round.submit();
        while round.finish_one() {}
        round.error.map_or(Ok(()), Err)
    }
}

impl Round<'_> {
    /// Places a collected run extent by extent. It submits the group before an extent that is not
    /// adjacent to it.
    fn write_run(&mut self, mut pieces: Few<Piece>) {
        if let (Some(first), Some(last)) = (self.group.first(), self.group.last())
            && last.end() - first.start.get() >= MERGED >> self.file.shift
        {
            self.submit();
        }
        // The first piece is at the end, where it can be taken.
        pieces.reverse();
        while let Some(first) = pieces.last() {
            let len = pieces.iter().map(Piece::len).sum();
            let rest = Run { start: FileBlock(first.start()), len };
            let asked = if self.probes { Run { len: 1, ..rest } } else { rest };
            let placed = match self.file.place(self.mapper, asked) {
                Ok(placed) => placed,
                Err(error) => return self.give_up(pieces, rest, error.into()),
            };
            if self.group.last().is_some_and(|last| last.end() != placed.start.get()) {
                self.submit();
            }
            let taken = self.take(&mut pieces, placed.run.len);
            self.group.push(Placed {
                pieces: taken,
                run: placed.run,
                start: placed.start,
                ticket: placed.ticket,
            });
            if std::mem::take(&mut self.probes) {
                self.submit();
                while self.finish_one() {}
                if let Some(error) = self.error.clone().filter(is_refusal) {
                    self.refused = true;
                    if pieces.is_empty() {
                        return;
                    }
                    let rest = Run { start: FileBlock(rest.start.get() + 1), len: rest.len - 1 };
                    return self.give_up(pieces, rest, error);
                }
            }
        }
    }

    /// Ends the round: these collected pieces, which are `run`, stay dirty.
    fn give_up(&mut self, pieces: Few<Piece>, run: Run, error: CacheError) {
        self.refused = true;
        self.submit();
        let pieces = pieces.into_iter().rev().map(|piece| (piece.folio, piece.blocks)).collect();
        self.end(pieces, run, Err(error));
    }

    /// Takes the first `len` blocks from the pieces, of which the first is at the end.
    fn take(&self, pieces: &mut Few<Piece>, len: u64) -> Few<Piece> {
        let mut taken = Few::new();
        let mut left = len;
        while left > 0 {
            let mut piece = pieces.pop().expect("no more is placed than asked");
            if piece.len() > left {
                let head = u32::try_from(left).expect("less than a folio");
                let middle = piece.blocks.start + head;
                self.file.split_in_flight(piece.start(), piece.start() + left);
                let rest = piece.data.split_off(self.file.bytes(head));
                let folio = piece.folio.clone();
                pieces.push(Piece { folio, blocks: middle..piece.blocks.end, data: rest });
                piece.blocks.end = middle;
            }
            left -= piece.len();
            taken.push(piece);
        }
        taken
    }

    /// Sends the group as one request.
    fn submit(&mut self) {
        let group = std::mem::take(&mut self.group);
        let Some(first) = group.first() else { return };
        let offset = first.start.get() << self.file.shift;
        while self.in_flight.len() >= DEPTH {
            self.finish_one();
        }
        let (mut bufs, mut sent) =
            (Vec::with_capacity(group.len() + 1), Few::with_capacity(group.len()));
        for Placed { pieces, run, ticket, .. } in group {
            let mut folios = Few::with_capacity(pieces.len());
            for piece in pieces {
                let begin = self.file.byte_of(piece.start());
                folios.push((piece.folio, piece.blocks));
                push_zero_beyond(&mut bufs, piece.data, self.size - begin, self.file.block_size());
            }
            sent.push(Sent { pieces: folios, run, ticket });
        }
        let request = Request::Write { offset, bufs };
        let batch = Batch { requests: vec![request], durability: Durability::default() };
        self.file.cache.counters().writeback_batches.add(1);
        let completion = self.file.cache.device.submit(batch);
        self.in_flight.push_back(InFlight { sent, completion });
    }

    /// Waits for the oldest batch and completes its tickets. False if there is none.
    fn finish_one(&mut self) -> bool {
        let Some(InFlight { sent, completion }) = self.in_flight.pop_front() else {
            return false;
        };
        let written = completion.wait().map(drop);
        for Sent { pieces, run, ticket } in sent {
            let file_end = self.file.byte_of(run.start.get() + run.len).min(self.size);
            let result = match &written {
                Ok(()) => ticket.complete(file_end).map_err(CacheError::from),
                Err(error) => {
                    drop(ticket);
                    Err(CacheError::Write(error.clone()))
                }
            };
            if result.is_ok() {
                self.file.cache.counters().device_written_bytes.add(run.len << self.file.shift);
            }
            self.end(pieces, run, result);
        }
        true
    }

    fn end(
        &mut self,
        pieces: Few<(Arc<Folio>, Range<u32>)>,
        run: Run,
        result: Result<(), CacheError>,
    ) {
        let outcome = result.as_ref().map_or_else(failure, |()| WriteOutcome::Written);
        for (folio, blocks) in pieces {
            self.file.end_writeback(&folio, blocks, outcome);
        }
        if outcome == WriteOutcome::Lost {
            self.mapper.release(run);
        }
        if let Err(error) = result {
            let (start, blocks) = (run.start, run.len);
            match outcome {
                WriteOutcome::Lost => {
                    let what = "file data could not be written and is lost";
                    tracing::warn!(%start, blocks, %error, "{what}");
                }
                _ => {
                    let what = "file data could not be written, and is tried again";
                    tracing::warn!(target: TOLD, %start, blocks, %error, "{what}");
                }
            }
            if self.file.cache.no_room.count(&error) {
                // The daemon tries again until there is room.
                self.file.cache.dirty.wake.notify();
            }
            self.file.errors.record(error.clone());
            self.error.get_or_insert(error);
        }
        self.file.writeback_done.notify();
        self.file.cache.dirty.drained.notify();
    }
}

/// Whether the data is kept for another attempt.
fn failure(error: &CacheError) -> WriteOutcome {
    match error {
        CacheError::Write(error)
            if matches!(error.kind, ErrorKind::ReadOnly | ErrorKind::OutOfRange) =>
        {
            WriteOutcome::Lost
        }
        CacheError::Read(_)
        | CacheError::Write(_)
        | CacheError::Map(MapError::NoSpace | MapError::TooLarge | MapError::Other(_)) => {
            WriteOutcome::Failed
        }
    }
}

/// Appends `data` with zeros in place of the bytes from `valid` on, which lie beyond the size of
/// the file.
fn push_zero_beyond(bufs: &mut Vec<Bytes>, mut data: Bytes, valid: u64, block_size: usize) {
    let valid = usize::try_from(valid).map_or(data.len(), |valid| valid.min(data.len()));
    if valid == data.len() || data[valid..].iter().all(|byte| *byte == 0) {
        bufs.push(data);
        return;
    }
    let last = data.split_off(valid / block_size * block_size);
    let mut tail = last.to_vec();
    tail[valid % block_size..].fill(0);
    if !data.is_empty() {
        bufs.push(data);
    }
    bufs.push(tail.into());
}
