//! The work of fs_mark in this process: threads create small files in common directories, with its
//! seven ways to make them durable. The unmodified program does the same through a mount
//! ([`program`]).

pub(crate) mod program;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use cairn::FileSystem;
use cairn_base::Ino;
use cairn_base::runtime::Event;
use cairn_vfs::types::{Caller, IoFlags, NewInode, OpenMode};
use hdrhistogram::Histogram;

use crate::clock::{Clock, Real};
use crate::error::{Error, Result};

/// `-S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncMethod {
    /// 0: nothing is synced.
    Never = 0,
    /// 1: fsync before close.
    BeforeClose = 1,
    /// 2: sync, then one fsync.
    SyncThenOne = 2,
    /// 3: after all writes, fsync in reverse order.
    Reverse = 3,
    /// 4: sync, then 3.
    SyncThenReverse = 4,
    /// 5: after all writes, fsync in order.
    InOrder = 5,
    /// 6: sync, then 5.
    SyncThenInOrder = 6,
}

impl SyncMethod {
    /// All seven.
    pub(crate) const ALL: [Self; 7] = [
        Self::Never,
        Self::BeforeClose,
        Self::SyncThenOne,
        Self::Reverse,
        Self::SyncThenReverse,
        Self::InOrder,
        Self::SyncThenInOrder,
    ];
}

/// The work. All threads share the directories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// `-t`.
    pub(crate) threads: usize,
    /// `-n`: files of each thread.
    pub(crate) files: usize,
    /// `-s`: bytes of each file.
    pub(crate) size: usize,
    /// `-D`.
    pub(crate) directories: usize,
    /// `-N`: number of files in a directory before the next directory is used.
    pub(crate) per_directory: usize,
    /// `-S`.
    pub(crate) sync: SyncMethod,
}

/// The figures of a run.
pub(crate) struct Marks {
    pub(crate) files: u64,
    pub(crate) elapsed: Duration,
    /// Time to create and write one file in nanoseconds. It includes waits for log space.
    pub(crate) changes: Histogram<u64>,
    /// Time of each fsync or sync in nanoseconds.
    pub(crate) syncs: Histogram<u64>,
}

impl Marks {
    pub(crate) fn files_per_s(&self) -> f64 {
        self.files as f64 / self.elapsed.as_secs_f64()
    }

    fn new() -> Self {
        // From a microsecond to an hour, with three digits.
        let histogram =
            || Histogram::new_with_bounds(1000, 3_600_000_000_000, 3).expect("bounds in order");
        Self { files: 0, elapsed: Duration::ZERO, changes: histogram(), syncs: histogram() }
    }

    fn merge(&mut self, other: &Self) {
        self.files += other.files;
        self.changes += &other.changes;
        self.syncs += &other.syncs;
    }
}

/// The time of a run, and what its processors need.
pub(crate) struct Timing<'t> {
    pub(crate) clock: Arc<dyn Clock>,
    /// Called before a file is made, and before a sync.
    pub(crate) before: &'t (dyn Fn(Step) + Sync),
}

/// What a thread is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To create and write a file.
    File,
    /// To call fsync or sync.
    Sync,
}

/// Does the work and keeps the files (`-k`). `each` is called after every file of every thread.
pub(crate) fn run(
    volume: &dyn FileSystem,
    load: &Load,
    each: &(dyn Fn(u64) + Sync),
) -> Result<Marks> {
    run_in(volume, load, each, &Timing { clock: Arc::new(Real::new()), before: &|_| {} })
}

/// As [`run`], in the time of a clock.
pub(crate) fn run_in(
    volume: &dyn FileSystem,
    load: &Load,
    each: &(dyn Fn(u64) + Sync),
    timing: &Timing<'_>,
) -> Result<Marks> {
    let directories = make_directories(volume, load.directories)?;
    let barrier = Barrier::new(load.threads + 1);
    let (ended, all_ended) = (AtomicUsize::new(0), Event::new());
    let mut marks = Marks::new();
    std::thread::scope(|scope| {
        let (directories, barrier, ended, all_ended) = (&directories, &barrier, &ended, &all_ended);
        let threads: Vec<_> = (0..load.threads)
            .map(|number| {
                let place = timing.clock.clone().place();
                scope.spawn(move || {
                    let _placed = place.take();
                    let _end = End { ended, all_ended };
                    barrier.wait();
                    let marks = Marks::new();
                    Worker { volume, load, directories, number, marks, timing }.run(each)
                })
            })
            .collect();
        barrier.wait();
        let start = timing.clock.now();
        // The clock of a model would go on while this thread waits in `join`.
        timing.clock.wait_until(all_ended, &mut || ended.load(SeqCst) == load.threads);
        marks.elapsed = timing.clock.now().saturating_sub(start);
        for thread in threads {
            marks.merge(&thread.join().map_err(|_| Error::Panicked)??);
        }
        Ok::<(), Error>(())
    })?;
    directories.iter().for_each(|directory| volume.forget(*directory, 1));
    Ok(marks)
}

/// Tells the end of a thread.
struct End<'r> {
    ended: &'r AtomicUsize,
    all_ended: &'r Event,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.ended.fetch_add(1, SeqCst);
        self.all_ended.notify();
    }
}

