//! Node blocks: footers, and the pointers of direct and indirect nodes.
//!
//! Every node block ends with a footer that says which node it is. Inodes are in [`super::inode`].

use bitflags::bitflags;
use cairn_base::units::as_index;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{self, view, view_mut};
use super::units::{BLOCK_SIZE, BlockAddr, Nid};
use crate::corrupt::Corrupt;

/// Pointers of a direct node (block addresses) and of an indirect one (nids), as a number of blocks
/// or nodes.
pub(crate) const FANOUT: u32 = 1018;
/// Pointers of a direct and of an indirect node.
pub(crate) const POINTERS: usize = as_index(FANOUT);
/// Where the footer begins; also the bytes that an attribute node has for attributes.
pub(crate) const FOOTER_AT: usize = 4072;
/// Offset of an attribute node in its inode's tree.
pub(crate) const XATTR_OFFSET: u32 = 0x1fff_ffff;
const OFFSET_SHIFT: u32 = 3;

bitflags! {
    /// The marks in a footer's `flag`, below the offset.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Marks: u32 {
        /// Does not belong to a directory.
        const COLD = 1;
        /// Last node that an fsync wrote.
        const FSYNC = 2;
        /// The inode's directory entry must be made by roll-forward.
        const DENT = 4;
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFooter {
    nid: U32,
    ino: U32,
    flag: U32,
    cp_ver: U64,
    next_blkaddr: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNode {
    pointers: [U32; POINTERS],
    footer: RawFooter,
}

const _: () = assert!(size_of::<RawFooter>() == 24);
const _: () = assert!(size_of::<RawNode>() == BLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawNode, footer) == FOOTER_AT);

/// A node block's footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFooter {
    /// The node.
    pub nid: Nid,
    /// The inode it belongs to.
    pub ino: Nid,
    /// Marks.
    pub marks: Marks,
    /// Offset in the inode's tree (see `super::path`); `XATTR_OFFSET` for attributes.
    pub offset: u32,
    /// Version of the checkpoint before it was written: [`super::Checkpoint::node_version`].
    pub cp_ver: u64,
    /// Where the next block of the same log goes.
    pub next_blkaddr: BlockAddr,
}

fn pointers(block: &[u8]) -> &[U32; POINTERS] {
    &view::<RawNode>(block).pointers
}

fn pointers_mut(block: &mut [u8]) -> &mut [U32; POINTERS] {
    &mut view_mut::<RawNode>(block).pointers
}

impl NodeFooter {
    /// Reads the footer of a node block.
    #[must_use]
    pub fn read(block: &[u8]) -> Self {
        let raw = &view::<RawNode>(block).footer;
        Self {
            nid: Nid(raw.nid.get()),
            ino: Nid(raw.ino.get()),
            marks: Marks::from_bits_truncate(raw.flag.get()),
            offset: raw.flag.get() >> OFFSET_SHIFT,
            cp_ver: raw.cp_ver.get(),
            next_blkaddr: BlockAddr(raw.next_blkaddr.get()),
        }
    }

    /// Writes the footer of a node block. An inode's checksum covers it: [`super::inode::seal`]
    /// comes after.
    pub fn write(&self, block: &mut [u8]) {
        view_mut::<RawNode>(block).footer = RawFooter {
            nid: self.nid.get().into(),
            ino: self.ino.get().into(),
            flag: (self.marks.bits() | self.offset << OFFSET_SHIFT).into(),
            cp_ver: self.cp_ver.into(),
            next_blkaddr: self.next_blkaddr.get().into(),
        };
    }

    /// True if it is an inode's footer.
    #[must_use]
    pub(crate) fn is_inode(&self) -> bool {
        self.nid == self.ino
    }

