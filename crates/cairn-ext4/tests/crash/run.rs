//! Running a workload on a recording device.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{Batch, BlockDevice, Completion, Geometry};
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::{CrashLog, Promises, Recording, read_image};
use cairn_testkit::judge::mke2fs;
use cairn_testkit::workload::{Expect, Worker};
use cairn_vfs::{Caller, FileSystem, NewInode};

/// A kind of volume and its workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub seed: u64,
    pub mke2fs: &'static [&'static str],
    /// Mount options.
    pub options: &'static str,
    /// Further options for checkpoints.
    pub journal: Checkpointing,
    pub megabytes: u64,
    pub steps: u32,
    /// One worker runs in the simulator; several are contending threads.
    pub workers: u16,
    /// Synced operations before the part that is cut, so that the log wraps in it.
    pub laps: u32,
}

/// The checkpoint options of a workload.
#[derive(Clone, Copy, Debug)]
pub enum Checkpointing {
    /// With these mount options.
    Fixed(&'static str),
    /// With options that change continually.
    Changing,
}

/// All combinations of the options, with thresholds that small logs reach.
pub const CHECKPOINTING: &[&str] = &[
    "noasync_checkpoint,checkpoint_clean=counted",
    "noasync_checkpoint,checkpoint_clean=bail_out",
    "noasync_checkpoint,checkpoint_clean=scan",
    "async_checkpoint,checkpoint_clean=counted",
    "async_checkpoint=50,checkpoint_clean=counted",
    "async_checkpoint=90,checkpoint_clean=bail_out",
    "async_checkpoint=99,checkpoint_clean=scan",
    "async_checkpoint=99,checkpoint_clean=counted",
];

impl Checkpointing {
    fn options(self) -> &'static str {
        match self {
            Self::Fixed(options) => options,
            Self::Changing => "",
        }
    }

    /// Called after the `step`-th step of a worker.
    fn change(self, fs: &dyn FileSystem, step: u32) {
        if let Self::Changing = self {
            let next = CHECKPOINTING[(step * 5) as usize % CHECKPOINTING.len()];
            fs.remount(next).expect("valid options");
        }
    }
}

/// A finished run.
pub struct Run {
    pub crash: CrashLog,
    /// Cuts before this moment are not examined.
    pub from: u64,
    pub promises: Vec<Promises<String, Expect>>,
}

/// A device that ignores flushes and reports success.
pub struct Careless(pub Arc<dyn BlockDevice>);

impl BlockDevice for Careless {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, mut batch: Batch) -> Completion {
        batch.durability.preflush = false;
        batch.durability.fua = false;
        self.0.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        Ok(())
    }
}

/// A directory for images in memory.
pub fn shm() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm")
}

/// A fresh volume.
pub fn format(dir: &Path, args: &[&str], megabytes: u64) -> MemoryDevice {
    let image = dir.join("fresh");
    mke2fs(&image, megabytes << 20, args);
    read_image(&image).expect("the image is there")
}

/// Opens a volume.
pub fn open(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &str,
) -> Result<Arc<Ext4>, String> {
    let options = MountOptions::parse(options).expect("valid options");
    Ext4::open(device, runtime, &options).map_err(|error| format!("opening: {error}"))
}

type Wrap = fn(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>;

/// Runs a workload; `wrap` stands between volume and recorder.
pub fn run(workload: &Workload, dir: &Path, wrap: Wrap) -> Run {
    let recording = Arc::new(Recording::start(format(dir, workload.mke2fs, workload.megabytes)));
    let simulated = (workload.workers == 1).then(|| Simulated::new(workload.seed));
    let runtime: Arc<dyn Runtime> = match &simulated {
        Some(simulated) => simulated.clone(),
        None => Arc::new(Threads::new()),
    };
    let options = [workload.options, workload.journal.options()].join(",");
    let fs = open(wrap(recording.device()), runtime, &options).expect("a fresh volume opens");
    let shared = shared_directories(&fs);
    run_laps(&fs, workload.laps);
    let from = recording.moment();
    let mut workers: Vec<Worker> = (1..=workload.workers)
        .map(|number| Worker::new(opened(&fs), &recording, workload.seed, number, &shared))
        .collect();
    match &simulated {
        Some(simulated) => run_alone(&fs, &mut workers[0], simulated, workload),
        None => run_together(&fs, &mut workers, workload),
    }
    let promises = workers.into_iter().map(Worker::finish).collect();
    // Half of the runs end with an unmount, the others with a power cut.
    if workload.seed.is_multiple_of(2) {
        fs.unmount().expect("the volume closes");
    } else {
        fs.shutdown(false).expect("the volume stops");
    }
    drop(fs);
    let crash = loop_until_owned(recording);
    Run { crash, from, promises }
}

/// The volume and its way to drop inodes.
fn opened(fs: &Arc<Ext4>) -> (Arc<dyn FileSystem>, Arc<dyn Fn() + Send + Sync>) {
    let evicted = fs.clone();
    (fs.clone(), Arc::new(move || evicted.shrink_inodes()))
}

fn loop_until_owned(recording: Arc<Recording>) -> CrashLog {
    let recording =
        Arc::try_unwrap(recording).unwrap_or_else(|_| panic!("nobody else holds the recording"));
    recording.finish()
}

fn run_alone(fs: &Ext4, worker: &mut Worker, simulated: &Simulated, workload: &Workload) {
    for step in 0..workload.steps {
        worker.step().unwrap_or_else(|error| panic!("{workload:?}, step {step}: {error}"));
        workload.journal.change(fs, step);
        if step % 3 == 0 {
            simulated.some_steps(3);
        }
    }
}

fn run_together(fs: &Ext4, workers: &mut [Worker], workload: &Workload) {
    std::thread::scope(|scope| {
        for worker in workers {
            scope.spawn(move || {
                for step in 0..workload.steps {
                    worker
                        .step()
                        .unwrap_or_else(|error| panic!("{workload:?}, step {step}: {error}"));
                    workload.journal.change(fs, step);
                }
            });
        }
    });
}

fn shared_directories(fs: &Arc<Ext4>) -> Vec<(String, cairn_base::Ino)> {
    let mut all = vec![(String::new(), fs.root())];
    for name in ["d0", "d1"] {
        let made = fs
            .create(fs.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)
            .expect("a directory");
        all.push((name.to_owned(), made.ino));
    }
    fs.sync().expect("the device works");
    all
}

/// Moves the head of the log on.
fn run_laps(fs: &Arc<Ext4>, laps: u32) {
    for _ in 0..laps {
        let made = fs
            .create(fs.root(), b"lap", NewInode::Directory, 0o755, &Caller::ROOT)
            .expect("a directory");
        fs.sync().expect("the device works");
        fs.rmdir(fs.root(), b"lap").expect("an empty directory");
        fs.forget(made.ino, 1);
        fs.sync().expect("the device works");
    }
}
