//! Measures one row in process: opens a volume with the option, touches memory, does the work,
//! unmounts.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn::FileSystem;
use cairn_block::BlockDevice;

use super::rows::{Durable, Line, Medium, Work};
use crate::error::Result;
use crate::leaving::Scratch;
use crate::scale::Scale;
use crate::volume::{self, OpenFile, counter, growth};

pub(super) const MIB: usize = 1 << 20;
/// The metric of what a memcpy of the same bytes gives.
pub(super) const BOUND: &str = "memcpy_mib_per_s";
const JOURNAL_BLOCK: f64 = 4096.0;
/// Bytes of the sparse file. It is larger than any run reads; the time limit ends the run.
const HOLE: u64 = 64 << 30;

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes of a file that is written.
    pub(super) file: u64,
    /// Bytes of the file that is read.
    pub(super) data: u64,
    /// Bytes of a device.
    pub(super) device: u64,
    /// Minimum of timed work in a repetition.
    pub(super) time: Duration,
}

impl Sizes {
    pub(super) fn of(scale: Scale) -> Self {
        let (file, data, device, milliseconds) =
            scale.pick((8, 16, 192, 20), (64, 256, 1024, 120), (256, 2048, 4096, 3000));
        let mib = |count: u64| count << 20;
        let time = Duration::from_millis(milliseconds);
        Self { file: mib(file), data: mib(data), device: mib(device), time }
    }

    /// A disk is slow, so it gets half of the work.
    fn on(self, medium: Medium) -> Self {
        match medium {
            Medium::Ramdisk => self,
            Medium::Disk => Self { file: self.file / 2, data: self.data / 2, ..self },
        }
    }
}

/// The figures of a row in one repetition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    mib_per_s: f64,
    iops: f64,
    map_calls_per_mib: Option<f64>,
    folios_per_mib: Option<f64>,
    journal_blocks_per_mib: Option<f64>,
}

impl Figures {
    /// The figures by the names of the metrics. `copy` is the speed of memory in MiB/s, `copies`
    /// how often each byte is copied.
    pub(super) fn list(&self, copy: f64, copies: Option<f64>) -> Vec<(&'static str, f64)> {
        let mut list = vec![("mib_per_s", self.mib_per_s), ("iops", self.iops)];
        list.push(("memcpy_fraction", self.mib_per_s / copy));
        // Blocks of the journal are copied to the device, too.
        let logged = self.journal_blocks_per_mib.unwrap_or(0.0) * JOURNAL_BLOCK / MIB as f64;
        list.extend(copies.map(|copies| (BOUND, copy / (copies + logged))));
        let counted = [
            ("map_calls_per_mib", self.map_calls_per_mib),
            ("folios_per_mib", self.folios_per_mib),
            ("journal_blocks_per_mib", self.journal_blocks_per_mib),
        ];
        list.extend(counted.into_iter().filter_map(|(name, value)| Some((name, value?))));
        list
    }
}

/// A volume in memory and one on a disk, with the files of the rows.
pub(super) struct Bench {
    ramdisk: Arc<dyn BlockDevice>,
    disk: Arc<dyn BlockDevice>,
    disk_kind: &'static str,
    sizes: Sizes,
    _directory: Option<Scratch>,
}

impl Bench {
    pub(super) fn new(scratch: &Path, sizes: Sizes) -> Result<Self> {
        let directory = Scratch::new(scratch)?;
        let ramdisk = volume::ramdisk(sizes.device)?;
        let (disk, disk_kind) =
            volume::image_file(&directory.path().join("disk.img"), sizes.device)?;
        for device in [&ramdisk, &disk] {
            volume::make(device, None)?;
            fill(device, sizes)?;
        }
        Ok(Self { ramdisk, disk, disk_kind, sizes, _directory: Some(directory) })
    }

