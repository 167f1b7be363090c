//! [`Source`]: reads blocks of the volume, without a cache.
//!
//! Locking: a leaf lock of the corrected bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use cairn_base::Pba;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::units::as_index;
use cairn_block::{BlockDevice, BlockDeviceExt, Error, ErrorKind, IoBuf, Operation};

/// Structures with wrong checksums of which one wrong bit is looked for: more are no single bits.
const MOST_TRIES: u32 = 64;

/// The device as blocks of the volume.
pub(super) struct Source {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    /// Bytes that are other ones than those of the device, by block and offset.
    corrected: Mutex<BTreeMap<(u64, usize), u8>>,
    /// There is one. Nearly always there is none.
    is_corrected: AtomicBool,
    tries: AtomicU32,
}

impl Source {
    pub(super) fn new(device: Arc<dyn BlockDevice>, block_size: u32) -> Self {
        Self {
            device,
            block_size,
            corrected: Mutex::new(Rank::Leaf, BTreeMap::new()),
            is_corrected: AtomicBool::new(false),
            tries: AtomicU32::new(0),
        }
    }

    /// Reads blocks.
    ///
    /// # Errors
    /// The device failed, or ends before.
    pub(super) fn read(&self, from: Pba, blocks: u64) -> Result<IoBuf, Error> {
        let size = u64::from(self.block_size);
        let place = from.get().checked_mul(size).zip(blocks.checked_mul(size));
        let place = place.and_then(|(at, len)| Some((at, usize::try_from(len).ok()?)));
        let beyond = || Error::new(ErrorKind::Io, Operation::Read, "a block beyond the device");
        let (at, len) = place.ok_or_else(beyond)?;
        let end = at.checked_add(u64::try_from(len).unwrap_or(u64::MAX));
        if end.is_none_or(|end| end > self.device.geometry().size) {
            return Err(beyond());
        }
        let mut bytes = self.device.read_bytes(at, len)?;
        if self.is_corrected.load(Relaxed) {
            let end = from.get().saturating_add(blocks);
            for ((block, offset), byte) in self.corrected.lock().range((from.get(), 0)..(end, 0)) {
                let block = usize::try_from(block.saturating_sub(from.get())).unwrap_or(usize::MAX);
                let at = block.saturating_mul(self.block_bytes()).saturating_add(*offset);
                if let Some(place) = bytes.get_mut(at) {
                    *place = *byte;
                }
            }
        }
        Ok(bytes)
    }

    /// Another byte is right there, and will be read. False if that is known.
    pub(super) fn correct(&self, pba: Pba, offset: usize, byte: u8) -> bool {
        let is_new = self.corrected.lock().insert((pba.get(), offset), byte) != Some(byte);
        self.is_corrected.store(true, Relaxed);
        // What was found does not count.
        let _ = self.tries.fetch_update(Relaxed, Relaxed, |tries| tries.checked_sub(1));
        is_new
    }

    /// Has another byte read there while something is tried.
    pub(super) fn with_byte<T>(
        &self,
        pba: Pba,
        offset: usize,
        byte: u8,
        attempt: impl FnOnce() -> T,
    ) -> T {
        let key = (pba.get(), offset);
        let old = self.corrected.lock().insert(key, byte);
        self.is_corrected.store(true, Relaxed);
        let result = attempt();
        let mut corrected = self.corrected.lock();
        match old {
            Some(old) => corrected.insert(key, old),
            None => corrected.remove(&key),
        };
        result
    }

    /// The bytes of a block that are corrected, with their offsets.
    pub(super) fn corrected(&self, pba: Pba) -> Vec<(usize, u8)> {
        let corrected = self.corrected.lock();
        let end = (pba.get().saturating_add(1), 0);
        corrected.range((pba.get(), 0)..end).map(|((_, at), byte)| (*at, *byte)).collect()
    }

    /// May one more wrong bit be looked for?
    pub(super) fn may_try(&self) -> bool {
        self.tries.fetch_add(1, Relaxed) < MOST_TRIES
    }

    /// Reads one block of another device of the same volume, without corrections.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(super) fn read_from(&self, device: &dyn BlockDevice, from: Pba) -> Result<Vec<u8>, Error> {
        let at = from.get().saturating_mul(self.block_size.into());
        Ok(device.read_block(at, as_index(self.block_size))?.to_vec())
    }

    /// Reads one block.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(super) fn block(&self, from: Pba) -> Result<IoBuf, Error> {
        self.read(from, 1)
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        as_index(self.block_size)
    }
}
