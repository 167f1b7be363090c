//! Where the answers of a ring are put, by any thread.
//!
//! Only the thread that has the ring gives them to the kernel. It is woken if it sleeps. Locking:
//! one mutex for the answers; the sleeper looks for answers under it after it has said that it
//! sleeps, so no answer is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_block::uring::{Entry, Waker};
use parking_lot::Mutex;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::OutHeader;

/// The answers of a ring that the kernel does not have yet.
pub(crate) struct Outbox {
    answered: Mutex<Vec<Entry>>,
    sleeping: AtomicBool,
    waker: Waker,
}

impl Outbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { answered: Mutex::default(), sleeping: AtomicBool::new(false), waker }
    }

    fn put(&self, entry: Entry) {
        self.answered.lock().push(entry);
        if self.is_sleeping() {
            self.wake();
        }
    }

    /// Moves all answers to an empty list.
    pub(crate) fn take(&self, into: &mut Vec<Entry>) {
        std::mem::swap(&mut *self.answered.lock(), into);
    }

    /// The ring's thread is about to sleep. False, and it may not, if there are answers.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let may = self.answered.lock().is_empty();
        if !may {
            self.awake();
        }
        may
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst)
    }

    /// Wakes the ring's thread, also if it is only about to sleep.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Fills an entry with its answer and puts it there.
    pub(super) fn answer(&self, mut entry: Entry, header: OutHeader, pieces: &[&[u8]]) {
        if !entry.answer(header.as_bytes(), pieces.iter().copied()) {
            tracing::error!("an answer of {} bytes has no room in its entry", header.len);
            let error = -Errno::IO.raw_os_error();
            let header = OutHeader { len: size_of::<OutHeader>() as u32, error, ..header };
            entry.answer(header.as_bytes(), []);
        }
        self.put(entry);
    }
}

/// Longest answer to a request whose entry is lent: a `fuse_write_out` and more.
const SHORT: usize = 64;

/// The answer to a request whose data are read from its entry while it is carried out. It is sent
/// when it is there and the entry is back.
pub(crate) struct Lent {
    outbox: Arc<Outbox>,
    halves: Mutex<Halves>,
}

#[derive(Default)]
struct Halves {
    entry: Option<Entry>,
    answer: Option<(OutHeader, [u8; SHORT], usize)>,
}

impl Lent {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Arc<Self> {
        Arc::new(Self { outbox, halves: Mutex::default() })
    }

    /// The request needs its data no more.
    pub(crate) fn give_back(&self, entry: Entry) {
        let mut halves = self.halves.lock();
        match halves.answer.take() {
            Some((header, bytes, len)) => self.outbox.answer(entry, header, &[&bytes[..len]]),
            None => halves.entry = Some(entry),
        }
    }

    pub(super) fn answer(&self, header: OutHeader, pieces: &[&[u8]]) {
        let mut halves = self.halves.lock();
        if let Some(entry) = halves.entry.take() {
            return self.outbox.answer(entry, header, pieces);
        }
        let (mut bytes, mut len) = ([0; SHORT], 0);
        for piece in pieces {
            let Some(place) = bytes.get_mut(len..len + piece.len()) else {
                // Only requests with long arguments are lent, and their answers are short.
                let error = -Errno::IO.raw_os_error();
                halves.answer = Some((OutHeader { error, ..header }, bytes, 0));
                return;
            };
            place.copy_from_slice(piece);
            len += piece.len();
        }
        halves.answer = Some((header, bytes, len));
    }
}
