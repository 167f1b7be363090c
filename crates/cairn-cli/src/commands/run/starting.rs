//! Starts this program again, as another process of a run.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// The name of the command that the processes run.
pub(super) const NAME: &str = "run-stage";

/// Not its path: another file may have that, or the volume is mounted over it.
const THIS: &str = "/proc/self/exe";

/// This program, as another stage of a run.
pub(super) fn stage(name: &str) -> Command {
    stage_of(THIS, name)
}

fn stage_of(program: &str, name: &str) -> Command {
    let mut command = Command::new(program);
    command.arg0("cairn").args([NAME, name]);
    command
}

/// A copy of this program in memory that nobody changes.
///
/// The process that becomes the command runs it until then. A path of the image may lead to
/// `/proc/self/exe`: the kernel then starts that file with what the image has as its loader, which
/// can open the file, and do to it what its owner may. So it is none of the host's.
pub(super) struct Sealed(File);

impl Sealed {
    /// # Errors
    /// The system has no memory for it, or refuses programs that are in memory only.
    pub(super) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = match memfd_create("cairn", flags | MemfdFlags::EXEC) {
            // Before Linux 6.3, where all of them can be executed.
            Err(Errno::INVAL) => memfd_create("cairn", flags),
            made => made,
        };
        let mut copy = File::from(made?);
        io::copy(&mut File::open(THIS)?, &mut copy)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&copy, seals)?;
        Ok(Self(copy))
    }

    /// It, as another stage of a run. It must still be there when that is started.
    pub(super) fn stage(&self, name: &str) -> Command {
        stage_of(&format!("/proc/self/fd/{}", self.0.as_raw_fd()), name)
    }
}
