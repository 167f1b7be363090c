//! [`Socket`]: a connection over TCP or a Unix socket.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::address::Place;
use crate::clock::Deadline;

/// A connection. Threads may read and write at the same time.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn connect(place: &Place, deadline: Deadline) -> io::Result<Self> {
        match place {
            Place::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Place::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, deadline.check()?) {
                        Ok(stream) => return Self::tcp(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        // Requests and answers are messages, not a stream of bytes that may wait for more.
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Reads that begin from now on fail after this time.
    pub(crate) fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let time = time.map(at_least_something);
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(time),
            Self::Unix(stream) => stream.set_read_timeout(time),
        }
    }

    /// As [`Socket::set_read_timeout`], for writes.
    pub(crate) fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let time = time.map(at_least_something);
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(time),
            Self::Unix(stream) => stream.set_write_timeout(time),
        }
    }

    /// Ends one direction, or both. Threads that wait in it return.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // It fails if the other side has ended the connection: that is what is wanted.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }
}

/// The system says the same of a timeout as of a socket that must not wait.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The system takes zero for "for ever".
fn at_least_something(time: Duration) -> Duration {
    time.max(Duration::from_millis(1))
}

impl Read for &Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).read(buf),
            Socket::Unix(stream) => (&*stream).read(buf),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write(buf),
            Socket::Unix(stream) => (&*stream).write(buf),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write_vectored(bufs),
            Socket::Unix(stream) => (&*stream).write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
