//! Those who look at a crash state: Cairn, Cairn whose recovery is cut as well, e2fsck or
//! fsck.f2fs, and the kernel.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_crash::damage::flip;
use cairn_crash::foreign::{self, is_clean_after_preen, is_clean_f2fs};
use cairn_crash::states::{Recording, SECTOR, Volatile, read_image, write_image};
use cairn_crash::workload::{Crashed, Verdict};

use super::kinds::{Format, Kind, open};
use crate::error::Result;
use crate::leaving::Scratch;
use crate::mounted::{Mounted, Server};

/// Records of errors, which are no damage.
const RECORDS: [&str; 2] = ["f2fs.checkpoint.flags", "f2fs.superblock.errors"];

/// The judges of a kind, and the room that they need.
pub(super) struct Judges {
    kind: &'static Kind,
    dir: Scratch,
    checker: Option<PathBuf>,
    kernel: bool,
    /// Where ext4's journal lies, if it has checksums.
    log: Option<Range<u64>>,
}

type Told<T> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Judges {
    /// `kernel`: the kernel's ext4 is asked, too.
    pub(super) fn new(kind: &'static Kind, kernel: bool) -> Result<Self> {
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let dir = Scratch::named(&place, "cairn-lab-crash-")?;
        let kernel = kernel && kind.format == Format::Ext4;
        let log = if kind.has_checksums { journal_of(kind)? } else { None };
        Ok(Self { kind, dir, checker: foreign::find(checker_of(kind.format)), kernel, log })
    }

    /// The foreign checker's name, if it is installed.
    pub(super) fn checker(&self) -> Option<&'static str> {
        self.checker.as_ref().map(|_| checker_of(self.kind.format))
    }

    /// True if there is a log that can be damaged.
    pub(super) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// True if the kernel judges.
    pub(super) fn has_kernel(&self) -> bool {
        self.kernel
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Told<cairn_crash::opened::Opened> {
        self.kind.open(device, Simulated::new(1), "")
    }

    /// Cairn's check finds nothing.
    pub(super) fn check(&self, device: &MemoryDevice, when: &str) -> Told<()> {
        let device: Arc<dyn BlockDevice> = Arc::new(device.fork());
        let runtime: Arc<dyn Runtime> = Threads::new();
        let report = match self.kind.format {
            Format::Ext4 => {
                cairn_ext4::check::check(device, runtime, Arc::new(())).map_err(text)?
            }
            Format::F2fs => cairn_f2fs::check::check(Kind::device(device)?, &runtime, Arc::new(()))
                .map_err(text)?,
        };
        let findings = report.findings.iter().filter(|one| !RECORDS.contains(&one.kind.code));
        let lines: Vec<String> = findings.map(ToString::to_string).collect();
        if lines.is_empty() {
            return Ok(());
        }
        Err(format!("{when}, cairn check finds:\n{}", lines.join("\n")))
    }

    /// The foreign checker finds nothing on an unmounted volume.
    pub(super) fn foreign_check(&self, device: &MemoryDevice, when: &str) -> Told<()> {
        let Some(program) = &self.checker else { return Ok(()) };
        let image = self.dir.path().join("recovered");
        write_image(device, &image).map_err(text)?;
        self.check_image(program, &image, when)
    }

    fn check_image(&self, program: &Path, image: &Path, when: &str) -> Told<()> {
        let (name, verdict) = match self.kind.format {
            Format::Ext4 => ("e2fsck -fn", foreign::e2fsck_check(program, image)),
            Format::F2fs => ("fsck.f2fs --dry-run", foreign::fsck_f2fs(program, image)),
        };
        let verdict = verdict.map_err(text)?;
        // The other pack of F2FS stays torn until a checkpoint replaces it.
        let is_clean = match self.kind.format {
            Format::Ext4 => verdict.is_clean(),
            Format::F2fs => is_clean_f2fs(&verdict, true),
        };
        if is_clean {
            return Ok(());
        }
        Err(format!("{when}, {name} {}", verdict.words()))
    }

    /// Cairn's check finds nothing. Cairn recovers and keeps the promises; then it, and the foreign
    /// checker, find nothing.
    pub(super) fn by_cairn(&self, crashed: &Crashed<'_>) -> Told<Verdict> {
        if crashed.is_torn() && !self.kind.has_checksums {
            return Ok(Verdict::NotJudged);
        }
        told(|| {
            let device = Arc::new(crashed.device.fork());
            // A torn superblock is refused, as by Linux.
            if crashed.is_torn() && self.open(Arc::new(device.fork())).is_err() {
                return Ok(Verdict::Refused);
            }
            if !crashed.is_torn() {
                self.check(&device, "before recovery")?;
            }
            self.recover(crashed, &device).map(Verdict::Kept)
        })
    }

    fn recover(&self, crashed: &Crashed<'_>, device: &Arc<MemoryDevice>) -> Told<usize> {
        let opened = self.open(device.clone())?;
        let kept = crashed.keeps_promises(&*opened.fs);
        let kept = kept.map_err(|error| format!("after recovery: {error}"))?;
        opened.fs.unmount().map_err(|error| format!("closing after recovery: {error}"))?;
        drop(opened);
        self.check(device, "after recovery")?;
        self.foreign_check(device, "after recovery")?;
        Ok(kept)
    }

    /// The power fails again during the recovery, at every flush and between. The next recovery
    /// must succeed.
    pub(super) fn cut_again(&self, crashed: &Crashed<'_>) -> Told<Verdict> {
        if crashed.is_torn() {
            return Ok(Verdict::NotJudged);
        }
        told(|| {
            let recording = Recording::start(crashed.device.fork());
            let opened = self.open(recording.device())?;
            opened.fs.shutdown(false).map_err(text)?;
            drop(opened);
            let recovery = recording.finish();
            let mut cuts = recovery.barrier_cuts();
            cuts.retain(|again| again.volatile == Volatile::Lost);
            let mut kept = 0;
            for again in cuts.into_iter().chain(recovery.random_cuts(2, crashed.cut.moment)) {
                kept += self
                    .recover(crashed, &Arc::new(recovery.device(again)))
                    .map_err(|error| format!("{again} of the recovery: {error}"))?;
            }
            Ok(Verdict::Kept(kept))
        })
    }

    /// One byte of a written block of the log is wrong. It is noticed, or the log ends before it:
    /// then promises may be broken, but the volume is consistent.
    pub(super) fn damaged_log(&self, crashed: &Crashed<'_>) -> Told<Verdict> {
        let Some(log) = self.log.clone().filter(|_| !crashed.is_torn()) else {
            return Ok(Verdict::NotJudged);
        };
        told(|| {
            let device = Arc::new(crashed.device.fork());
            let mut random = fastrand::Rng::with_seed(crashed.cut.moment);
            let mut written = Vec::new();
            for at in log.step_by(SECTOR as usize) {
                let sector = device.read_at(at, SECTOR as usize).map_err(text)?;
                if sector.iter().any(|byte| *byte != 0) {
                    written.push(at);
                }
            }
            let Some(at) = random.choice(written) else { return Ok(Verdict::NotJudged) };
            flip(&device, at + random.u64(0..SECTOR));
            match self.open(device.clone()) {
                Err(_) => Ok(Verdict::Refused),
                Ok(opened) => {
                    opened.fs.unmount().map_err(text)?;
                    drop(opened);
                    let when = format!("byte {at} of the log was wrong; after recovery");
                    self.check(&device, &when).map(|()| Verdict::Kept(0))
                }
            }
        })
    }

    /// e2fsck recovers, as at boot, and finds nothing else; or fsck.f2fs finds nothing before
    /// recovery. Cairn finds the promises kept.
    pub(super) fn by_checker(&self, crashed: &Crashed<'_>) -> Told<Verdict> {
        let Some(program) = &self.checker else { return Ok(Verdict::NotJudged) };
        if crashed.is_torn() {
            return Ok(Verdict::NotJudged);
        }
        let image = self.dir.path().join("cut");
        write_image(&crashed.device, &image).map_err(text)?;
        if self.kind.format == Format::F2fs {
            let verdict = foreign::fsck_f2fs(program, &image).map_err(text)?;
            if is_clean_f2fs(&verdict, false) {
                return Ok(Verdict::Kept(0));
            }
            return Err(format!("it {}", verdict.words()));
        }
        let verdict = foreign::e2fsck_preen(program, &image).map_err(text)?;
        if !(0..=1).contains(&verdict.status) {
            return Err(format!("-p {}", verdict.words()));
        }
        if !is_clean_after_preen(&foreign::e2fsck_check(program, &image).map_err(text)?) {
            self.check_image(program, &image, "after -p")?;
        }
        self.read_back(crashed, &image)
    }

    /// The kernel recovers, the checker finds nothing, and Cairn finds the promises kept.
    pub(super) fn by_kernel(&self, crashed: &Crashed<'_>) -> Told<Verdict> {
        if crashed.is_torn() {
            return Ok(Verdict::NotJudged);
        }
        let image = self.dir.path().join("mounted");
        let point = self.dir.path().join("mount");
        write_image(&crashed.device, &image).map_err(text)?;
        std::fs::create_dir_all(&point).map_err(text)?;
        Mounted::new(Server::Kernel, &image, &point).and_then(Mounted::unmount).map_err(text)?;
        if let Some(program) = &self.checker {
            self.check_image(program, &image, "after recovery")?;
        }
        self.read_back(crashed, &image)
    }

    fn read_back(&self, crashed: &Crashed<'_>, image: &Path) -> Told<Verdict> {
        told(|| {
            let device = Arc::new(read_image(image).map_err(text)?);
            let opened = open(self.kind.format, device, Simulated::new(2), "ro")?;
            crashed.keeps_promises(&*opened.fs).map(Verdict::Kept)
        })
    }
}

