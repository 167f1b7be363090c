//! The servers that are compared, and those that this machine cannot run.

use std::path::Path;

use crate::error::{Error, Result};
use crate::experiment::{Context, Findings};
use crate::leaving::Scratch;
use crate::mounted::{Available, Mounted, Server};
use crate::volume;

/// Id of the table.
pub(super) const ID: &str = "mount";
pub(super) const KERNEL: &str = "kernel";
pub(super) const FUSE2FS: &str = "fuse2fs";
/// The empty server with the requests that Cairn gets.
pub(super) const EMPTY: &str = "empty";
/// The empty server with as few requests as possible.
pub(super) const FEWEST: &str = "empty, fewest";
/// It keeps what is written in memory.
pub(super) const KEEPS: &str = "empty, keeps";
pub(super) const EMPTY_RING: &str = "empty, ring";
pub(super) const FEWEST_RING: &str = "empty, fewest, ring";
pub(super) const KEEPS_RING: &str = "empty, keeps, ring";
pub(super) const EXT4: &str = "ext4";
pub(super) const F2FS: &str = "f2fs";
pub(super) const EXT4_BUILD: &str = "ext4, build";
pub(super) const F2FS_BUILD: &str = "f2fs, build";
pub(super) const EXT4_RING: &str = "ext4, ring";
pub(super) const F2FS_RING: &str = "f2fs, ring";
pub(super) const EXT4_BUILD_RING: &str = "ext4, build, ring";
pub(super) const F2FS_BUILD_RING: &str = "f2fs, build, ring";

/// Empty servers: a name, the one to which it is compared, and options of `serve-nothing`.
const EMPTY_SERVERS: [(&str, &str, &[&str]); 6] = [
    (EMPTY, EMPTY, &["--requests", "as-cairn"]),
    (FEWEST, EMPTY, &["--requests", "fewest"]),
    (KEEPS, EMPTY, &["--requests", "as-cairn", "--keep"]),
    (EMPTY_RING, EMPTY_RING, &["--requests", "as-cairn", "--ring"]),
    (FEWEST_RING, EMPTY_RING, &["--requests", "fewest", "--ring"]),
    (KEEPS_RING, EMPTY_RING, &["--requests", "as-cairn", "--keep", "--ring"]),
];

/// Cairn's subjects: a name, the empty server to which it is compared, whether the image is an
/// F2FS, and mount options.
const CAIRN: [(&str, &str, bool, &str); 8] = [
    (EXT4, EMPTY, false, "transport=dev"),
    (F2FS, EMPTY, true, "transport=dev"),
    (EXT4_BUILD, EMPTY, false, "transport=dev,build"),
    (F2FS_BUILD, EMPTY, true, "transport=dev,build"),
    (EXT4_RING, EMPTY_RING, false, "transport=ring"),
    (F2FS_RING, EMPTY_RING, true, "transport=ring"),
    (EXT4_BUILD_RING, EMPTY_RING, false, "transport=ring,build"),
    (F2FS_BUILD_RING, EMPTY_RING, true, "transport=ring,build"),
];

/// Bytes of the image on which options are tried.
const TRIAL: u64 = 64 << 20;

/// A way to mount.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    /// The empty server with the same requests on the same transport.
    pub(super) empty: &'static str,
    pub(super) server: Server,
    pub(super) is_f2fs: bool,
    /// What was written is there after the next mount.
    pub(super) keeps: bool,
}

/// The subjects of this machine, the baseline first. What is missing goes to the notes.
pub(super) fn all(
    context: &Context,
    scratch: &Path,
    findings: &mut Findings,
) -> Result<Vec<Subject>> {
    let mut available = Available::here(context);
    findings.notes.append(&mut available.missing);
    let Some(program) = available.cairn else { return Ok(Vec::new()) };
    let mut subjects = Vec::new();
    let mut add = |name, empty, server, (is_f2fs, keeps)| {
        subjects.push(Subject { name, empty, server, is_f2fs, keeps });
    };
    if available.kernel {
        add(KERNEL, EMPTY, Server::Kernel, (false, true));
    }
    let mut refused = |name: &str, options: &str, error: Error| {
        findings.notes.push(format!("No rows of \"{name}\" ({options}): {error}."));
    };
    for (name, empty, options) in EMPTY_SERVERS {
        let server = Server::Empty { program: program.clone(), options };
        match attempt(&server, scratch) {
            Ok(()) => add(name, empty, server, (false, false)),
            Err(error) => refused(name, &options.join(" "), error),
        }
    }
    for (name, empty, is_f2fs, options) in CAIRN {
        let server = Server::Cairn { program: program.clone(), options: options.into() };
        match attempt(&server, scratch) {
            Ok(()) => add(name, empty, server, (is_f2fs, true)),
            Err(error) => refused(name, &format!("-o {options}"), error),
        }
    }
    if available.fuse2fs {
        add(FUSE2FS, EMPTY, Server::Fuse2fs, (false, true));
    }
    Ok(subjects)
}

/// Mounts a small image once, to see whether this machine and this program can do it.
fn attempt(server: &Server, scratch: &Path) -> Result<()> {
    let directory = Scratch::new(scratch)?;
    let (image, point) = (directory.path().join("image"), directory.path().join("mnt"));
    std::fs::create_dir(&point).map_err(Error::host(&point))?;
    volume::make(&volume::image_file(&image, TRIAL)?.0, None)?;
    Mounted::new(server.clone(), &image, &point)?.unmount()
}
