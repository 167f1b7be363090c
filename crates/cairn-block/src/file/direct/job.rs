//! The transfers of a batch: their memory, how far they are, and who waits for all of them.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::ranked_lock::{Mutex, Rank};
use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use rustix::io::Errno;

use crate::IoBuf;
use crate::bounds::total_len;
use crate::device::{Completer, Completion};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::file::transfer::{Fua, MAX_BUFFERS, failed, read_all, refused, truncated, write_all};

/// The memory of a transfer.
#[derive(Debug)]
pub(super) enum Memory {
    Read(Vec<IoBuf>),
    Write(Vec<Bytes>),
}

/// A direct transfer.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) offset: u64,
    pub(super) memory: Memory,
    /// What the length of each part of it is a multiple of.
    pub(super) unit: u64,
    /// The number of its first read among the reads of its batch.
    pub(super) place: usize,
}

impl Transfer {
    pub(super) fn len(&self) -> u64 {
        match &self.memory {
            Memory::Read(bufs) => bufs.iter().map(|buf| buf.len() as u64).sum(),
            Memory::Write(bufs) => total_len(bufs),
        }
    }

    fn operation(&self) -> Operation {
        match self.memory {
            Memory::Read(_) => Operation::Read,
            Memory::Write(_) => Operation::Write,
        }
    }

    /// Carries it out in the calling thread.
    pub(super) fn carry_out(&mut self, file: &File, fua: &mut Fua) -> Result<()> {
        match &mut self.memory {
            Memory::Read(bufs) => read_all(file, self.offset, bufs, self.unit),
            Memory::Write(bufs) => write_all(file, self.offset, bufs, fua),
        }
    }

    pub(super) fn into_bufs(self) -> Vec<IoBuf> {
        match self.memory {
            Memory::Read(bufs) => bufs,
            Memory::Write(_) => Vec::new(),
        }
    }
}

/// A batch whose transfers are in the ring.
#[derive(Debug)]
struct Job(Mutex<State>);

struct State {
    left: usize,
    /// Of the reads, in their order.
    bufs: Vec<Option<IoBuf>>,
    error: Option<Error>,
    completer: Option<Completer>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} transfers left", self.left)
    }
}

impl Job {
    fn done(&self, place: usize, outcome: Result<Vec<IoBuf>>) {
        let mut state = self.0.lock();
        match outcome {
            Ok(bufs) => put(&mut state.bufs[place..], bufs),
            Err(error) => {
                state.error.get_or_insert(error);
            }
        }
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let bufs = std::mem::take(&mut state.bufs);
        let (error, completer) = (state.error.take(), state.completer.take());
        drop(state);
        let outcome = match error {
            Some(error) => Err(error),
            None => Ok(bufs.into_iter().flatten().collect()),
        };
        completer.expect("the last transfer comes once").complete(outcome);
    }
}

/// The first places get their buffers.
pub(super) fn put(places: &mut [Option<IoBuf>], bufs: Vec<IoBuf>) {
    places.iter_mut().zip(bufs).for_each(|(place, buf)| *place = Some(buf));
}

impl Drop for Job {
    fn drop(&mut self) {
        let state = self.0.get_mut();
        if let Some(completer) = state.completer.take() {
            let detail = "the thread that waits for the disk has ended: open the image again";
            let error = Error::new(ErrorKind::Io, "transfer", detail);
            completer.complete(Err(state.error.take().unwrap_or(error)));
        }
    }
}

/// A transfer on its way to the ring.
#[derive(Debug)]
pub(super) struct Sent {
    transfer: Transfer,
    job: Arc<Job>,
}

impl Sent {
    /// The transfers of a batch, and what completes when all have come back. `bufs`: those of all
    /// reads of the batch, as far as they are read.
    pub(super) fn all(
        transfers: Vec<Transfer>,
        bufs: Vec<Option<IoBuf>>,
    ) -> (Vec<Self>, Completion) {
        let (completion, completer) = Completion::pending();
        let left = transfers.len();
        let state = State { left, bufs, error: None, completer: Some(completer) };
        let job = Arc::new(Job(Mutex::new(Rank::Leaf, state)));
        let sent = transfers.into_iter().map(|transfer| Self { transfer, job: job.clone() });
        (sent.collect(), completion)
    }

    /// Carries it out in the calling thread.
    pub(super) fn finish(mut self, file: &File) {
        let mut fua = Fua { wanted: false, alone: false, owed: false };
        let outcome = self.transfer.carry_out(file, &mut fua);
        self.job.done(self.transfer.place, outcome.map(|()| self.transfer.into_bufs()));
    }
}

/// What follows a completion of the kernel.
pub(super) enum Next {
    /// The rest is to be transferred.
    Again,
    /// The kernel lacks something: a system call waits for it.
    Here,
    Done(Result<()>),
}

/// A transfer, and the addresses of what is left of it. Only the thread of the ring has one.
pub(super) struct Slot {
    sent: Sent,
    pieces: Vec<libc::iovec>,
    /// The first piece that is not done.
    first: usize,
    done: u64,
}

impl Slot {
    pub(super) fn new(mut sent: Sent) -> Self {
        let piece = |start: *mut u8, len| libc::iovec { iov_base: start.cast(), iov_len: len };
        let pieces = match &mut sent.transfer.memory {
            Memory::Read(bufs) => {
                let filled = bufs.iter_mut().filter(|buf| !buf.is_empty());
                filled.map(|buf| piece(buf.as_mut_ptr(), buf.len())).collect()
            }
            // The kernel only reads what is written to the file.
            Memory::Write(bufs) => {
                let filled = bufs.iter().filter(|buf| !buf.is_empty());
                filled.map(|buf| piece(buf.as_ptr().cast_mut(), buf.len())).collect()
            }
        };
        Self { sent, pieces, first: 0, done: 0 }
    }