    /// A volume of F2FS in memory.
    pub(super) fn f2fs(sizes: Sizes) -> Result<Self> {
        let ramdisk = volume::ramdisk(sizes.device)?;
        volume::make_f2fs(&ramdisk)?;
        fill(&ramdisk, sizes)?;
        let disk = ramdisk.clone();
        Ok(Self { ramdisk, disk, disk_kind: "none", sizes, _directory: None })
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    pub(super) fn ramdisk(&self) -> &Arc<dyn BlockDevice> {
        &self.ramdisk
    }

    pub(super) fn disk_kind(&self) -> &'static str {
        self.disk_kind
    }

    /// Measures one repetition of a row with a mount option.
    pub(super) fn measure(&self, line: &Line, option: &str) -> Result<Figures> {
        let device = match line.medium {
            Medium::Ramdisk => &self.ramdisk,
            Medium::Disk => &self.disk,
        };
        // The cache is large enough that write-back does not begin by itself, and that a whole
        // file's memory is recycled.
        let cache = 16 * self.sizes.file.max(self.sizes.data / 2);
        let volume = volume::open(device, &format!("{option},cache={cache}"))?;
        let figures = self.work(&*volume, line);
        volume.unmount()?;
        figures
    }

    fn work(&self, volume: &dyn FileSystem, line: &Line) -> Result<Figures> {
        let sizes = self.sizes.on(line.medium);
        let mut meter = Meter::new(volume, line.block, sizes.time);
        match line.work {
            Work::ReadHole => {
                warm(volume, sizes.data.min(2 * sizes.file))?;
                meter.read(&OpenFile::open(volume, "hole")?, HOLE)?;
            }
            Work::ReadData => {
                warm(volume, sizes.data)?;
                meter.read(&OpenFile::open(volume, "data")?, sizes.data)?;
            }
            Work::Append(durable) => {
                warm(volume, sizes.file)?;
                append(volume, &mut meter, sizes, durable)?;
            }
            Work::Overwrite(durable) => {
                let file = OpenFile::open(volume, "old")?;
                // The file is in the cache, because it was just written.
                write_all(&file, sizes.file)?;
                file.fsync()?;
                meter.cached = sizes.file;
                while meter.go_on() {
                    meter.write(&file, sizes.file, durable)?;
                }
            }
        }
        Ok(meter.figures())
    }
}

fn append(
    volume: &dyn FileSystem,
    meter: &mut Meter<'_>,
    sizes: Sizes,
    durable: Durable,
) -> Result<()> {
    let file = OpenFile::create(volume, "new")?;
    while meter.go_on() {
        if meter.bytes > 0 {
            file.set_size(0)?;
            // The blocks are free after a commit, which is not part of the measured work.
            if durable != Durable::Never {
                volume.sync()?;
            }
        }
        meter.write(&file, sizes.file, durable)?;
    }
    drop(file);
    volume.unlink(volume.root(), b"new")?;
    Ok(())
}

/// Lets the cache recycle this many bytes, so that first touches are not measured.
fn warm(volume: &dyn FileSystem, bytes: u64) -> Result<()> {
    let file = OpenFile::create(volume, "warm")?;
    write_all(&file, bytes)?;
    drop(file);
    volume.unlink(volume.root(), b"warm")?;
    Ok(())
}

fn write_all(file: &OpenFile<'_>, bytes: u64) -> Result<()> {
    let piece = vec![0x33; MIB];
    (0..bytes / MIB as u64).try_for_each(|index| file.write(index * MIB as u64, &piece))
}

/// Creates the files of the rows: `data` and `hole` are read, `old` is overwritten.
pub(super) fn fill(device: &Arc<dyn BlockDevice>, sizes: Sizes) -> Result<()> {
    let volume = volume::open(device, "")?;
    {
        write_all(&OpenFile::create(&*volume, "data")?, sizes.data)?;
        write_all(&OpenFile::create(&*volume, "old")?, sizes.file)?;
        OpenFile::create(&*volume, "hole")?.set_size(HOLE)?;
    }
    volume.unmount()?;
    Ok(())
}

