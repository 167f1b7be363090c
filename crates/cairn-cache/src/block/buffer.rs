//! One metadata block in memory.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_base::Pba;
use cairn_base::ranked_lock::{Rank, RwLock, RwLockWriteGuard};

/// One block's bytes, immutable while shared.
pub type Image = Arc<[u8]>;

/// A cached metadata block.
pub struct Buffer {
    pba: Pba,
    image: RwLock<Image>,
    verified: AtomicBool,
    pub(super) dirty: AtomicBool,
    /// Which transaction it last joined; the journal's own number for it.
    joined: AtomicU64,
    /// Used since the evictor last looked.
    pub(super) used: AtomicBool,
}

impl Buffer {
    pub(super) fn new(pba: Pba, image: Image) -> Self {
        Self {
            pba,
            // Several buffers may be locked at once in the order of their addresses; the journal's own lists rank below.
            image: RwLock::new_ordered(Rank::BUFFER, pba.get(), image),
            verified: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            joined: AtomicU64::new(0),
            used: AtomicBool::new(true),
        }
    }

    /// Address on the volume.
    #[must_use]
    pub const fn pba(&self) -> Pba {
        self.pba
    }

    /// The bytes as they are now. Cheap; later changes do not show in it.
    #[must_use]
    pub fn image(&self) -> Image {
        self.image.read().clone()
    }

    /// True if a checksum over the block was found right since it was read.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Acquire)
    }

    /// Its checksum has been found right.
    pub fn set_verified(&self) {
        self.verified.store(true, Ordering::Release);
    }

    /// Number of the transaction it last joined (0: none), as [`Buffer::set_joined`] was told.
    #[must_use]
    pub fn joined(&self) -> u64 {
        self.joined.load(Ordering::Acquire)
    }

    /// Remembers the transaction it has joined, so that joining again costs nothing.
    pub fn set_joined(&self, number: u64) {
        self.joined.store(number, Ordering::Release);
    }

    /// Write access for a transaction: the caller records the change.
    #[must_use]
    pub fn modify(&self) -> BufferGuard<'_> {
        BufferGuard(self.image.write())
    }

    /// Write access on a volume without a journal: the buffer is dirty from now on.
    #[must_use]
    pub fn modify_direct(&self) -> BufferGuard<'_> {
        let guard = self.modify();
        self.dirty.store(true, Ordering::Release);
        guard
    }

    /// Replaces the contents by zeros: a block that was just allocated.
    pub(super) fn clear(&self) {
        let mut image = self.image.write();
        *image = Arc::from(vec![0; image.len()]);
        // Nothing on the device belongs to it, so there is nothing to check.
        self.set_verified();
    }
}

/// Write access to a buffer's bytes.
pub struct BufferGuard<'b>(RwLockWriteGuard<'b, Image>);

impl Deref for BufferGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for BufferGuard<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut *self.0)
    }
}
