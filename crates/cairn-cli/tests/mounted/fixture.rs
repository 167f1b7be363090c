//! An image in memory, mounted by a daemon of its own.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cairn_testkit::judge;
use cairn_testkit::modes::Mode;
use cairn_testkit::place::Place;
use cairn_testkit::uring;
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::Value;

/// The program under test.
pub const CAIRN: &str = env!("CARGO_BIN_EXE_cairn");

/// A hole of a worn volume.
const PIECE: u64 = 64 << 10;

/// How long a daemon may take to mount an image of this size on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The option for FUSE over io_uring.
pub const RING: &str = "transport=ring";

/// The options of a judge that runs once on each transport: `/dev/fuse`, and FUSE over io_uring.
/// Where this machine has none, a line says so.
pub fn transports() -> Vec<&'static str> {
    ["transport=dev"].into_iter().chain(uring::allow().map(|_| RING)).collect()
}

/// Options with the transport that `CAIRN_TRANSPORT` names, unless they name one: for a run of all
/// tests on one transport. Whether `build` would get a ring depends on other tests at that time.
fn with_transport(options: &str) -> String {
    let build = || options.contains("build").then(|| "dev".to_owned());
    let wanted = std::env::var("CAIRN_TRANSPORT").ok().or_else(build);
    let wanted = wanted.filter(|_| !options.contains("transport="));
    let words = [options.to_owned()].into_iter().chain(wanted.map(|it| format!("transport={it}")));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(",")
}

/// An image, its mount point, and the daemon while it is mounted. It leaves no mount behind, even
/// after a failure.
pub struct Volume {
    /// The drop of this field also detaches the other mounts of a test.
    dir: Place,
    daemon: Option<Child>,
    /// The format's own checker.
    assert_clean: fn(&Path),
    /// The options of the last mount.
    options: String,
    /// The mode of a worn volume, and the counters of its mounts.
    mode: Option<Mode>,
    cleaned: u64,
    filled: u64,
}

impl Volume {
    /// An unmounted volume made by mke2fs.
    pub fn make(size: u64, arguments: &[&str]) -> Self {
        let volume = Self::none(judge::assert_clean, "");
        let arguments = [&["-t", "ext4"], arguments].concat();
        judge::mke2fs(&volume.image(), size, &arguments);
        volume
    }

    /// A mounted F2FS volume made by mkfs.f2fs.
    pub fn f2fs(size: u64, options: &str) -> Self {
        let mut volume = Self::none(judge::assert_f2fs_clean, options);
        judge::mkfs_f2fs(&volume.image(), size, &[]);
        volume.mount(options);
        volume
    }

    /// F2FS, mounted in this mode, with at least this many MiB free. Its sections are half valid,
    /// so operations that need room clean them: a file that filled the volume has holes in half of
    /// its blocks.
    pub fn worn(room: u64, mode: &Mode) -> Self {
        Self::worn_with(room, mode, mode.options)
    }

    /// The same with more options.
    pub fn worn_with(room: u64, mode: &Mode, options: &str) -> Self {
        let mut volume = Self::none(judge::assert_f2fs_clean, options);
        // The reserve for metadata and cleaning, and twice the free space.
        let size = 2 * room + room / 4 + if mode.zoned { 40 } else { 84 };
        if mode.zoned {
            let size = format!("{size}M");
            // Metadata can be written anywhere, and grows with the volume.
            let anywhere = (10 + room / 128).to_string();
            let zones = [
                "-m",
                "--zone-size",
                "2M",
                "--conventional-zones",
                &anywhere,
                "-Z",
                "8",
                "--size",
                &size,
            ];
            judge::run(
                CAIRN,
                ["mkfs", "-F", "-t", "f2fs"]
                    .into_iter()
                    .chain(zones)
                    .map(Path::new)
                    .chain([&*volume.image()]),
            );
        } else {
            judge::mkfs_f2fs(&volume.image(), size << 20, &[]);
        }
        volume.mount("mode=lfs,nowriteback_cache");
        let mut filler = File::create(volume.path("worn")).unwrap();
        while filler.write_all(&[0xf1; PIECE as usize]).is_ok() {}
        filler.sync_all().unwrap();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for at in (0..filler.metadata().unwrap().len()).step_by(2 * PIECE as usize) {
            fallocate(&filler, hole, at, PIECE).unwrap();
        }
        drop(filler);
        assert!(
            volume.free().0 >= room << 8,
            "{} blocks are free of {size} MiB, {mode:?}",
            volume.free().0
        );
        volume.unmount();
        volume.mode = Some(*mode);
        volume.mount(options);
        volume
    }

