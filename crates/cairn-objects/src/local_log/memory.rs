//! [`MemoryMedium`]: a log in memory, for tests and experiments: it can be full, fail, and lose
//! what was not synced.

use std::io;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};

use super::medium::Medium;

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// Called for each write, cut and sync with its name. `true` fails it.
type Wish = dyn Fn(&str) -> bool + Send + Sync;

/// A log in memory.
pub struct MemoryMedium(Mutex<State>);

struct State {
    /// What is read.
    now: Vec<u8>,
    /// What the last sync has left.
    durable: Vec<u8>,
    capacity: usize,
    wish: Arc<Wish>,
}

impl Default for MemoryMedium {
    fn default() -> Self {
        Self::with(Vec::new())
    }
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl MemoryMedium {
    /// With these bytes.
    #[must_use]
    pub fn with(bytes: Vec<u8>) -> Self {
        let wish: Arc<Wish> = Arc::new(|_| false);
        let state = State { now: bytes.clone(), durable: bytes, capacity: usize::MAX, wish };
        Self(Mutex::new(Rank::Leaf, state))
    }

    /// What is in it, as after the end of a process.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().now.clone()
    }

    /// What a power cut leaves: of the sectors that changed since the last sync, those that `kept`
    /// names, by their number.
    #[must_use]
    pub fn cut(&self, mut kept: impl FnMut(usize) -> bool) -> Vec<u8> {
        let state = self.0.lock();
        let mut left = state.durable.clone();
        if kept(usize::MAX) {
            left.resize(state.now.len(), 0);
        }
        for (number, sector) in left.chunks_mut(SECTOR).enumerate() {
            let newer = state.now.get(number * SECTOR..).unwrap_or_default();
            let len = newer.len().min(sector.len());
            if sector[..len] != newer[..len] && kept(number) {
                sector[..len].copy_from_slice(&newer[..len]);
            }
        }
        left
    }

    /// It has room for so many bytes.
    pub fn limit(&self, capacity: usize) {
        self.0.lock().capacity = capacity;
    }

    /// Decides about all operations from now on.
    pub fn set(&self, wish: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.0.lock().wish = Arc::new(wish);
    }

    fn may(&self, operation: &str) -> io::Result<()> {
        let wish = self.0.lock().wish.clone();
        if wish(operation) { Err(io::Error::other("the disk fails")) } else { Ok(()) }
    }
}

impl Medium for MemoryMedium {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().now.len() as u64)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock();
        let from = state.now.get(offset as usize..).unwrap_or_default();
        let from = from.get(..buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(from);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let failed = self.may("write");
        let mut state = self.0.lock();
        let offset = offset as usize;
        // What fails has come so far.
        let some = if failed.is_err() { bytes.len() / 2 } else { bytes.len() };
        let some = some.min(state.capacity.saturating_sub(offset));
        let end = offset + some;
        if state.now.len() < end {
            state.now.resize(end, 0);
        }
        state.now[offset..end].copy_from_slice(&bytes[..some]);
        failed?;
        if some < bytes.len() { Err(full()) } else { Ok(()) }
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.may("resize")?;
        self.0.lock().now.resize(size as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.may("sync")?;
        let mut state = self.0.lock();
        state.durable = state.now.clone();
        Ok(())
    }
}