/// Adds up the timed passes of one repetition.
struct Meter<'v> {
    volume: &'v dyn FileSystem,
    buf: Vec<u8>,
    enough: Duration,
    time: Duration,
    bytes: u64,
    calls: u64,
    map_calls: Option<f64>,
    journal_blocks: Option<f64>,
    folios: Option<f64>,
    /// Bytes of the file that the cache holds.
    cached: u64,
}

impl<'v> Meter<'v> {
    fn new(volume: &'v dyn FileSystem, block: usize, enough: Duration) -> Self {
        Self {
            volume,
            buf: vec![0x44; block],
            enough,
            time: Duration::ZERO,
            bytes: 0,
            calls: 0,
            map_calls: Some(0.0),
            journal_blocks: Some(0.0),
            folios: None,
            cached: 0,
        }
    }

    fn go_on(&self) -> bool {
        self.time < self.enough
    }

    /// Reads sequentially up to `size` or until the time is over.
    fn read(&mut self, file: &OpenFile<'_>, size: u64) -> Result<()> {
        let mut buf = std::mem::take(&mut self.buf);
        // The clock costs as much as a small read, so it is not read each time.
        let patience = (MIB / buf.len()).min(16) as u64;
        let done = self.pass(size, |clock, call, position| {
            let read = file.read(position, &mut buf)? as u64;
            Ok((read, read > 0 && (call % patience > 0 || clock.has_time())))
        });
        self.buf = buf;
        done
    }

    /// Writes sequentially up to `size`. With an fsync after each write, the time limit applies.
    fn write(&mut self, file: &OpenFile<'_>, size: u64, durable: Durable) -> Result<()> {
        let buf = std::mem::take(&mut self.buf);
        let len = buf.len() as u64;
        let done = self.pass(size, |clock, _, position| {
            file.write(position, &buf)?;
            match durable {
                Durable::EachWrite => {
                    file.fsync()?;
                    return Ok((len, clock.has_time()));
                }
                Durable::AtEnd if position + len >= size => file.fsync()?,
                Durable::AtEnd | Durable::Never => {}
            }
            Ok((len, true))
        });
        self.buf = buf;
        done
    }

    /// Calls `step(clock, number of the call, position)` until `size`. The step returns the bytes
    /// done, and whether to continue.
    fn pass(
        &mut self,
        size: u64,
        mut step: impl FnMut(&Clock, u64, u64) -> Result<(u64, bool)>,
    ) -> Result<()> {
        let before = self.volume.report();
        let clock = Clock { start: Instant::now(), left: self.enough.saturating_sub(self.time) };
        let (mut position, mut calls) = (0, 0);
        while position < size {
            calls += 1;
            let (bytes, go_on) = step(&clock, calls, position)?;
            position += bytes;
            if !go_on {
                break;
            }
        }
        self.time += clock.start.elapsed();
        let after = self.volume.report();
        self.bytes += position;
        self.calls += calls;
        let add = |sum: Option<f64>, path| Some(sum? + growth(&before, &after, path)?);
        self.map_calls = add(self.map_calls, "cache.map_calls");
        self.journal_blocks = add(self.journal_blocks, "journal.log_blocks");
        // The volume caches no other file here.
        self.cached = self.cached.max(position);
        self.folios = counter(&after, "cache.folios_by_order");
        Ok(())
    }

    fn figures(&self) -> Figures {
        let mib = self.bytes as f64 / MIB as f64;
        let seconds = self.time.as_secs_f64();
        Figures {
            mib_per_s: mib / seconds,
            iops: self.calls as f64 / seconds,
            map_calls_per_mib: self.map_calls.map(|calls| calls / mib),
            folios_per_mib: self.folios.map(|folios| folios / (self.cached as f64 / MIB as f64)),
            journal_blocks_per_mib: self.journal_blocks.map(|blocks| blocks / mib),
        }
    }
}

/// The time of a pass.
struct Clock {
    start: Instant,
    /// The time that the earlier passes of the repetition have left.
    left: Duration,
}

impl Clock {
    fn has_time(&self) -> bool {
        self.start.elapsed() < self.left
    }
}
