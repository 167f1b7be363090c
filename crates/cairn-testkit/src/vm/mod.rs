//! A virtual machine with Debian's kernel: the judge for formats that the host's kernel cannot
//! mount (F2FS), and the only kernel that a test can power off.
//!
//! A machine boots with busybox and the filesystems' modules, and then waits for its disks: the
//! images, and an archive with programs of the host, their libraries and a script. Under emulation
//! a boot takes some eight seconds of a processor, so the state of a machine that waits is kept
//! (`snapshot`), and the next machine of any test goes on from there.
//! `scripts/install-deps` fetches the programs; a missing one is an error with its name, and no
//! test is skipped.
//!
//! Only one machine of a process runs at a time, because small computers have little memory.

mod agent;
mod archive;
mod kernel;
mod output;
mod qemu;
mod snapshot;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use agent::{Job, serve};
pub use output::Output;

use archive::Archive;
use kernel::Kernel;

/// Bytes of a sector of a disk.
const SECTOR: usize = 512;

/// One machine at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The machine to start. Disks are `/dev/vda`, `/dev/vdb`, … in the order they are given.
#[derive(Clone, Debug)]
pub struct Vm {
    disks: Vec<PathBuf>,
    programs: Vec<(PathBuf, String)>,
    agent: bool,
    is_first_process: bool,
    memory_mib: u32,
    limit: Duration,
    boot_limit: Duration,
}

impl Default for Vm {
    fn default() -> Self {
        Self::new()
    }
}

impl Vm {
    /// The line with which a script ends that is the [first process](Vm::first_process).
    pub const DONE: &str = "@@exit 0";

    /// A machine without disks.
    #[must_use]
    pub fn new() -> Self {
        Self {
            disks: Vec::new(),
            programs: Vec::new(),
            agent: false,
            is_first_process: false,
            memory_mib: 512,
            limit: Duration::from_secs(600),
            boot_limit: Duration::from_secs(150),
        }
    }

    /// Adds an image as a disk.
    ///
    /// # Panics
    /// A machine has no place for that many disks.
    #[must_use]
    pub fn disk(mut self, image: &Path) -> Self {
        self.disks.push(image.to_owned());
        assert!(self.disks.len() <= qemu::DISKS, "a machine has at most {} disks", qemu::DISKS);
        self
    }

    /// Adds a program of the host as `/bin/NAME`, with its libraries.
    ///
    /// # Panics
    /// It is not installed.
    #[must_use]
    pub fn tool(self, name: &str) -> Self {
        let path = crate::judge::tool(name);
        self.program(&path, name)
    }

    /// Adds an executable of the host as `/bin/NAME`.
    #[must_use]
    pub fn program(mut self, path: &Path, name: &str) -> Self {
        self.programs.push((path.to_owned(), name.to_owned()));
        self
    }

    /// Adds the running test program, for [`Job`]s.
    #[must_use]
    pub fn agent(mut self) -> Self {
        self.agent = true;
        self
    }

    /// Runs the script as the first process, which can go on as the init of a disk (`exec
    /// switch_root`). What it becomes prints [`Vm::DONE`] when it succeeds.
    #[must_use]
    pub fn first_process(mut self) -> Self {
        self.is_first_process = true;
        self
    }

    /// Main memory; 512 MiB if not given.
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// How long a run may take; ten minutes if not given.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Boots, runs the script (busybox's `sh -e`, in `/`, nothing mounted) and stops the machine.
    ///
    /// # Panics
    /// A part of the machine is missing, or the script takes too long.
    #[track_caller]
    #[must_use]
    pub fn run(&self, script: &str) -> Output {
        self.start(script, None).expect("only a marker can be missed")
    }

    /// [`Vm::run`], and the script must succeed. Returns what it printed.
    ///
    /// # Panics
    /// It fails: the message has the output of the script and of the kernel.
    #[track_caller]
    pub fn check(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(output.status == Some(0), "{}", output.describe());
        output.text
    }

