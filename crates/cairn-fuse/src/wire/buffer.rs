//! The memory that requests are read into.
//!
//! The data of a large WRITE can be given to the filesystem without a copy ([`Lending::lend`]). The
//! thread then reads its next request into another buffer, and the first returns to the pool when
//! the filesystem drops the data.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Weak};

use cairn_base::memory::{self, Holder, NoMemory};
use cairn_block::IoBuf;
use cairn_vfs::Bytes;
use parking_lot::Mutex;

use super::abi::{InHeader, WriteIn};
use super::device::MAX_WRITE;

/// What a read must have room for: a WRITE with its headers (the kernel asks for a page or so).
const ROOM: usize = MAX_WRITE as usize + (64 << 10);
/// The data of a WRITE begins at a multiple of this in memory, for devices that need it.
const ALIGNMENT: usize = 4096;
/// Most free buffers that are kept: the write-back of a stream frees this many at once.
const KEPT: usize = 8;

/// The buffers of a mount.
#[derive(Default)]
pub(crate) struct BufferPool(Mutex<Vec<IoBuf>>);

impl BufferPool {
    /// An empty pool, which gives its free buffers up when memory is short.
    pub(crate) fn new() -> Arc<Self> {
        let pool = Arc::new(Self::default());
        let holder: Weak<dyn Holder> = Arc::downgrade(&(pool.clone() as Arc<dyn Holder>));
        memory::on_shortage(holder);
        pool
    }

    /// A free buffer, or a new one.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Buffer, NoMemory> {
        let free = self.0.lock().pop();
        let memory = match free {
            Some(memory) => memory,
            None => IoBuf::try_zeroed(ROOM + ALIGNMENT)?,
        };
        Ok(Buffer { memory, pool: Arc::downgrade(self) })
    }

    /// Frees the buffers that are not in use.
    pub(crate) fn trim(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }
}

impl Holder for BufferPool {
    fn give_up(&self) {
        self.trim();
    }
}

/// Where a request begins in a buffer.
const START: usize = ALIGNMENT - size_of::<InHeader>() - size_of::<WriteIn>();

/// Room for one request. Most are small: a page of it is in use, the rest takes no memory until a
/// large request comes.
pub(crate) struct Buffer {
    memory: IoBuf,
    pool: Weak<BufferPool>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut free = pool.0.lock();
        if free.len() < KEPT {
            free.push(std::mem::replace(&mut self.memory, IoBuf::zeroed(0)));
        }
    }
}

/// A part of a buffer that was given away.
struct Lent {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.memory[self.range.clone()]
    }
}

/// The buffer of one thread, and the next one after it was lent.
pub(crate) struct Lending {
    buffer: Arc<Buffer>,
    /// Present whenever `buffer` is lent.
    next: RefCell<Option<Buffer>>,
    pool: Arc<BufferPool>,
}

impl Lending {
    pub(crate) fn new(buffer: Buffer, pool: &Arc<BufferPool>) -> Self {
        Self { buffer: Arc::new(buffer), next: RefCell::default(), pool: pool.clone() }
    }

    /// Where the next request is read.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.buffer).is_none() {
            let next = self.next.take().expect("a lent buffer has a successor");
            self.buffer = Arc::new(next);
        }
        let buffer = Arc::get_mut(&mut self.buffer).expect("not lent");
        &mut buffer.memory[START..]
    }

    /// The request that was read, of `len` bytes.
    pub(crate) fn message(&self, len: usize) -> &[u8] {
        &self.buffer.memory[START..][..len]
    }

    /// A part of the message that may be kept. `None` if there is no memory for the next request.
    pub(crate) fn lend(&self, part: &[u8]) -> Option<Bytes> {
        let mut next = self.next.borrow_mut();
        if next.is_none() {
            *next = Some(self.pool.take().ok()?);
        }
        let from = part.as_ptr().addr().checked_sub(self.buffer.memory.as_ptr().addr())?;
        let range = from..from + part.len();
        self.buffer.memory.get(range.clone())?;
        Some(Bytes::from_owner(Lent { buffer: self.buffer.clone(), range }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_data_stays_while_the_next_request_is_read() {
        let pool = BufferPool::new();
        let mut lending = Lending::new(pool.take().unwrap(), &pool);
        let headers = size_of::<InHeader>() + size_of::<WriteIn>();
        lending.room()[headers..][..3].copy_from_slice(b"abc");
        let message = lending.message(headers + 3);
        assert!(message[headers..].as_ptr().addr().is_multiple_of(ALIGNMENT));
        let (first, lent) = (message.as_ptr(), lending.lend(&message[headers..]).unwrap());
        lending.room().fill(0);
        assert_ne!(lending.message(1).as_ptr(), first);
        assert_eq!(lent, &b"abc"[..]);
        assert_eq!(pool.0.lock().len(), 0);
        drop(lent);
        assert_eq!(pool.0.lock().len(), 1, "it returned");
        memory::relieve();
        assert_eq!(pool.0.lock().len(), 0, "free buffers are given up when memory is short");
    }

    /// The filesystem copied the data: the thread goes on with the same buffer.
    #[test]
    fn a_buffer_that_came_back_is_used_again() {
        let pool = BufferPool::new();
        let mut lending = Lending::new(pool.take().unwrap(), &pool);
        let first = lending.room().as_ptr();
        drop(lending.lend(lending.message(100)));
        assert_eq!(lending.room().as_ptr(), first);
    }
}
