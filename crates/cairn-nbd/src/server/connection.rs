//! [`Connection`]: one client, from its greeting to its end.
//!
//! The threads of a connection take turns: one reads the next request, lets another take its place,
//! carries the request out and answers. A thread is added when all are busy, up to a limit. At the
//! end, whoever ended it, what was read is carried out and answered before the connection is
//! closed. That is what a client relies on that connects again.
//!
//! Locking: `turn` is a leaf; the way out has `Rank::Connection`.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_base::ranked_lock::{Condvar, Mutex, Rank};
use cairn_base::thread::spawn;
use cairn_block::IoBuf;

use super::budget::{Budget, Held};
use super::negotiate::{ALLOCATION, Chosen, Negotiation};
use super::options::{Export, Options};
use super::perform::{Answer, perform};
use crate::clock::Deadline;
use crate::failure::Broken;
use crate::transport::{self, Incoming, Outgoing, Socket, is_timeout};
use crate::wire::reply::To;
use crate::wire::request::{EXTENDED, Kind, Request};
use crate::wire::{DEFAULT_PAYLOAD, Violation, errors};

/// What its threads share.
struct Connection {
    chosen: Chosen,
    turn: Mutex<Turn>,
    changed: Condvar,
    outgoing: Mutex<Outgoing>,
    socket: Arc<Socket>,
    budget: Arc<Budget>,
    most_threads: usize,
    stall: Duration,
}

struct Turn {
    /// Taken by the thread that reads; none at the end, too.
    incoming: Option<Incoming>,
    ended: bool,
    /// Threads that wait for their turn.
    idle: usize,
    threads: usize,
    helpers: Vec<JoinHandle<()>>,
}

/// A request, its data, and the memory for both directions.
struct Work {
    request: Request,
    data: IoBuf,
    _held: Option<Held>,
}

/// Serves a client until one side ends.
pub(super) fn serve(
    socket: &Arc<Socket>,
    exports: &[Export],
    options: &Options,
    budget: &Arc<Budget>,
) {
    let (mut incoming, mut outgoing) = transport::split(socket.clone());
    let deadline = Deadline::after(options.handshake);
    let agreed = socket
        .set_write_timeout(Some(options.handshake))
        .map_err(Broken::Io)
        .and_then(|()| {
            let certificates = options.certificates.as_ref();
            Negotiation::new(&mut incoming, &mut outgoing, exports, certificates, deadline).agree()
        })
        .and_then(|chosen| {
            socket.set_write_timeout(Some(options.stall))?;
            socket.set_read_timeout(Some(options.stall))?;
            Ok(chosen)
        });
    match agreed {
        Ok(Some(chosen)) => {
            let turn = Turn {
                incoming: Some(incoming),
                ended: false,
                idle: 0,
                threads: 1,
                helpers: Vec::new(),
            };
            let connection = Arc::new(Connection {
                chosen,
                turn: Mutex::new(Rank::Leaf, turn),
                changed: Condvar::new(),
                // What TLS sends has the next number.
                outgoing: Mutex::new_ordered(Rank::Connection, 0, outgoing),
                socket: socket.clone(),
                budget: budget.clone(),
                most_threads: options.requests.max(1),
                stall: options.stall,
            });
            connection.work();
            connection.join();
        }
        Ok(None) => {}
        Err(broken) => tracing::debug!(why = %words(&broken), "an NBD client was refused"),
    }
    socket.shutdown(Shutdown::Both);
}

/// What happened, seen from the server.
fn words(broken: &Broken) -> String {
    match broken {
        Broken::Io(error) => error.to_string(),
        Broken::Violation(violation) => violation.to_string(),
        Broken::Refused(error) => error.to_string(),
    }
}

impl Connection {
    /// Reads, carries out and answers requests, by turns with the other threads.
    fn work(self: &Arc<Self>) {
        while let Some(mut incoming) = self.take_turn() {
            match self.read(&mut incoming) {
                Ok(Some(work)) => {
                    self.give_turn(incoming);
                    if let Err(error) = self.carry_out(work) {
                        tracing::debug!(%error, "an NBD client takes no answers");
                        self.end();
                    }
                }
                Ok(None) => return self.end(),
                Err(broken) => {
                    tracing::debug!(why = %words(&broken), "an NBD connection has ended");
                    return self.end();
                }
            }
        }
    }

