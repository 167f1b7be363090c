//! The bytes of a connection, in two directions that two threads use at the same time.

#[cfg(not(feature = "tls"))]
mod no_tls;
mod socket;
#[cfg(feature = "tls")]
mod tls;

use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

#[cfg(not(feature = "tls"))]
use no_tls as tls;
pub(crate) use socket::{Socket, is_timeout};
pub use tls::Certificates;
pub(crate) use tls::Tls;

use crate::clock::Deadline;

/// Small messages are read together. The data of larger ones does not pass through this buffer.
const BUFFER: usize = 16 << 10;
/// Buffers that one system call takes (`UIO_MAXIOV`).
const MAX_SLICES: usize = 1024;

/// What arrives.
pub(crate) struct Incoming {
    socket: Arc<Socket>,
    buffer: BufReader<Source>,
}

enum Source {
    Plain(Arc<Socket>),
    Secure(Arc<Tls>, tls::Arrived),
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => (&**socket).read(buf),
            Self::Secure(tls, arrived) => tls.read(arrived, buf),
        }
    }
}

/// What is sent.
pub(crate) struct Outgoing {
    socket: Arc<Socket>,
    tls: Option<Arc<Tls>>,
    /// A message was sent in part: nothing can follow it.
    torn: bool,
}

/// The two directions of a connection.
pub(crate) fn split(socket: Arc<Socket>) -> (Incoming, Outgoing) {
    let buffer = BufReader::with_capacity(BUFFER, Source::Plain(socket.clone()));
    (Incoming { socket: socket.clone(), buffer }, Outgoing { socket, tls: None, torn: false })
}

impl Incoming {
    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// From here on what arrives is encrypted. False if something has arrived that is not.
    pub(crate) fn secure(&mut self, tls: Arc<Tls>) -> bool {
        let is_clean = self.buffer.buffer().is_empty();
        let source = Source::Secure(tls, tls::Arrived::new());
        self.buffer = BufReader::with_capacity(BUFFER, source);
        is_clean
    }

    /// Fills `buf`. `UnexpectedEof` if the connection ends before.
    pub(crate) fn fill(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.buffer.read_exact(buf)
    }

    /// As [`Incoming::fill`], and it is there in time.
    pub(crate) fn fill_by(&mut self, buf: &mut [u8], deadline: Deadline) -> io::Result<()> {
        let mut at = 0;
        while let Some(rest) = buf.get_mut(at..).filter(|rest| !rest.is_empty()) {
            self.socket.set_read_timeout(Some(deadline.check()?))?;
            match self.buffer.read(rest) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => at += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(in_words(error)),
            }
        }
        Ok(())
    }

    /// Waits for the next byte, however long it takes. False if the connection has ended.
    pub(crate) fn wait(&mut self) -> io::Result<bool> {
        loop {
            match self.buffer.fill_buf() {
                Ok(bytes) => return Ok(!bytes.is_empty()),
                Err(error) if is_timeout(&error) || error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Outgoing {
    /// From here on what is sent is encrypted.
    pub(crate) fn secure(&mut self, tls: Arc<Tls>) {
        self.tls = Some(tls);
    }

    /// Tells the other side that nothing more will come, if there is a way to do so.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.close())
    }

    /// True if a whole message was the last.
    pub(crate) const fn is_whole(&self) -> bool {
        !self.torn
    }

    /// Sends one message, which lies in these pieces.
    pub(crate) fn send(&mut self, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        if self.torn {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.torn = true;
        if let Some(tls) = &self.tls {
            tls.send(pieces).map_err(in_words)?;
            self.torn = false;
            return Ok(());
        }
        let mut left = pieces;
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let group = &left[..left.len().min(MAX_SLICES)];
            match (&*self.socket).write_vectored(group) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(in_words(error)),
            }
        }
        self.torn = false;
        Ok(())
    }

    /// Sends one message.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send(&mut [IoSlice::new(bytes)])
    }
}

fn in_words(error: io::Error) -> io::Error {
    if is_timeout(&error) { ErrorKind::TimedOut.into() } else { error }
}