    fn none(assert_clean: fn(&Path), options: &str) -> Self {
        require_mounting();
        let (dir, options) = (directory(), options.to_owned());
        let volume =
            Self { dir, daemon: None, assert_clean, options, mode: None, cleaned: 0, filled: 0 };
        fs::create_dir(volume.root()).unwrap();
        volume
    }

    /// `cairn stats --json`.
    pub fn stats(&self) -> Value {
        stats(&self.root())
    }

    /// Adds the counters of this mount.
    fn count(&mut self) {
        let Some(mode) = self.mode else { return };
        let stats = self.stats();
        let count = |path: &str| {
            stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {stats}"))
        };
        self.cleaned += count("/gc/data_sections");
        self.filled += count("/store/segments/taken_for_holes");
        assert_eq!(stats["store"]["ckpt"]["merging"], mode.merges(), "{mode:?}");
    }

    /// Asserts that the mounts of a worn volume cleaned sections or filled holes, as the mode
    /// demands.
    #[track_caller]
    pub fn assert_reused(&self) {
        let mode = self.mode.expect("it was made worn");
        let used = if mode.is_lfs() { self.cleaned } else { self.cleaned + self.filled };
        assert!(
            used > 0,
            "{mode:?}: {} sections cleaned, {} segments filled",
            self.cleaned,
            self.filled
        );
    }

    /// Made and mounted with these options (`-o`; empty for none).
    pub fn mounted(size: u64, options: &str) -> Self {
        let mut volume = Self::make(size, &[]);
        options.clone_into(&mut volume.options);
        volume.mount(options);
        volume
    }

    pub fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// The mount point.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A path beside the mount.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Mounts in the foreground of a child, whose messages go to a file.
    pub fn mount(&mut self, options: &str) {
        self.mount_by(Command::new(CAIRN), options);
    }

