//! A run on a new volume, in the time of a model.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::stats::Report;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::{Ext4, MountOptions};
use cairn_jbd2::CheckpointParts;
use cairn_vfs::FileSystem;

use super::rates::Run;
use crate::clock::{Clock, Model, ModelRuntime};
use crate::error::{Error, Result};
use crate::fs_mark::{self, Load, Step, Timing};
use crate::media::{Medium, OnMedium};
use crate::processors::{CREATE, FSYNC, Processors};
use crate::volume::{self, growth};

const DEVICE: u64 = 2048 << 20;
/// Random numbers of a volume follow from the repetition, so that two of them differ.
pub(in crate::experiments) const SEED: u64 = 15;

/// Does the work with a mount option and these parts of checkpointing.
pub(in crate::experiments) fn run_on(
    medium: Medium,
    journal: u64,
    option: &str,
    parts: CheckpointParts,
    load: &Load,
    seed: u64,
) -> Result<Run> {
    let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE));
    volume::make(&memory, Some(journal))?;
    let model = Model::new();
    let clock: Arc<dyn Clock> = model.clone();
    let _seated = model.seat().sit();
    let device = Arc::new(OnMedium::new(memory, medium, clock.clone()));
    let opened = MountOptions::parse(option)
        .and_then(|options| Ext4::open(device.clone(), ModelRuntime::new(model, seed), &options));
    let volume = opened
        .map_err(|error| Error::Program(format!("the volume could not be opened: {error}")))?;
    volume.set_checkpoint_parts(parts);
    let processors = Processors::new(clock.clone());
    let (before, busy) = (volume.report(), device.busy());
    let work = |step| {
        processors.work(match step {
            Step::File => CREATE,
            Step::Sync => FSYNC,
        })
    };
    let timing = Timing { clock, before: &work };
    let marks = fs_mark::run_in(&*volume, load, &|_| {}, &timing)?;
    let (after, busy) = (volume.report(), device.busy().saturating_sub(busy));
    device.stop();
    volume.unmount()?;
    Ok(finished(marks, busy, &before, &after))
}

fn finished(marks: fs_mark::Marks, busy: Duration, before: &Report, after: &Report) -> Run {
    let grown = |path| growth(before, after, path).unwrap_or(0.0);
    Run {
        marks,
        busy,
        transactions: grown("journal.transactions"),
        stalls: grown("journal.stalls.count"),
        stall_ms: grown("journal.stalls.total_ns") / 1e6,
        logged: grown("journal.blocks_logged"),
        superseded: grown("journal.superseded"),
        written: grown("journal.checkpoint.written"),
        writing_s: grown("journal.checkpoint.chp_time_ms") / 1e3,
    }
}