    /// Checks that the block at `addr` is node `nid` of inode `ino`.
    ///
    /// # Errors
    /// The footer names another node or another inode.
    pub(crate) fn check(&self, nid: Nid, ino: Nid, addr: BlockAddr) -> Result<(), Corrupt> {
        let bad = |what, value: u32| Err(Corrupt::Node { nid, addr, what, value: value.into() });
        if self.nid != nid {
            return bad("the footer names another node", self.nid.get());
        }
        if self.ino != ino {
            return bad("the footer names another inode", self.ino.get());
        }
        if self.is_inode() && self.offset != 0 {
            return bad("an inode's offset is not 0", self.offset);
        }
        Ok(())
    }
}

/// A data pointer of a direct node.
///
/// # Panics
/// `index` is not below [`POINTERS`]: the caller's bug.
#[must_use]
pub(crate) fn data_pointer(block: &[u8], index: usize) -> BlockAddr {
    BlockAddr(block::entry(pointers(block), index).get())
}

/// The byte offset of a data pointer in a direct node.
#[must_use]
pub(crate) const fn data_pointer_at(index: usize) -> usize {
    index.saturating_mul(size_of::<u32>())
}

/// Sets a data pointer of a direct node.
///
/// # Panics
/// As `data_pointer`.
pub fn set_data_pointer(block: &mut [u8], index: usize, addr: BlockAddr) {
    *block::entry_mut(pointers_mut(block), index) = addr.get().into();
}

/// All data pointers of a direct node.
pub(crate) fn data_pointers(block: &[u8]) -> impl Iterator<Item = BlockAddr> + '_ {
    pointers(block).iter().map(|addr| BlockAddr(addr.get()))
}

/// A child of an indirect node; [`Nid::NONE`] if there is none.
///
/// # Panics
/// `index` is not below [`POINTERS`]: the caller's bug.
#[must_use]
pub(crate) fn child(block: &[u8], index: usize) -> Nid {
    Nid(block::entry(pointers(block), index).get())
}

/// Sets a child of an indirect node.
///
/// # Panics
/// As [`child`].
pub(crate) fn set_child(block: &mut [u8], index: usize, nid: Nid) {
    *block::entry_mut(pointers_mut(block), index) = nid.get().into();
}

/// All children of an indirect node.
#[cfg(test)]
pub(crate) fn children(block: &[u8]) -> impl Iterator<Item = Nid> + '_ {
    pointers(block).iter().map(|nid| Nid(nid.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_holds_marks_and_offset() {
        let mut block = vec![0; BLOCK_SIZE];
        let footer = NodeFooter {
            nid: Nid(9),
            ino: Nid(7),
            marks: Marks::COLD | Marks::FSYNC,
            offset: XATTR_OFFSET,
            cp_ver: 0x3fcc_b782_6b8b_4568,
            next_blkaddr: BlockAddr(4610),
        };
        footer.write(&mut block);
        assert_eq!(block[4080..4084], [0xfb, 0xff, 0xff, 0xff]);
        assert_eq!(NodeFooter::read(&block), footer);
        assert!(footer.check(Nid(9), Nid(7), BlockAddr(1)).is_ok());
        assert!(footer.check(Nid(8), Nid(7), BlockAddr(1)).is_err());
        assert!(footer.check(Nid(9), Nid(8), BlockAddr(1)).is_err());
        let inode = NodeFooter { ino: Nid(9), ..footer };
        assert!(inode.check(Nid(9), Nid(9), BlockAddr(1)).is_err(), "offset of an inode");
    }

    #[test]
    fn pointers_are_words_from_the_start() {
        let mut block = vec![0; BLOCK_SIZE];
        set_data_pointer(&mut block, 1017, BlockAddr::NEW);
        set_child(&mut block, 1, Nid(5));
        assert_eq!((block[4], &block[4068..4072]), (5, &[0xff; 4][..]));
        assert_eq!((child(&block, 1), data_pointer(&block, 1017)), (Nid(5), BlockAddr::NEW));
        assert_eq!((children(&block).count(), data_pointers(&block).count()), (POINTERS, POINTERS));
    }
}
