//! Allocations that the system may refuse (`ulimit -v`, strict overcommitment).
//!
//! There are two kinds of allocations:
//!
//! - **Allocations whose size depends on an image, a request or a cache's budget** (pages, buffers,
//!   tables, values) go through [`fallibly`] or [`zeroed`]. They can fail: [`NoMemory`] is the
//!   answer to one request, before it has changed anything.
//! - **Small allocations** (names, nodes of trees, blocks of metadata, the needs of a commit)
//!   cannot fail. A program sets memory aside for them (`cairn_block::reserve`). While little of
//!   that is left, new requests are not [admitted](admit), so that those that have begun can end.
//!
//! Caches register with [`on_shortage`] and free memory in [`relieve`].
//!
//! Locking: the lock of the list of caches is a leaf, and not held while one is called. Flags are
//! atomics and thread-local cells, because an allocator reads them.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};

use parking_lot::Mutex;

/// The system refused memory for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// What it was for.
    pub what: &'static str,
    /// Bytes that were asked for.
    pub bytes: u64,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, bytes } = self;
        write!(
            f,
            "no memory for {what} ({bytes} bytes): raise `ulimit -v`, or mount with a smaller \
             cache"
        )
    }
}

impl std::error::Error for NoMemory {}

/// A holder of memory that it can free.
pub trait Holder: Send + Sync {
    /// Frees clean memory without I/O. The caller holds no lock of a volume.
    fn give_up(&self);
}

/// Refills the reserve; true if it is full.
pub type Refill = fn() -> bool;

static HOLDERS: Mutex<Vec<Weak<dyn Holder>>> = Mutex::new(Vec::new());
static REFILL: OnceLock<Refill> = OnceLock::new();
/// The reserve was used and is not full.
static SHORT: AtomicBool = AtomicBool::new(false);
/// Less than half of the reserve is left.
static CRITICAL: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Allocations of this thread may be refused now.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
    static FAULT: Cell<Option<faults::Fault>> = const { Cell::new(None) };
}

/// Registers a holder of memory. It is removed when it is dropped.
pub fn on_shortage(holder: Weak<dyn Holder>) {
    let mut holders = HOLDERS.lock();
    holders.retain(|holder| holder.strong_count() > 0);
    holders.push(holder);
}

/// Sets the function that refills the reserve. Only the first call counts.
pub fn set_refill(refill: Refill) {
    REFILL.get_or_init(|| refill);
}

/// Called by the reserve with what is left of it.
pub fn set_state(short: bool, critical: bool) {
    SHORT.store(short, Ordering::Relaxed);
    CRITICAL.store(critical, Ordering::Relaxed);
}

/// Has the system refused a small allocation lately?
#[must_use]
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed)
}

/// May allocations of this thread be refused now? For allocators.
#[must_use]
pub fn may_fail() -> bool {
    MAY_FAIL.get()
}

/// Makes every registered holder free clean memory, and refills the reserve. The caller holds no
/// lock of a volume.
pub fn relieve() {
    let holders: Vec<_> = HOLDERS.lock().iter().filter_map(Weak::upgrade).collect();
    holders.iter().for_each(|holder| holder.give_up());
    if let Some(refill) = REFILL.get() {
        refill();
    }
}

/// Called before a request begins. Reads one flag while there is enough memory.
///
/// # Errors
/// Memory is short, and none could be freed.
pub fn admit(what: &'static str) -> Result<(), NoMemory> {
    if is_short() {
        relieve();
        if CRITICAL.load(Ordering::Relaxed) {
            return Err(NoMemory { what, bytes: 0 });
        }
    }
    Ok(())
}

/// Runs an allocation that may be refused. `allocate` uses calls that report failure
/// (`try_reserve`…).
///
/// # Errors
/// The allocation failed, or memory is short.
pub fn fallibly<T>(
    what: &'static str,
    bytes: u64,
    allocate: impl FnOnce() -> Option<T>,
) -> Result<T, NoMemory> {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            MAY_FAIL.set(self.0);
        }
    }
    let refused = NoMemory { what, bytes };
    if is_short() || faults::hits() {
        return Err(refused);
    }
    let _restore = Restore(MAY_FAIL.replace(true));
    allocate().ok_or(refused)
}

/// Bytes for a cache that was given `wished`: at most a third of what `ulimit -v` leaves. The rest
/// is for threads and their buffers.
#[must_use]
pub fn within_limit(wished: u64) -> u64 {
    let Some(most) = address_limit() else { return wished };
    wished.min((most.saturating_sub(address_space()) / 3).max(LEAST_CACHE))
}

/// The least, whatever the limit is.
const LEAST_CACHE: u64 = 4 << 20;

/// Bytes of address space that this process may use (`ulimit -v`); `None` without a limit.
#[cfg(target_os = "linux")]
#[must_use]
pub fn address_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// Nothing is known here.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn address_limit() -> Option<u64> {
    None
}

/// The part of that limit that is in use.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| {
        line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    size.unwrap_or(0).saturating_mul(1024)
}

/// An empty list with room for `len` elements.
///
/// # Errors
/// [`NoMemory`].
pub fn list<T>(what: &'static str, len: usize) -> Result<Vec<T>, NoMemory> {
    let bytes = len.saturating_mul(size_of::<T>()) as u64;
    fallibly(what, bytes, || {
        let mut list = Vec::new();
        list.try_reserve_exact(len).ok().map(|()| list)
    })
}

/// `len` zero bytes.
///
/// # Errors
/// [`NoMemory`].
pub fn zeroed(what: &'static str, len: usize) -> Result<Vec<u8>, NoMemory> {
    let mut bytes = list(what, len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Refusals on demand for the calling thread, for tests.
pub mod faults {
    use super::FAULT;

    #[derive(Clone, Copy)]
    pub(super) struct Fault {
        left: u64,
        refused: u64,
    }

    /// Lets `n` allocations that may be refused succeed, and refuses all that come after them.
    pub fn refuse_after(n: u64) {
        FAULT.set(Some(Fault { left: n, refused: 0 }));
    }

    /// Ends that. How many were refused.
    pub fn end() -> u64 {
        FAULT.take().map_or(0, |fault| fault.refused)
    }

    pub(super) fn hits() -> bool {
        let Some(mut fault) = FAULT.get() else { return false };
        let hit = fault.left == 0;
        if hit {
            fault.refused += 1;
        } else {
            fault.left -= 1;
        }
        FAULT.set(Some(fault));
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_system_has_is_refused_with_advice() {
        let refused = zeroed("a table", usize::MAX / 2).unwrap_err();
        assert_eq!((refused.what, refused.bytes), ("a table", (usize::MAX / 2) as u64));
        assert!(refused.to_string().contains("raise `ulimit -v`"));
        assert!(!may_fail(), "only while it is asked for");
        assert_eq!(zeroed("a table", 3).unwrap(), [0, 0, 0]);
    }

    #[test]
    fn refusals_come_when_they_are_wanted_and_end() {
        faults::refuse_after(1);
        let got = [(); 3].map(|()| zeroed("a buffer", 8).is_ok());
        assert_eq!((got, faults::end()), ([true, false, false], 2));
        zeroed("a buffer", 8).unwrap();
        assert_eq!(faults::end(), 0);
    }
}
