//! Crash states of what any program writes: a volume of the user's on a recording device, which
//! somebody mounts.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cairn::{ImageSpec, Part};
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_crash::states::{CrashLog, Cut, Recording, read_image, write_image};
use cairn_crash::workload::{Crashed, Verdict};
use cairn_vfs::FileSystem;

use super::judges::Judges;
use super::kinds::{Format, Kind, open};
use super::report::{Report, Searched};
use super::run::notes;
use super::stop::is_stopped;
use super::watched::{Watched, Watching};
use crate::error::{Error, Result};
use crate::progress::Progress;

/// A volume whose writes are recorded.
pub struct Observed {
    kind: &'static Kind,
    recording: Arc<Recording>,
    from: u64,
    watched: Arc<Watched>,
}

/// What is searched of a recording.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Most crash states.
    pub states: usize,
    /// The seed of the states between flushes.
    pub seed: u64,
    /// The kernel recovers, too.
    pub kernel: bool,
    /// The command that was given.
    pub command: String,
}

impl Observed {
    /// Opens a copy in memory of the volume in an image. The image is only read.
    ///
    /// # Errors
    /// It cannot be read, or holds no volume that can be opened.
    pub fn open(image: &ImageSpec) -> Result<Self> {
        // A file that is the disk is read without its holes.
        let is_disk =
            image.part == Part::Whole && cairn::chain(image).is_ok_and(|links| links.len() == 1);
        let before = match (is_disk, image.file()) {
            (true, Some(path)) => read_image(path).map_err(Error::host(path))?,
            _ => {
                let opened = cairn::open_device(image, &[], false);
                copy(&*opened.map_err(|error| Error::Program(error.to_string()))?)?
            }
        };
        refuse_unjournaled(&before, image)?;
        let recording = Arc::new(Recording::start(before));
        let device: Arc<dyn BlockDevice> = recording.device();
        let format = match cairn::format::probe(&*device)? {
            Some(cairn::Format::Ext4) => Format::Ext4,
            Some(cairn::Format::F2fs) => Format::F2fs,
            _ => {
                let what =
                    format!("{image}: it is neither ext4 nor F2FS: make one with cairn mkfs");
                return Err(Error::Program(what));
            }
        };
        let kind = Kind::of_image(format);
        let opened = open(format, device, Threads::new(), "");
        let fs = opened.map_err(|error| Error::Program(format!("{image}: {error}")))?.fs;
        // A power cut from here on is examined: recovery and the marks of the mount are done.
        fs.sync()?;
        let from = recording.moment();
        let watched = Arc::new(Watched::new(fs, recording.clone()));
        Ok(Self { kind, recording, from, watched })
    }

    /// The volume, to be mounted.
    #[must_use]
    pub fn filesystem(&self) -> Arc<dyn FileSystem> {
        self.watched.clone()
    }

    /// Unmounts, and looks at crash states until one is wrong. That one is written to `keep`.
    ///
    /// # Errors
    /// The volume cannot be unmounted, or the host refuses something.
    pub fn search(self, extent: &Extent, keep: Option<&Path>) -> Result<(Report, Option<String>)> {
        let Self { kind, recording, from, watched } = self;
        let watching = watched.finish()?;
        drop(watched);
        let before = recording.before().fork();
        let whole = kind.whole(&before)?;
        let crash = CrashLog::new(before, recording.log()).with_whole(move |block| whole(block));
        let cuts = crash.cuts(from, extent.states, extent.seed);
        let progress = Progress::new();
        progress.expect(cuts.len());
        let clock = Instant::now();
        let mut report = Report::new("record", extent.command.clone());
        report.notes = notes(&[kind], extent.kernel);
        report.notes.push(format!(
            "{} writes and flushes, {} calls of fsync that returned",
            crash.log().events.len(),
            watching.fsyncs
        ));
        let seed = Some(extent.seed);
        let mut searched = Searched { runs: 1, seed, ..Searched::new(kind) };
        let judges = Judges::new(kind, extent.kernel)?;
        let mut found = None;
        for (number, cut) in cuts.into_iter().enumerate() {
            if is_stopped() {
                break;
            }
            searched.states += 1;
            let judged = judge(&judges, &crash, &watching, (number, cut), &mut searched);
            progress.step();
            if let Err(error) = judged {
                if let Some(path) = keep {
                    write_image(&crash.device(cut), path).map_err(Error::host(path))?;
                }
                found = Some(format!("{cut}: {error}"));
                break;
            }
        }
        searched.seconds = clock.elapsed().as_secs_f64();
        report.searched.push(searched);
        report.failure.clone_from(&found);
        report.stopped = is_stopped();
        Ok((report, found))
    }
}

/// Without a journal, ext4 promises nothing at a power cut: what it wrote is left in any mixture.
fn refuse_unjournaled(before: &MemoryDevice, image: &ImageSpec) -> Result<()> {
    let device: Arc<dyn BlockDevice> = Arc::new(before.fork());
    // Whatever else is wrong with it is said when it is opened.
    let Ok(Some(found)) = cairn_ext4::probe(&*device) else { return Ok(()) };
    let features = cairn_ext4::Info::of_probe(&found, &device, 0).features;
    if features.iter().any(|name| name == "has_journal") {
        return Ok(());
    }
    let why = "it has no journal, so nothing is promised of it at a power cut: add one (cairn tune \
               -O has_journal), or make a larger image, which has one";
    Err(Error::Program(format!("{image}: {why}")))
}

/// The volume of a partition, in memory.
fn copy(device: &dyn BlockDevice) -> Result<MemoryDevice> {
    const PIECE: u64 = 1 << 20;
    let size = device.geometry().size;
    let memory = MemoryDevice::new(size);
    let mut at = 0;
    while at < size {
        let len = PIECE.min(size - at);
        memory.load(at, &device.read_at(at, usize::try_from(len).unwrap_or(usize::MAX))?);
        at += len;
    }
    Ok(memory)
}

fn judge(
    judges: &Judges,
    crash: &CrashLog,
    watching: &Watching,
    (number, cut): (usize, Cut),
    searched: &mut Searched,
) -> Result<(), String> {
    let crashed = Crashed::new(crash.device(cut), cut, watching);
    let mut ask = |name: &str, verdict: Result<Verdict, String>| {
        match verdict.map_err(|error| format!("{name}: {error}"))? {
            Verdict::Kept(promises) => searched.judged(name, (1, promises, 0)),
            Verdict::Refused => searched.judged(name, (1, 0, 1)),
            Verdict::NotJudged => {}
        }
        Ok::<(), String>(())
    };
    ask("cairn", judges.by_cairn(&crashed))?;
    if number % 24 == 7 {
        ask("cairn, cut again", judges.cut_again(&crashed))?;
    }
    if let Some(name) = judges.checker().filter(|_| number % 2 == 0) {
        ask(name, judges.by_checker(&crashed))?;
    }
    if judges.has_kernel() && number % 8 == 4 {
        ask("kernel", judges.by_kernel(&crashed))?;
    }
    Ok(())
}