/// Where the journal of a fresh volume lies, without its superblock. It is in one piece.
fn journal_of(kind: &Kind) -> Result<Option<Range<u64>>> {
    /// The head of a journal superblock: magic number, block type.
    const HEAD: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    if kind.format != Format::Ext4 {
        return Ok(None);
    }
    let fresh = kind.fresh()?;
    let mut at = 0;
    while at < fresh.geometry().size {
        let head = fresh.read_at(at, SECTOR as usize)?;
        if head.starts_with(&HEAD) {
            let number = |at: usize| {
                let bytes = head[at..at + 4].try_into().expect("four bytes");
                u64::from(u32::from_be_bytes(bytes))
            };
            let (block_size, blocks) = (number(12), number(16));
            return Ok(Some(at + block_size..at + block_size * blocks));
        }
        at += 1024;
    }
    Ok(None)
}

/// The foreign checker of a format.
pub(super) fn checker_of(format: Format) -> &'static str {
    match format {
        Format::Ext4 => "e2fsck",
        Format::F2fs => "fsck.f2fs",
    }
}

/// A panic of Cairn is a finding.
pub(super) fn told<T>(work: impl FnOnce() -> Told<T>) -> Told<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(words(&*panic)))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("cairn panicked: {}", said.unwrap_or("without words"))
}
