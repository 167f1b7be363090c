//! The answer to `readdir` and `readdirplus`.
//!
//! In a damaged directory, all entries that can be read are listed; the error comes after them.

use std::collections::HashMap;

use cairn_vfs::{DirEntry, Error, FileKind, Result};
use parking_lot::Mutex;
use zerocopy::{Immutable, IntoBytes};

use crate::convert;
use crate::wire::abi::Dirent;

/// The largest answer that is made room for at once.
const ROOM: usize = 32 << 10;
/// The number of damaged directories that are remembered.
const MAX_DAMAGED: usize = 1024;

/// Damage that listings have met. The error is returned after the last entry. Locking: a thread
/// that holds the mutex takes no other lock.
#[derive(Default)]
pub(crate) struct Damaged(Mutex<HashMap<u64, Error>>);

impl Damaged {
    /// The answer to a request that filled a listing from `position` on.
    pub(crate) fn answer(
        &self,
        node: u64,
        position: u64,
        listing: &Listing,
        filled: Result<()>,
    ) -> Result<()> {
        let at_end = listing.bytes.is_empty();
        match filled {
            Err(error) if at_end => Err(error),
            Err(error) => {
                let mut damaged = self.0.lock();
                if damaged.len() < MAX_DAMAGED {
                    damaged.entry(node).or_insert(error);
                }
                Ok(())
            }
            Ok(()) if at_end => self.0.lock().remove(&node).map_or(Ok(()), Err),
            Ok(()) => {
                if position == 0 {
                    self.0.lock().remove(&node);
                }
                Ok(())
            }
        }
    }
}

/// Entries as the kernel reads them, up to the size it asked for.
pub(crate) struct Listing {
    bytes: Vec<u8>,
    limit: usize,
}

impl Listing {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: Vec::with_capacity(limit.min(ROOM)), limit }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds an entry behind `before` (what `readdirplus` puts there). False if there is no room for
    /// it.
    pub(crate) fn add<T: IntoBytes + Immutable>(
        &mut self,
        before: &T,
        entry: &DirEntry,
        ino: u64,
    ) -> bool {
        // At most 255 bytes of name.
        let kind = convert::entry_type(entry.kind.unwrap_or(FileKind::Regular));
        let head = Dirent { ino, off: entry.next, namelen: entry.name.len() as u32, kind };
        let size = size_of::<T>() + (size_of::<Dirent>() + entry.name.len()).next_multiple_of(8);
        if self.bytes.len() + size > self.limit {
            return false;
        }
        let end = self.bytes.len() + size;
        self.bytes.extend_from_slice(before.as_bytes());
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(&entry.name);
        self.bytes.resize(end, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::Ino;

    use cairn_vfs::NameBuf;

    use super::*;

    #[test]
    fn entries_are_aligned_and_a_full_listing_takes_no_more() {
        let entry = DirEntry {
            ino: Ino(12),
            kind: Some(FileKind::Directory),
            name: NameBuf::try_from(b"abc".to_vec()).unwrap(),
            next: 7,
        };
        let mut listing = Listing::new(63);
        assert!(listing.add(&(), &entry, 12));
        assert!(!listing.add(&(), &entry, 12), "32 bytes each");
        let bytes = listing.into_bytes();
        assert_eq!(bytes.len(), 32);
        let head = Dirent { ino: 12, off: 7, namelen: 3, kind: 4 };
        assert_eq!(&bytes[..24], head.as_bytes());
        assert_eq!(&bytes[24..], b"abc\0\0\0\0\0");
    }
}
