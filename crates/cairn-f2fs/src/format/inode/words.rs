//! The words of `i_addr`: where pointers, inline contents, inline attributes and a device number
//! lie.
//!
//! Extra attributes take `i_extra_isize` bytes at the start, inline attributes
//! [`Inode::inline_xattr_words`] at the end. The rest holds pointers, or one reserved word and
//! inline contents.

use std::ops::Range;

use cairn_base::units::{as_index, as_u64};
use cairn_vfs::FileKind;

use super::raw::{ADDR_AT, ADDR_WORDS, NID_AT, view, view_mut};
use super::{ExtraAttr, FileFlags, InlineFlags, Inode};
use crate::format::block;
use crate::format::node::FANOUT;
use crate::format::path::TreeShape;
use crate::format::units::{BLOCK_BYTES, BlockAddr};

/// Bytes of a word.
const WORD: usize = size_of::<u32>();
/// Words kept for inline attributes if the inode does not give their number.
pub(crate) const DEFAULT_INLINE_XATTR_WORDS: u32 = 50;

impl Inode {
    /// Index of the first data pointer in `i_addr`.
    #[must_use]
    pub(crate) fn address_base(&self) -> u32 {
        self.extra.map_or(0, |extra| u32::from(extra.size) / 4)
    }

    /// Words at the end of `i_addr` that are kept for inline attributes.
    #[must_use]
    pub(crate) fn inline_xattr_words(&self) -> u32 {
        if self.flexible {
            self.extra.map_or(0, |extra| extra.inline_xattr_size.into())
        } else if self.inline.intersects(InlineFlags::XATTR | InlineFlags::DENTRY) {
            DEFAULT_INLINE_XATTR_WORDS
        } else {
            0
        }
    }

    /// Words between extra attributes and inline attributes.
    fn free_words(&self) -> u32 {
        ADDR_WORDS.saturating_sub(self.address_base()).saturating_sub(self.inline_xattr_words())
    }

    /// Data pointers that the inode has: whole clusters if it is compressed.
    #[must_use]
    pub(crate) fn address_slots(&self) -> u32 {
        self.whole_clusters(self.free_words())
    }

    /// Shape of the node tree.
    #[must_use]
    pub fn shape(&self) -> TreeShape {
        TreeShape { inode_slots: self.address_slots(), node_slots: self.whole_clusters(FANOUT) }
    }

    /// Bytes that a file can have, whatever its clusters are.
    #[must_use]
    pub(crate) fn max_size(&self) -> u64 {
        let shape = TreeShape { inode_slots: self.free_words(), node_slots: FANOUT };
        shape.max_blocks().saturating_mul(BLOCK_BYTES)
    }

    /// How many of the pointers are used: whole clusters if the file is compressed.
    fn whole_clusters(&self, pointers: u32) -> u32 {
        let unused =
            self.cluster_blocks().and_then(|cluster| pointers.checked_rem(cluster)).unwrap_or(0);
        pointers.saturating_sub(unused)
    }

    /// Blocks per cluster (4 to 256) of a compressed file.
    #[must_use]
    pub(crate) fn cluster_blocks(&self) -> Option<u32> {
        let extra = self.extra.filter(ExtraAttr::has_compression)?;
        let compressed = self.kind == FileKind::Regular && self.flags.contains(FileFlags::COMPR);
        (compressed && (2..=8).contains(&extra.log_cluster_size))
            .then(|| 1 << extra.log_cluster_size)
    }

    /// A data pointer of the inode.
    ///
    /// # Panics
    /// `slot` is not below [`Inode::address_slots`].
    #[must_use]
    pub(crate) fn data_pointer(&self, block: &[u8], slot: u32) -> BlockAddr {
        assert!(slot < self.address_slots(), "data pointer {slot} of an inode");
        BlockAddr(block::entry(&view(block).i_addr, self.word(slot)).get())
    }

