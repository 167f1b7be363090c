//! `cairn top`, on a terminal and for programs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use cairn_testkit::judge;
use serde_json::Value;

use super::{SIZE, cairn, refused};
use crate::fixture::{CAIRN, Volume};

/// Starts `cairn top` on a terminal of 80×24. However it ends, the terminal must then be as it was
/// before.
const TERMINAL: &str = r#"
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time
cairn, mount = sys.argv[1:3]
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
master, slave = pty.openpty()
def size(rows, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
size(24, 80)
before = termios.tcgetattr(slave)
seen = b""
def until(word, wanted=None):
    """Reads until this is shown; or so many seconds of silence, or more: a loaded machine skips some."""
    global seen
    wanted = wanted or (lambda: (seen.index(word) + len(word)) if word in seen else None)
    while (end := wanted()) is None:
        if not select.select([master], [], [], 60)[0]: sys.exit(f"no {word!r} in {seen!r}")
        seen += os.read(master, 65536)
    seen = seen[end:]
def until_silent(least):
    longer = lambda: next((found.end() for found in re.finditer(rb"no answer for (\d+) s", seen)
        if int(found[1]) >= least), None)
    until(b"silence", longer)
def lead():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Some are ignored under nohup and in the background, and top then leaves them so.
    for number in [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT]:
        signal.signal(number, signal.SIG_DFL)
def start(*words):
    os.environ["LANG"] = "C.UTF-8"
    top = subprocess.Popen([cairn, "top", "--interval", "0.05", mount], stdin=slave, stdout=slave,
        stderr=slave, preexec_fn=lead)
    until(ENTER)
    for word in words or [b"requests", b"latency p99", b"q ends"]: until(word)
    assert termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ECHO) == 0
    return top
def ended(top, status):
    # What it shows meanwhile is read: it waits for room for it.
    global seen
    deadline = time.monotonic() + 60
    while (found := top.poll()) is None and time.monotonic() < deadline:
        if select.select([master], [], [], 0.01)[0]: seen += os.read(master, 65536)
    assert found == status, (found, status, seen)
    until(LEAVE)
    assert termios.tcgetattr(slave) == before
"#;

/// Ends it in each way.
const WATCH: &str = r#"
top = start(); os.write(master, b"q"); ended(top, 0)
for number in [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]:
    top = start(); top.send_signal(number); ended(top, 128 + number)
# Stopped and continued: the shell has the terminal meanwhile.
top = start(); os.write(master, b"\x1a")
os.waitid(os.P_PID, top.pid, os.WSTOPPED)
until(LEAVE); assert termios.tcgetattr(slave) == before
top.send_signal(signal.SIGCONT); until(ENTER); until(b"requests")
# Another size of the window is another frame.
size(5, 40); until(b"q ends")
os.write(master, b"\x03"); ended(top, 130); size(24, 80)
top = start(); subprocess.run([cairn, "umount", mount], check=True)
until(LEAVE); until(b"unmounted"); ended_status = top.wait(60)
assert ended_status == 0 and termios.tcgetattr(slave) == before
print("restored")
"#;

#[test]
fn the_terminal_is_restored_at_every_end() {
    let mut volume = Volume::mounted(SIZE, "");
    let script = [TERMINAL, WATCH].concat();
    let root = volume.root();
    let arguments = ["-c", &script, CAIRN, root.to_str().unwrap()].map(Path::new);
    assert_eq!(judge::run("python3", arguments), "restored\n");
    assert_eq!(volume.await_end(), "");
}

/// The daemon is stopped under it, and before it starts.
const STOPPED: &str = r#"
daemon = int(sys.argv[3])
top = start()
os.kill(daemon, signal.SIGSTOP)
try:
    # What was there stays there.
    until(b"latency p99"); until_silent(2); until(b"requests"); until_silent(3)
    os.write(master, b"q"); ended(top, 0)
    top = start(b"waiting for its daemon"); until_silent(2)
    os.write(master, b"n"); os.write(master, b"q"); ended(top, 0)
    top = start(b"waiting for its daemon")
finally:
    os.kill(daemon, signal.SIGCONT)
until(b"latency p99"); os.write(master, b"q"); ended(top, 0)
print("keys are answered")
"#;

#[test]
fn a_daemon_that_is_stopped_holds_up_no_key() {
    let mut volume = Volume::mounted(SIZE, "");
    let daemon = volume.stats()["mount"]["pid"].to_string();
    let script = [TERMINAL, STOPPED].concat();
    let root = volume.root();
    let arguments = ["-c", &script, CAIRN, root.to_str().unwrap(), &daemon].map(Path::new);
    assert_eq!(judge::run("python3", arguments), "keys are answered\n");
    volume.unmount();
}

/// The names in backticks of the section on `top` in docs/control.md.
fn documented() -> Vec<&'static str> {
    let page = include_str!("../../../../../docs/control.md");
    let section = page.split("## `cairn top --json`").nth(1).expect("the section on top");
    let section = section.split("\n## ").next().unwrap();
    section.split('`').skip(1).step_by(2).collect()
}

#[test]
fn figures_for_programs_are_those_of_the_interval() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let mut command = Command::new(CAIRN);
        command.args(["top", "--json", "--interval", "0.05"]).arg(volume.root());
        let top = command.stdout(Stdio::piped()).spawn().unwrap();
        let before: u64 = volume.stats()["fuse"]["requests_total"].as_u64().unwrap();
        for n in 0..50 {
            fs::write(volume.path(&format!("file {n}")), "x").unwrap();
        }
        let after: u64 = volume.stats()["fuse"]["requests_total"].as_u64().unwrap();
        let once = cairn(&["top", "--once", "--json", "--interval", "0.01"], &volume.root());
        assert!(once.status.success(), "{once:?}");
        volume.unmount();
        let output = top.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text =
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&once.stdout);
        let figures: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let number =
            |of: &Value, key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{key}: {of}"));
        let requests = |of: &Value| number(of, "requests_per_s") * number(of, "interval_s");
        let all: f64 = figures[..figures.len() - 1].iter().map(requests).sum();
        // Those before the first look and after the last one are not in it.
        assert!(all <= (after + 10) as f64 && after >= before + 150, "{all} of {after}: {text}");
        let known = documented();
        for key in figures.iter().flat_map(|of| of.as_object().unwrap().keys()) {
            assert!(known.contains(&key.as_str()), "{key} is not in docs/control.md");
        }
    }
}

#[test]
fn one_frame_needs_no_terminal_and_the_others_do() {
    let mut volume = Volume::mounted(SIZE, "");
    let output = cairn(&["top", "--once", "--interval", "0.01"], &volume.root());
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["requests ", "latency p99", "commits", "journal free", "since the mount: "] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80) && !text.contains('\x1b'),
        "{text}"
    );
    refused(&cairn(&["top"], &volume.root()), &["needs a terminal", "--once", "--json"]);
    refused(&cairn(&["top", "--once"], Path::new("/usr")), &["nothing is mounted here"]);
    let failed = cairn(&["top", "--json"], Path::new("/usr"));
    let object: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert!(object["error"].as_str().is_some_and(|why| why.contains("/usr")), "{object}");
    volume.unmount();
}
