//! Permission for mounts with FUSE over io_uring, where the machine has it.
//!
//! The parameter of the fuse module is off by default, and matters only while a mount begins. Tests
//! run at the same time, in one process and in several: each process holds a shared lock of the
//! parameter's file while it needs it. A file says that a test switched it on. The last process
//! switches it off again; nobody waits for others.

use std::fs::{self, File};
use std::io::{self, ErrorKind};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// What this process holds.
struct Held {
    guards: usize,
    /// The locked parameter.
    file: Option<File>,
}

static HELD: Mutex<Held> = Mutex::new(Held { guards: 0, file: None });

/// While it lives, mounts may have `transport=ring`.
pub struct Allowed(());

/// Allows it. `None`, with a line that says why, if this machine does not.
#[must_use]
pub fn allow() -> Option<Allowed> {
    let mut held = HELD.lock();
    if held.guards == 0 {
        match switch_on() {
            Ok(file) => held.file = Some(file),
            Err(why) => {
                println!("FUSE over io_uring is not tested here: {PARAMETER}: {why}");
                return None;
            }
        }
    }
    held.guards += 1;
    Some(Allowed(()))
}

/// It exists while the parameter is on because of tests. Only root writes to /run, as only root
/// switches the parameter.
const MARK: &str = "/run/cairn-tests-switched-fuse-uring-on";

fn switch_on() -> io::Result<File> {
    let file = File::open(PARAMETER)?;
    flock(&file, FlockOperation::LockShared)?;
    if fs::read_to_string(PARAMETER)?.trim() != "Y" {
        File::create(MARK)?;
        fs::write(PARAMETER, "Y")?;
    }
    Ok(file)
}

/// Switches it off if no other process holds it. With `NonBlocking`, a refused change of the lock
/// still gives the shared one up, so one of several processes is the last.
fn switch_off(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(()),
        locked => locked?,
    }
    match fs::remove_file(MARK) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| fs::write(PARAMETER, "N")),
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        held.guards -= 1;
        if held.guards > 0 {
            return;
        }
        if let Some(file) = held.file.take()
            && let Err(error) = switch_off(&file)
        {
            eprintln!("{PARAMETER} could not be switched off: {error}");
        }
    }
}
