//! [`Client`]: an export of an NBD server as a block device.
//!
//! Many requests are under way at once, on one connection or, if the server allows it, on several.
//! A thread for each connection reads the answers. When a connection ends, the client connects
//! again and goes on; those who wait for answers notice only the time.
//!
//! # What is sent again, and why nothing is lost
//!
//! A *session* is the set of connections that are used together; if one ends, the session ends. A
//! server may have been killed and started again between two sessions, and may have lost every
//! write that no flush covered. So:
//!
//! 1. A write that was answered is kept, with its data, until a flush has succeeded that was *sent
//!    after its answer came*. (Forced writes, too: otherwise an older write that is repeated could
//!    come after a forced one to the same place.)
//! 2. A session ends before the next begins. If a change was under way, the old connections must
//!    have been ended *by the server*; it then has nothing more to carry out, and no late write can
//!    come after later ones. If it does not end them in time, the device fails for good.
//! 3. In a new session the kept writes are written again first: each place once, with the bytes
//!    that were last answered for it. Then everything that was under way is sent again. Only then
//!    do new requests pass, and only then is anything read.
//! 4. If a kept write is refused, the export differs, or no new session comes in time, the device
//!    fails for good: every later request gets the reason.
//!
//! **A flush that succeeds has its promise.** Let a write be completed before a flush was
//! requested. If an earlier flush that was sent after its answer has succeeded, it is on the
//! medium. If not, it is kept (1). Take the session in which the flush is answered. Either the
//! write was answered in this session, before the flush was sent; or the session began after the
//! write's answer, and wrote it again before the flush was sent (3). In both cases the server has
//! answered the write on a connection of this session before it got the flush, and must have it on
//! the medium (with several connections: the server says that a flush covers all of them).
//!
//! **Repeating does no harm.** A place gets the bytes that were last answered for it, because of
//! two writes that overlap and were not under way together, the later one was answered later. It
//! never gets older ones, not even for a moment: a forced write is on the medium whatever ends
//! next, the client included. A write that was under way may take effect at any time until its
//! answer, and has the same bytes each time. A discard that was answered is not repeated; it
//! promised nothing.
//!
//! After a flush has failed, the server may have dropped what it could not write. So no flush
//! succeeds any more, and nothing more is written.
//!
//! The end of a connection says something about the server only if nothing between forwards bytes
//! on its own: through a tunnel that outlives its connections, point 2 does not hold.
//!
//! What is kept is bounded: at half the bound the client flushes by itself, and at the bound those
//! who write wait.

mod command;
mod coverage;
mod divide;
mod keeper;
mod ledger;
mod negotiate;
mod open;
mod options;
mod receive;
mod session;
mod state;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::{
    Batch, BlockDevice, Completion, Error, ErrorKind, Extent, Geometry, Request, Result,
};

use self::command::{Chain, Draft, Found, Kind, Target};
use self::divide::Abilities;
use self::keeper::Keeper;
use self::open::{Opened, open};
use self::state::{By, Phase, Shared};
use crate::address::Address;
use crate::clock::Deadline;
use crate::extent;

pub use keeper::WAITING;
pub use options::ConnectOptions;

/// Extents that one call returns at most.
const MAX_EXTENTS: usize = 1 << 20;

/// A connected export.
pub struct Client {
    shared: Arc<Shared>,
    abilities: Abilities,
    address: Address,
    knows_allocation: bool,
    connections: usize,
    /// How long the end waits for what is under way.
    patience: Duration,
    keeper: Option<JoinHandle<()>>,
}

impl Client {
    /// Connects to an export.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: no server, or no such export. [`ErrorKind::PermissionDenied`]: the
    /// server wants TLS, or refuses this client. [`ErrorKind::ReadOnly`]: the export cannot be
    /// written. [`ErrorKind::Unsupported`]: not an NBD server of today, or one that a filesystem
    /// cannot live on. [`ErrorKind::Io`]: the connection failed.
    pub fn connect(address: &Address, options: &ConnectOptions) -> Result<Self> {
        let name = address.to_string();
        let opened = open(address, options, 1, options.connect_timeout);
        let opened = opened.map_err(|broken| broken.connecting(&name, options.connect_timeout))?;
        let named = |error: Error| Error { operation: format!("open {name}").into(), ..error };
        let abilities = Abilities::of(&opened.agreed, options.write).map_err(named)?;
        let Opened { session, agreed, .. } = &opened;
        let (knows_allocation, connections) = (agreed.allocation.is_some(), session.lanes.len());
        let shared = Shared::new(session.clone(), options.unflushed, abilities.has_cache());
        let keeper = Keeper::start(shared.clone(), address.clone(), options.clone(), opened)?;
        Ok(Self {
            shared,
            abilities,
            address: address.clone(),
            knows_allocation,
            connections,
            patience: options.request_timeout,
            keeper: Some(keeper),
        })
    }

