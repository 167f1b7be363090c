//! The store's counters by name, for a volume's report.

use cairn_base::stats::Report;

use super::Store;
use crate::checkpoint::Reason;
use crate::format::Log;

/// Names of the logs, by number.
const LOGS: [&str; Log::COUNT] =
    ["hot_data", "warm_data", "cold_data", "hot_node", "warm_node", "cold_node"];

impl Store {
    /// Sections `space`, `ckpt`, `segments`, `nodes` and `nat`.
    #[must_use]
    pub(crate) fn report(&self) -> Report {
        Report::new()
            .with("space", self.space_report())
            .with("ckpt", self.checkpoint_report())
            .with("segments", self.segment_report())
            .with("nodes", self.node_report())
            .with("nat", self.nat_report())
    }

    /// State of the option `checkpoint`.
    pub(crate) fn disabled_report(&self) -> Report {
        Report::new()
            .with("disabled", self.checkpoints.is_disabled())
            .with("unusable_blocks", self.unusable())
    }

    fn space_report(&self) -> Report {
        let counts = self.space.counts();
        Report::new()
            .with("user_blocks", self.space.user_blocks())
            .with("valid_blocks", counts.valid_blocks)
            .with("valid_nodes", counts.valid_nodes)
            .with("valid_inodes", counts.valid_inodes)
            .with("free_blocks", self.space.free_blocks())
            .with("reserved_sections", self.space.reserved_sections())
    }

    fn checkpoint_report(&self) -> Report {
        let stats = &self.checkpoints.stats;
        let mut reasons = Report::new();
        for reason in Reason::ALL {
            reasons.set(reason.name(), &stats.written[reason as usize]);
        }
        let (operations, snapshots) = self.operation_lock.counts();
        self.checkpoints
            .merge_stats()
            .report(Report::new())
            .with("merging", self.checkpoints.is_merging())
            .with("version", self.checkpoints.last().version)
            .with("written", reasons)
            .with("nothing_to_do", &stats.nothing_to_do)
            .with("failed", &stats.failed)
            .with("pack_blocks", &stats.pack_blocks)
            .with("discarded_blocks", &stats.discarded_blocks)
            .with("closing_ns", &stats.closing_ns)
            .with("closed_ns", &stats.closed_ns)
            .with("whole_ns", &stats.whole_ns)
            .with("operations", operations)
            .with("snapshots", snapshots)
            .with("orphans", self.checkpoints.orphans.list().len())
    }

    fn segment_report(&self) -> Report {
        let stats = &self.segments.stats;
        let mut placed = Report::new();
        for (name, counter) in LOGS.iter().zip(&stats.placed) {
            placed.set(name, counter);
        }
        Report::new()
            .with("placed", placed)
            .with("in_place", &stats.in_place)
            .with("invalidated", &stats.invalidated)
            .with("taken_whole", &stats.segments_lfs)
            .with("taken_for_holes", &stats.segments_ssr)
            .with("sit_blocks_written", &stats.sit_blocks_written)
            .with("summaries_written", &stats.summaries_written)
            .with("free_segments", self.segments.free_segments())
            .with("undiscarded_blocks", self.segments.undiscarded_blocks())
            .with("prefree_segments", self.segments.prefree_segments())
            .with("free_sections", self.segments.free_sections())
    }

    fn node_report(&self) -> Report {
        let stats = &self.nodes.stats;
        Report::new()
            .with("read", &stats.read)
            .with("written", &stats.written)
            .with("marked", &stats.marked)
            .with("evicted", &stats.evicted)
            .with("chain_waits", &stats.chain_waits)
            .with("dirty", self.nodes.dirty_count())
    }

    fn nat_report(&self) -> Report {
        let stats = &self.nat.stats;
        Report::new()
            .with("block_lookups", &stats.block_lookups)
            .with("blocks_scanned", &stats.blocks_scanned)
            .with("blocks_written", &stats.blocks_written)
    }
}
