//! Crash states: the contents that a power cut can leave of a recorded run, and the promises made
//! before it.
//!
//! [`Recording`] wraps a device. [`CrashLog`] then enumerates states at every barrier, and seeded
//! random states between barriers. A state has everything that was durable at the moment of the cut
//! and a subset of the rest, in pieces of [`ATOMIC`] bytes. It becomes a device or an image file.
//! [`Promises`] has what must be there.
//!
//! The fault model is the recorder's (`cairn_block::wrap::Record`); moment and seed name a state,
//! so that a failing one can be repeated alone.

mod promises;
mod text;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Record;
use cairn_block::wrap::record::{Event, RecordLog};
use cairn_block::{BlockDevice, BlockDeviceExt};
use rustix::fs::SeekFrom;

pub use promises::Promises;

/// Aligned pieces of this many bytes are on the medium whole or not at all.
pub const ATOMIC: u64 = 4096;

/// All subsets of so many unflushed blocks are among [`CrashLog::cuts`].
const FEW: u32 = 4;

/// Size that a disk writes whole or not at all.
pub const SECTOR: u64 = 512;

/// A run being recorded.
pub struct Recording {
    before: MemoryDevice,
    record: Arc<Record>,
}

impl Recording {
    /// Starts from these contents.
    #[must_use]
    pub fn start(before: MemoryDevice) -> Self {
        let record = Arc::new(Record::new(Arc::new(before.fork())));
        Self { before, record }
    }

    /// The contents before the run.
    #[must_use]
    pub fn before(&self) -> &MemoryDevice {
        &self.before
    }

    /// The device to run on.
    #[must_use]
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        self.record.clone()
    }

    /// The current moment, for [`Promises`].
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.record.moment()
    }

    /// The record so far, while the run continues.
    #[must_use]
    pub fn log(&self) -> RecordLog {
        self.record.log()
    }

    /// The record.
    #[must_use]
    pub fn finish(self) -> CrashLog {
        CrashLog::new(self.before, self.record.log())
    }
}

/// What happens to changes that no flush has covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volatile {
    /// All reached the medium.
    Kept,
    /// None reached the medium.
    Lost,
    /// Each piece at random, with a random probability; both are seeded.
    Random(u64),
    /// The same with pieces of [`SECTOR`] bytes: blocks are torn, except those that the format
    /// needs whole ([`CrashLog::with_whole`]).
    Torn(u64),
    /// Exactly these pieces of [`ATOMIC`] bytes: bit `n` is the `n`-th of them, in the order of
    /// submission.
    Subset(u64),
}

/// One power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The time of the cut, in the recorder's moments.
    pub moment: u64,
    /// Which of the unflushed changes are on the medium.
    pub volatile: Volatile,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.volatile {
            Volatile::Kept => write!(f, "cut at {} with everything written", self.moment),
            Volatile::Lost => write!(f, "cut at {} with nothing unflushed", self.moment),
            Volatile::Random(seed) => write!(f, "cut at {} with seed {seed:#x}", self.moment),
            Volatile::Torn(seed) => {
                write!(f, "cut at {} with blocks torn by seed {seed:#x}", self.moment)
            }
            Volatile::Subset(mask) => {
                write!(f, "cut at {} with unflushed blocks {mask:#x}", self.moment)
            }
        }
    }
}

/// A recorded run and the contents from before it.
pub struct CrashLog {
    before: MemoryDevice,
    log: RecordLog,
    whole: Whole,
}

/// Which blocks of [`ATOMIC`] bytes are never torn, by their contents.
type Whole = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

impl CrashLog {
    /// Makes a log of the contents before a run and the record of the run.
    #[must_use]
    pub fn new(before: MemoryDevice, log: RecordLog) -> Self {
        Self { before, log, whole: Box::new(|_| false) }
    }

    /// The same with blocks that are never torn, because the format needs them whole.
    #[must_use]
    pub fn with_whole(self, whole: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self { whole: Box::new(whole), ..self }
    }

    /// The recorded events.
    #[must_use]
    pub fn log(&self) -> &RecordLog {
        &self.log
    }

