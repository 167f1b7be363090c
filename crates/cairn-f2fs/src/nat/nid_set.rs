//! Sets of nids: one bit for each entry of the NAT blocks that have one of them.

use std::collections::HashMap;

use cairn_base::units::as_index;

use crate::format::units::NIDS_PER_BLOCK;
use crate::format::{Layout, Nid};

/// 64-bit words for the entries of a NAT block.
const WORDS: usize = as_index(NIDS_PER_BLOCK.div_ceil(u64::BITS));

/// A set of nids.
#[derive(Debug, Default)]
pub(crate) struct NidSet {
    /// By NAT block.
    blocks: HashMap<u32, [u64; WORDS]>,
}

impl NidSet {
    pub(crate) fn insert(&mut self, nid: Nid) {
        let (block, word, bit) = place(nid);
        let words = self.blocks.entry(block).or_default();
        if let Some(word) = words.get_mut(word) {
            *word |= bit;
        }
    }

    pub(super) fn remove(&mut self, nid: Nid) {
        let (block, word, bit) = place(nid);
        if let Some(word) = self.blocks.get_mut(&block).and_then(|words| words.get_mut(word)) {
            *word &= !bit;
        }
    }

    pub(super) fn contains(&self, nid: Nid) -> bool {
        let (block, word, bit) = place(nid);
        self.blocks
            .get(&block)
            .and_then(|words| words.get(word))
            .is_some_and(|word| word & bit != 0)
    }

    pub(super) fn remove_all(&mut self, others: &Self) {
        for (block, removed) in &others.blocks {
            let Some(words) = self.blocks.get_mut(block) else { continue };
            words.iter_mut().zip(removed).for_each(|(word, removed)| *word &= !removed);
        }
    }
}

/// The NAT block of a nid, the word and the bit.
fn place(nid: Nid) -> (u32, usize, u64) {
    let (block, index) = Layout::nat_place(nid);
    (block, index / 64, 1 << (index % 64))
}
