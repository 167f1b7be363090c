//! Failing devices: each error is reported with its reason, nothing hangs or panics, what is in
//! memory can be read, and what was synced can be recovered.
//!
//! [`every_fault`] runs a workload again and again; each time the next request of a kind fails,
//! once or from then on.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, Result};

use crate::tree::{SnapshotOptions, digest_volume};

/// A format whose requests fail.
pub trait FaultSubject {
    /// Mounts it.
    fn open(
        &self,
        device: Arc<dyn BlockDevice>,
        simulated: &Arc<Simulated>,
        options: &str,
    ) -> Arc<dyn FileSystem>;

    /// A short run that touches every kind of write.
    ///
    /// # Errors
    /// The device's.
    fn workload(&self, fs: &dyn FileSystem, simulated: &Simulated) -> Result<()>;

    /// Has the format's checker look at what a fault has left, and returns the volumes that are to
    /// be recovered: this one, and what the checker has made of it if it recovers volumes.
    ///
    /// # Panics
    /// The checker finds damage.
    fn left(&self, device: MemoryDevice, named: &str) -> Vec<Arc<MemoryDevice>>;

    /// Has the format's checker look at an unmounted volume.
    ///
    /// # Panics
    /// It finds damage.
    fn judge(&self, device: &MemoryDevice, named: &str);
}

/// A file with [`contents`], synced before the fault.
const KEPT: &str = "kept";
/// A file that is made and synced after the fault.
const LATER: &str = "later";
const LEN: usize = 20_480;

fn contents() -> Vec<u8> {
    (0..LEN).map(|at| (at / 7) as u8).collect()
}

/// Makes an empty file in the root directory.
///
/// # Errors
/// The filesystem's.
pub fn create(fs: &dyn FileSystem, name: &str) -> Result<Ino> {
    Ok(fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?.ino)
}

/// Writes all of `data`.
///
/// # Errors
/// The filesystem's.
///
/// # Panics
/// Less was written, without an error.
pub fn write(fs: &dyn FileSystem, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
    let done = fs.write(ino, offset, data, IoFlags::empty())?;
    assert_eq!(done, data.len(), "a short write without a reason");
    Ok(())
}

/// True if the error names a failed request, or the stopped volume.
#[must_use]
pub fn is_told(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::ReadOnly(_))
}

/// Adds the file that every run must keep, and unmounts the volume.
///
/// # Panics
/// A call failed.
pub fn prepare(subject: &dyn FaultSubject, device: &Arc<MemoryDevice>) {
    let fs = subject.open(device.clone(), &Simulated::new(1), "");
    let ino = create(&*fs, KEPT).expect("the device works");
    write(&*fs, ino, 0, &contents()).expect("the device works");
    fs.unmount().expect("the device works");
}

/// The file that every run must keep.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn kept(fs: &dyn FileSystem) -> Ino {
    fs.lookup(fs.root(), KEPT.as_bytes()).expect("it is there").ino
}

/// Fails the n-th request of this kind in the workload on a copy of `before`, which [`prepare`] has
/// been called for: once, and in a second run all later ones too. Then the next one, `step` later,
/// until the workload ends before. How many runs that were.
///
/// # Panics
/// A promise of this module is broken.
pub fn every_fault(
    subject: &dyn FaultSubject,
    before: &MemoryDevice,
    operation: Operation,
    step: u64,
    options: &str,
) -> u64 {
    let (mut nth, mut runs) = (1, 0);
    let run = |nth, lasting| Run { subject, operation, nth, lasting, options }.is_reached(before);
    while run(nth, Lasting::Once) {
        run(nth, Lasting::Forever);
        nth += step;
        runs += 2;
    }
    runs
}

/// One run with one fault.
struct Run<'a> {
    subject: &'a dyn FaultSubject,
    operation: Operation,
    nth: u64,
    lasting: Lasting,
    options: &'a str,
}

