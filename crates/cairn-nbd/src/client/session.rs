//! [`Session`]: the connections that are used together. If one of them ends, all do.
//!
//! Locking: a lane's way out is locked while a message is sent (`Rank::Connection`).

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};

use super::command::{Command, Draft, Kind};
use super::ledger::Data;
use crate::transport::{Outgoing, Socket};
use crate::wire::Headers;
use crate::wire::request::{self, Request};

/// A request, and the data behind it.
pub(super) struct Message {
    pub(super) request: Request,
    pub(super) data: Data,
    pub(super) lane: usize,
}

impl Message {
    /// `command` has its lane.
    pub(super) fn of(cookie: u64, command: &Command) -> Self {
        let lane = command.sent.map_or(0, |sent| sent.lane);
        Self::new(cookie, &command.draft, lane)
    }

    fn new(cookie: u64, draft: &Draft, lane: usize) -> Self {
        let data = match &draft.kind {
            Kind::Write(data) => Some(data.clone()),
            _ => None,
        };
        Self { request: draft.request(cookie), data, lane }
    }
}

/// One connection.
pub(super) struct Lane {
    outgoing: Mutex<Outgoing>,
    socket: Arc<Socket>,
}

impl Lane {
    pub(super) fn new(outgoing: Outgoing, socket: Arc<Socket>) -> Self {
        // What TLS sends has the next number.
        Self { outgoing: Mutex::new_ordered(Rank::Connection, 0, outgoing), socket }
    }

    fn send(&self, message: &Message, headers: Headers) -> io::Result<()> {
        let (bytes, size) = message.request.encode(headers);
        let header = IoSlice::new(bytes.get(..size).unwrap_or_default());
        let mut outgoing = self.outgoing.lock();
        match message.data.as_deref() {
            None => outgoing.send(&mut [header]),
            Some([data]) => outgoing.send(&mut [header, IoSlice::new(data)]),
            Some(data) => {
                let rest = data.iter().map(|piece| IoSlice::new(piece));
                outgoing.send(&mut [header].into_iter().chain(rest).collect::<Vec<_>>())
            }
        }
    }
}

/// Connections to one server.
pub(super) struct Session {
    /// Counts sessions.
    pub(super) number: u64,
    pub(super) lanes: Vec<Lane>,
    pub(super) headers: Headers,
    /// The number of `base:allocation`.
    pub(super) allocation: Option<u32>,
}

impl Session {
    /// Sends one request.
    ///
    /// # Errors
    /// The connection has ended, or did not take it in time.
    pub(super) fn send(&self, message: &Message) -> io::Result<()> {
        match self.lanes.get(message.lane % self.lanes.len().max(1)) {
            Some(lane) => lane.send(message, self.headers),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Tells the server that nothing more will come. It answers what it has, and ends the
    /// connections.
    pub(super) fn finish(&self) {
        let kind = request::Kind::Disconnect;
        let request = Request { kind, flags: Default::default(), cookie: 0, offset: 0, len: 0 };
        for (number, lane) in self.lanes.iter().enumerate() {
            let (bytes, size) = request.encode(self.headers);
            // Who holds the lock waits for the server. The message would not arrive.
            if let Some(mut outgoing) = lane.outgoing.try_lock()
                && outgoing.is_whole()
                && let Err(error) = outgoing
                    .send_bytes(bytes.get(..size).unwrap_or_default())
                    .and_then(|()| outgoing.close())
            {
                tracing::debug!(number, %error, "the connection takes no farewell");
            }
            lane.socket.shutdown(Shutdown::Write);
        }
    }

    /// Ends the connections. Threads that read return.
    pub(super) fn cut(&self) {
        self.lanes.iter().for_each(|lane| lane.socket.shutdown(Shutdown::Both));
    }
}
