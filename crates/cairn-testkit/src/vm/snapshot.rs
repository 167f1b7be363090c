//! The state of a machine that has booted and waits for its disks, kept in a file beside the
//! kernel: QEMU's migration to and from a file. One state serves all test programs.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::qemu::Machine;

/// The state that `machine` can go on from; it is made if there is none. `None` if that is not
/// possible: then each machine boots.
pub(super) fn of(machine: &Machine) -> Option<PathBuf> {
    let directory = machine.kernel.parent()?;
    let kind = format!("waiting-{}-", machine.memory_mib);
    let state = directory.join(format!("{kind}{:016x}", key(machine)?));
    // One program makes it, the others wait.
    let lock = File::create(directory.join("waiting.lock")).ok()?;
    lock.lock().ok()?;
    if state.exists() {
        return Some(state);
    }
    for entry in fs::read_dir(directory).ok()?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&kind) {
            // An older one. If it stays, only space is lost.
            let _ = fs::remove_file(entry.path());
        }
    }
    let new = state.with_extension("new");
    let is_kept = machine.keep(&new) && fs::rename(&new, &state).is_ok();
    is_kept.then_some(state)
}

/// What a state depends on: system, kernel, QEMU and the machine's shape.
fn key(machine: &Machine) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    fs::read(machine.system).ok()?.hash(&mut hasher);
    machine.shape().hash(&mut hasher);
    for program in [machine.kernel, &crate::judge::tool("qemu-system-x86_64")] {
        changed(program)?.hash(&mut hasher);
    }
    Some(hasher.finish())
}

fn changed(program: &Path) -> Option<(u64, SystemTime)> {
    let metadata = fs::metadata(program).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}
