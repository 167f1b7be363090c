//! `gc_victim=adaptive`: cleaning that writes less for the same space.
//!
//! - **Few checkpoints.** A cleaned section counts as gained before a checkpoint makes it free.
//!   Cleaning continues until only the space for a checkpoint is left. Then one checkpoint frees
//!   all sections cleaned since the last one, at most [`MOST_DEFERRED`]. A checkpoint writes a
//!   dirty node once, even if many of its blocks have moved.
//! - **Sorted.** The blocks of several victims are written in order of file and offset. When they
//!   are cleaned again, adjacent blocks of a section belong to few nodes.
//! - **Nodes within a budget.** Sections of nodes are cleaned only when their share of the invalid
//!   blocks exceeds the best one ([`RecentWrites::share_of_nodes`]), and when cleaning them writes
//!   less for each block gained than cleaning data. Nodes that are rewritten often thus get time to
//!   empty their sections by themselves, and nodes that do not change are packed. Moved nodes are
//!   made dirty, and the checkpoint writes them with the other dirty nodes.
//! - **No second reserve for data.** Only one batch of write-back counts as dirty data, not all of
//!   it, because sections are freed before each batch. A batch may use the volume's reserve, which
//!   is refilled before the next one. The reserve is not made smaller: recovery after a power cut
//!   begins with it, perhaps on a system that cleans in another way.

use super::policy::SpaceState;
use super::stats::Written;
use crate::segment::SectionInfo;

/// Most sections cleaned between two checkpoints.
pub(super) const MOST_DEFERRED: u32 = 20;
/// Sections that must stay free in addition to a checkpoint's: one for the data log and one for the
/// cleaning log.
const LOGS: u32 = 2;

/// Sections that must stay free for the next checkpoint to have room.
#[must_use]
pub(super) const fn least_free(now: &SpaceState) -> u32 {
    now.upper + LOGS
}

/// True if a checkpoint is due before the next victim. `deferred` sections have been cleaned since
/// the last one.
#[must_use]
pub(super) const fn checkpoint_is_due(now: &SpaceState, deferred: u32) -> bool {
    deferred > 0 && (now.free <= least_free(now) || deferred >= MOST_DEFERRED)
}

/// True if there is enough room, with `deferred` sections that the next checkpoint frees.
#[must_use]
pub(super) const fn enough(now: &SpaceState, deferred: u32) -> bool {
    now.free > least_free(now) && now.free + deferred > now.reserved
}

/// How many victims are moved together: as many as the free sections and `most` allow.
#[must_use]
pub(super) fn group(now: &SpaceState, deferred: u32, most: u32) -> u32 {
    let room = now.free.saturating_sub(least_free(now));
    let missing = (now.reserved + 1).saturating_sub(now.free + deferred);
    // Each victim yields only a part of a section, so more victims are needed than sections are
    // missing.
    room.min(4 * missing.max(1)).min(most).min(MOST_DEFERRED.saturating_sub(deferred)).max(1)
}

/// Blocks written recently. All figures are halved when their sum reaches the blocks that users may
/// have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentWrites {
    before: Written,
    user: u64,
    moved: u64,
    nodes: u64,
    others: u64,
}

impl RecentWrites {
    /// Adds the blocks written since the last call. `now` counts since the mount; `user_blocks` is
    /// the number that users may have.
    pub(super) fn follow(&mut self, now: Written, user_blocks: u64) {
        let before = std::mem::replace(&mut self.before, now);
        let more = |now: u64, before: u64| now.saturating_sub(before);
        self.user += more(now.user, before.user);
        self.moved += more(now.gc_data, before.gc_data);
        self.nodes += more(now.node, before.node);
        self.others += more(now.total(), before.total()).saturating_sub(more(
            now.user + now.gc_data + now.node,
            before.user + before.gc_data + before.node,
        ));
        if self.user + self.moved + self.nodes + self.others > user_blocks {
            for figure in [&mut self.user, &mut self.moved, &mut self.nodes, &mut self.others] {
                *figure /= 2;
            }
        }
    }

    /// The total cost of a written data block, in thousandths: itself, and its part of the nodes
    /// and tables that are written for it.
    #[must_use]
    pub(super) fn weight(&self) -> u64 {
        1000 + 1000 * (self.nodes + self.others) / (self.user + self.moved).max(1)
    }

    /// The part of `spare` blocks that sections of nodes should have. The blocks written for a
    /// class grow with its live blocks and with the rate of their writes, and shrink with its spare
    /// blocks. The sum is least if the shares are in proportion to the square roots of live blocks
    /// times rate.
    #[must_use]
    pub(super) fn share_of_nodes(&self, spare: u64, data: u64, nodes: u64) -> u64 {
        let root = |live: u64, written: u64| (live.max(1) as f64 * written.max(1) as f64).sqrt();
        let (data, nodes) = (root(data, self.user), root(nodes, self.nodes));
        (spare as f64 * nodes / (data + nodes)) as u64
    }
}

