//! An image in memory, mounted by a daemon of its own.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cairn_testkit::judge;

/// The program under test.
pub const CAIRN: &str = env!("CARGO_BIN_EXE_cairn");

/// How long a daemon may take to mount an image of this size on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An image, its mount point, and the daemon while it is mounted. Dropped after a failure, it leaves no mount behind.
pub struct Volume {
    dir: tempfile::TempDir,
    daemon: Option<Child>,
    /// The format's own checker.
    assert_clean: fn(&Path),
}

impl Volume {
    /// An unmounted volume made by mke2fs.
    pub fn make(size: u64, arguments: &[&str]) -> Self {
        require_mounting();
        let volume = Self { dir: directory(), daemon: None, assert_clean: judge::assert_clean };
        fs::create_dir(volume.root()).unwrap();
        let arguments = [&["-t", "ext4"], arguments].concat();
        judge::mke2fs(&volume.image(), size, &arguments);
        volume
    }

    /// A mounted F2FS volume made by mkfs.f2fs.
    pub fn f2fs(size: u64, options: &str) -> Self {
        require_mounting();
        let mut volume = Self { dir: directory(), daemon: None, assert_clean: judge::assert_f2fs_clean };
        fs::create_dir(volume.root()).unwrap();
        judge::mkfs_f2fs(&volume.image(), size, &[]);
        volume.mount(options);
        volume
    }

    /// Made and mounted with these options (`-o`; empty for none).
    pub fn mounted(size: u64, options: &str) -> Self {
        let mut volume = Self::make(size, &[]);
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

    /// A place beside the mount.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Mounts in the foreground of a child, whose messages go to a file.
    pub fn mount(&mut self, options: &str) {
        assert!(self.daemon.is_none(), "mounted twice");
        let log = File::create(self.outside("log")).unwrap();
        let mut command = Command::new(CAIRN);
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
            assert!(started.elapsed() < PATIENCE, "cairn mount neither mounts nor ends: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        self.daemon = Some(daemon);
    }

    /// What the daemon said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.outside("log")).unwrap_or_default()
    }

    /// Unmounts; when that returns, the checker must find nothing, although the daemon's process may still be ending.
    pub fn unmount(&mut self) {
        assert!(self.daemon.is_some(), "it is not mounted");
        self.detach();
        (self.assert_clean)(&self.image());
        let status = self.daemon.take().expect("asserted above").wait().unwrap();
        assert!(status.success() && self.log().is_empty(), "the daemon ended with {status}: {}", self.log());
    }

    /// `cairn umount`, patiently.
    pub fn detach(&self) {
        let started = Instant::now();
        loop {
            let output = Command::new(CAIRN).arg("umount").arg(self.root()).output().unwrap();
            if output.status.success() {
                break;
            }
            // A process that another test is just starting holds copies of this one's open files until it is itself.
            let said = String::from_utf8_lossy(&output.stderr);
            let passing = said.contains("in use") && started.elapsed() < PATIENCE;
            assert!(passing, "cairn umount: {said}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the daemon as a crash would, and clears its dead mount away.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("it is mounted");
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(self.log().is_empty(), "before it was killed: {}", self.log());
    }

    /// Unmounts a volume that has something to say; returns it.
    pub fn end(&mut self) -> String {
        // Of a volume that failed it tells that it did.
        let _ = Command::new(CAIRN).arg("umount").arg(self.root()).output().unwrap();
        self.daemon.take().expect("it is mounted").wait().unwrap();
        self.log()
    }

    /// The checker must find nothing.
    pub fn judge(&self) {
        (self.assert_clean)(&self.image());
    }

    /// Takes a dead daemon's mount away.
    pub fn clear(&self) {
        let output = Command::new(CAIRN).args(["umount", "-l"]).arg(self.root()).output().unwrap();
        assert!(output.status.success(), "cairn umount -l: {}", String::from_utf8_lossy(&output.stderr));
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

/// In memory where possible; others must be able to pass.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::Builder::new().prefix("cairn-").tempdir_in(parent).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Fails where nothing can be mounted.
pub fn require_mounting() {
    assert!(judge::is_root(), "these tests need root, to mount and to use loop devices: run them with sudo");
    assert!(
        Path::new("/dev/fuse").exists(),
        "/dev/fuse is missing: modprobe fuse; in a container, give it --device /dev/fuse --cap-add SYS_ADMIN"
    );
}

/// True if something is mounted there.
pub fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|field| Path::new(field) == point))
}