fn make_directories(volume: &dyn FileSystem, count: usize) -> Result<Vec<Ino>> {
    let make = |index| {
        let name = format!("{index:08x}");
        let made = volume.create(
            volume.root(),
            name.as_bytes(),
            NewInode::Directory,
            0o755,
            &Caller::ROOT,
        )?;
        Ok(made.ino)
    };
    (0..count.max(1)).map(make).collect()
}

struct Worker<'w> {
    volume: &'w dyn FileSystem,
    load: &'w Load,
    directories: &'w [Ino],
    number: usize,
    marks: Marks,
    timing: &'w Timing<'w>,
}

impl Worker<'_> {
    fn run(mut self, each: &(dyn Fn(u64) + Sync)) -> Result<Marks> {
        let data = vec![0x61; self.load.size];
        let mut files = Vec::with_capacity(self.load.files);
        for index in 0..self.load.files {
            files.push(self.file(index, &data)?);
            each(index as u64 + 1);
        }
        self.make_durable(&files)?;
        files.iter().for_each(|ino| self.volume.forget(*ino, 1));
        self.marks.files = files.len() as u64;
        Ok(self.marks)
    }

    fn file(&mut self, index: usize, data: &[u8]) -> Result<Ino> {
        let directory =
            self.directories[index / self.load.per_directory.max(1) % self.directories.len()];
        let name = format!("{:04x}~~~~{index:08x}", self.number);
        let start = self.timing.clock.now();
        (self.timing.before)(Step::File);
        let ino = self
            .volume
            .create(directory, name.as_bytes(), NewInode::Regular, 0o666, &Caller::ROOT)?
            .ino;
        let handle = self.volume.open(ino, OpenMode { write: true, direct: false })?;
        self.volume.write(ino, 0, data, IoFlags::empty())?;
        self.marks.changes.saturating_record(self.since(start));
        if self.load.sync == SyncMethod::BeforeClose {
            let volume = self.volume;
            self.timed(|| volume.fsync(ino, handle, false))?;
        }
        self.volume.release(ino, handle);
        Ok(ino)
    }

    /// Does the syncs that follow after all writes.
    fn make_durable(&mut self, files: &[Ino]) -> Result<()> {
        let volume = self.volume;
        match self.load.sync {
            SyncMethod::Never | SyncMethod::BeforeClose => return Ok(()),
            SyncMethod::SyncThenOne | SyncMethod::SyncThenReverse | SyncMethod::SyncThenInOrder => {
                self.timed(|| volume.sync())?
            }
            SyncMethod::Reverse | SyncMethod::InOrder => {}
        }
        match self.load.sync {
            SyncMethod::SyncThenOne => {
                files.last().into_iter().try_for_each(|ino| self.fsync(*ino))
            }
            SyncMethod::Reverse | SyncMethod::SyncThenReverse => {
                files.iter().rev().try_for_each(|ino| self.fsync(*ino))
            }
            _ => files.iter().try_for_each(|ino| self.fsync(*ino)),
        }
    }

    fn fsync(&mut self, ino: Ino) -> Result<()> {
        let volume = self.volume;
        let handle = volume.open(ino, OpenMode { write: true, direct: false })?;
        let done = self.timed(|| volume.fsync(ino, handle, false));
        volume.release(ino, handle);
        done
    }

    fn timed(&mut self, call: impl FnOnce() -> cairn_vfs::Result<()>) -> Result<()> {
        let start = self.timing.clock.now();
        (self.timing.before)(Step::Sync);
        call()?;
        self.marks.syncs.saturating_record(self.since(start));
        Ok(())
    }

    /// Nanoseconds since then.
    fn since(&self, start: Duration) -> u64 {
        let time = self.timing.clock.now().saturating_sub(start);
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{self, counter};

    #[test]
    fn every_way_makes_all_files() {
        let device = volume::ramdisk(64 << 20).unwrap();
        for sync in SyncMethod::ALL {
            volume::make(&device, Some(4 << 20)).unwrap();
            let volume = volume::open(&device, "").unwrap();
            let load =
                Load { threads: 3, files: 7, size: 4096, directories: 2, per_directory: 3, sync };
            let marks = run(&*volume, &load, &|_| {}).unwrap();
            assert_eq!((marks.files, marks.changes.len()), (21, 21));
            let syncs = match sync {
                SyncMethod::Never => 0,
                SyncMethod::BeforeClose | SyncMethod::Reverse | SyncMethod::InOrder => 21,
                SyncMethod::SyncThenOne => 6,
                SyncMethod::SyncThenReverse | SyncMethod::SyncThenInOrder => 24,
            };
            assert_eq!(marks.syncs.len(), syncs, "{sync:?}");
            let mut names = Vec::new();
            for directory in [&b"00000000"[..], b"00000001"] {
                let ino = volume.lookup(volume.root(), directory).unwrap().ino;
                volume
                    .readdir(ino, 0, &mut |entry| {
                        names.push(entry.name);
                        true
                    })
                    .unwrap();
            }
            assert_eq!(names.iter().filter(|name| !name.starts_with(b".")).count(), 21, "{sync:?}");
            if sync != SyncMethod::Never {
                assert!(counter(&volume.report(), "journal.transactions").unwrap() > 0.0);
            }
            volume.unmount().unwrap();
        }
    }
}
