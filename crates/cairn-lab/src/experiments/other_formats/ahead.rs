//! Checkpoints of F2FS before anybody waits for the sections that they free, in the time of a model
//! ([`crate::clock`]).
//!
//! Threads overwrite a file that nearly fills the volume. A section that was cleaned, or emptied by
//! overwrites, can be used only after a checkpoint. Without help the thread that finds no free
//! section writes it. `ahead`: a thread of the experiment writes it as soon as few sections are
//! free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::Event;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::checkpoint::Reason;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::FileSystem;
use cairn_vfs::types::{Caller, IoFlags, NewInode, OpenMode};
use hdrhistogram::Histogram;

use crate::clock::{Clock, Model, ModelRuntime};
use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::media::{self, Medium, OnMedium};
use crate::processors::{FSYNC, Processors, WRITE};
use crate::random::Rng;
use crate::scale::Scale;
use crate::section::{Builder, Metric, Section};
use crate::volume;

pub(super) const ID: &str = "ahead";
pub(super) const OFF: &str = "when needed";
pub(super) const ON: &str = "ahead";
pub(super) const NOTE: &str = "Checkpoints ahead: eight threads overwrite blocks of a file that \
    fills 85 % of a volume of F2FS and fsync after every 32, in the time of a model. ahead: a \
    thread of the experiment looks every 2 ms, and writes a checkpoint if one frees at least four \
    sections and fewer than twelve are free. mode=adaptive fills holes of sections in use and \
    needs no free ones; mode=lfs is that of zoned devices.";
const DEVICE: u64 = 256 << 20;
const FULL: f64 = 0.85;
const BLOCK: usize = 4096;
const THREADS: usize = 8;
/// Blocks that a thread writes before an fsync.
const BURST: u64 = 32;
const LOOK: Duration = Duration::from_millis(2);
const MODES: [&str; 2] = ["mode=lfs", "mode=adaptive"];

/// Measures the table.
pub(super) fn measure(context: &Context) -> Result<Section> {
    let metrics = vec![
        Metric::higher("writes_per_s", "writes/s"),
        Metric::lower("write_p99_ms", "write p99 ms"),
        Metric::lower("write_p999_ms", "write p99.9 ms"),
        Metric::lower("write_max_ms", "write max ms"),
        Metric::lower("checkpoints", "checkpoints"),
        Metric::lower("waf", "WAF"),
    ];
    let title = "F2FS: checkpoints that free sections, before a thread needs one";
    let mut builder = Builder::new(ID, title, &[OFF, ON], metrics);
    let some: &[Medium] = match context.scale {
        Scale::Quick => &media::ALL[3..],
        Scale::Default | Scale::Full => &media::ALL,
    };
    context.progress.expect(some.len() * MODES.len());
    for medium in some {
        for mode in MODES {
            let row = format!("{}, {mode}", medium.title);
            context.progress.show(&row);
            for (subject, ahead) in [(OFF, false), (ON, true)] {
                let writes = context.scale.pick(4_000, 24_000, 96_000);
                builder.add(&row, subject, &one(*medium, mode, ahead, writes)?);
            }
            context.progress.step();
        }
    }
    Ok(builder.finish())
}

fn one(medium: Medium, mode: &str, ahead: bool, writes: u64) -> Result<Vec<(&'static str, f64)>> {
    let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE));
    volume::make_f2fs(&memory)?;
    let model = Model::new();
    let clock: Arc<dyn Clock> = model.clone();
    let _seated = model.seat().sit();
    let device = Arc::new(OnMedium::new(memory, medium, clock.clone()));
    let options = format!("{mode},background_gc=off,cache=64M");
    let options = MountOptions::parse(&options).map_err(failed)?;
    let volume =
        F2fs::open(device.clone(), ModelRuntime::new(model, 7), &options).map_err(failed)?;
    let work = Work::new(&volume, clock, writes / THREADS as u64)?;
    let (checkpoints, written) = (checkpoints(&volume), device.written());
    let (times, took) = work.run(ahead)?;
    let seconds = took.as_secs_f64();
    let ms = |quantile| times.value_at_quantile(quantile) as f64 / 1e6;
    let figures = vec![
        ("writes_per_s", times.len() as f64 / seconds),
        ("write_p99_ms", ms(0.99)),
        ("write_p999_ms", ms(0.999)),
        ("write_max_ms", times.max() as f64 / 1e6),
        ("checkpoints", (self::checkpoints(&volume) - checkpoints) as f64),
        ("waf", (device.written() - written) as f64 / BLOCK as f64 / times.len() as f64),
    ];
    device.stop();
    volume.unmount()?;
    Ok(figures)
}

