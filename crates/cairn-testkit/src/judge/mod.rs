//! Foreign judges: e2fsprogs, f2fs-tools, and the kernel's ext4 on a loop device. ([`crate::vm`]
//! has the kernel's F2FS.)
//!
//! These functions are assertions: they panic with the tool's whole output if it finds an error. A
//! missing tool is an error that names its package; no test is skipped.

mod e2fsprogs;
mod f2fs;
mod kernel;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub use e2fsprogs::{
    EXT4_FORMATS, Verdict, assert_clean, debugfs, dumpe2fs, e2fsck_check, e2fsck_preen, mke2fs,
};
pub use f2fs::{
    assert_f2fs_clean, assert_f2fs_device_clean, dump_f2fs, f2fs_alarms, f2fs_checkpoint_state,
    f2fs_in_memory, fsck_f2fs, fsck_f2fs_device, mkfs_f2fs, node_blocks_of, sload_f2fs,
    try_mkfs_f2fs,
};
pub use kernel::{KernelMount, LoopDevice, on_the_kernel_s_ext4};

/// Programs and their packages.
const PACKAGES: [(&str, &str); 36] = [
    ("blkid", "util-linux"),
    ("bsdtar", "libarchive-tools"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("debugfs", "e2fsprogs"),
    ("dump.f2fs", "f2fs-tools"),
    ("dumpe2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("fio", "fio"),
    ("fs_mark", "fsmark"),
    ("fsck.f2fs", "f2fs-tools"),
    ("fuse2fs", "fuse2fs"),
    ("fusermount3", "fuse3"),
    ("getfacl", "acl"),
    ("getfattr", "attr"),
    ("ldd", "libc-bin"),
    ("losetup", "mount"),
    ("mke2fs", "e2fsprogs"),
    ("mkfs.f2fs", "f2fs-tools"),
    ("python3", "python3"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("resize2fs", "e2fsprogs"),
    ("script", "bsdutils"),
    ("setfacl", "acl"),
    ("setfattr", "attr"),
    ("sfdisk", "fdisk"),
    ("sgdisk", "gdisk"),
    ("sload.f2fs", "f2fs-tools"),
    ("stress-ng", "stress-ng"),
    ("strip", "binutils"),
    ("tar", "tar"),
    ("tune2fs", "e2fsprogs"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// Finds a program in `PATH`, in the system's administration directories, or in the workspace's
/// `target/tools/bin`.
///
/// # Panics
/// It is not installed; the message names the package.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .chain([built])
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: {}", remedy(name)))
}

fn remedy(name: &str) -> String {
    match PACKAGES.iter().find(|(program, _)| *program == name) {
        Some((_, package)) => format!("apt-get install {package} (or run scripts/install-deps)"),
        None => "run scripts/install-deps".into(),
    }
}

/// What a shell script in a mount namespace of its own begins with. The namespace has copies of all
/// mounts: those of other tests would stay in use, and their devices claimed, as long as it lasts.
/// The mount point in the variable KEEP stays.
pub const FORGET_MOUNTS: &str = r#"
for point in $(awk '$1 ~ "^/dev/loop" || $3 ~ "^fuse" { print $2 }' /proc/self/mounts); do
    [ "$point" = "$KEEP" ] || umount -l "$point" 2>/dev/null || :
done
"#;

/// A command of this program in the C locale.
#[must_use]
pub fn command(name: &str) -> Command {
    let mut command = Command::new(tool(name));
    command.env("LC_ALL", "C").stdin(std::process::Stdio::null());
    command
}

/// Runs a program to its end.
///
/// # Panics
/// It cannot be started or does not exit with 0.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = S>) -> String {
    try_run(name, args).unwrap_or_else(|failure| panic!("{failure}"))
}

/// As [`run`], if the tool may refuse: its output, or the call with its output.
#[track_caller]
fn try_run<S: AsRef<OsStr>>(
    name: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<String, String> {
    let mut command = command(name);
    command.args(args);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = transcript(&output);
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{command:?} failed with {}:\n{text}", output.status))
}

/// Copies a program that the test then runs.
///
/// Another process copies it: a child that another thread of this process is just starting would
/// hold the copy open for writing, and it could not be run (ETXTBSY).
///
/// # Panics
/// It cannot be copied.
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    run("cp", [from, to]);
}

fn transcript(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// True if the process may use loop devices and mount.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests;
