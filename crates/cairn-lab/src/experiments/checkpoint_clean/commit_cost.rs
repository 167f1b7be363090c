//! The cost of one commit by the number of listed transactions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use cairn_base::runtime::threads::Threads;
use cairn_base::{FileBlock, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_jbd2::{CheckpointClean, Journal, JournalArea, JournalOptions};

use super::subjects::MODES;
use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::section::{Builder, Metric, Section};
use crate::statistics::Spread;

/// Id of the table.
pub(super) const ID: &str = "commit-cost";
/// Metrics.
pub(super) const NS: &str = "commit_ns";
pub(super) const LOOKS: &str = "looks_per_commit";

const BLOCK: u32 = 1024;
/// Bursts of one repetition.
const BURSTS: u32 = 5;
/// Log blocks of a transaction: descriptor, metadata block, commit block.
const LOG_BLOCKS: u32 = 3;

/// Lengths of the checkpoint list.
pub(super) fn lengths(context: &Context) -> &'static [u32] {
    context.scale.pick(
        &[10, 1000, 10_000],
        &[10, 100, 1000, 3000, 10_000, 100_000],
        &[10, 100, 1000, 3000, 10_000, 100_000],
    )
}

/// The name of a length's row.
pub(super) fn row(listed: u32) -> String {
    format!("{listed} listed")
}

pub(super) fn measure(context: &Context) -> Result<Section> {
    let commits = context.scale.pick(10, 100, 400);
    let metrics = vec![
        Metric::lower(NS, "ns a commit"),
        Metric::lower(LOOKS, "looks a commit"),
        Metric::lower("freed_per_commit", "freed a commit"),
    ];
    let mut builder = Builder::new(ID, "Cost of a commit", &MODES, metrics);
    let more =
        (commits + 1) * BURSTS * 3 * u32::try_from(context.repetitions).unwrap_or(u32::MAX) + 64;
    let lengths = lengths(context);
    context.progress.show("listing transactions");
    let benches: Vec<Bench> =
        lengths.iter().map(|listed| Bench::new(*listed, more)).collect::<Result<_>>()?;
    context.progress.expect(context.repetitions);
    for repetition in 0..context.repetitions {
        let order: Vec<&str> =
            context.order(repetition, MODES.len()).map(|index| MODES[index]).collect();
        let mut best = BTreeMap::new();
        // The lengths are compared as well, so they take turns in short bursts. The quickest burst
        // of each counts, because other work of the machine only adds to it.
        for _ in 0..BURSTS {
            for (listed, bench) in lengths.iter().zip(&benches) {
                context.progress.show(&row(*listed));
                for mode in &order {
                    let burst = bench.measure(mode, commits)?;
                    let kept = best.entry((listed, *mode)).or_insert(burst);
                    if burst[0].1 < kept[0].1 {
                        *kept = burst;
                    }
                }
            }
        }
        for ((listed, mode), values) in &best {
            builder.add(&row(**listed), mode, values);
        }
        context.progress.step();
    }
    Ok(builder.finish())
}

/// A journal with a long checkpoint list.
struct Bench {
    buffers: Arc<BufferCache>,
    journal: Arc<Journal>,
    /// The block that each commit changes.
    hot: u64,
}

impl Bench {
    fn new(listed: u32, more: u32) -> Result<Self> {
        // The log never fills, so nothing is checkpointed.
        let log_blocks = (listed + more) * LOG_BLOCKS + 4096;
        let hot = u64::from(log_blocks);
        let size = (hot + 1 + u64::from(listed)) * u64::from(BLOCK);
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(size));
        device.write_at(0, superblock(log_blocks))?;
        let extents = vec![(FileBlock(0), Pba(0), u64::from(log_blocks))];
        let area = JournalArea { device: device.clone(), block_size: BLOCK, extents };
        let buffers = BufferCache::new(device, BLOCK, Budget::new(4 << 30));
        let options = JournalOptions::default();
        let journal =
            Journal::open(options, buffers.clone(), area, Threads::new()).map_err(failed)?;
        let bench = Self { buffers, journal, hot };
        (0..u64::from(listed)).try_for_each(|number| bench.commit(hot + 1 + number))?;
        Ok(bench)
    }

    fn commit(&self, block: u64) -> Result<()> {
        let handle = self.journal.start(1).map_err(failed)?;
        let buffer = self.buffers.get(Pba(block)).map_err(failed)?;
        handle.get_write_access(&buffer).map_err(failed)?[0] ^= 1;
        let tid = handle.tid();
        drop(handle);
        self.journal.commit_and_wait(tid).map_err(failed)
    }

    fn measure(&self, mode: &str, commits: u32) -> Result<[(&'static str, f64); 3]> {
        let name = mode.split_once('=').map_or(mode, |(_, name)| name);
        let mode = CheckpointClean::named(name)
            .ok_or_else(|| Error::Program(format!("no mode {name}")))?;
        self.journal.set_checkpoint_clean(mode);
        let counts = || (self.journal.stats().clean_steps.get(), self.journal.stats().freed.get());
        // The first commit of a mode may have more to clean.
        self.commit(self.hot)?;
        let before = counts();
        let mut times = Vec::with_capacity(commits as usize);
        for _ in 0..commits {
            let start = Instant::now();
            self.commit(self.hot)?;
            times.push(start.elapsed().as_nanos() as f64);
        }
        let after = counts();
        // The median ignores commits during which the machine did other work.
        let time = Spread::of(&times).map_or(f64::NAN, |times| times.median);
        let each = |total: f64| total / f64::from(commits);
        Ok([
            (NS, time),
            (LOOKS, each((after.0 - before.0) as f64)),
            ("freed_per_commit", each((after.1 - before.1) as f64)),
        ])
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Program(format!("the journal failed: {error}"))
}

/// A version 2 journal superblock of an empty log: magic, block type, block size, blocks, first
/// block, sequence, users.
fn superblock(blocks: u32) -> Vec<u8> {
    let mut block = vec![0_u8; BLOCK as usize];
    for (at, value) in [
        (0x00, 0xc03b_3998),
        (0x04, 4),
        (0x0c, BLOCK),
        (0x10, blocks),
        (0x14, 1),
        (0x18, 1),
        (0x40, 1),
    ] {
        block[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_scan_looks_at_everything() {
        let bench = Bench::new(200, 100).unwrap();
        let looks = |mode| bench.measure(mode, 10).unwrap()[1].1;
        assert!(looks(super::super::subjects::SCAN) >= 200.0);
        assert!(looks(super::super::subjects::BAIL_OUT) <= 2.0);
        assert!(looks(super::super::subjects::COUNTED) <= 2.0);
    }
}