impl Run<'_> {
    /// False if the run ended before the fault.
    fn is_reached(&self, before: &MemoryDevice) -> bool {
        let Self { operation, nth, lasting, options, .. } = *self;
        let named = format!("{operation:?} number {nth} fails ({lasting:?}) with `{options}`");
        let memory = Arc::new(before.fork());
        let fault = Arc::new(Fault::new(memory.clone()));
        let simulated = Simulated::new(1);
        let fs = self.subject.open(fault.clone(), &simulated, options);
        check_kept(&*fs, &named);
        let first = fault.count(operation);
        fault.fail(operation, first + nth, lasting);
        let outcome = self.subject.workload(&*fs, &simulated);
        let mut went_on = false;
        let reached = fault.count(operation) >= first + nth;
        match outcome {
            Err(error) => {
                assert!(reached, "{named}: the workload failed without a fault: {error}");
                assert!(is_told(&error), "{named}: told as {error}");
                if read_only_reason(&*fs).is_none() && lasting == Lasting::Once {
                    check_going_on(&*fs, &named);
                    went_on = true;
                } else if operation != Operation::Read {
                    // A device that refuses all writes also refuses commits.
                    assert!(fs.sync().is_err(), "{named}: a volume is durable that cannot be");
                    check_stopped(&*fs, &named);
                }
            }
            // No call waits for some writes, but the unmount must report the error.
            Ok(()) if reached && operation != Operation::Read => {
                let end = fs.unmount();
                let stopped = read_only_reason(&*fs).is_some();
                assert!(end.is_err() || stopped, "{named}: nobody was told");
            }
            Ok(()) => {}
        }
        // Closing after an error must not hang or panic; it may fail again.
        let _ = fs.unmount();
        drop(fs);
        fault.clear();
        if reached {
            check_recovery(self.subject, &memory, &named, went_on);
        }
        reached
    }
}

/// Why a stopped volume is read-only, as its report says.
fn read_only_reason(fs: &dyn FileSystem) -> Option<String> {
    fs.report().get("state.read_only_reason").map(|reason| format!("{reason:?}"))
}

/// After a fault of one file or one call, all other calls succeed. A file that is made and fsynced
/// now is durable.
///
/// # Panics
/// A call fails.
pub fn check_going_on(fs: &dyn FileSystem, named: &str) {
    let go_on = || {
        let ino = create(fs, LATER)?;
        write(fs, ino, 0, &contents())?;
        fs.fsync(ino, 0, false)?;
        check_kept(fs, named);
        // Failed writes are retried.
        fs.sync()?;
        fs.unmount()
    };
    go_on().unwrap_or_else(|error: Error| {
        panic!("{named}: the fault is over, and the volume not stopped: {error}")
    });
}

/// A stopped volume gives the reason in each refusal and in its report, and cached data can still
/// be read.
fn check_stopped(fs: &dyn FileSystem, named: &str) {
    let Err(error) = create(fs, LATER) else { panic!("{named}: a stopped volume takes a change") };
    assert!(matches!(error, Error::ReadOnly(_)), "{named}: a later change failed with {error:?}");
    let text = error.to_string();
    assert!(text.contains("injected fault"), "{named}: the reason is not told: {text}");
    let reason = read_only_reason(fs).unwrap_or_else(|| panic!("{named}: stats give no reason"));
    assert!(reason.contains("injected fault"), "{named}: stats say {reason}");
    check_kept(fs, named);
}

fn check_kept(fs: &dyn FileSystem, named: &str) {
    check_contents(fs, kept(fs), named);
}

fn check_contents(fs: &dyn FileSystem, ino: Ino, named: &str) {
    let mut buf = vec![0; LEN];
    let read = fs.read(ino, 0, &mut buf, IoFlags::empty());
    assert_eq!(read.unwrap_or_else(|error| panic!("{named}: {error}")), LEN, "{named}");
    assert!(buf == contents(), "{named}: other contents");
}

/// The checker and Cairn each recover the volume: its whole tree can be read, with what was synced
/// before the fault and, if `later`, what [`check_going_on`] has synced.
///
/// # Panics
/// One of them does not.
pub fn check_recovery(subject: &dyn FaultSubject, memory: &MemoryDevice, named: &str, later: bool) {
    for device in subject.left(memory.fork(), named) {
        let fs = subject.open(device.clone(), &Simulated::new(3), "");
        digest_volume(&*fs, SnapshotOptions::default())
            .unwrap_or_else(|error| panic!("{named}: the tree cannot be read: {error}"));
        check_kept(&*fs, named);
        if later {
            let found = fs.lookup(fs.root(), LATER.as_bytes()).unwrap_or_else(|error| {
                panic!("{named}: a file that was fsynced after the fault is lost: {error}")
            });
            check_contents(&*fs, found.ino, named);
        }
        fs.unmount().unwrap_or_else(|error| panic!("{named}: {error}"));
        drop(fs);
        subject.judge(&device, named);
    }
}
