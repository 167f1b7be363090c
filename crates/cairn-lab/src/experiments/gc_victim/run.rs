//! One measurement: a new volume, its files, the work, and the counts of written blocks.

use std::sync::Arc;
use std::time::Duration;

use cairn_block::wrap::Stats;
use cairn_f2fs::F2fs;
use cairn_f2fs::gc::Written;
use cairn_vfs::FileSystem;

use super::load::{Load, Prepared};
use super::setting::Setting;
use crate::error::{Error, Result};

/// The figures of one measurement.
pub(super) struct Figures {
    blocks: u64,
    dirty_percent: f64,
    /// Blocks written to the device, by the device's count.
    device: u64,
    by_class: Written,
    nodes_moved: u64,
    checkpoints: u64,
    valid_percent: f64,
    /// Sections that hold nodes at the end.
    node_sections: u32,
    /// Processor time of this thread, which does all of the work.
    seconds: f64,
}

impl Figures {
    /// The figures by the names of the metrics.
    pub(super) fn values(&self) -> Vec<(&'static str, f64)> {
        let per_block = |count: u64| count as f64 / self.blocks.max(1) as f64;
        let classes = &self.by_class;
        vec![
            ("waf", per_block(self.device)),
            ("dirty", self.dirty_percent),
            ("user", per_block(classes.user)),
            ("gc_data", per_block(classes.gc_data)),
            ("node", per_block(classes.node)),
            ("gc_node", per_block(classes.gc_node)),
            ("sit", per_block(classes.sit)),
            ("nat", per_block(classes.nat)),
            ("ssa", per_block(classes.ssa)),
            ("cp", per_block(classes.cp)),
            ("nodes_moved", per_block(self.nodes_moved)),
            ("checkpoints", self.checkpoints as f64),
            ("valid", self.valid_percent),
            ("node_sections", f64::from(self.node_sections)),
            ("kblocks_per_s", self.device as f64 / self.seconds / 1e3),
        ]
    }
}

/// The counters at one moment.
struct Counts {
    device: u64,
    by_class: Written,
    nodes_moved: u64,
    checkpoints: u64,
    victims: u64,
    victim_blocks: u64,
}

impl Counts {
    fn of(volume: &F2fs, device: &Stats) -> Result<Self> {
        let store = volume
            .store()
            .ok_or(cairn_vfs::Error::Invalid("the volume was opened to be read only"))?;
        let gc = volume.gc_stats();
        Ok(Self {
            device: device.snapshot().write_bytes / 4096,
            by_class: gc.written(store),
            nodes_moved: gc.node_blocks_moved.get(),
            checkpoints: store
                .checkpoints
                .stats
                .written
                .iter()
                .map(cairn_base::stats::Counter::get)
                .sum(),
            victims: gc.data_sections.get() + gc.node_sections.get(),
            victim_blocks: gc.victim_blocks.get(),
        })
    }
}

/// Creates and fills a volume, and measures the work.
pub(super) fn measure(
    setting: &Setting,
    policy: &str,
    load: Load,
    fill: Option<f64>,
) -> Result<Figures> {
    let (volume, device): (Arc<F2fs>, Arc<Stats>) = setting.make(policy)?;
    let mut files = Prepared::new(&volume, load, setting.file_blocks(fill))?;
    let before = Counts::of(&volume, &device)?;
    let begin = processor_time();
    let done = files.run(&volume, load)?;
    let seconds = (processor_time() - begin).as_secs_f64();
    let after = Counts::of(&volume, &device)?;
    let node_sections = volume.store().map_or(0, |store| store.segments.sections_in_use().1);
    files.verify(&volume)?;
    let section = {
        let layout = &volume.disk().layout;
        u64::from(layout.segs_per_sec) * 512
    };
    volume.unmount()?;
    let figures = Figures {
        blocks: done.written,
        dirty_percent: done.dirty_percent(),
        device: after.device - before.device,
        by_class: difference(&after.by_class, &before.by_class),
        nodes_moved: after.nodes_moved - before.nodes_moved,
        checkpoints: after.checkpoints - before.checkpoints,
        valid_percent: 100.0 * (after.victim_blocks - before.victim_blocks) as f64
            / ((after.victims - before.victims).max(1) * section) as f64,
        node_sections,
        seconds,
    };
    // The volume counts blocks by class, the device counts all of them: the sums must agree.
    let (own, seen) = (figures.by_class.total(), figures.device);
    if own.abs_diff(seen) * 100 > seen {
        return Err(Error::Program(format!(
            "the volume counts {own} blocks written, the device {seen}"
        )));
    }
    Ok(figures)
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn difference(after: &Written, before: &Written) -> Written {
    Written {
        user: after.user - before.user,
        gc_data: after.gc_data - before.gc_data,
        node: after.node - before.node,
        gc_node: after.gc_node - before.gc_node,
        sit: after.sit - before.sit,
        nat: after.nat - before.nat,
        ssa: after.ssa - before.ssa,
        cp: after.cp - before.cp,
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Pattern;
    use super::*;

    /// These relations do not depend on the machine's speed: the work is seeded and has no
    /// concurrency.
    #[test]
    fn policies_differ_in_what_they_write() {
        let load = Load::Overwrite {
            pattern: Pattern::Uniform,
            times: 0.3,
            dirty: 0.005,
            fsync_every: None,
        };
        let setting = Setting::smallest();
        let run = |policy: &str| measure(&setting, policy, load, Some(0.9)).unwrap();
        let [greedy, data_first, adaptive] = ["greedy", "data_first", "adaptive"].map(run);
        let shown = [&greedy, &data_first, &adaptive].map(Figures::values);
        assert!(
            greedy.nodes_moved > 0 && data_first.nodes_moved * 2 < greedy.nodes_moved,
            "{shown:?}"
        );
        assert!(adaptive.checkpoints * 3 < greedy.checkpoints, "{shown:?}");
        assert!(
            adaptive.device < greedy.device && adaptive.by_class.user == greedy.by_class.user,
            "{shown:?}"
        );
    }
}
