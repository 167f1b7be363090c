//! One request to the server, and the batches that requests are parts of.
//!
//! A [`Chain`] is a batch: stages, one after the other, each of commands that may be carried out at
//! once. `preflush` is a stage with a flush before the others; `fua` with a server that cannot
//! force writes is a stage with a flush behind them.
//!
//! Locking: a chain and a buffer have a leaf each, held for a few instructions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::device::Completer;
use cairn_block::{Bytes, Error, IoBuf, Operation};

use super::coverage::Coverage;
use crate::wire::{CommandFlags, request};

/// Where the data of a read goes. Several commands may fill parts of it; they have one connection,
/// so one thread fills them.
#[derive(Debug)]
pub(super) struct Target(Mutex<Option<IoBuf>>);

impl Target {
    pub(super) fn new(buf: IoBuf) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Rank::Leaf, Some(buf))))
    }

    /// Lends the buffer. The caller gives it back before it reports the command.
    pub(super) fn take(&self) -> IoBuf {
        self.0.lock().take().expect("one thread fills a buffer")
    }

    pub(super) fn give_back(&self, buf: IoBuf) {
        *self.0.lock() = Some(buf);
    }
}

/// Extents, by length and flags, that a server has told.
pub(super) type Found = Arc<Mutex<Vec<(u64, u32)>>>;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Into the buffer from this byte of it on.
    Read(Arc<Target>, usize),
    Write(Arc<[Bytes]>),
    Zeroes,
    Trim,
    Flush,
    Status(Found),
}

impl Kind {
    pub(super) const fn changes(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Zeroes | Self::Trim)
    }

    pub(super) const fn operation(&self) -> Operation {
        match self {
            Self::Read(..) | Self::Status(_) => Operation::Read,
            Self::Write(_) => Operation::Write,
            Self::Zeroes => Operation::WriteZeroes,
            Self::Trim => Operation::Discard,
            Self::Flush => Operation::Flush,
        }
    }
}

/// A command that nobody has numbered yet.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) fua: bool,
    /// Commands of one group have one connection.
    pub(super) group: usize,
}

impl Draft {
    pub(super) const fn flush() -> Self {
        Self { kind: Kind::Flush, offset: 0, len: 0, fua: false, group: 0 }
    }

    /// The request, as it is sent.
    pub(super) fn request(&self, cookie: u64) -> request::Request {
        let kind = match self.kind {
            Kind::Read(..) => request::Kind::Read,
            Kind::Write(_) => request::Kind::Write,
            Kind::Zeroes => request::Kind::WriteZeroes,
            Kind::Trim => request::Kind::Trim,
            Kind::Flush => request::Kind::Flush,
            Kind::Status(_) => request::Kind::BlockStatus,
        };
        let flags = if self.fua { CommandFlags::FUA } else { CommandFlags::empty() };
        request::Request { kind, flags, cookie, offset: self.offset, len: self.len }
    }

    /// An error of this command.
    pub(super) fn error(&self, kind: cairn_block::ErrorKind, detail: impl Into<String>) -> Error {
        let error = Error::new(kind, self.kind.operation(), detail);
        match self.kind {
            Kind::Flush => error,
            _ => error.at(self.offset, self.len),
        }
    }
}

/// Whom the answer is for.
#[derive(Clone)]
pub(super) enum Owner {
    /// A batch.
    Chain(Arc<Chain>),
    /// The ledger, whose entry is written again.
    Replay,
    /// Nobody: a flush that bounds the ledger.
    Ledger,
}

/// When and where a command was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) lane: usize,
    /// Of a flush: the entries of the ledger that it covers.
    pub(super) mark: u64,
}

/// A command that is not answered.
pub(super) struct Command {
    pub(super) draft: Draft,
    pub(super) owner: Owner,
    /// None while there is no connection.
    pub(super) sent: Option<Sent>,
    pub(super) attempts: u32,
    /// What of a read has come.
    pub(super) coverage: Coverage,
    /// The first error among the chunks that have come.
    pub(super) error: Option<Error>,
}

impl Command {
    pub(super) fn new(draft: Draft, owner: Owner) -> Self {
        Self { draft, owner, sent: None, attempts: 0, coverage: Coverage::default(), error: None }
    }

    /// Forgets what has come of an answer.
    pub(super) fn reset(&mut self) {
        self.sent = None;
        self.coverage = Coverage::default();
        self.error = None;
    }
}

/// A batch on its way.
pub(super) struct Chain(Mutex<Progress>);

struct Progress {
    /// Commands of the present stage without an answer.
    left: usize,
    error: Option<Error>,
    later: VecDeque<Vec<Draft>>,
    targets: Vec<Arc<Target>>,
    completer: Option<Completer>,
}

/// What follows from an answer.
pub(super) enum Next {
    Nothing,
    Stage(Vec<Draft>),
    Done(Completer, Result<Vec<Arc<Target>>, Error>),
}

/// The buffers of a batch that has succeeded.
pub(super) fn buffers(targets: &[Arc<Target>]) -> Vec<IoBuf> {
    targets.iter().map(|target| target.take()).collect()
}

impl Chain {
    pub(super) fn new(
        stages: VecDeque<Vec<Draft>>,
        targets: Vec<Arc<Target>>,
        completer: Completer,
    ) -> Arc<Self> {
        let progress =
            Progress { left: 0, error: None, later: stages, targets, completer: Some(completer) };
        Arc::new(Self(Mutex::new(Rank::Leaf, progress)))
    }

    /// The first stage.
    pub(super) fn begin(&self) -> Next {
        self.0.lock().next()
    }

    /// A command of the present stage was answered.
    pub(super) fn answered(&self, outcome: Result<(), Error>) -> Next {
        let mut progress = self.0.lock();
        if let Err(error) = outcome {
            progress.error.get_or_insert(error);
        }
        progress.left -= 1;
        match progress.left {
            0 => progress.next(),
            _ => Next::Nothing,
        }
    }
}

impl Progress {
    fn next(&mut self) -> Next {
        if self.error.is_none()
            && let Some(stage) = self.later.pop_front()
        {
            self.left = stage.len();
            return Next::Stage(stage);
        }
        self.later.clear();
        let Some(completer) = self.completer.take() else { return Next::Nothing };
        let outcome = match self.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.targets)),
        };
        Next::Done(completer, outcome)
    }
}