    /// The command for what is left, or the first buffers of it. Its addresses are valid as long as
    /// this lives.
    pub(super) fn entry(&self, file: Fd) -> squeue::Entry {
        let left = &self.pieces[self.first..];
        let (start, count) = (left.as_ptr(), left.len().min(MAX_BUFFERS) as u32);
        let offset = self.sent.transfer.offset + self.done;
        match self.sent.transfer.memory {
            Memory::Read(_) => opcode::Readv::new(file, start, count).offset(offset).build(),
            Memory::Write(_) => opcode::Writev::new(file, start, count).offset(offset).build(),
        }
    }

    /// The kernel has completed the command with this result.
    pub(super) fn completed(&mut self, result: i32) -> Next {
        let transfer = &self.sent.transfer;
        let (offset, len) = (transfer.offset, transfer.len());
        let Ok(count) = u64::try_from(result) else {
            return match Errno::from_raw_os_error(-result) {
                Errno::INTR => Next::Again,
                Errno::AGAIN => Next::Here,
                error => Next::Done(Err(failed(transfer.operation(), error, offset, len))),
            };
        };
        let is_read = matches!(transfer.memory, Memory::Read(_));
        let unit = transfer.unit;
        self.advance(count);
        match (self.done >= len, is_read) {
            (true, _) => Next::Done(Ok(())),
            (false, true) if count == 0 || !count.is_multiple_of(unit) => {
                Next::Done(Err(truncated(offset, len)))
            }
            (false, false) if count == 0 => {
                Next::Done(Err(refused(offset + self.done).at(offset, len)))
            }
            (false, _) => Next::Again,
        }
    }

    fn advance(&mut self, count: u64) {
        self.done += count;
        // No more than the pieces have.
        let mut left = usize::try_from(count).unwrap_or(usize::MAX);
        while left > 0
            && let Some(piece) = self.pieces.get_mut(self.first)
        {
            let step = left.min(piece.iov_len);
            piece.iov_base = piece.iov_base.wrapping_byte_add(step);
            piece.iov_len -= step;
            left -= step;
            self.first += usize::from(piece.iov_len == 0);
        }
    }

    /// Tells the batch.
    pub(super) fn deliver(self, outcome: Result<()>) {
        let Sent { transfer, job } = self.sent;
        let place = transfer.place;
        job.done(place, outcome.map(|()| transfer.into_bufs()));
    }

    /// Carries it out from its start, in the calling thread.
    pub(super) fn finish(self, file: &File) {
        self.sent.finish(file);
    }

    /// Its memory is never freed; its batch fails.
    pub(super) fn leak(self) {
        let Sent { transfer, job } = self.sent;
        std::mem::forget((transfer, self.pieces));
        drop(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(memory: Memory) -> (Slot, Completion) {
        let transfer = Transfer { offset: 1 << 20, memory, unit: 512, place: 0 };
        let (mut sent, completion) = Sent::all(vec![transfer], vec![None]);
        (Slot::new(sent.pop().unwrap()), completion)
    }

    fn left(slot: &Slot) -> Vec<usize> {
        slot.pieces[slot.first..].iter().map(|piece| piece.iov_len).collect()
    }

    #[test]
    fn what_is_short_goes_on_where_it_ended() {
        let bufs = [1024, 0, 512, 2048].map(|len| Bytes::from(vec![1; len])).to_vec();
        let (mut slot, completion) = slot(Memory::Write(bufs));
        assert_eq!(left(&slot), [1024, 512, 2048]);
        let second = slot.pieces[1].iov_base;
        assert!(matches!(slot.completed(1280), Next::Again));
        assert_eq!((left(&slot), slot.done), (vec![256, 2048], 1280));
        assert_eq!(slot.pieces[1].iov_base, second.wrapping_byte_add(256));
        assert!(matches!(slot.completed(-libc::EINTR), Next::Again));
        assert!(matches!(slot.completed(256), Next::Again));
        assert!(matches!(slot.completed(-libc::EAGAIN), Next::Here));
        assert!(matches!(slot.completed(2048), Next::Done(Ok(()))));
        slot.deliver(Ok(()));
        assert!(completion.wait().unwrap().is_empty());
    }

    #[test]
    fn an_end_is_an_error_with_its_place() {
        for result in [0, 100, 1100] {
            let (mut slot, completion) =
                slot(Memory::Read(vec![IoBuf::zeroed(1024), IoBuf::zeroed(3072)]));
            let Next::Done(Err(error)) = slot.completed(result) else { panic!("it goes on") };
            assert_eq!((error.kind, error.range), (ErrorKind::OutOfRange, Some((1 << 20, 4096))));
            slot.deliver(Err(error));
            assert_eq!(completion.wait().unwrap_err().kind, ErrorKind::OutOfRange);
        }
        let (mut slot, _completion) = slot(Memory::Write(vec![Bytes::from(vec![1; 4096])]));
        assert!(matches!(slot.completed(0), Next::Done(Err(_))));
        let Next::Done(Err(error)) = slot.completed(-libc::ENOSPC) else { panic!("it goes on") };
        assert_eq!((error.kind, error.range), (ErrorKind::NoSpace, Some((1 << 20, 4096))));
    }

    #[test]
    fn a_batch_fails_if_its_transfers_are_gone() {
        let (slot, completion) = slot(Memory::Read(vec![IoBuf::zeroed(512)]));
        slot.leak();
        assert_eq!(completion.wait().unwrap_err().kind, ErrorKind::Io);
    }
}