    /// The same with a limit to the daemon's address space, in KiB.
    pub fn mount_within(&mut self, limit: u64, options: &str) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={}", limit << 10)).arg(CAIRN);
        self.mount_by(command, options);
    }

    fn mount_by(&mut self, mut command: Command, options: &str) {
        assert!(self.daemon.is_none(), "mounted twice");
        let options = &with_transport(options);
        let allowed = options.contains(RING).then(uring::allow);
        let log = File::create(self.outside("log")).unwrap();
        command.args(["mount", "-f"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        let mut daemon = command.arg(self.image()).arg(self.root()).spawn().unwrap();
        let started = Instant::now();
        while !is_mounted(&self.root()) {
            if let Some(status) = daemon.try_wait().unwrap() {
                panic!("cairn mount ended with {status}: {}", self.log());
            }
            assert!(
                started.elapsed() < PATIENCE,
                "cairn mount neither mounts nor ends: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        self.daemon = Some(daemon);
        if allowed.is_some() {
            // The parameter matters until the rings are there, which is after the mount. Then the
            // first request is answered.
            let _ = fs::metadata(self.root());
        }
    }

    /// Unmounts and mounts as before.
    pub fn remount(&mut self) {
        self.unmount();
        self.mount_again();
    }

    /// Mounts as before.
    pub fn mount_again(&mut self) {
        let options = self.options.clone();
        self.mount(&options);
    }

    /// The daemon's messages.
    pub fn log(&self) -> String {
        fs::read_to_string(self.outside("log")).unwrap_or_default()
    }

    /// Unmounts. After that the checker must find nothing, although the daemon's process may still
    /// run.
    pub fn unmount(&mut self) {
        assert!(self.daemon.is_some(), "it is not mounted");
        self.count();
        self.detach();
        (self.assert_clean)(&self.image());
        let status = self.daemon.take().expect("asserted above").wait().unwrap();
        assert!(
            status.success() && self.log().is_empty(),
            "the daemon ended with {status}: {}",
            self.log()
        );
    }

    /// As [`Volume::unmount`], for a daemon that may have printed messages.
    pub fn unmount_talking(&mut self) {
        self.detach();
        (self.assert_clean)(&self.image());
        let status = self.daemon.take().expect("it is mounted").wait().unwrap();
        assert!(status.success(), "the daemon ended with {status}: {}", self.log());
    }

    /// `cairn umount`, with retries while the mount is busy.
    pub fn detach(&self) {
        let started = Instant::now();
        loop {
            let output = Command::new(CAIRN).arg("umount").arg(self.root()).output().unwrap();
            if output.status.success() {
                break;
            }
            // A child process of another test has copies of this process's open files until it
            // calls exec.
            let said = String::from_utf8_lossy(&output.stderr);
            let passing = said.contains("in use") && started.elapsed() < PATIENCE;
            assert!(passing, "cairn umount: {said}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the daemon, as a crash would, and detaches the dead mount.
    pub fn kill(&mut self) {
        self.count();
        let mut daemon = self.daemon.take().expect("it is mounted");
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(self.log().is_empty(), "before it was killed: {}", self.log());
    }

    /// Sends SIGTERM, as systemd does. Afterwards the checker must find nothing.
    pub fn terminate(&mut self) {
        let mut daemon = self.daemon.take().expect("it is mounted");
        let started = Instant::now();
        while daemon.try_wait().unwrap().is_none() {
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&daemon),
                rustix::process::Signal::TERM,
            )
            .unwrap();
            // As in `detach`: starting child processes have copies of open files.
            assert!(started.elapsed() < PATIENCE, "the daemon does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!is_mounted(&self.root()));
        self.judge();
    }

    /// Sends the daemon a SIGTERM.
    pub fn ask_to_end(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let daemon = self.daemon.as_ref().expect("it is mounted");
        rustix::process::kill_process(rustix::process::Pid::from_child(daemon), signal).unwrap();
    }

    /// Changes a limit of the daemon, as prlimit(1) writes it.
    pub fn limit(&self, limit: &str) {
        let daemon = self.daemon.as_ref().expect("it is mounted").id();
        judge::run("prlimit", [format!("--pid={daemon}"), limit.to_owned()]);
    }

    /// Waits for the end of a daemon that got a signal. Then the checker must find nothing. Returns
    /// the daemon's messages.
    pub fn await_end(&mut self) -> String {
        let status = self.daemon.take().expect("it was mounted").wait().unwrap();
        assert!(status.success(), "the daemon ended with {status}: {}", self.log());
        self.judge();
        self.log()
    }

    /// Unmounts a volume whose daemon prints messages. Returns the messages.
    pub fn end(&mut self) -> String {
        // `cairn umount` reports the error of a volume that has failed.
        self.end_with_status();
        self.log()
    }

    /// Unmounts. Returns the exit status and the messages of `cairn umount`, and the exit status of
    /// the daemon.
    pub fn end_with_status(&mut self) -> (Option<i32>, String, Option<i32>) {
        let output = Command::new(CAIRN).arg("umount").arg(self.root()).output().unwrap();
        let daemon = self.daemon.take().expect("it is mounted").wait().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), daemon.code())
    }

    /// The checker must find nothing.
    pub fn judge(&self) {
        (self.assert_clean)(&self.image());
    }

    /// Detaches the mount of a dead daemon.
    pub fn clear(&self) {
        let output = Command::new(CAIRN).args(["umount", "-l"]).arg(self.root()).output().unwrap();
        assert!(
            output.status.success(),
            "cairn umount -l: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Free blocks and free inodes.
    pub fn free(&self) -> (u64, u64) {
        let stats = rustix::fs::statvfs(self.root()).unwrap();
        (stats.f_bfree, stats.f_ffree)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let _ = Command::new("umount").arg("-l").arg(self.root()).status();
        let _ = daemon.kill();
        let _ = daemon.wait();
        eprintln!("the daemon said: {}", self.log());
    }
}

/// In memory if possible. Other users must be able to enter the directory.
fn directory() -> Place {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::Builder::new().prefix("cairn-").tempdir_in(parent).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir.into()
}

/// `cairn stats --json` of a mount.
#[track_caller]
pub fn stats(point: &Path) -> Value {
    let output = Command::new(CAIRN).args(["stats", "--json"]).arg(point).output().unwrap();
    assert!(output.status.success(), "cairn stats: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Fails if mounts are impossible.
pub fn require_mounting() {
    assert!(
        judge::is_root(),
        "these tests need root, to mount and to use loop devices: run them with sudo"
    );
    assert!(
        Path::new("/dev/fuse").exists(),
        "/dev/fuse is missing: modprobe fuse; in a container, give it --device /dev/fuse --cap-add \
         SYS_ADMIN"
    );
}

/// True if something is mounted there.
pub fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|field| Path::new(field) == point))
}