    /// Flushes that succeeded.
    #[must_use]
    pub fn flushes(&self) -> usize {
        let events = self.log.events.iter().zip(&self.log.spans);
        events.filter(|(event, span)| **event == Event::Flush && span.completed.is_some()).count()
    }

    /// The moments around each barrier (a flush or forced write is in flight; it has just
    /// completed), and the end.
    #[must_use]
    pub fn barriers(&self) -> Vec<u64> {
        let mut moments = vec![0, self.log.end];
        for (event, span) in self.log.events.iter().zip(&self.log.spans) {
            let is_barrier = match event {
                Event::Flush => true,
                Event::Write { fua, .. }
                | Event::Discard { fua, .. }
                | Event::WriteZeroes { fua, .. } => *fua,
            };
            if let Some(completed) = span.completed.filter(|_| is_barrier) {
                moments.extend([completed, completed + 1]);
            }
        }
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    /// Two cuts at each barrier: all unflushed changes lost, and all kept.
    #[must_use]
    pub fn barrier_cuts(&self) -> Vec<Cut> {
        let both =
            |moment| [Volatile::Lost, Volatile::Kept].map(|volatile| Cut { moment, volatile });
        self.barriers().into_iter().flat_map(both).collect()
    }

    /// All subsets of the unflushed blocks at each barrier at which there are at most `most` of
    /// them, without the two extremes.
    #[must_use]
    pub fn subset_cuts(&self, most: u32) -> Vec<Cut> {
        let blocks = |moment: u64| {
            let point = self.log.crash_point(moment);
            let ranges = point.volatile.iter().filter_map(|event| self.log.events[*event].range());
            ranges.map(|range| range.end.div_ceil(ATOMIC) - range.start / ATOMIC).sum::<u64>()
        };
        let few = |moment: &u64| (2..=u64::from(most.min(16))).contains(&blocks(*moment));
        let subsets = |moment: u64| {
            let masks = 1..(1 << blocks(moment)) - 1;
            masks.map(move |mask| Cut { moment, volatile: Volatile::Subset(mask) })
        };
        self.barriers().into_iter().filter(few).flat_map(subsets).collect()
    }

    /// `count` cuts at seeded moments with seeded subsets.
    #[must_use]
    pub fn random_cuts(&self, count: usize, seed: u64) -> Vec<Cut> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut cut =
            || Cut { moment: rng.u64(0..=self.log.end), volatile: Volatile::Random(rng.u64(..)) };
        (0..count).map(|_| cut()).collect()
    }

    /// At most `most` cuts from a moment on: at every barrier with all unflushed writes lost and
    /// kept, with all subsets where they are few, and seeded ones between barriers, half of them
    /// torn.
    #[must_use]
    pub fn cuts(&self, from: u64, most: usize, seed: u64) -> Vec<Cut> {
        let mut cuts = self.barrier_cuts();
        cuts.extend(self.subset_cuts(FEW));
        cuts.retain(|cut| cut.moment >= from);
        let every = cuts.len().div_ceil((most * 2 / 3).max(1)).max(1);
        let mut cuts: Vec<Cut> = cuts.into_iter().step_by(every).collect();
        cuts.truncate(most);
        let mut random = fastrand::Rng::with_seed(seed);
        for number in cuts.len()..most {
            let (moment, seed) = (random.u64(from..=self.log.end), random.u64(..));
            let torn = number % 2 == 1;
            let volatile = if torn { Volatile::Torn(seed) } else { Volatile::Random(seed) };
            cuts.push(Cut { moment, volatile });
        }
        cuts
    }

    /// The device as the cut leaves it.
    ///
    /// # Panics
    /// A recorded change lies outside the device: a bug of the recorder.
    #[must_use]
    pub fn device(&self, cut: Cut) -> MemoryDevice {
        let device = self.before.fork();
        for piece in self.pieces(cut) {
            self.apply(&device, &piece);
        }
        device
    }

    /// The same as a sparse image file.
    ///
    /// # Errors
    /// The host's.
    pub fn write_image(&self, cut: Cut, path: &Path) -> io::Result<()> {
        write_image(&self.device(cut), path)
    }

