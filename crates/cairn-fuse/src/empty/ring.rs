//! The empty server on FUSE over io_uring: a pinned thread for each processor, which answers what
//! arrives in its ring. What nobody waits for comes through `/dev/fuse`.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use cairn_block::uring::{Arrival, Entry, Ring};
use parking_lot::Mutex;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::answer::Answerer;
use super::device;
use crate::ring::placement::{Home, Placement, pin};
use crate::wire::{MAX_WRITE, Request};

/// INIT has been answered, but the kernel may still be working on it.
const PAUSE: Duration = Duration::from_millis(1);

/// Serves until the mount has gone.
pub(super) fn serve(device: &OwnedFd, answerer: &Mutex<Answerer>) -> io::Result<()> {
    let rings = Placement::here()?.rings();
    thread::scope(|scope| {
        let threads: Vec<_> = rings
            .iter()
            .map(|(processor, homes)| {
                scope.spawn(move || serve_ring(device, *processor, homes, answerer))
            })
            .collect();
        device::serve(device, answerer)?;
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a ring's thread panicked")))
        })
    })
}

fn serve_ring(
    device: &OwnedFd,
    processor: usize,
    homes: &[Home],
    answerer: &Mutex<Answerer>,
) -> io::Result<()> {
    pin(processor);
    let mut ring = Ring::new(device.try_clone()?)?;
    for (queue, entries) in homes {
        for _ in 0..*entries {
            let entry = Entry::new(*queue, MAX_WRITE as usize).map_err(|_| Errno::NOMEM)?;
            ring.register(entry)?;
        }
    }
    let mut arrived = Vec::new();
    while ring.in_kernel() > 0 {
        ring.wait(|arrival| arrived.push(arrival))?;
        for arrival in arrived.drain(..) {
            match arrival {
                Arrival::Request(entry) => ring.commit(answered(entry, answerer))?,
                Arrival::Refused(entry, Errno::AGAIN) => {
                    thread::sleep(PAUSE);
                    ring.register(entry)?;
                }
                // The connection has ended.
                Arrival::Refused(..) => {}
            }
        }
    }
    Ok(())
}

/// Puts the answer to a request into its entry.
fn answered(mut entry: Entry, answerer: &Mutex<Answerer>) -> Entry {
    let mut answerer = answerer.lock();
    let answer = Request::of(&entry).and_then(|request| answerer.serve(request));
    if let Some(answer) = answer {
        entry.answer(answer.header.as_bytes(), answer.pieces);
    }
    entry
}