fn failed(error: cairn_f2fs::Error) -> Error {
    Error::Program(format!("the volume could not be opened: {error}"))
}

fn checkpoints(volume: &F2fs) -> u64 {
    let count = |store: &cairn_f2fs::store::Store| {
        store.checkpoints.stats.written.iter().map(cairn_base::stats::Counter::get).sum()
    };
    volume.store().map_or(0, |store| count(store))
}

/// The file and its threads.
struct Work<'v> {
    volume: &'v Arc<F2fs>,
    clock: Arc<dyn Clock>,
    processors: Processors,
    ino: Ino,
    handle: u64,
    blocks: u64,
    /// Of each thread.
    writes: u64,
    ended: AtomicUsize,
    all_ended: Event,
}

impl<'v> Work<'v> {
    fn new(volume: &'v Arc<F2fs>, clock: Arc<dyn Clock>, writes: u64) -> Result<Self> {
        let root = volume.root();
        let made = volume.create(root, b"file", NewInode::Regular, 0o644, &Caller::ROOT)?;
        let handle = volume.open(made.ino, OpenMode { write: true, direct: false })?;
        let blocks = (volume.statfs()?.free_blocks as f64 * FULL) as u64;
        let piece = vec![1; 256 * BLOCK];
        for start in (0..blocks).step_by(256) {
            let count = (blocks - start).min(256) as usize;
            write(volume, made.ino, start, &piece[..count * BLOCK])?;
        }
        volume.sync()?;
        let processors = Processors::new(clock.clone());
        let (ended, all_ended) = (AtomicUsize::new(0), Event::new());
        let ino = made.ino;
        Ok(Self { volume, clock, processors, ino, handle, blocks, writes, ended, all_ended })
    }

    /// The times of all writes in nanoseconds, and how long they took together.
    fn run(&self, ahead: bool) -> Result<(Histogram<u64>, Duration)> {
        let (mut times, begin) = (histogram(), self.clock.now());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|number| {
                    let place = self.clock.clone().place();
                    scope.spawn(move || {
                        let _placed = place.take();
                        let times = self.overwrite(number as u64);
                        self.ended.fetch_add(1, SeqCst);
                        self.all_ended.notify();
                        times
                    })
                })
                .collect();
            let helper = ahead.then(|| {
                let place = self.clock.clone().place();
                scope.spawn(move || {
                    let _placed = place.take();
                    self.checkpoint_ahead()
                })
            });
            self.clock.wait_until(&self.all_ended, &mut || self.ended.load(SeqCst) == THREADS);
            let took = self.clock.now().saturating_sub(begin);
            for thread in threads {
                times += thread.join().map_err(|_| Error::Panicked)??;
            }
            helper
                .map_or(Ok(Ok(())), std::thread::ScopedJoinHandle::join)
                .map_err(|_| Error::Panicked)??;
            Ok((times, took))
        })
    }

    fn overwrite(&self, number: u64) -> Result<Histogram<u64>> {
        let (mut rng, mut times, data) = (Rng::new(number + 1), histogram(), [2; BLOCK]);
        for count in 1..=self.writes {
            let begin = self.clock.now();
            self.processors.work(WRITE);
            write(self.volume, self.ino, rng.below(self.blocks), &data)?;
            if count.is_multiple_of(BURST) {
                self.processors.work(FSYNC);
                self.volume.fsync(self.ino, self.handle, true)?;
            }
            let time = self.clock.now().saturating_sub(begin).as_nanos();
            times.saturating_record(u64::try_from(time).unwrap_or(u64::MAX));
        }
        Ok(times)
    }

    /// Writes checkpoints while sections are few, until the work ends.
    fn checkpoint_ahead(&self) -> Result<()> {
        let store = self.volume.store().ok_or(cairn_vfs::Error::Invalid("only read"))?;
        while self.ended.load(SeqCst) < THREADS {
            self.clock.sleep_until(self.clock.now() + LOOK);
            let segments = &store.segments;
            if segments.prefree_segments() >= 4 && segments.free_sections() < 12 {
                store.checkpoints.write(Reason::Cleaning).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn write(volume: &F2fs, ino: Ino, block: u64, data: &[u8]) -> Result<()> {
    let written = volume.write(ino, block * BLOCK as u64, data, IoFlags::empty())?;
    if written == data.len() { Ok(()) } else { Err(cairn_vfs::Error::NoSpace.into()) }
}

fn histogram() -> Histogram<u64> {
    // From a microsecond to an hour, with three digits.
    Histogram::new_with_bounds(1000, 3_600_000_000_000, 3).expect("bounds in order")
}