    /// The writes on the medium, in the order of submission.
    fn pieces(&self, cut: Cut) -> Vec<Piece> {
        let point = self.log.crash_point(cut.moment);
        let whole = |event: usize| Piece {
            event,
            range: self.log.events[event].range().unwrap_or_default(),
        };
        let mut pieces: Vec<Piece> = point.durable.into_iter().map(whole).collect();
        let volatile = point.volatile.into_iter().map(whole);
        match cut.volatile {
            Volatile::Lost => {}
            Volatile::Kept => pieces.extend(volatile),
            Volatile::Subset(mask) => {
                let blocks = volatile.flat_map(|piece| piece.split(ATOMIC)).enumerate();
                let kept = blocks.filter(|(bit, _)| *bit < 64 && mask >> bit & 1 == 1);
                pieces.extend(kept.map(|(_, piece)| piece));
            }
            Volatile::Random(seed) | Volatile::Torn(seed) => {
                let torn = matches!(cut.volatile, Volatile::Torn(_));
                let unit =
                    |block: &Piece| if torn && !self.is_whole(block) { SECTOR } else { ATOMIC };
                let mut rng = fastrand::Rng::with_seed(seed);
                let kept = [0.1, 0.5, 0.9][rng.usize(0..3)];
                let blocks = volatile.flat_map(|piece| piece.split(ATOMIC));
                let split = |block: Piece| {
                    let unit = unit(&block);
                    block.split(unit)
                };
                pieces.extend(blocks.flat_map(split).filter(|_| rng.f64() < kept));
            }
        }
        pieces.sort_by_key(|piece| (piece.event, piece.range.start));
        pieces
    }

    fn is_whole(&self, block: &Piece) -> bool {
        let Range { start, end } = block.range;
        match &self.log.events[block.event] {
            Event::Write { offset, data, .. } if end - start == ATOMIC => {
                let within =
                    |at: u64| usize::try_from(at - offset).expect("a write fits into memory");
                (self.whole)(&data.slice(within(start)..within(end)))
            }
            _ => false,
        }
    }

    fn apply(&self, device: &MemoryDevice, piece: &Piece) {
        let Range { start, end } = piece.range;
        let applied = match &self.log.events[piece.event] {
            Event::Write { offset, data, .. } => {
                let within =
                    |at: u64| usize::try_from(at - offset).expect("a write fits into memory");
                device.write_at(start, data.slice(within(start)..within(end)))
            }
            _ => device.write_zeroes(start, end - start),
        };
        applied.expect("a recorded change fits the device it was recorded on");
    }
}

/// A part of one recorded change.
struct Piece {
    event: usize,
    range: Range<u64>,
}

impl Piece {
    /// At multiples of `whole`.
    fn split(self, whole: u64) -> impl Iterator<Item = Piece> {
        let Piece { event, range } = self;
        let first = range.start / whole;
        let last = range.end.div_ceil(whole);
        (first..last).map(move |block| {
            let start = (block * whole).max(range.start);
            let end = ((block + 1) * whole).min(range.end);
            Piece { event, range: start..end }
        })
    }
}

/// Writes a device's contents to a file, zeros as holes.
///
/// # Errors
/// The host's.
pub fn write_image(device: &MemoryDevice, path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(device.geometry().size)?;
    device.for_each_piece(|offset, bytes| file.write_all_at(bytes, offset))
}

/// Reads an image file into memory.
///
/// # Errors
/// The host's.
pub fn read_image(path: &Path) -> io::Result<MemoryDevice> {
    const BUFFER: usize = 1 << 16;
    let file = File::open(path)?;
    let device = MemoryDevice::new(file.metadata()?.len());
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    loop {
        match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => at = data,
            Err(rustix::io::Errno::NXIO) => return Ok(device),
            Err(error) => return Err(error.into()),
        }
        let read = file.read_at(&mut buffer, at)?;
        device.load(at, &buffer[..read]);
        at += read as u64;
    }
}

#[cfg(test)]
mod tests;