    /// The address that it is connected to.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Connections that are used together.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.connections
    }

    /// Bytes of memory for writes that no flush has covered yet.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.shared.state.lock().ledger.weight()
    }

    /// What of a range takes space on the server, and what reads as zeros. The extents follow each
    /// other from the range's start; they may end before its end if there are very many, and the
    /// last may end behind it. A server that does not tell has data everywhere.
    ///
    /// # Errors
    /// As [`Completion::wait`].
    pub fn allocated(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        let mut extents = Vec::new();
        let mut offset = range.start;
        while offset < range.end && extents.len() < MAX_EXTENTS {
            let len = range.end - offset;
            if !self.knows_allocation {
                Extent::data(offset..offset + len).push(&mut extents);
                break;
            }
            for (len, flags) in self.status(offset, len.min(self.abilities.longest_status()))? {
                extent::told(offset, len, flags).push(&mut extents);
                offset = offset.saturating_add(len);
            }
        }
        Ok(extents)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Vec<(u64, u32)>> {
        let found: Found = Arc::new(Mutex::new(Rank::Leaf, Vec::new()));
        let kind = Kind::Status(found.clone());
        let draft = Draft { kind, offset, len, fua: false, group: 0 };
        self.run([vec![draft]].into(), Vec::new()).wait()?;
        let found = std::mem::take(&mut *found.lock());
        // What is behind the end of the export is not there.
        let mut told: Vec<(u64, u32)> = Vec::new();
        let mut left = self.abilities.geometry.size.saturating_sub(offset);
        for (len, flags) in found.into_iter().take(MAX_EXTENTS) {
            let len = len.min(left);
            left -= len;
            told.extend((len > 0).then_some((len, flags)));
        }
        match told.is_empty() {
            true => {
                let detail = "the NBD server told nothing about these blocks";
                Err(Error::new(ErrorKind::Io, "ask for the status", detail).at(offset, len))
            }
            false => Ok(told),
        }
    }

    fn run(&self, stages: VecDeque<Vec<Draft>>, targets: Vec<Arc<Target>>) -> Completion {
        let (completion, completer) = Completion::pending();
        let chain = Chain::new(stages, targets, completer);
        let first = chain.begin();
        self.shared.proceed(&chain, first, By::Caller);
        completion
    }
}

impl BlockDevice for Client {
    fn geometry(&self) -> Geometry {
        self.abilities.geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        let is_change = |request: &Request| !matches!(request, Request::Read { .. });
        if batch.requests.iter().any(is_change) {
            self.shared.wait_for_room();
        }
        match self.abilities.divide(batch) {
            Ok((stages, targets)) => self.run(stages, targets),
            Err(error) => Completion::ready(Err(error)),
        }
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        self.allocated(range)
    }

    fn flush(&self) -> Result<()> {
        self.run(self.abilities.flush(), Vec::new()).wait().map(drop)
    }
}

impl Drop for Client {
    /// Waits for what is under way, and ends the connections.
    fn drop(&mut self) {
        let deadline = Deadline::after(self.patience);
        let mut state = self.shared.state.lock();
        while !state.table.is_empty()
            && !matches!(state.phase, Phase::Dead(_))
            && !deadline.is_over()
        {
            // Answers tell nobody while the connection is up.
            let time = deadline.left().min(Duration::from_millis(10));
            self.shared.changed.wait_for(&mut state, time);
        }
        drop(state);
        self.shared.close();
        if let Some(keeper) = self.keeper.take() {
            // A panic there was printed; a device is not the place to end the process.
            let _ = keeper.join();
        }
    }
}
