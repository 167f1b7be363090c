//! The work of a client, its volume, and its counters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Ino;
use cairn_base::stats::Report;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_vfs::FileSystem;
use cairn_vfs::types::{Caller, NewInode};
use hdrhistogram::Histogram;

use crate::error::Result;
use crate::lanes::Lanes;
use crate::paced::Pace;
use crate::volume::{self, growth};

/// Bytes of the device.
pub(super) const DEVICE: u64 = 1 << 30;

/// A phone's storage: 12,500 transfers a second, 400 MiB/s, 1.5 ms to flush.
pub(super) const PHONE: Pace = Pace {
    request: Duration::from_micros(80),
    bandwidth: 400 << 20,
    flush: Duration::from_micros(1500),
};

/// Creates a volume on memory with the timing of a phone's storage, divided by these weights.
pub(super) fn volume(option: &str, weights: &[u32]) -> Result<Arc<dyn FileSystem>> {
    let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE));
    volume::make_f2fs(&memory)?;
    let lanes: Arc<dyn BlockDevice> = Arc::new(Lanes::new(memory, PHONE, weights));
    volume::open(&lanes, option)
}

/// Creates a directory in the root.
pub(super) fn directory(volume: &dyn FileSystem, name: &str) -> Result<Ino> {
    Ok(volume
        .create(volume.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)?
        .ino)
}

/// Creates a file and fsyncs its directory. The time of the fsync goes to `times`, in nanoseconds.
pub(super) fn touch_and_fsync(
    volume: &dyn FileSystem,
    directory: Ino,
    name: &str,
    times: &mut Histogram<u64>,
) -> Result<()> {
    let made =
        volume.create(directory, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?;
    let start = Instant::now();
    volume.fsync(directory, 0, false)?;
    times.saturating_record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    volume.forget(made.ino, 1);
    Ok(())
}

/// A histogram for times from a microsecond to a minute.
pub(super) fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("the bounds are in order")
}

/// The counters of the daemon and of checkpoints over the run.
pub(super) fn counters(before: &Report, after: &Report) -> Vec<(&'static str, f64)> {
    let mut figures = Vec::new();
    let grown = |path: &str| growth(before, after, path);
    figures.extend(grown("store.ckpt.written").map(|written| ("checkpoints", written)));
    if let (Some(total), Some(issued)) = (grown("store.ckpt.total"), grown("store.ckpt.issued"))
        && issued > 0.0
    {
        figures.push(("merged", total / issued));
    }
    figures
}
