//! The servers that are compared, and those that this machine cannot run.

use std::path::Path;

use crate::error::{Error, Result};
use crate::experiment::{Context, Findings};
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
pub(super) const EXT4: &str = "ext4";
pub(super) const F2FS: &str = "f2fs";
pub(super) const BUILD: &str = "ext4, build";

/// Cairn's subjects: a name, whether the image is an F2FS, and mount options.
const CAIRN: [(&str, bool, &str); 5] = [
    (EXT4, false, "transport=dev"),
    (F2FS, true, "transport=dev"),
    (BUILD, false, "transport=dev,build"),
    ("ext4, ring", false, "transport=ring"),
    ("f2fs, ring", true, "transport=ring"),
];

/// Bytes of the image on which options are tried.
const TRIAL: u64 = 64 << 20;

/// A way to mount.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: &'static str,
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
    let subject = |name, server, is_f2fs, keeps| Subject { name, server, is_f2fs, keeps };
    let mut subjects = Vec::new();
    if available.kernel {
        subjects.push(subject(KERNEL, Server::Kernel, false, true));
    }
    for (name, requests) in [(EMPTY, "as-cairn"), (FEWEST, "fewest")] {
        let server = Server::Empty { program: program.clone(), requests };
        subjects.push(subject(name, server, false, false));
    }
    for (name, is_f2fs, options) in CAIRN {
        let server = Server::Cairn { program: program.clone(), options: options.into() };
        let works = if options.is_empty() { Ok(()) } else { attempt(&server, scratch) };
        match works {
            Ok(()) => subjects.push(subject(name, server, is_f2fs, true)),
            Err(error) => {
                findings.notes.push(format!("No rows of \"{name}\" (-o {options}): {error}."));
            }
        }
    }
    if available.fuse2fs {
        subjects.push(subject(FUSE2FS, Server::Fuse2fs, false, true));
    }
    Ok(subjects)
}

/// Mounts a small image once, to see whether this machine and this program can do it.
fn attempt(server: &Server, scratch: &Path) -> Result<()> {
    let directory = tempfile::tempdir_in(scratch).map_err(Error::host(scratch))?;
    let (image, point) = (directory.path().join("image"), directory.path().join("mnt"));
    std::fs::create_dir(&point).map_err(Error::host(&point))?;
    volume::make(&volume::image_file(&image, TRIAL)?.0, None)?;
    Mounted::new(server.clone(), &image, &point)?.unmount()
}
