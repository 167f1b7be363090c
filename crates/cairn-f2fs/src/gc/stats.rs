//! Counters of cleaning, and of written blocks by purpose.

use cairn_base::stats::{Counter, Report};

use crate::format::Log;
use crate::store::Store;

/// Counters, since the mount.
#[derive(Debug, Default)]
pub struct GcStats {
    /// Calls that freed sections for a waiting operation.
    pub calls_fg: Counter,
    /// Rounds in which the daemon made room for all requests (`gc_merge`).
    pub(crate) rounds_merged: Counter,
    /// Calls in the background.
    pub calls_bg: Counter,
    /// Sections of data cleaned.
    pub data_sections: Counter,
    /// Sections of nodes cleaned.
    pub node_sections: Counter,
    /// Data blocks copied.
    pub data_blocks_moved: Counter,
    /// Of those, copied in the background.
    pub data_blocks_bg: Counter,
    /// Copies that were not used, because the owner overwrote or freed the block meanwhile.
    pub(crate) data_blocks_overtaken: Counter,
    /// Node blocks that got new places.
    pub node_blocks_moved: Counter,
    /// Of those, moved in the background.
    pub(crate) node_blocks_bg: Counter,
    /// Of those, the ones that no checkpoint would have written otherwise.
    pub(crate) node_blocks_extra: Counter,
    /// Valid blocks of all victims when they were chosen.
    pub victim_blocks: Counter,
    /// Checkpoints that cleaning asked for.
    pub(crate) checkpoints: Counter,
    /// Calls that found no victim.
    pub no_victim: Counter,
}

/// Blocks written to the device since the mount, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Contents of files and directories, for users.
    pub user: u64,
    /// The same, moved by cleaning.
    pub gc_data: u64,
    /// Nodes.
    pub node: u64,
    /// Nodes written only because of cleaning.
    pub gc_node: u64,
    /// Segment information table.
    pub sit: u64,
    /// Node address table.
    pub nat: u64,
    /// Segment summaries.
    pub ssa: u64,
    /// Checkpoint packs.
    pub cp: u64,
}

impl Written {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.user
            + self.gc_data
            + self.node
            + self.gc_node
            + self.sit
            + self.nat
            + self.ssa
            + self.cp
    }

    /// Blocks written for each block of users.
    #[must_use]
    pub(crate) fn waf(&self) -> f64 {
        if self.user == 0 { 0.0 } else { self.total() as f64 / self.user as f64 }
    }

    /// The numbers, by name.
    #[must_use]
    pub(crate) fn report(&self) -> Report {
        Report::new()
            .with("user", self.user)
            .with("gc_data", self.gc_data)
            .with("node", self.node)
            .with("gc_node", self.gc_node)
            .with("sit", self.sit)
            .with("nat", self.nat)
            .with("ssa", self.ssa)
            .with("cp", self.cp)
    }
}

impl GcStats {
    /// Blocks written so far.
    #[must_use]
    pub fn written(&self, store: &Store) -> Written {
        let segments = &store.segments.stats;
        let data: u64 = Log::DATA.iter().map(|log| segments.placed[log.index()].get()).sum();
        let (gc_data, gc_node) = (self.data_blocks_moved.get(), self.node_blocks_extra.get());
        Written {
            user: data.saturating_sub(gc_data) + segments.in_place.get(),
            gc_data,
            node: store.nodes.stats.written.get().saturating_sub(gc_node),
            gc_node,
            sit: segments.sit_blocks_written.get(),
            nat: store.nat.stats.blocks_written.get(),
            ssa: segments.summaries_written.get(),
            cp: store.checkpoints.stats.pack_blocks.get(),
        }
    }

    /// Mean part of a victim that was valid, in percent. `section_capacity` in blocks.
    #[must_use]
    pub(crate) fn victim_valid_percent(&self, section_capacity: u32) -> f64 {
        let sections = self.data_sections.get() + self.node_sections.get();
        let blocks = sections * u64::from(section_capacity);
        if blocks == 0 { 0.0 } else { 100.0 * self.victim_blocks.get() as f64 / blocks as f64 }
    }

    /// The counters, by name; with `waf` and the blocks written by class.
    #[must_use]
    pub(crate) fn report(&self, store: &Store) -> Report {
        let written = self.written(store);
        let (data, nodes) = store.segments.sections_in_use();
        Report::new()
            .with("calls_fg", &self.calls_fg)
            .with("rounds_merged", &self.rounds_merged)
            .with("calls_bg", &self.calls_bg)
            .with("data_sections", &self.data_sections)
            .with("node_sections", &self.node_sections)
            .with("data_blocks_moved", &self.data_blocks_moved)
            .with("data_blocks_background", &self.data_blocks_bg)
            .with("data_blocks_overtaken", &self.data_blocks_overtaken)
            .with("node_blocks_moved", &self.node_blocks_moved)
            .with("node_blocks_background", &self.node_blocks_bg)
            .with("checkpoints", &self.checkpoints)
            .with("no_victim", &self.no_victim)
            .with(
                "victim_valid_percent",
                self.victim_valid_percent(store.layout.section_capacity()),
            )
            .with("data_sections_in_use", data)
            .with("node_sections_in_use", nodes)
            .with("waf", written.waf())
            .with("written", written.report())
    }
}
