//! The data of a large WRITE that came through a ring.
//!
//! Its pages are exchanged with those of a free area ([`Areas::take`]), so that the filesystem can
//! keep the data without a copy while the entry goes back to the kernel. They return when the
//! filesystem drops the data.

use std::ops::Range;
use std::sync::{Arc, Weak};

use cairn_base::memory::{self, Holder};
use cairn_block::uring::{Area, Entry};
use cairn_vfs::Bytes;
use parking_lot::Mutex;

use super::device::MAX_WRITE;

/// Most free areas that are kept. Write-back of a stream frees eight at once, and about as many
/// more come in through two rings while it works. What is not kept costs 256 page faults the next
/// time.
const KEPT: usize = 20;

/// The areas of a mount.
#[derive(Default)]
pub(crate) struct Areas(Mutex<Free>);

#[derive(Default)]
struct Free {
    /// With pages.
    used: Vec<Area>,
    /// Without.
    empty: Vec<Area>,
}

impl Areas {
    /// No areas yet. Free ones are given up when memory is short.
    pub(crate) fn new() -> Arc<Self> {
        let areas = Arc::new(Self::default());
        let holder: Weak<dyn Holder> = Arc::downgrade(&(areas.clone() as Arc<dyn Holder>));
        memory::on_shortage(holder);
        areas
    }

    /// Takes the data out of an entry. `None`, and it is still there, without memory or with a
    /// limit of the address space.
    pub(crate) fn take(self: &Arc<Self>, entry: &mut Entry) -> Option<Payload> {
        if memory::address_limit().is_some() {
            return None;
        }
        let (used, empty) = {
            let mut free = self.0.lock();
            (free.used.pop(), free.empty.pop())
        };
        let area = |free: Option<Area>| free.map_or_else(|| Area::new(MAX_WRITE as usize), Ok);
        let (area, len, empty) = entry.exchange(area(used).ok()?, area(empty).ok()?)?;
        self.0.lock().empty.push(empty);
        Some(Payload {
            area: Arc::new(Taken { area: Some(area), areas: Arc::downgrade(self) }),
            len,
        })
    }

    /// Frees the areas that are not in use.
    pub(crate) fn trim(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }
}

impl Holder for Areas {
    fn give_up(&self) {
        self.trim();
    }
}

/// An area that returns to the others.
struct Taken {
    area: Option<Area>,
    areas: Weak<Areas>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let (Some(area), Some(areas)) = (self.area.take(), self.areas.upgrade()) else { return };
        let mut free = areas.0.lock();
        if free.used.len() < KEPT {
            free.used.push(area);
        }
    }
}

/// The data, and what follows it in the area.
pub(crate) struct Payload {
    area: Arc<Taken>,
    len: usize,
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.area.area.as_deref().and_then(|area| area.get(..self.len)).unwrap_or_default()
    }

    /// A part of it that may be kept.
    pub(super) fn lend(&self, part: &[u8]) -> Option<Bytes> {
        let from = part.as_ptr().addr().checked_sub(self.bytes().as_ptr().addr())?;
        let range = from..from + part.len();
        self.bytes().get(range.clone())?;
        Some(Bytes::from_owner(Lent { area: self.area.clone(), range }))
    }
}

struct Lent {
    area: Arc<Taken>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.area.area.as_deref().and_then(|area| area.get(self.range.clone())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_data_stays_while_the_entry_is_used_again() {
        let areas = Areas::new();
        let mut entry = Entry::new(0, MAX_WRITE as usize).unwrap();
        assert!(entry.answer(&[], [[1; 600_000].as_slice()]));
        // Nothing was received.
        let mut payload = areas.take(&mut entry).unwrap();
        assert_eq!(payload.bytes(), b"");
        payload.len = 600_000;
        assert_eq!(payload.bytes(), [1; 600_000]);
        let lent = payload.lend(&payload.bytes()[5..]).unwrap();
        drop(payload);
        assert!(entry.answer(&[], [[2; 700_000].as_slice()]));
        assert_eq!(lent, [1; 599_995].as_slice());
        assert_eq!(areas.0.lock().used.len(), 0);
        drop(lent);
        assert_eq!(areas.0.lock().used.len(), 1, "it returned");
        memory::relieve();
        assert_eq!(areas.0.lock().used.len(), 0, "free areas are given up when memory is short");
    }
}
