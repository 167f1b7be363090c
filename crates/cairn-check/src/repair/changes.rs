//! [`Changes`]: which bytes of a device a repair changes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::units::{as_index, as_u64};
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt, Result};

/// Bytes that are compared at once. No smaller part of a device is written.
const UNIT: u64 = 4096;
/// Most bytes of one change.
const MOST: u64 = 256 << 10;

/// Bytes before and after a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) offset: u64,
    pub(super) old: Bytes,
    pub(super) new: Bytes,
}

impl Change {
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(as_u64(self.new.len()))
    }
}

/// All bytes that a repair changes, in the order of their places.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub(super) list: Vec<Change>,
}

impl Changes {
    /// What is in the overlay and not on the device below it.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn between(below: &Arc<dyn BlockDevice>, overlay: &Overlay) -> Result<Self> {
        let mut list: Vec<Change> = Vec::new();
        for Range { start, end } in overlay.touched() {
            let len = as_index(u32::try_from(end.saturating_sub(start)).unwrap_or(0));
            let (old, new) = (below.read_at(start, len)?, overlay.read_at(start, len)?);
            let unit = usize::try_from(UNIT).unwrap_or(usize::MAX);
            let mut offset = start;
            for (old, new) in old.chunks(unit).zip(new.chunks(unit)) {
                if old != new {
                    push(&mut list, offset, old, new);
                }
                offset = offset.saturating_add(UNIT);
            }
        }
        Ok(Self { list })
    }

    /// True if nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of bytes that change.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.list.iter().fold(0, |all, change| all.saturating_add(as_u64(change.new.len())))
    }
}

/// Adds a unit, to the last change if it is its continuation.
fn push(list: &mut Vec<Change>, offset: u64, old: &[u8], new: &[u8]) {
    let last = list.last_mut().filter(|last| last.end() == offset);
    match last.filter(|last| as_u64(last.new.len()) < MOST) {
        Some(last) => {
            last.old = [&last.old, old].concat().into();
            last.new = [&last.new, new].concat().into();
        }
        None => list.push(Change {
            offset,
            old: Bytes::copy_from_slice(old),
            new: Bytes::copy_from_slice(new),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_block::memory::MemoryDevice;

    #[test]
    fn only_what_differs_changes() {
        let below: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_image(&[7; 100_000]));
        let overlay = Overlay::new(below.clone()).unwrap();
        assert!(Changes::between(&below, &overlay).unwrap().is_empty());
        overlay.write_at(4096, vec![7; 50_000]).unwrap();
        assert!(Changes::between(&below, &overlay).unwrap().is_empty());
        overlay.write_at(8191, vec![1; 2]).unwrap();
        overlay.write_at(99_999, vec![2; 1]).unwrap();
        let changes = Changes::between(&below, &overlay).unwrap();
        let places: Vec<_> = changes.list.iter().map(|one| one.offset..one.end()).collect();
        assert_eq!(places, [4096..12_288, 98_304..100_000]);
        assert_eq!(
            (changes.bytes(), changes.list[0].old[0], changes.list[0].new[4095]),
            (9888, 7, 1)
        );
    }
}
