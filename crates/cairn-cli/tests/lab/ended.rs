//! A signal in the midst of an experiment: nothing of it is left.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long something may take that always happens.
const LONG: Duration = Duration::from_secs(60);

#[track_caller]
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < LONG, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// The mounts below a directory.
fn mounts(below: &str) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().filter(|line| line.contains(below)).map(str::to_owned).collect()
}

/// The processes that name a directory in their command.
fn processes(of: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let command = |path: &Path| fs::read(path.join("cmdline")).ok();
    let words = |text: Vec<u8>| String::from_utf8_lossy(&text).replace('\0', " ");
    entries.filter_map(|path| command(&path).map(words)).filter(|text| text.contains(of)).collect()
}

#[test]
fn an_experiment_that_a_signal_ends_leaves_nothing() {
    for (signal, waits) in [(Signal::SIGTERM, 0), (Signal::SIGINT, 300)] {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().to_str().unwrap();
        // A shell gives what it starts in the background an interrupt that is ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_cairn")]);
        command.args(["lab", "mount", "--scale", "quick", "--scratch", scratch]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut lab = command.spawn().unwrap();
        // What it makes has its number. Other tests have experiments at the same time.
        let name = format!(".cairn-lab-{}-", lab.id());
        wait_for("it mounts", || !mounts(&name).is_empty());
        sleep(Duration::from_millis(waits));
        kill(Pid::from_raw(lab.id().cast_signed()), signal).unwrap();
        let status = lab.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}: {status}");
        assert_eq!(mounts(&name), [""; 0], "{signal}");
        for place in [dir.path(), Path::new("/dev/shm")] {
            let names = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> =
                names.filter(|left| left.to_string_lossy().contains(&name)).collect();
            assert!(left.is_empty(), "{signal}: {left:?}");
        }
        // The daemon ends when the last of its files is closed.
        wait_for("the daemon ends", || processes(&name).is_empty());
    }
}
