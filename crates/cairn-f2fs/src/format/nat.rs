//! The node address table: where each node block is.
//!
//! The area has two copies of each block (see [`Layout::nat_address`]). The journal in the summary
//! of the hot data log (`super::summary::NatJournal`) holds recent entries and overrides the area.

use cairn_base::units::as_index;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{self, view, view_mut};
use super::layout::Layout;
use super::units::{BLOCK_SIZE, BlockAddr, NIDS_PER_BLOCK, Nid};
use crate::corrupt::Corrupt;

/// Entries per block.
pub(crate) const ENTRIES_PER_BLOCK: usize = as_index(NIDS_PER_BLOCK);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawNatEntry {
    version: u8,
    ino: U32,
    block_addr: U32,
}

const _: () = assert!(size_of::<RawNatEntry>() == 9);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNatBlock {
    entries: [RawNatEntry; ENTRIES_PER_BLOCK],
    unused: u8,
}

const _: () = assert!(size_of::<RawNatBlock>() == BLOCK_SIZE);

/// An entry. The default is that of an nid that was never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatEntry {
    /// Grows (and wraps) each time the nid is freed; summaries of its data blocks carry it.
    pub(crate) version: u8,
    /// The inode it belongs to; itself for an inode.
    pub(crate) ino: Nid,
    /// Where it is; [`BlockAddr::NULL`] if the nid is free.
    pub block_addr: BlockAddr,
}

impl NatEntry {
    /// True if no node has this nid.
    #[must_use]
    pub(crate) fn is_free(&self) -> bool {
        self.block_addr == BlockAddr::NULL
    }

    /// The entry that a nid always has which is none of a node: 0, and those of Linux's own inodes
    /// for nodes and metadata, which never look free.
    #[must_use]
    pub(crate) fn reserved(nid: Nid) -> Option<Self> {
        let block_addr = match nid {
            Nid::NONE => BlockAddr::NULL,
            Nid::NODE_INO | Nid::META_INO => BlockAddr(1),
            _ => return None,
        };
        Some(Self { version: 0, ino: nid, block_addr })
    }

    /// Checks that a node can be where the entry says. The entries of nids 1 and 2 are placeholders
    /// and never pass.
    ///
    /// # Errors
    /// The address is not in the main area, or there can be no such inode.
    pub(crate) fn validate(self, nid: Nid, layout: &Layout) -> Result<Self, Corrupt> {
        let bad = |what, value: u32| Corrupt::Nat { nid, what, value: value.into() };
        if !self.is_free() && !layout.in_main(self.block_addr) {
            return Err(bad("the address is not in the main area", self.block_addr.get()));
        }
        if !self.is_free() && !layout.is_nid(self.ino) {
            return Err(bad("the inode number is impossible", self.ino.get()));
        }
        Ok(self)
    }
}

impl From<RawNatEntry> for NatEntry {
    fn from(raw: RawNatEntry) -> Self {
        let (ino, block_addr) = (Nid(raw.ino.get()), BlockAddr(raw.block_addr.get()));
        Self { version: raw.version, ino, block_addr }
    }
}

impl From<NatEntry> for RawNatEntry {
    fn from(entry: NatEntry) -> Self {
        Self {
            version: entry.version,
            ino: entry.ino.get().into(),
            block_addr: entry.block_addr.get().into(),
        }
    }
}

/// The entry at `index` of a NAT block.
///
/// # Panics
/// `index` is not below `ENTRIES_PER_BLOCK`: the caller's bug.
#[must_use]
pub(crate) fn entry(block: &[u8], index: usize) -> NatEntry {
    (*block::entry(&view::<RawNatBlock>(block).entries, index)).into()
}

/// All entries of a NAT block.
pub(crate) fn entries(block: &[u8]) -> impl Iterator<Item = NatEntry> + '_ {
    view::<RawNatBlock>(block).entries.iter().map(|raw| (*raw).into())
}

/// Replaces the entry at `index` of a NAT block.
///
/// # Panics
/// As [`entry`].
pub(crate) fn set_entry(block: &mut [u8], index: usize, entry: NatEntry) {
    *block::entry_mut(&mut view_mut::<RawNatBlock>(block).entries, index) = entry.into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checkpoint::tests::layout;

    #[test]
    fn entries_are_packed() {
        let mut block = vec![0; BLOCK_SIZE];
        let last =
            NatEntry { version: 7, ino: Nid(0x0102_0304), block_addr: BlockAddr(0x0506_0708) };
        set_entry(&mut block, 454, last);
        assert_eq!(block[4086..], [7, 4, 3, 2, 1, 8, 7, 6, 5, 0]);
        assert_eq!(entry(&block, 454), last);
        assert_eq!(entries(&block).filter(|entry| !entry.is_free()).count(), 1);
        assert!(entry(&block, 453).is_free());
    }

    #[test]
    fn addresses_are_bounded() {
        let layout = layout();
        let with = |ino, addr| NatEntry { version: 0, ino: Nid(ino), block_addr: BlockAddr(addr) };
        assert!(with(3, 4096).validate(Nid(3), &layout).is_ok());
        assert!(with(0, 0).validate(Nid(9), &layout).is_ok());
        for (ino, addr) in [(3, 4095), (3, u32::MAX), (3, 131_072), (0, 4096), (u32::MAX, 4096)] {
            assert!(with(ino, addr).validate(Nid(3), &layout).is_err(), "{ino} {addr}");
        }
    }
}
