//! One metadata block in memory.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_base::Pba;
use cairn_base::ranked_lock::{Rank, RwLock, RwLockWriteGuard};

use super::Image;

/// A cached metadata block.
pub struct Buffer {
    pba: Pba,
    image: RwLock<Image>,
    verified: AtomicBool,
    pub(super) dirty: AtomicBool,
    /// The transaction that it last joined, by the journal's number.
    joined: AtomicU64,
    /// It was used since the clock's hand passed it.
    pub(super) used: AtomicBool,
}

impl Buffer {
    pub(super) fn new(pba: Pba, image: Image) -> Self {
        Self {
            pba,
            // A thread may lock several buffers in the order of their addresses. The journal's
            // lists have a higher rank.
            image: RwLock::new_ordered(Rank::Buffer, pba.get(), image),
            verified: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            joined: AtomicU64::new(0),
            used: AtomicBool::new(true),
        }
    }

    /// The address on the volume.
    #[must_use]
    pub const fn pba(&self) -> Pba {
        self.pba
    }

    /// The bytes as they are now. This copies nothing, and later changes do not alter the result.
    #[must_use]
    pub fn image(&self) -> Image {
        self.image.read().clone()
    }

    /// True if the checksum of the block was found correct since the block was read.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Acquire)
    }

    /// Records that the checksum of the block is correct.
    pub fn set_verified(&self) {
        self.verified.store(true, Ordering::Release);
    }

    /// The last argument of [`Buffer::set_joined`]; 0 if the buffer has joined no transaction.
    #[must_use]
    pub fn joined(&self) -> u64 {
        self.joined.load(Ordering::Acquire)
    }

    /// Records the transaction that the buffer has joined, so that joining it again costs nothing.
    pub fn set_joined(&self, number: u64) {
        self.joined.store(number, Ordering::Release);
    }

    /// Write access for a transaction. The caller records the change.
    pub fn modify(&self) -> BufferGuard<'_> {
        BufferGuard(self.image.write())
    }

    /// Write access on a volume without a journal. It makes the buffer dirty.
    pub fn modify_direct(&self) -> BufferGuard<'_> {
        let guard = self.modify();
        self.dirty.store(true, Ordering::Release);
        guard
    }

    /// Replaces the contents with zeros, because the block was just allocated.
    pub(super) fn clear(&self) {
        let mut image = self.image.write();
        *image = Image::zeroed(image.len());
        // The bytes do not come from the device, so there is no checksum to verify.
        self.set_verified();
    }
}

/// Write access to the bytes of a buffer.
#[must_use = "dropping the guard ends the write access"]
pub struct BufferGuard<'b>(RwLockWriteGuard<'b, Image>);

impl Deref for BufferGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for BufferGuard<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.make_mut()
    }
}