/// The victim with the lower cost for each block gained. `weight` is the total cost of a moved data
/// block, in thousandths: itself, and its part of the nodes and tables that are written for it.
#[must_use]
pub(super) fn cheaper(
    data: Option<SectionInfo>,
    nodes: Option<SectionInfo>,
    whole: u32,
    weight: u64,
) -> Option<SectionInfo> {
    let cost = |info: &SectionInfo, weight: u64| {
        u64::from(info.valid) * weight * 1000 / u64::from(whole - info.valid).max(1)
    };
    match (data, nodes) {
        (Some(data), Some(nodes)) if cost(&nodes, 1000) < cost(&data, weight) => Some(nodes),
        (data, nodes) => data.or(nodes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u32 = 2048;

    fn space_state(free: u32) -> SpaceState {
        SpaceState { free, prefree: 0, lower: 0, upper: 1, reserved: 8, logs_suffice: true }
    }

    fn section(section: u32, valid: u32, is_node: bool) -> SectionInfo {
        SectionInfo { section, valid, nodes: if is_node { valid } else { 0 }, mtime: 0 }
    }

    #[test]
    fn a_checkpoint_waits_until_free_sections_run_out() {
        assert!(!checkpoint_is_due(&space_state(4), 5) && checkpoint_is_due(&space_state(3), 5));
        // None if it would free nothing; one as soon as it frees the most sections allowed.
        assert!(
            !checkpoint_is_due(&space_state(3), 0)
                && checkpoint_is_due(&space_state(9), MOST_DEFERRED)
        );
        // One as well when pending writes would fill the free sections.
        assert!(checkpoint_is_due(&SpaceState { upper: 4, ..space_state(6) }, 1));
    }

    #[test]
    fn cleaned_sections_count_before_they_are_free() {
        assert!(
            enough(&space_state(9), 0) && !enough(&space_state(8), 0) && enough(&space_state(8), 1)
        );
        assert!(enough(&space_state(4), 5) && !enough(&space_state(3), 20));
        // Pending writes may use the reserve.
        let pending = SpaceState { lower: 2, upper: 3, ..space_state(9) };
        assert!(enough(&pending, 0) && !enough(&SpaceState { free: 5, ..pending }, 20));
    }

    #[test]
    fn groups_fit_what_is_free() {
        assert_eq!(group(&space_state(8), 0, 8), 4);
        assert_eq!(group(&space_state(6), 0, 8), 3);
        assert_eq!(group(&space_state(6), 2, 1), 1);
        assert_eq!(group(&space_state(3), 0, 8), 1);
        assert_eq!(group(&SpaceState { reserved: 30, ..space_state(20) }, 18, 8), 2);
    }

    #[test]
    fn nodes_have_their_share_and_their_price() {
        let mut recent = RecentWrites::default();
        let written = Written { user: 900, node: 100, ..Written::default() };
        recent.follow(written, 10_000);
        // A hundredth of the blocks, a ninth of what is written: the roots are as 1 to 30.
        assert_eq!(recent.share_of_nodes(3100, 1000 * 100, 10 * 100), 100);
        assert_eq!(recent.share_of_nodes(3100, 0, 0), 775);
        assert_eq!(recent.weight(), 1000 + 1000 * 100 / 900);
        let (data, nodes) = (section(1, 1800, false), section(2, 1750, true));
        // Moving data costs half as much again, in nodes and tables.
        assert_eq!(cheaper(Some(data), Some(nodes), WHOLE, 1500), Some(nodes));
        assert_eq!(
            cheaper(Some(section(1, 1600, false)), Some(nodes), WHOLE, 1500),
            Some(section(1, 1600, false))
        );
        assert_eq!(cheaper(None, Some(nodes), WHOLE, 1500), Some(nodes));
        assert_eq!(cheaper(Some(data), None, WHOLE, 1500), Some(data));
    }

    #[test]
    fn what_was_written_long_ago_counts_less() {
        let mut recent = RecentWrites::default();
        let first = Written { node: 9000, ..Written::default() };
        recent.follow(first, 10_000);
        let second = Written { user: 1200, ..first };
        recent.follow(second, 10_000);
        assert_eq!((recent.user, recent.nodes), (600, 4500));
        recent.follow(Written { gc_data: 800, gc_node: 20, cp: 30, ..second }, 10_000);
        assert_eq!((recent.moved, recent.nodes, recent.others), (800, 4500, 50));
    }
}
