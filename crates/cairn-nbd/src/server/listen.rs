//! Listening sockets.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use cairn_block::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::options::Listen;
use crate::transport::Socket;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// A socket that listens, until it is told to stop.
pub(super) struct Listener {
    socket: Listening,
    /// Readable when nobody is to be accepted any more.
    stop: UnixStream,
}

enum Listening {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Removes a socket's name when the server ends.
pub(super) struct Named(PathBuf);

impl Drop for Named {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Listens. Returns what there is to do at the end, and the address with its port.
    pub(super) fn bind(listen: &Listen, stop: UnixStream) -> Result<(Self, Option<Named>, Listen)> {
        let error = |source| Error::from_io(format!("listen at {listen}"), source);
        match listen {
            Listen::Unix(path) => {
                remove_stale(path)?;
                let socket = Listening::Unix(unix(path).map_err(error)?);
                Ok((Self { socket, stop }, Some(Named(path.clone())), listen.clone()))
            }
            Listen::Tcp(address) => {
                let socket = TcpListener::bind(address).map_err(|source| match source.kind() {
                    io::ErrorKind::AddrInUse => in_use(listen),
                    _ => error(source),
                })?;
                let address = socket.local_addr().map_err(error)?;
                Ok((Self { socket: Listening::Tcp(socket), stop }, None, Listen::Tcp(address)))
            }
        }
    }

    /// The next connection; none when it is told to stop.
    pub(super) fn accept(&self) -> io::Result<Option<Socket>> {
        let mut fds = [
            PollFd::from_borrowed_fd(self.fd(), PollFlags::IN),
            PollFd::new(&self.stop, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => return self.accept(),
            other => other?,
        };
        if !fds[1].revents().is_empty() {
            return Ok(None);
        }
        match &self.socket {
            Listening::Unix(socket) => {
                socket.accept().map(|(stream, _)| Some(Socket::Unix(stream)))
            }
            Listening::Tcp(socket) => {
                socket.accept().and_then(|(stream, _)| Socket::tcp(stream)).map(Some)
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Listening::Unix(socket) => socket.as_fd(),
            Listening::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// A socket that only its owner can connect to, from its first moment on.
fn unix(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Removes a socket that a server has left behind.
fn remove_stale(path: &Path) -> Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let operation = || format!("listen at {}", path.display());
    if !found.file_type().is_socket() {
        let detail = "there is a file of this name: name another, or remove it";
        return Err(Error::new(ErrorKind::InUse, operation(), detail));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| Error::from_io(operation(), error))
        }
        _ => Err(in_use(&Listen::Unix(path.to_owned()))),
    }
}

fn in_use(listen: &Listen) -> Error {
    let detail = "another server listens there: name another place, or end that server";
    Error::new(ErrorKind::InUse, format!("listen at {listen}"), detail)
}
