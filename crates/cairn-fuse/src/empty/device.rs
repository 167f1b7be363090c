//! The empty server on `/dev/fuse`: one thread.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use rustix::io::{Errno, read, writev};
use zerocopy::IntoBytes;

use super::answer::Answerer;
use crate::wire::{MAX_WRITE, Request};

/// Room for a request: a WRITE with its headers.
const ROOM: usize = MAX_WRITE as usize + (64 << 10);

/// Serves until the mount has gone.
pub(super) fn serve(device: &OwnedFd, answerer: &Mutex<Answerer>) -> Result<(), Errno> {
    let mut buffer = vec![0; ROOM];
    loop {
        let len = match read(device, &mut *buffer) {
            Ok(len) => len,
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(request) = Request::parse(&buffer[..len]) else { continue };
        let mut answerer = answerer.lock();
        let Some(answer) = answerer.serve(request) else { continue };
        let mut slices = vec![IoSlice::new(answer.header.as_bytes())];
        slices.extend(answer.pieces.iter().map(|piece| IoSlice::new(piece)));
        // A caller that was killed takes no answer.
        let _ = writev(device, &slices);
    }
}
