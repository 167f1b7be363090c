//! [`Budget`]: how many metadata blocks one step of a removal may change.

use std::collections::BTreeSet;

use cairn_base::Pba;

use crate::format::layout::Layout;

/// The metadata blocks that a removal may still change.
///
/// Freeing costs a bitmap and a descriptor for each group. The caller reserves credits for blocks
/// of the map by [`Budget::set_aside`].
pub(crate) struct Budget<'a> {
    layout: &'a Layout,
    left: u32,
    groups: BTreeSet<u32>,
    /// Something was freed, so the budget may refuse. Before that, a step always makes progress.
    progressed: bool,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(layout: &'a Layout, credits: u32) -> Self {
        Self { layout, left: credits, groups: BTreeSet::new(), progressed: false }
    }

    /// Reserves credits for blocks of the map. False if the step should wait for the next handle.
    pub(crate) fn set_aside(&mut self, credits: u32) -> bool {
        if self.progressed && self.left < credits.saturating_add(2) {
            return false;
        }
        self.left = self.left.saturating_sub(credits);
        true
    }

    /// How many blocks at the end of `start..start + len` may be freed now.
    pub(crate) fn afford(&mut self, start: Pba, len: u64) -> u64 {
        let mut from = start.get() + len;
        while from > start.get() {
            let Some(group) = self.layout.group_of(Pba(from - 1)) else { break };
            if !self.groups.contains(&group) {
                if self.progressed && self.left < 2 {
                    break;
                }
                self.left = self.left.saturating_sub(2);
                self.groups.insert(group);
                self.progressed = true;
            }
            from = self.layout.group_first_block(group).get().max(start.get());
        }
        start.get() + len - from
    }
}
