//! A server: exports block devices to NBD clients.
//!
//! Fixed newstyle negotiation, structured replies and extended headers, forced writes, flush, trim,
//! write zeroes, the status of blocks, several connections to one export, TLS. What clients send is
//! bounded in length, number and time; a client that does not keep to the protocol loses its
//! connection and nothing else.
//!
//! Locking: the list of connections is a leaf.

mod budget;
mod connection;
mod listen;
mod negotiate;
mod options;
mod perform;

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::thread::spawn;
use cairn_block::{Error, ErrorKind, Result};

use self::budget::Budget;
use self::listen::{Listener, Named};
use crate::address::{MAX_NAME, Place};
use crate::transport::Socket;

pub use crate::transport::Certificates;
pub use options::{Export, Extents, Listen, Options};

/// A running server. Dropping it ends it, without a word about what failed then.
pub struct Server {
    inner: Arc<Inner>,
    place: Listen,
    /// Readable at the other end when it is dropped.
    stop: Option<UnixStream>,
    accepting: Option<JoinHandle<()>>,
    /// Removed last: nobody connects to a server that has ended.
    named: Option<Named>,
}

struct Inner {
    exports: Vec<Export>,
    options: Options,
    budget: Arc<Budget>,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    next: u64,
    by_number: HashMap<u64, Client>,
}

struct Client {
    socket: Arc<Socket>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves clients from now on.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if another server listens there; the place cannot be listened at; an
    /// export's name is too long, or there twice; the system has no thread.
    pub fn start(listen: &Listen, exports: Vec<Export>, options: Options) -> Result<Self> {
        check_names(&exports)?;
        let pipe = |source| Error::from_io("start an NBD server", source);
        let (stop, stopped) = UnixStream::pair().map_err(pipe)?;
        let (listener, named, place) = Listener::bind(listen, stopped)?;
        let budget = Budget::new(options.memory.max(crate::wire::DEFAULT_PAYLOAD.into()));
        let clients = Mutex::new(Rank::Leaf, Clients::default());
        let inner = Arc::new(Inner { exports, options, budget, clients });
        let accepting = {
            let inner = inner.clone();
            spawn("nbd-server", move || inner.accept(&listener)).map_err(pipe)?
        };
        Ok(Self { inner, place, stop: Some(stop), accepting: Some(accepting), named })
    }

    /// Where it listens; with the port that it got, if it asked for a free one.
    #[must_use]
    pub fn place(&self) -> Place {
        match &self.place {
            Listen::Unix(path) => Place::Unix(path.clone()),
            Listen::Tcp(address) => {
                Place::Tcp { host: address.ip().to_string(), port: address.port() }
            }
        }
    }

    /// True if clients must encrypt.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.inner.options.certificates.is_some()
    }

    /// Clients that are connected now.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.inner.clients.lock().by_number.len()
    }

    /// Ends it: answers what clients have sent, and writes it to the medium.
    ///
    /// # Errors
    /// A device could not be flushed.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        let mut first = Ok(());
        for export in self.inner.exports.iter().filter(|export| !export.is_read_only()) {
            let flushed = export.device.flush();
            first = first.and(flushed);
        }
        first
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.accepting.take() {
            thread.join().expect("the thread that accepts does not panic");
        }
        let threads: Vec<_> = {
            let mut clients = self.inner.clients.lock();
            let all = clients.by_number.values_mut();
            all.filter_map(|client| {
                client.socket.shutdown(Shutdown::Read);
                client.thread.take()
            })
            .collect()
        };
        for thread in threads {
            thread.join().expect("the thread of a client does not panic");
        }
        drop(self.named.take());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn check_names(exports: &[Export]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for Export { name, description, .. } in exports {
        let wrong = if name.len() > MAX_NAME || description.len() > MAX_NAME {
            format!("a name or a description has at most {MAX_NAME} bytes: shorten it")
        } else if name.contains('\0') {
            "a name has no zero bytes: name it otherwise".into()
        } else if !seen.insert(name) {
            format!("two exports have the name '{}': name one otherwise", name.escape_debug())
        } else {
            continue;
        };
        return Err(Error::new(ErrorKind::OutOfRange, "export", wrong));
    }
    Ok(())
}

impl Inner {
    fn accept(self: &Arc<Self>, listener: &Listener) {
        loop {
            match listener.accept() {
                Ok(Some(socket)) => self.admit(socket),
                Ok(None) => return,
                // Of this client, which has gone. Or there are too many open files: others end.
                Err(error) => {
                    tracing::warn!(%error, "an NBD client could not be accepted");
                    self.wait_for_fewer();
                }
            }
        }
    }

    /// Starts the thread of a client, if there may be one more.
    fn admit(self: &Arc<Self>, socket: Socket) {
        let mut clients = self.clients.lock();
        if clients.by_number.len() >= self.options.connections {
            tracing::warn!(most = self.options.connections, "an NBD client is one too many");
            return;
        }
        let socket = Arc::new(socket);
        let own = socket.clone();
        let number = clients.next;
        clients.next += 1;
        // The thread removes itself, and finds itself there, because the lock is held.
        let inner = self.clone();
        let thread = spawn("nbd-client", move || {
            connection::serve(&socket, &inner.exports, &inner.options, &inner.budget);
            inner.clients.lock().by_number.remove(&number);
        });
        if let Ok(thread) = thread {
            let client = Client { socket: own, thread: Some(thread) };
            clients.by_number.insert(number, client);
        }
    }

    /// Gives clients time to end, so that a lasting error does not keep a processor busy.
    fn wait_for_fewer(&self) {
        let _ = rustix::event::poll(
            &mut [],
            Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 }),
        );
    }
}
