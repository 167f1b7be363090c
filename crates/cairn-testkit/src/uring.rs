//! Permission for mounts with FUSE over io_uring, where the machine has it.
//!
//! The parameter of the fuse module is off by default, and matters only while a mount begins. Tests
//! run at the same time, in one process and in several: each holds a shared lock of the parameter's
//! file while it needs it, and who switched it on waits for the others before it switches it off.

use std::fs::{self, File};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// What this process holds.
struct Held {
    guards: usize,
    /// The locked file, and whether this process switched the parameter on.
    file: Option<(File, bool)>,
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
                println!("FUSE over io_uring is not tested here: {why}");
                return None;
            }
        }
    }
    held.guards += 1;
    Some(Allowed(()))
}

fn switch_on() -> Result<(File, bool), String> {
    let text = |error: std::io::Error| format!("{PARAMETER}: {error}");
    let file = File::open(PARAMETER).map_err(text)?;
    flock(&file, FlockOperation::LockShared).map_err(|error| text(error.into()))?;
    let was = fs::read_to_string(PARAMETER).map_err(text)?;
    let off = was.trim() != "Y";
    if off {
        fs::write(PARAMETER, "Y").map_err(text)?;
    }
    Ok((file, off))
}

impl Drop for Allowed {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        held.guards -= 1;
        if held.guards > 0 {
            return;
        }
        if let Some((file, true)) = held.file.take() {
            // The others hold it only while they mount.
            if flock(&file, FlockOperation::LockExclusive).is_ok() {
                let _ = fs::write(PARAMETER, "N");
            }
        }
    }
}
