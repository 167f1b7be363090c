//! The machine's process: start, output, stop.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::output::Output;
use crate::judge::command;

pub(super) struct Machine<'a> {
    pub kernel: &'a Path,
    /// The archive that the kernel boots with.
    pub system: &'a Path,
    /// The archive that a machine gets when it has booted, as its last disk.
    pub job: &'a Path,
    pub console: &'a Path,
    /// Place of a socket for QEMU's monitor.
    pub monitor: &'a Path,
    pub disks: &'a [PathBuf],
    pub memory_mib: u32,
    /// Time for one boot, up to the start of the script.
    pub boot_limit: Duration,
}

/// Places for disks besides the job's: a state that is kept has the same devices as the machine
/// that goes on from it.
pub(super) const DISKS: usize = 24;
/// How often a machine is started that does not reach its script.
const BOOTS: u32 = 3;
/// The line with which `init` says that it waits for its disks.
const READY: &str = "@@ready";
/// The line with which `init` says that the script starts.
pub(super) const STARTED: &str = "@@start";
/// How often a machine is told its job until it starts: the first bytes that are sent to one
/// whose state is still being loaded can be lost.
const REPEAT: Duration = Duration::from_millis(200);

/// How a machine begins.
enum Begin<'a> {
    /// With the boot of its kernel.
    Boot,
    /// The same, with all messages of the kernel.
    VerboseBoot,
    /// With the state of another that has booted.
    State(&'a Path),
    /// With the boot of its kernel, and no disks; the monitor is there.
    ToBeKept,
}

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
    /// Runs, from a state of [`Machine::keep`] if there is one, until the script ends, prints the
    /// marker, or takes too long. `Err`: it ended without the marker.
    #[track_caller]
    pub(super) fn run(
        &self,
        state: Option<&Path>,
        marker: Option<&str>,
        limit: Duration,
    ) -> Result<Output, Output> {
        let (process, lines) = self.boot(state);
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
    fn boot(&self, state: Option<&Path>) -> (Process, Receiver<String>) {
        let mut stopped = String::new();
        for attempt in 0..BOOTS {
            let begin = match state {
                Some(state) if attempt == 0 => Begin::State(state),
                None if attempt == 0 => Begin::Boot,
                _ => Begin::VerboseBoot,
            };
            let (mut process, lines) = self.spawn(&begin);
            match self.reaches_script(&begin, &mut process, &lines) {
                Ok(()) => return (process, lines),
                Err(error) => {
                    drop(process);
                    let console = self.console_text();
                    stopped.push_str(&format!("--- boot {attempt}: {error} ---\n{console}\n"));
                    if let (Begin::State(state), RecvTimeoutError::Disconnected) = (&begin, error) {
                        // QEMU does not take this state: the next machine makes another.
                        let _ = std::fs::remove_file(state);
                    }
                }
            }
        }
        panic!("the machine did not boot in {BOOTS} attempts of {:?}\n{stopped}", self.boot_limit);
    }

    #[track_caller]
    fn reaches_script(
        &self,
        begin: &Begin,
        process: &mut Process,
        lines: &Receiver<String>,
    ) -> Result<(), RecvTimeoutError> {
        let mut input = process.0.stdin.take().expect("its input is piped");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        let job = format!("@@job {} {} @@\n", self.disks.len(), now.as_secs());
        let end = Instant::now() + self.boot_limit;
        let mut is_ready = matches!(begin, Begin::State(_));
        loop {
            if is_ready {
                // A machine that has ended says so by its output.
                let _ = input.write_all(job.as_bytes());
            }
            let left = end.saturating_duration_since(Instant::now());
            match lines.recv_timeout(if is_ready { left.min(REPEAT) } else { left }) {
                Ok(line) if line == STARTED => return Ok(()),
                Ok(line) if line == READY => is_ready = true,
                Ok(line) => panic!("'{line}' before the script: {}", self.console_text()),
                Err(RecvTimeoutError::Timeout) if is_ready && left > REPEAT => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Boots a machine without disks up to the place where it waits for them, and writes its state.
    /// `false`: it could not.
    pub(super) fn keep(&self, state: &Path) -> bool {
        let (mut process, lines) = self.spawn(&Begin::ToBeKept);
        if lines.recv_timeout(self.boot_limit).as_deref() != Ok(READY) {
            return false;
        }
        let Ok(mut monitor) = UnixStream::connect(self.monitor) else { return false };
        // The monitor takes the next command when the state is written.
        let commands = format!(
            "migrate_set_parameter max-bandwidth 16G\nmigrate \"{}\"\ninfo migrate\nquit\n",
            shell("cat >", state)
        );
        let told = monitor.write_all(commands.as_bytes()).is_ok();
        let mut answers = String::new();
        let is_read = monitor.read_to_string(&mut answers).is_ok();
        let has_ended = process.0.wait().is_ok_and(|status| status.success());
        told && is_read && has_ended && answers.contains("Migration status: completed")
    }

    /// What the state of a machine depends on, besides its kernel and system.
    pub(super) fn shape(&self) -> String {
        format!("{EMULATION:?} {BARE:?} {} {KERNEL_OPTIONS} {QUIET} {DISKS}", self.memory_mib)
    }

    fn spawn(&self, begin: &Begin) -> (Process, Receiver<String>) {
        let mut qemu = command("qemu-system-x86_64");
        qemu.args(if accelerates(self.kernel) { KVM } else { EMULATION });
        qemu.args(BARE).arg("-m").arg(self.memory_mib.to_string());
        qemu.arg("-kernel").arg(self.kernel).arg("-initrd").arg(self.system);
        let level = if matches!(begin, Begin::VerboseBoot) { VERBOSE } else { QUIET };
        qemu.arg("-append").arg(format!("{KERNEL_OPTIONS} {level}"));
        qemu.arg("-serial").arg(prefixed("file:", self.console)).args(["-serial", "stdio"]);
        match begin {
            Begin::Boot | Begin::VerboseBoot => _ = qemu.args(["-monitor", "none"]),
            Begin::State(state) => {
                qemu.args(["-monitor", "none", "-incoming"]).arg(shell("cat <", state));
            }
            Begin::ToBeKept => {
                let mut socket = prefixed("unix:", self.monitor);
                socket.push(",server=on,wait=off");
                qemu.arg("-monitor").arg(socket);
            }
        }
        let mut drives = Vec::new();
        if !matches!(begin, Begin::ToBeKept) {
            // `unsafe`: what a killed machine has written is kept.
            drives.extend(self.disks.iter().map(|disk| drive(disk, "cache=unsafe,discard=unmap")));
            drives.push(drive(self.job, "readonly=on"));
        }
        drives.resize(DISKS + 1, NO_DISK.into());
        for drive in drives {
            qemu.arg("-drive").arg(drive);
        }
        qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Process(qemu.spawn().expect("qemu starts"));
        let lines = listen(process.0.stdout.take().expect("its output is piped"));
        (process, lines)
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
    &["-display", "none", "-nic", "none", "-no-reboot", "-nodefaults", "-smp", "2"];
/// A place for a disk that is not used.
const NO_DISK: &str = "file=null-co://,file.size=0,format=raw,if=virtio";
/// Time limit for the first line of a kernel with hardware virtualisation.
const FIRST_WORD: Duration = Duration::from_secs(4);

/// True if hardware virtualisation works. In a virtual machine the existence of `/dev/kvm` proves
/// nothing: a kernel must boot and print a line. The answer is cached beside the kernel.
pub(super) fn accelerates(kernel: &Path) -> bool {
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
    qemu.args(KVM).args(BARE).args(["-monitor", "none", "-m", "128"]);
    qemu.args(["-append", "console=ttyS0 panic=-1", "-serial", "stdio"]);
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

/// An address of QEMU for a state: a command of the shell that moves it.
fn shell(command: &str, state: &Path) -> String {
    format!("exec:{command} '{}'", state.display().to_string().replace('\'', r"'\''"))
}

fn drive(file: &Path, options: &str) -> std::ffi::OsString {
    let mut drive = prefixed("file=", &escaped(file));
    drive.push(",format=raw,if=virtio,");
    drive.push(options);
    drive
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
