//! The three threads of the proposal: A, B and C.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use cairn_base::stats::Report;
use cairn_vfs::FileSystem;
use cairn_vfs::types::{Caller, IoFlags, NewInode};

use super::load::{counters, directory, times, touch_and_fsync, volume};
use crate::error::{Error, Result};
use crate::lanes::in_class;
use crate::volume::counter;

/// Rows of the three threads.
pub(super) const WITH_C: &str = "A, B and C";
pub(super) const WITHOUT_C: &str = "A and B";

/// Weights of A with the daemons, of B and of C.
const WEIGHTS: [u32; 3] = [50, 50, 20];
const STREAM: u64 = 192 << 20;
const PIECE: usize = 128 << 10;

/// Measures one run on a new volume.
pub(super) fn measure(option: &str, rounds: u32, with_c: bool) -> Result<Vec<(&'static str, f64)>> {
    let volume = volume(option, &WEIGHTS)?;
    let volume = &*volume;
    let (ours, theirs) = (directory(volume, "dir1")?, directory(volume, "dir2")?);
    let (stop, streamed, others) =
        (&AtomicBool::new(false), &AtomicU64::new(0), &AtomicU64::new(0));
    let before = volume.report();
    let mut figures = std::thread::scope(|scope| {
        let b = scope.spawn(move || in_class(1, || stream(volume, stop, streamed)));
        let c = with_c.then(|| {
            scope.spawn(move || {
                in_class(2, || -> Result<()> {
                    let mut unused = times();
                    while !stop.load(Relaxed) {
                        let number = others.fetch_add(1, Relaxed);
                        touch_and_fsync(volume, theirs, &format!("file-{number}"), &mut unused)?;
                    }
                    Ok(())
                })
            })
        });
        let mut fsyncs = times();
        let start = Instant::now();
        let outcome: Result<()> = in_class(0, || {
            (0..rounds).try_for_each(|number| {
                touch_and_fsync(volume, ours, &format!("file-{number}"), &mut fsyncs)
            })
        });
        let seconds = start.elapsed().as_secs_f64();
        stop.store(true, Relaxed);
        outcome?;
        b.join().map_err(|_| Error::Panicked)??;
        c.map_or(Ok(Ok(())), |c| c.join().map_err(|_| Error::Panicked))??;
        let millis = |quantile| fsyncs.value_at_quantile(quantile) as f64 / 1e6;
        Ok::<_, Error>(vec![
            ("seconds", seconds),
            ("p50_ms", millis(0.5)),
            ("p99_ms", millis(0.99)),
            ("max_ms", fsyncs.max() as f64 / 1e6),
            ("others", others.load(Relaxed) as f64),
            ("stream_mib_s", streamed.load(Relaxed) as f64 / f64::from(1 << 20) / seconds),
        ])
    })?;
    let after = volume.report();
    figures.extend(counters(&before, &after));
    figures.extend(micros(&after, "store.ckpt.closed_ns.p99").map(|us| ("closed_p99_us", us)));
    figures.extend(micros(&after, "store.ckpt.whole_ns.p99").map(|us| ("whole_p99_us", us)));
    volume.unmount()?;
    Ok(figures)
}

/// Writes pieces to one file repeatedly with direct I/O, so that the transfers have the caller's
/// class.
fn stream(volume: &dyn FileSystem, stop: &AtomicBool, streamed: &AtomicU64) -> Result<()> {
    let file =
        volume.create(volume.root(), b"stream", NewInode::Regular, 0o644, &Caller::ROOT)?.ino;
    let data = vec![0x5a; PIECE];
    let mut at = 0;
    while !stop.load(Relaxed) {
        volume.write(file, at, &data, IoFlags::DIRECT)?;
        streamed.fetch_add(PIECE as u64, Relaxed);
        at = (at + PIECE as u64) % STREAM;
    }
    Ok(())
}

fn micros(report: &Report, path: &str) -> Option<f64> {
    counter(report, path).map(|ns| ns / 1e3)
}