    fn take_turn(&self) -> Option<Incoming> {
        let mut turn = self.turn.lock();
        loop {
            if turn.ended {
                return None;
            }
            if let Some(incoming) = turn.incoming.take() {
                return Some(incoming);
            }
            turn.idle += 1;
            self.changed.wait(&mut turn);
            turn.idle -= 1;
        }
    }

    fn give_turn(self: &Arc<Self>, incoming: Incoming) {
        let mut turn = self.turn.lock();
        turn.incoming = Some(incoming);
        if turn.idle > 0 {
            self.changed.notify_one();
        } else if turn.threads < self.most_threads {
            let connection = self.clone();
            // Without a thread the others take more turns.
            if let Ok(helper) = spawn("nbd-client", move || connection.work()) {
                turn.threads += 1;
                turn.helpers.push(helper);
            }
        }
    }

    /// No further request is read.
    fn end(&self) {
        self.turn.lock().ended = true;
        self.changed.notify_all();
        self.socket.shutdown(Shutdown::Read);
    }

    fn join(&self) {
        loop {
            let Some(helper) = self.turn.lock().helpers.pop() else { return };
            helper.join().expect("a thread of a connection does not panic");
        }
    }

    /// The next request; none at the end.
    fn read(&self, incoming: &mut Incoming) -> Result<Option<Work>, Broken> {
        if !incoming.wait()? {
            return Ok(None);
        }
        let headers = self.chosen.headers;
        let mut bytes = [0; EXTENDED];
        let header = bytes.get_mut(..Request::size(headers)).unwrap_or_default();
        incoming.fill(header)?;
        let request = Request::decode(header, headers)?;
        if request.kind == Kind::Disconnect {
            return Ok(None);
        }
        let payload = request.payload(headers);
        Violation::length("the data of a request", payload, 0..=DEFAULT_PAYLOAD.into())?;
        let memory = match request.kind {
            Kind::Read => request.len.min(DEFAULT_PAYLOAD.into()),
            _ => payload,
        };
        let held = match memory {
            0 => None,
            bytes => {
                let held = self.budget.take(bytes, self.stall);
                Some(held.ok_or_else(|| Broken::Io(io::ErrorKind::OutOfMemory.into()))?)
            }
        };
        let len = usize::try_from(payload).unwrap_or_default();
        let refused = |_| Broken::Io(io::ErrorKind::OutOfMemory.into());
        let mut data = IoBuf::try_zeroed(len).map_err(refused)?;
        incoming.fill(&mut data).map_err(|error| match is_timeout(&error) {
            true => Broken::Io(io::ErrorKind::TimedOut.into()),
            false => Broken::Io(error),
        })?;
        Ok(Some(Work { request, data, _held: held }))
    }

    fn carry_out(&self, work: Work) -> io::Result<()> {
        let Work { request, data, _held } = work;
        let Chosen { export, headers, allocation } = &self.chosen;
        let to = To { headers: *headers, cookie: request.cookie, offset: request.offset };
        let is_write = request.kind == Kind::Write;
        let answer = match is_write || request.payload(*headers) == 0 {
            true => perform(export, *allocation, &request, data),
            false => Err((errors::EINVAL, "this request has no data".into())),
        };
        match answer {
            Ok(Answer::Done) => self.outgoing.lock().send_bytes(&to.done()),
            Ok(Answer::Data(data)) => {
                let header = to.data(data.len() as u64);
                let mut pieces = [IoSlice::new(&header), IoSlice::new(&data)];
                self.outgoing.lock().send(&mut pieces)
            }
            Ok(Answer::Status(extents)) => {
                self.outgoing.lock().send_bytes(&to.status(ALLOCATION, &extents))
            }
            Err((error, words)) => self.outgoing.lock().send_bytes(&to.failed(error, &words)),
        }
    }
}
