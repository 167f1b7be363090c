//! The check of a volume that nobody has mounted.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::thread;
use cairn_block::BlockDevice;
use cairn_check::repair::undo;
use cairn_check::{Observer, Phase, Report};

use crate::contents::unknown;
use crate::device::open_unlocked;
use crate::error::{Cause, Class, Error, Result};
use crate::format::{self, Format, f2fs};
use crate::image::ImageSpec;
use crate::interrupted::interrupted_repair;
use crate::recognise::recognise;
use crate::volume::{open_device, runtime};

/// The result of a check, and the format of the volume.
#[derive(Debug)]
pub struct Checked {
    /// The format.
    pub format: Format,
    /// What was found.
    pub report: Report,
    /// A repair of the image was interrupted.
    pub interrupted: Option<undo::Error>,
}

/// Checks the volume in `image`, which is only read. If it was not unmounted cleanly, it is
/// recovered in memory first. `devices`: see [`crate::OpenOptions::devices`].
///
/// # Errors
/// The image cannot be opened or is in use, holds no volume that can be read, or there is not
/// enough memory. Damage is no error, but in the report.
pub fn check(
    image: &ImageSpec,
    devices: &[PathBuf],
    observer: Arc<dyn Observer>,
) -> Result<Checked> {
    check_on(image, open_device(image, devices, false)?, observer)
}

/// The finding about a volume without a journal that is in use.
const IN_USE: &str = "ext4.superblock.unclean";

/// As [`check`], of an image that is mounted. The caller keeps the mount frozen: else what is found
/// may come from changes during the check.
///
/// # Errors
/// As [`check`]; the volume has several devices, which are not checked while it is mounted.
pub fn check_frozen(image: &ImageSpec, observer: Arc<dyn Observer>) -> Result<Checked> {
    let device = open_unlocked(image)?;
    let error = |cause| Error::new(image, cause);
    if !format::other_devices(&*device).map_err(error)?.is_empty() {
        let why = "a mounted volume on several devices is not checked: unmount it, or freeze it \
                   and check copies of its devices";
        return Err(error(Cause::Option(why.into())));
    }
    let mut checked = check_on(image, device, observer)?;
    // What is mounted is in use.
    let report = &mut checked.report;
    report.findings.retain(|finding| finding.kind.code != IN_USE);
    report.counts.retain(|(kind, _)| kind.code != IN_USE);
    Ok(checked)
}

/// How far a watched check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// The part of the check. Before the first it has the number 0.
    pub phase: Phase,
    /// Steps of the phase that are done.
    pub done: u64,
}

/// The longest time between two calls of who watches a check.
const TICK: Duration = Duration::from_millis(100);

/// As [`check`], in a thread of its own, while `watch` is called in the thread of the caller: when
/// the check has come further, and at least ten times a second. If it breaks, the check ends early;
/// the report is then marked as cancelled, and `watch` is not called again.
///
/// # Errors
/// As [`check`]; the system refuses a thread.
pub fn check_watched(
    image: &ImageSpec,
    devices: &[PathBuf],
    watch: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
) -> Result<Checked> {
    let (tell, heard) = mpsc::channel();
    let ends = Arc::new(AtomicBool::new(false));
    let opening = Phase { number: 0, of: 0, what: "opening", total: 0 };
    let observer = Told { tell, phase: Mutex::new(Rank::Leaf, opening), ends: ends.clone() };
    let (image_of_thread, devices) = (image.clone(), devices.to_vec());
    let work = move || check(&image_of_thread, &devices, Arc::new(observer));
    let worker = thread::spawn("check", work).map_err(|error| {
        Error::new(image, Cause::Open(cairn_block::Error::from_io("start a thread", error)))
    })?;
    let mut progress = CheckProgress { phase: opening, done: 0 };
    loop {
        match heard.recv_timeout(TICK) {
            Ok(told) => progress = told,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if !ends.load(Relaxed) && watch(progress).is_break() {
            ends.store(true, Relaxed);
        }
    }
    worker.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Tells another thread of the progress.
struct Told {
    tell: Sender<CheckProgress>,
    phase: Mutex<Phase>,
    ends: Arc<AtomicBool>,
}

impl Observer for Told {
    fn begin(&self, phase: Phase) {
        *self.phase.lock() = phase;
        self.done(0);
    }

    fn done(&self, steps: u64) {
        let phase = *self.phase.lock();
        // Who no longer listens has no use for it.
        let _ = self.tell.send(CheckProgress { phase, done: steps });
    }

    fn is_cancelled(&self) -> bool {
        self.ends.load(Relaxed)
    }
}

/// The contents of a device without a volume.
fn unrecognised(device: &dyn BlockDevice) -> Cause {
    Cause::UnknownFormat { hint: recognise(device).or_else(|| unknown(device)) }
}

/// The format of a volume that is to be checked or repaired. Its superblocks may be damaged, as
/// long as one can be made of them.
pub(crate) fn checkable(device: &Arc<dyn BlockDevice>) -> std::result::Result<Format, Cause> {
    let found = format::probe_damaged(&**device)
        .and_then(|found| found.ok_or_else(|| unrecognised(&**device)));
    match &found {
        Err(Cause::Format { format: Format::F2fs, class: Class::Corrupt, .. })
            if f2fs::is_checkable(device)? =>
        {
            Ok(Format::F2fs)
        }
        // The only superblock may be wrong in its checksum alone, which the check judges.
        Err(Cause::Format { format: Format::Ext4, class: Class::Corrupt, .. }) => Ok(Format::Ext4),
        _ => found,
    }
}

fn check_on(
    image: &ImageSpec,
    device: Arc<dyn BlockDevice>,
    observer: Arc<dyn Observer>,
) -> Result<Checked> {
    let error = |cause| Error::new(image, cause);
    let format = checkable(&device).map_err(error)?;
    let report = format::check(format, device, runtime(None), observer).map_err(error)?;
    // The image is locked, so nobody is repairing it now.
    Ok(Checked { format, report, interrupted: interrupted_repair(image) })
}

// The page has the codes of both formats.
#[cfg(all(test, feature = "f2fs"))]
mod tests {
    use std::collections::BTreeSet;

    /// The page lists every kind, in the words of the code.
    #[test]
    fn the_page_lists_every_code() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/check.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, table) = page.split_once("## Codes").unwrap();
        let listed: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
        let rows: Vec<String> = crate::format::kinds()
            .map(|kind| {
                let (severity, meaning, repair) = (kind.severity, kind.meaning, kind.repair);
                format!("| `{}` | {severity} | {meaning} | {repair} |", kind.code)
            })
            .collect();
        assert_eq!(listed, rows, "the table of docs/check.md should be\n{}", rows.join("\n"));
        let codes: BTreeSet<&str> = crate::format::kinds().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), rows.len(), "a code is there twice");
    }
}