    /// Boots, runs the script and resets the machine as soon as it prints the line `marker`: data
    /// that the guest has not written by then is lost. A script that must not continue waits
    /// (`sleep 100`) after the marker.
    ///
    /// # Panics
    /// The script ends without the marker.
    #[track_caller]
    pub fn crash_after(&self, script: &str, marker: &str) -> Output {
        match self.start(script, Some(marker)) {
            Ok(output) => output,
            Err(output) => panic!("no line '{marker}': {}", output.describe()),
        }
    }

    #[track_caller]
    fn start(&self, script: &str, marker: Option<&str>) -> Result<Output, Output> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let kernel = Kernel::find();
        let directory = tempfile::tempdir().expect("a directory for the machine");
        let at = |name: &str| directory.path().join(name);
        let mut system = Archive::default();
        system.program(&crate::judge::tool("busybox"), "busybox");
        kernel.add_modules(&mut system);
        system.file("init", 0o755, INIT.as_bytes().to_vec());
        std::fs::write(at("system"), system.finish()).expect("the machine's system is written");
        std::fs::write(at("job"), self.job(script, directory.path())).expect("the job is written");
        let machine = qemu::Machine {
            kernel: &kernel.image,
            system: &at("system"),
            job: &at("job"),
            console: &at("console"),
            monitor: &at("monitor"),
            disks: &self.disks,
            memory_mib: self.memory_mib,
            boot_limit: self.boot_limit,
        };
        let is_fast = qemu::accelerates(&kernel.image);
        let state = if is_fast { None } else { snapshot::of(&machine) };
        machine.run(state.as_deref(), marker, self.limit)
    }

    /// The archive with the programs and the script, as whole sectors of a disk.
    fn job(&self, script: &str, directory: &Path) -> Vec<u8> {
        let mut archive = Archive::default();
        for (path, name) in &self.programs {
            archive.program(path, name);
        }
        if self.agent {
            archive.program(&agent::stripped_self(directory), "agent");
        }
        if self.is_first_process {
            archive.file("first", 0o644, Vec::new());
        }
        // A machine that goes on from a kept state would have the same random numbers each time.
        archive.file(
            "random",
            0o644,
            std::iter::repeat_with(|| fastrand::u8(..)).take(512).collect(),
        );
        archive.file("script", 0o755, script.as_bytes().to_vec());
        let mut bytes = archive.finish();
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        bytes
    }
}

/// The kernel's messages go to the first serial line, the script's to the second. On the second
/// comes the line `@@job DISKS SECONDS @@`, which may be repeated, and of which the first may be
/// incomplete. Places for disks that are not used are removed.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /mnt /tmp /run /root /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root LC_ALL=C
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
for module in $(cat /modules/order); do insmod /modules/$module 2>/dev/null; done
echo 7 > /proc/sys/kernel/printk
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo @@ready >&3
until [ "$word $end" = "@@job @@" ]; do read word disks seconds end <&3; done
exec 3>&-
date -s @$seconds >/dev/null
slot=0
for device in /sys/bus/pci/devices/*; do
    read vendor < $device/vendor
    [ $vendor = 0x1af4 ] || continue
    [ $slot -le $disks ] || echo 1 > $device/remove
    slot=$((slot + 1))
done
for module in $(cat /modules/disks); do insmod /modules/$module 2>/dev/null; done
job=vd$(echo abcdefghijklmnopqrstuvwxyz | cut -c $((disks + 1)))
cd /
cpio -id < /dev/$job 2>/dev/null
cat /random > /dev/urandom
job=$(readlink -f /sys/block/$job/device/..)
echo 1 > $job/remove
unset word disks seconds end slot device vendor module job
echo @@start > /dev/ttyS1
[ ! -e /first ] || exec sh -e /script > /dev/ttyS1 2>&1 < /dev/null
sh -e /script > /dev/ttyS1 2>&1 < /dev/null
echo "@@exit $?" > /dev/ttyS1
sleep 60
"#;

#[cfg(test)]
mod tests;
