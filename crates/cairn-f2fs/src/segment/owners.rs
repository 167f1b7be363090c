//! Whose the blocks of a segment are, as its summary says.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use cairn_cache::block::Image;

use crate::error::Result;
use crate::format::Summary;
use crate::format::summary::{SummaryBlock, is_of_nodes, stored_entry};

/// The owners of a segment's blocks. Those of a summary block are decoded one by one, when they
/// are asked for: most callers need a few.
pub(crate) struct SegmentOwners {
    /// True if the summary is that of a segment with nodes.
    pub(crate) is_node: bool,
    entries: Entries,
}

enum Entries {
    Decoded(Vec<Summary>),
    Stored(Image),
    /// Nodes, whichever.
    Nodes,
}

impl SegmentOwners {
    /// Those that were decoded.
    pub(crate) const fn decoded(is_node: bool, entries: Vec<Summary>) -> Self {
        Self { is_node, entries: Entries::Decoded(entries) }
    }

    /// Those of a summary in memory.
    pub(super) fn of(summary: &SummaryBlock) -> Self {
        Self::decoded(summary.is_node, summary.entries.clone())
    }

    /// Nodes of which it is not known which they are.
    pub(crate) const fn nodes() -> Self {
        Self { is_node: true, entries: Entries::Nodes }
    }

    /// Those of a summary block.
    ///
    /// # Errors
    /// The block's type is neither data nor node.
    pub(crate) fn stored(block: Image) -> Result<Self> {
        Ok(Self { is_node: is_of_nodes(&block)?, entries: Entries::Stored(block) })
    }

    /// The owner of a block of the segment.
    pub(crate) fn get(&self, block: u16) -> Option<Summary> {
        match &self.entries {
            Entries::Decoded(entries) => entries.get(usize::from(block)).copied(),
            Entries::Stored(image) => stored_entry(image, block),
            Entries::Nodes => Some(Summary::default()),
        }
    }
}
