//! `ops`: the time and the allocations of single operations, in process.
//!
//! The volumes are in memory and warm: all inodes and buffers are cached. Times and allocations are
//! measured in separate passes, so that counting costs no time.

mod work;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use cairn::FileSystem;
use cairn_block::BlockDevice;
use cairn_block::allocations::{self, Allocations};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};
use crate::experiment::{Context, Experiment, Findings};
use crate::section::{Builder, Metric};
use crate::volume;
use work::{ALL, Operation, Worker};

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ops",
    question: "What do single operations cost in process: nanoseconds, processor time, \
        allocations?",
    run,
    about: None,
};

const SUBJECTS: [&str; 2] = ["ext4", "f2fs"];
const THREADS: [usize; 4] = [1, 2, 4, 8];
const DEVICE: u64 = 1 << 30;

/// Figures of one row: of a metric each.
type Figures = Vec<(&'static str, f64)>;

fn run(context: &Context) -> Result<Findings> {
    let metrics = || {
        vec![
            Metric::lower("ns", "ns"),
            Metric::lower("cpu_ns", "CPU ns"),
            Metric::lower("allocations", "allocations"),
            Metric::lower("allocated_bytes", "bytes allocated"),
        ]
    };
    let mut builders = THREADS.map(|threads| {
        let title = format!("An operation, {}", many(threads));
        Builder::new(&format!("threads-{threads}"), &title, &SUBJECTS, metrics())
    });
    let devices = [volume::ramdisk(DEVICE)?, volume::ramdisk(DEVICE)?];
    let files = context.scale.pick(400, 8000, 40_000);
    context.progress.expect(context.repetitions * THREADS.len() * SUBJECTS.len());
    for repetition in 0..context.repetitions {
        for (builder, threads) in builders.iter_mut().zip(THREADS) {
            for subject in context.order(repetition, SUBJECTS.len()) {
                context.progress.show(&format!("{}, {}", SUBJECTS[subject], many(threads)));
                let volume = fresh(SUBJECTS[subject], &devices[subject])?;
                for (row, figures) in measure(&volume, threads, files)? {
                    builder.add(row, SUBJECTS[subject], &figures);
                }
                volume.unmount()?;
                context.progress.step();
            }
        }
    }
    Ok(Findings {
        sections: builders.into_iter().map(Builder::finish).collect(),
        notes: notes(files),
        ..Findings::default()
    })
}

fn many(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

fn notes(files: usize) -> Vec<String> {
    let mut notes = vec![format!(
        "{files} operations of all threads together (a quarter of them with fsync), each thread in \
         its own directory; volumes of {} MiB in memory, warm. ns: the time from start to end, \
         divided by the operations of all threads. CPU ns and allocations include those of \
         daemons.",
        DEVICE >> 20
    )];
    if !counts() {
        notes.push("No allocations: this program has an allocator that does not count.".into());
    }
    notes
}

/// True if the program's allocator counts.
fn counts() -> bool {
    let allocate = || drop(std::hint::black_box(Vec::<u8>::with_capacity(64)));
    allocations::during(allocate).1.calls > 0
}

fn fresh(subject: &str, device: &Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystem>> {
    if subject == "ext4" {
        volume::make(device, None)?
    } else {
        volume::make_f2fs(device)?
    }
    volume::open(device, "")
}

/// The figures of all operations. The first pass makes the volume warm and is not measured.
fn measure(
    volume: &Arc<dyn FileSystem>,
    threads: usize,
    files: usize,
) -> Result<Vec<(&'static str, Figures)>> {
    let mut workers: Vec<Worker> = (0..threads)
        .map(|number| Worker::new(volume, number, files / threads))
        .collect::<Result<_>>()?;
    let counted = counts();
    let mut rows: Vec<(&'static str, Figures)> =
        ALL.iter().map(|operation| (operation.name, Vec::new())).collect();
    for pass in [Pass::Warm, Pass::Times, Pass::Allocations] {
        if pass == Pass::Allocations && !counted {
            continue;
        }
        for (operation, (_, figures)) in ALL.iter().zip(&mut rows) {
            let count = (files / threads / operation.part).max(1);
            workers.iter_mut().for_each(|worker| worker.count = count);
            let found = pass.run(operation, &mut workers, (count * threads) as f64)?;
            figures.extend(found);
            if let Some(then) = operation.then {
                workers.iter_mut().try_for_each(then)?;
            }
        }
        volume.sync()?;
    }
    Ok(rows)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Warm,
    Times,
    Allocations,
}

impl Pass {
    fn run(self, operation: &Operation, workers: &mut [Worker], count: f64) -> Result<Figures> {
        match self {
            Self::Warm => together(operation, workers).map(|_| Vec::new()),
            Self::Times => {
                let (elapsed, processor) = together(operation, workers)?;
                let nanoseconds = |time: Duration| time.as_nanos() as f64 / count;
                Ok(vec![("ns", nanoseconds(elapsed)), ("cpu_ns", nanoseconds(processor))])
            }
            Self::Allocations => {
                let (done, Allocations { calls, bytes }) =
                    allocations::during(|| together(operation, workers));
                done?;
                Ok(vec![
                    ("allocations", calls as f64 / count),
                    ("allocated_bytes", bytes as f64 / count),
                ])
            }
        }
    }
}

/// Runs an operation with each worker in a thread. Returns the time and the processor time.
fn together(operation: &Operation, workers: &mut [Worker]) -> Result<(Duration, Duration)> {
    let barrier = Barrier::new(workers.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    (operation.run)(worker)
                })
            })
            .collect();
        let (start, processor) = (Instant::now(), processor_time());
        barrier.wait();
        for thread in threads {
            thread.join().map_err(|_| Error::Panicked)??;
        }
        Ok((start.elapsed(), processor_time().saturating_sub(processor)))
    })
}

/// Processor time of all threads of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_finds_the_files_that_it_expects() {
        for subject in SUBJECTS {
            let device = volume::ramdisk(256 << 20).unwrap();
            let volume = fresh(subject, &device).unwrap();
            let rows = measure(&volume, 2, 16).unwrap();
            assert_eq!(rows.len(), ALL.len());
            for (row, figures) in rows {
                assert!(figures.iter().any(|(name, ns)| *name == "ns" && *ns > 0.0), "{row}");
            }
            volume.unmount().unwrap();
        }
    }
}
