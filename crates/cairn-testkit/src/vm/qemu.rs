//! The machine's process: start, output, stop.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::output::Output;
use crate::judge::command;

pub(super) struct Machine<'a> {
    pub kernel: &'a Path,
    pub initrd: &'a Path,
    pub console: &'a Path,
    pub disks: &'a [PathBuf],
    pub memory_mib: u32,
    /// Time for one boot, up to the start of the script.
    pub boot_limit: Duration,
}

/// How often a machine is started that does not reach its script.
const BOOTS: u32 = 3;
/// The line with which `init` says that the script starts.
pub(super) const STARTED: &str = "@@start";

/// The process is killed when this is dropped, also if a test panics.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine<'_> {
    /// Runs until the script ends, prints the marker, or takes too long. `Err`: it ended without
    /// the marker.
    #[track_caller]
    pub(super) fn run(&self, marker: Option<&str>, limit: Duration) -> Result<Output, Output> {
        let (process, lines) = self.boot();
        let mut output = Output { status: None, text: String::new(), console: String::new() };
        let end = Instant::now() + limit;
        let found = loop {
            let line = match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) => {
                    output.console = self.console_text();
                    panic!("no answer in {limit:?}: {}", output.describe());
                }
            };
            if let Some(status) = line.strip_prefix("@@exit ") {
                output.status = status.trim().parse().ok();
                break false;
            }
            output.text.push_str(&line);
            output.text.push('\n');
            if Some(line.as_str()) == marker {
                break true;
            }
        };
        drop(process);
        output.console = self.console_text();
        if found || marker.is_none() { Ok(output) } else { Err(output) }
    }

    /// A machine that is about to start the script. A kernel sometimes stops in the middle of its
    /// boot on a busy host, before anything has touched the disks: it is started again, then with
    /// all its messages.
    #[track_caller]
    fn boot(&self) -> (Process, Receiver<String>) {
        let mut stopped = String::new();
        for attempt in 0..BOOTS {
            let mut process = self.spawn(attempt);
            let lines = listen(process.0.stdout.take().expect("its output is piped"));
            match lines.recv_timeout(self.boot_limit) {
                Ok(line) if line == STARTED => return (process, lines),
                Ok(line) => panic!("'{line}' before the script: {}", self.console_text()),
                Err(error) => {
                    drop(process);
                    let console = self.console_text();
                    stopped.push_str(&format!("--- boot {attempt}: {error} ---\n{console}\n"));
                }
            }
        }
        panic!("the machine did not boot in {BOOTS} attempts of {:?}\n{stopped}", self.boot_limit);
    }

    fn spawn(&self, attempt: u32) -> Process {
        let mut qemu = command("qemu-system-x86_64");
        qemu.args(if accelerates(self.kernel) { KVM } else { EMULATION });
        qemu.args(BARE).args(["-smp", "2", "-m"]).arg(self.memory_mib.to_string());
        qemu.arg("-kernel").arg(self.kernel).arg("-initrd").arg(self.initrd);
        let level = if attempt == 0 { QUIET } else { VERBOSE };
        qemu.arg("-append").arg(format!("{KERNEL_OPTIONS} {level}"));
        qemu.arg("-serial").arg(prefixed("file:", self.console)).args(["-serial", "stdio"]);
        for disk in self.disks {
            // `unsafe`: what a killed machine has written is kept.
            let mut drive = prefixed("file=", &escaped(disk));
            drive.push(",format=raw,if=virtio,cache=unsafe,discard=unmap");
            qemu.arg("-drive").arg(drive);
        }
        qemu.stdout(Stdio::piped()).stderr(Stdio::inherit());
        Process(qemu.spawn().expect("qemu starts"))
    }

    fn console_text(&self) -> String {
        let bytes = std::fs::read(self.console).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }
}

/// `no_timer_check`: a busy host delays the timer, and the kernel would stop using it.
const KERNEL_OPTIONS: &str = "console=ttyS0 panic=-1 random.trust_cpu=on no_timer_check";
const QUIET: &str = "loglevel=4";
const VERBOSE: &str = "loglevel=7 earlyprintk=serial,ttyS0";
const KVM: &[&str] = &["-accel", "kvm", "-cpu", "host"];
const EMULATION: &[&str] = &["-accel", "tcg,thread=multi", "-cpu", "max"];
const BARE: &[&str] =
    &["-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot", "-nodefaults"];
/// Time limit for the first line of a kernel with hardware virtualisation.
const FIRST_WORD: Duration = Duration::from_secs(4);

/// True if hardware virtualisation works. In a virtual machine the existence of `/dev/kvm` proves
/// nothing: a kernel must boot and print a line. The answer is cached beside the kernel.
fn accelerates(kernel: &Path) -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let memory = kernel.with_file_name("accelerates");
        if let Ok(text) = std::fs::read_to_string(&memory) {
            return text.trim() == "yes";
        }
        let answer = Path::new("/dev/kvm").exists() && speaks(kernel);
        // The cache saves the next program the check.
        let _ = std::fs::write(&memory, if answer { "yes\n" } else { "no\n" });
        answer
    })
}

fn speaks(kernel: &Path) -> bool {
    let mut qemu = command("qemu-system-x86_64");
    qemu.args(KVM).args(BARE).args([
        "-m",
        "128",
        "-append",
        "console=ttyS0 panic=-1",
        "-serial",
        "stdio",
    ]);
    qemu.arg("-kernel").arg(kernel).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Process(qemu.spawn().expect("qemu starts"));
    let lines = listen(process.0.stdout.take().expect("its output is piped"));
    // The first lines are the firmware's.
    let end = Instant::now() + FIRST_WORD;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) if line.contains("Linux version") => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

fn prefixed(prefix: &str, path: &Path) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(prefix);
    text.push(path);
    text
}

/// A comma in a drive's file name is written twice.
fn escaped(path: &Path) -> PathBuf {
    PathBuf::from(path.to_string_lossy().replace(',', ",,"))
}

/// Lines as they come; the channel closes when the machine does.
fn listen(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(count) if count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}
