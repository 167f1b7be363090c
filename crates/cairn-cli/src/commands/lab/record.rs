//! `cairn lab crash --image IMAGE -- PROGRAM…`: any program's own writes.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cairn::ImageSpec;
use cairn_fuse::{MountOptions, Unmounter};
use cairn_lab::crash::{Extent, Observed, Report};

use super::common::stop_at_a_signal;
use crate::failure::{Failure, Status};

/// Tries to unmount, and the pause between them: a program that reads all mounts may use this one
/// briefly.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Status::Failed, format!("lab crash: {error}"))
}

/// Runs the program with a mount of a copy of the image as its directory, and searches.
pub(super) fn run(
    image: &ImageSpec,
    program: &[OsString],
    extent: &Extent,
    keep: Option<&Path>,
) -> Result<(Report, Option<String>), Failure> {
    let observed = Observed::open(image).map_err(failed)?;
    let point = tempfile::Builder::new().prefix("cairn-crash-").tempdir();
    // It is not removed with what is in it: it may still be a mount.
    let point = point.map_err(|error| Failure::host(std::env::temp_dir(), &error))?.keep();
    let ended = with_mount(&observed, &point, program);
    let removed = std::fs::remove_dir(&point);
    ended?;
    removed.map_err(|error| Failure::host(&point, &error))?;
    stop_at_a_signal()?;
    observed.search(extent, keep).map_err(failed)
}

fn with_mount(observed: &Observed, point: &Path, program: &[OsString]) -> Result<(), Failure> {
    let session = cairn_fuse::mount(observed.filesystem(), point, &MountOptions::default())
        .map_err(|error| failed(format!("{}: {error}", point.display())))?;
    let unmounter = session.unmounter();
    let server = std::thread::spawn(move || session.run());
    let ended = start(program, point);
    unmount(&unmounter, point)?;
    let served = server.join().map_err(|_| failed("the mount's thread panicked"))?;
    served.map_err(failed)?;
    ended
}

fn start(program: &[OsString], directory: &Path) -> Result<(), Failure> {
    let (name, arguments) = program.split_first().expect("clap asks for one");
    let shown = name.to_string_lossy();
    let ended = Command::new(name).args(arguments).current_dir(directory).status();
    let ended = ended
        .map_err(|error| failed(format!("{shown}: {error}: give a program that can be started")))?;
    if ended.success() {
        return Ok(());
    }
    Err(failed(format!("{shown} ends with {ended}: give one that succeeds on this image")))
}

fn unmount(unmounter: &Unmounter, point: &Path) -> Result<(), Failure> {
    for _ in 0..TRIES {
        match unmounter.unmount() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            Err(error) => return Err(Failure::host(point, &error)),
        }
    }
    let point = point.display();
    Err(failed(format!("{point}: something still uses the mount: end it, then run umount {point}")))
}
