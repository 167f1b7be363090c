//! What the starter and the init tell each other, over a socket that is the init's standard input.
//!
//! The starter gives the init two files: its own standard input, which becomes the command's, and
//! the mount namespace with the volume. The init says when it starts the command, and when the
//! command stops.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use cairn_base::thread::spawn;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Signal, getpid, kill_process};

/// The init begins the command.
const BEGINS: u8 = b'B';
/// The command has stopped.
const STOPS: u8 = b'S';

/// The starter's end.
pub(super) struct ToInit {
    begins: Receiver<()>,
    stopped: Arc<AtomicBool>,
}

/// Whether the command has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It begins now.
    Yes,
    /// Not within a moment.
    NotYet,
    /// The init has ended without it.
    Never,
}

impl ToInit {
    /// Makes the socket. Returns the init's end, too. Called before the namespace of processes is
    /// made: afterwards no thread can be started.
    ///
    /// # Errors
    /// The socket or the thread that listens cannot be made.
    pub(super) fn new(namespace: &File) -> io::Result<(Self, OwnedFd)> {
        let (mut ours, theirs) = UnixStream::pair()?;
        send(&ours, [io::stdin().as_fd(), namespace.as_fd()])?;
        let (begin, begins) = channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = stopped.clone();
        spawn("init", move || {
            let mut byte = [0; 1];
            while matches!(ours.read(&mut byte), Ok(1)) {
                match byte {
                    [STOPS] => {
                        seen.store(true, Ordering::SeqCst);
                        // The supervisor wakes.
                        let _ = kill_process(getpid(), Signal::CHILD);
                    }
                    // The starter may have ended.
                    _ => drop(begin.send(())),
                }
            }
        })?;
        Ok((Self { begins, stopped }, theirs.into()))
    }

    /// Waits a moment for the begin of the command.
    pub(super) fn begun(&self) -> Begun {
        match self.begins.recv_timeout(Duration::from_millis(50)) {
            Ok(()) => Begun::Yes,
            Err(RecvTimeoutError::Timeout) => Begun::NotYet,
            Err(RecvTimeoutError::Disconnected) => Begun::Never,
        }
    }

    /// Set when the command stops.
    pub(super) fn stopped(&self) -> Arc<AtomicBool> {
        self.stopped.clone()
    }
}

/// The init's end.
pub(super) struct ToStarter(UnixStream);

/// What the starter gives.
pub(super) struct Given {
    /// The socket.
    pub(super) starter: ToStarter,
    /// The standard input of the command.
    pub(super) input: OwnedFd,
    /// The mount namespace with the volume.
    pub(super) namespace: OwnedFd,
}

impl ToStarter {
    /// Takes what the starter gives.
    ///
    /// # Errors
    /// The starter has ended.
    pub(super) fn take() -> io::Result<Given> {
        let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let [input, namespace] = receive(&channel)?;
        Ok(Given { starter: Self(channel), input, namespace })
    }

    /// The command begins now.
    pub(super) fn tell_begin(&mut self) {
        // Without a starter this process ends.
        let _ = self.0.write_all(&[BEGINS]);
    }

    /// The command has stopped.
    pub(super) fn tell_stop(&mut self) {
        let _ = self.0.write_all(&[STOPS]);
    }
}

fn send(to: &UnixStream, files: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(to, &[IoSlice::new(&[0])], &mut rights, SendFlags::empty())?;
    Ok(())
}

fn receive(from: &UnixStream) -> io::Result<[OwnedFd; 2]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let files: Vec<OwnedFd> = rights
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    files.try_into().map_err(|_| io::ErrorKind::UnexpectedEof.into())
}
