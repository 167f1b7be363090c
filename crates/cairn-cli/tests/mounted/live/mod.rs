//! The control channel of live mounts: reports, changes of options, freezing, while programs use
//! the mounts.

mod clients;
mod metrics;
mod mounting;
mod remounting;
mod statistics;
mod top;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::fixture::CAIRN;

pub(super) const SIZE: u64 = 128 << 20;

pub(super) fn cairn(arguments: &[&str], point: &Path) -> Output {
    Command::new(CAIRN).args(arguments).arg(point).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
pub(super) fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.lines().count() == 1, "{}: {said}", output.status);
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
}

pub(super) fn remount(options: &str, point: &Path) -> Output {
    cairn(&["remount", "-o", options], point)
}

#[track_caller]
pub(super) fn remounted(options: &str, point: &Path) {
    let output = remount(options, point);
    assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The control socket of a mount.
pub(super) fn socket(point: &Path) -> PathBuf {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == point.to_str()).unwrap();
    let device = line.split(' ').nth(2).unwrap().replace(':', "-");
    Path::new("/run/cairn").join(device + ".sock")
}
