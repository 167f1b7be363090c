//! Sets of nids: one bit for each entry of the NAT blocks that have one of them.

use cairn_base::units::as_index;

use crate::format::units::NIDS_PER_BLOCK;
use crate::format::{Layout, Nid};

/// 64-bit words for the entries of a NAT block.
const WORDS: usize = as_index(NIDS_PER_BLOCK.div_ceil(u64::BITS));

/// A set of nids.
#[derive(Debug, Default)]
pub(crate) struct NidSet {
    /// By NAT block, up to the last one that has a member.
    blocks: Vec<Option<Box<[u64; WORDS]>>>,
}

impl NidSet {
    pub(crate) fn insert(&mut self, nid: Nid) {
        let (block, word, bit) = place(nid);
        if self.blocks.len() <= block {
            self.blocks.resize(block.saturating_add(1), None);
        }
        let words = self.blocks.get_mut(block).map(|words| words.get_or_insert_default());
        if let Some(word) = words.and_then(|words| words.get_mut(word)) {
            *word |= bit;
        }
    }

    pub(super) fn remove(&mut self, nid: Nid) {
        let (block, word, bit) = place(nid);
        let words = self.blocks.get_mut(block).and_then(Option::as_mut);
        if let Some(word) = words.and_then(|words| words.get_mut(word)) {
            *word &= !bit;
        }
    }

    pub(super) fn contains(&self, nid: Nid) -> bool {
        let (block, word, bit) = place(nid);
        let words = self.blocks.get(block).and_then(Option::as_ref);
        words.and_then(|words| words.get(word)).is_some_and(|word| word & bit != 0)
    }

    pub(super) fn remove_all(&mut self, others: &Self) {
        for (words, removed) in self.blocks.iter_mut().zip(&others.blocks) {
            let (Some(words), Some(removed)) = (words, removed) else { continue };
            words.iter_mut().zip(&**removed).for_each(|(word, removed)| *word &= !removed);
        }
    }
}

/// The NAT block of a nid, the word and the bit.
fn place(nid: Nid) -> (usize, usize, u64) {
    let (block, index) = Layout::nat_place(nid);
    (as_index(block), index / 64, 1 << (index % 64))
}