    /// All data pointers of the inode.
    pub(crate) fn data_pointers<'b>(
        &self,
        block: &'b [u8],
    ) -> impl Iterator<Item = BlockAddr> + use<'b> {
        let words = view(block).i_addr.iter().skip(as_index(self.address_base()));
        words.take(as_index(self.address_slots())).map(|word| BlockAddr(word.get()))
    }

    /// Index in `i_addr` of a word behind the extra attributes.
    fn word(&self, index: u32) -> usize {
        as_index(self.address_base().strict_add(index))
    }

    /// The byte offset in the block of a word behind the extra attributes.
    fn word_at(&self, index: u32) -> usize {
        self.word(index).strict_mul(WORD).strict_add(ADDR_AT)
    }

    /// The byte offset in the block of a data pointer.
    #[must_use]
    pub(crate) fn data_pointer_at(&self, slot: u32) -> usize {
        self.word_at(slot)
    }

    /// Sets a data pointer of the inode.
    ///
    /// # Panics
    /// As `Inode::data_pointer`.
    pub fn set_data_pointer(&self, block: &mut [u8], slot: u32, addr: BlockAddr) {
        assert!(slot < self.address_slots(), "data pointer {slot} of an inode");
        *block::entry_mut(&mut view_mut(block).i_addr, self.word(slot)) = addr.get().into();
    }

    /// Where inline contents (data or entries) lie in the block. The word before it is reserved and
    /// 0.
    #[must_use]
    pub(crate) fn inline_data_range(&self) -> Range<usize> {
        let start = self.word_at(1);
        start..start.strict_add(self.max_inline_data())
    }

    /// Bytes that inline contents can have.
    #[must_use]
    pub(crate) fn max_inline_data(&self) -> usize {
        as_index(self.free_words().saturating_sub(1)).strict_mul(WORD)
    }

    /// Where inline contents end: behind their last byte that is not 0.
    #[must_use]
    pub(crate) fn inline_end(&self, block: &[u8]) -> u64 {
        let contents = block.get(self.inline_data_range()).unwrap_or_default();
        as_u64(block::len_without_zeros(contents))
    }

    /// The size of inline contents as they show it. It is `i_size`, unless one wrong bit explains
    /// that they end elsewhere, or they go on at `i_size`. Other bytes behind it are damage.
    #[must_use]
    pub(crate) fn inline_size(&self, block: &[u8]) -> u64 {
        let end = self.inline_end(block);
        if end <= self.size {
            return self.size;
        }
        let contents = block.get(self.inline_data_range()).unwrap_or_default();
        let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
        let behind = contents.get(at(self.size)..at(end)).unwrap_or_default();
        let zeros = behind.iter().filter(|byte| **byte == 0).count();
        let goes_on = zeros.strict_mul(2) <= behind.len();
        if (self.size ^ end).is_power_of_two() || goes_on { end } else { self.size }
    }

    /// Where inline attributes lie in the block; empty without [`InlineFlags::XATTR`].
    #[must_use]
    pub(crate) fn inline_xattr_range(&self) -> Range<usize> {
        let words =
            if self.inline.contains(InlineFlags::XATTR) { self.inline_xattr_words() } else { 0 };
        NID_AT.strict_sub(as_index(words).strict_mul(WORD))..NID_AT
    }

    /// Device number of a device node, in Linux's `new_encode_dev` encoding.
    #[must_use]
    pub(crate) fn device(&self, block: &[u8]) -> u32 {
        let words = &view(block).i_addr;
        let word = |index| words.get(self.word(index)).map_or(0, |word| word.get());
        // The old encoding (major and minor below 256) equals the new one.
        match word(0) {
            0 => word(1),
            old => old & 0xffff,
        }
    }

    /// Sets the device number, in the old encoding if it fits, as Linux does.
    pub(crate) fn set_device(&self, block: &mut [u8], device: u32) {
        let (old, new) = if device <= 0xffff { (device, 0) } else { (0, device) };
        let words = &mut view_mut(block).i_addr;
        *block::entry_mut(words, self.word(0)) = old.into();
        *block::entry_mut(words, self.word(1)) = new.into();
    }
}
