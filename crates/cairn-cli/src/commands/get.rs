//! `cairn get`: copies out of an image, keeping what the host lets us keep.
//!
//! Invariant: nothing is ever made outside the destination, whatever names and links the image holds. Entries are
//! made with "create new" calls, existing ones are removed first and never followed, and a listing holds checked names alone
//! ([`cairn_vfs::Name`]), which lead nowhere.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use cairn_base::Ino;
use cairn_vfs::{Attributes, Error, FileKind, FileSystem, IoFlags, Seek, Timestamp, walk};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat, utimensat};

use super::cat;
use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome, Status, plain};
use crate::output::Output;
use crate::progress::Progress;
use crate::session::{Access, ImageArg, shown};
use crate::tree::Passed;
use crate::{pattern, print};

/// Bytes moved at a time.
const CHUNK: usize = 1 << 20;

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn get disk.img /etc /boot/config.txt backup/
  cairn get disk.img /var/log/syslog - | grep error

Trees are copied whole, with modes, times, extended attributes, hard links and holes. Owners and devices need root; \
without it they are left out with a warning.")]
pub struct Args {
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Files and directories on the image.
    #[arg(required = true)]
    pub sources: Vec<OsString>,
    /// Where to put them: a directory, or the new name of a single source; - is standard output (files only).
    pub destination: PathBuf,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        if self.destination.as_os_str() == "-" {
            return cat::print(fs, &self.sources, output);
        }
        let sources = pattern::expand(fs, &self.sources)?;
        let sources: Vec<&OsStr> = sources.iter().map(|source| OsStr::from_bytes(source)).collect();
        copy_out(fs, &sources, &self.destination)
    }
}

/// Copies out.
///
/// # Errors
/// A source does not exist, or the host refuses.
pub fn copy_out(fs: &dyn FileSystem, sources: &[&OsStr], destination: &Path) -> Outcome {
    if sources.len() > 1 && !destination.is_dir() {
        let message = format!("{}: not a directory: make it first to copy several sources", destination.display());
        return Err(Failure::new(Status::Failed, message));
    }
    let mut copy = Copy {
        fs,
        links: HashMap::new(),
        directories: Vec::new(),
        progress: Progress::start("copied"),
        privileged: rustix::process::geteuid().is_root(),
        skipped: HashMap::new(),
        passed: Passed::default(),
        buffer: vec![0; CHUNK],
    };
    if copy.progress.is_shown() {
        copy.progress.expect(sources.iter().map(|source| volume_bytes(fs, source.as_bytes())).sum());
    }
    for source in sources {
        copy.source(source.as_bytes(), destination)?;
    }
    copy.finish()
}

/// Bytes in the regular files of a tree, for the progress: what cannot be read is not counted.
fn volume_bytes(fs: &dyn FileSystem, path: &[u8]) -> u64 {
    let mut bytes = 0;
    if let Ok(found) = walk::resolve(fs, path, false) {
        let _ = walk::walk_past_damage(fs, found.ino, &mut |met| {
            if let walk::Met::Entry(visit) = met
                && visit.attributes.kind == FileKind::Regular
            {
                bytes += visit.attributes.size;
            }
            Ok(walk::Next::Continue)
        });
    }
    bytes
}

struct Copy<'a> {
    fs: &'a dyn FileSystem,
    /// First path of each file with several links.
    links: HashMap<Ino, PathBuf>,
    /// Their attributes are set last, deepest first: work inside would change their times, or be forbidden.
    directories: Vec<(PathBuf, Attributes)>,
    progress: Progress,
    privileged: bool,
    /// What was left out, and how often.
    skipped: HashMap<&'static str, u64>,
    /// Entries that could not be read, or not whole.
    passed: Passed,
    buffer: Vec<u8>,
}

impl Copy<'_> {
    fn source(&mut self, path: &[u8], destination: &Path) -> Outcome {
        let failed_at = |path: &[u8], error: &Error| Failure::volume(shown(path), error);
        let failed = |error: &Error| failed_at(path, error);
        let found = walk::resolve(self.fs, path, false).map_err(|error| failed(&error))?;
        let name = path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
        let target = match name.filter(|name| *name != b"." && *name != b"..") {
            Some(name) if destination.is_dir() => destination.join(OsStr::from_bytes(name)),
            _ => destination.to_owned(),
        };
        let mut failure = None;
        let walked = walk::walk_past_damage(self.fs, found.ino, &mut |met| {
            let done = match met {
                walk::Met::Entry(visit) => safe(visit.path).and_then(|below| {
                    let host = if below.as_os_str().is_empty() { target.clone() } else { target.join(below) };
                    self.entry(host, visit.attributes)
                }),
                walk::Met::Damaged { path: below, error } => {
                    let slash: &[u8] = if path.ends_with(b"/") || below.is_empty() { b"" } else { b"/" };
                    Err(failed_at(&[path, slash, below].concat(), &error))
                }
            };
            Ok(match done.or_else(|failure| self.pass(failure)) {
                Ok(()) => walk::Next::Continue,
                Err(error) => {
                    failure = Some(error);
                    walk::Next::Stop
                }
            })
        });
        failure.map_or(Ok(()), Err)?;
        walked.map_err(|error| failed(&error))
    }

    fn entry(&mut self, path: PathBuf, of: &Attributes) -> Outcome {
        if of.kind != FileKind::Directory && of.links > 1 {
            if let Some(first) = self.links.get(&of.ino) {
                clear(&path)?;
                fs::hard_link(first, &path).map_err(|error| Failure::host(&path, &error))?;
                self.progress.entry();
                return Ok(());
            }
            self.links.insert(of.ino, path.clone());
        }
        if of.kind == FileKind::Directory {
            make_directory(&path)?;
            self.directories.push((path, of.clone()));
            return Ok(());
        }
        clear(&path)?;
        if self.make(&path, of)? {
            self.attributes(&path, of)?;
            self.progress.entry();
        } else {
            self.links.remove(&of.ino);
        }
        Ok(())
    }

    /// False if the entry was left out.
    fn make(&mut self, path: &Path, of: &Attributes) -> Outcome<bool> {
        let host = |error: &std::io::Error| Failure::host(path, error);
        let node = |kind, device| mknodat(CWD, path, kind, Mode::from(0o600), device).map_err(|e| host(&e.into()));
        let (major, minor) = print::device(of.device);
        match of.kind {
            FileKind::Regular => self.file(path, of)?,
            FileKind::Symlink => {
                let target = self.fs.readlink(of.ino).map_err(|error| Failure::volume(path.display(), &error))?;
                symlink(OsStr::from_bytes(&target), path).map_err(|error| host(&error))?;
            }
            FileKind::Fifo => node(FileType::Fifo, 0)?,
            FileKind::Socket => node(FileType::Socket, 0)?,
            FileKind::BlockDevice | FileKind::CharDevice if !self.privileged => {
                self.skip("device nodes (they need root)");
                return Ok(false);
            }
            FileKind::BlockDevice => node(FileType::BlockDevice, makedev(major, minor))?,
            FileKind::CharDevice => node(FileType::CharacterDevice, makedev(major, minor))?,
            FileKind::Directory => unreachable!("directories are made by their own path"),
        }
        Ok(true)
    }

    /// Data only: holes stay holes.
    fn file(&mut self, path: &Path, of: &Attributes) -> Outcome {
        let host = |error: &std::io::Error| Failure::host(path, error);
        let volume = |error: &Error| Failure::volume(path.display(), error);
        let file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(|e| host(&e))?;
        let mut at = 0;
        while at < of.size {
            let data = match self.fs.seek(of.ino, at, Seek::Data) {
                Ok(data) => data,
                Err(Error::NoData) => break,
                Err(error) => return Err(volume(&error)),
            };
            let hole = self.fs.seek(of.ino, data, Seek::Hole).map_err(|error| volume(&error))?.min(of.size);
            at = data;
            while at < hole {
                let want = usize::try_from(hole - at).unwrap_or(CHUNK).min(CHUNK);
                let buffer = self.buffer.get_mut(..want).unwrap_or_default();
                let count = self.fs.read(of.ino, at, buffer, IoFlags::empty()).map_err(|error| volume(&error))?;
                let bytes = buffer.get(..count).unwrap_or_default();
                if bytes.is_empty() {
                    return Err(volume(&Error::Invalid("the file ended before its size")));
                }
                file.write_all_at(bytes, at).map_err(|error| host(&error))?;
                at += bytes.len() as u64;
                self.progress.bytes(bytes.len() as u64);
            }
            if hole <= data {
                return Err(volume(&Error::Invalid("no progress in SEEK_HOLE")));
            }
        }
        file.set_len(of.size).map_err(|error| host(&error))
    }

    /// Owner before mode (chown takes set-id bits), times last.
    fn attributes(&mut self, path: &Path, of: &Attributes) -> Outcome {
        let host = |error: &std::io::Error| Failure::host(path, error);
        if self.privileged {
            lchown(path, Some(of.uid), Some(of.gid)).map_err(|error| host(&error))?;
        }
        self.xattrs(path, of)?;
        if of.kind != FileKind::Symlink {
            let permissions = fs::Permissions::from_mode(of.permissions);
            fs::set_permissions(path, permissions).map_err(|error| host(&error))?;
        }
        let times = Timestamps { last_access: timespec(of.atime), last_modification: timespec(of.mtime) };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| host(&error.into()))
    }

    fn xattrs(&mut self, path: &Path, of: &Attributes) -> Outcome {
        let volume = |error: &Error| Failure::volume(path.display(), error);
        for name in self.fs.listxattr(of.ino).map_err(|error| volume(&error))? {
            let value = self.fs.getxattr(of.ino, &name).map_err(|error| volume(&error))?;
            match xattr::set(path, OsStr::from_bytes(&name), &value) {
                Ok(()) => {}
                // The host's filesystem or our rights do not allow them: known limits of a host, not failures.
                Err(error) if tolerable(&error) => self.skip("extended attributes that the host refuses"),
                Err(error) => return Err(Failure::host(path, &error)),
            }
        }
        Ok(())
    }

    /// What is damaged on the image does not keep the rest from being copied.
    fn pass(&mut self, failure: Failure) -> Outcome {
        self.passed.pass(failure, |warning| self.progress.note(warning))
    }

    fn skip(&mut self, what: &'static str) {
        *self.skipped.entry(what).or_default() += 1;
    }

    fn finish(mut self) -> Outcome {
        for (path, of) in std::mem::take(&mut self.directories).into_iter().rev() {
            self.attributes(&path, &of).or_else(|failure| self.pass(failure))?;
            self.progress.entry();
        }
        if !self.privileged && self.progress.entries() > 0 {
            self.progress.note("warning: not root: the copies belong to you, not to their owners");
        }
        for (what, count) in &self.skipped {
            self.progress.note(&format!("warning: left out {count} {what}"));
        }
        self.passed.end()
    }
}

/// EPERM, EACCES, EOPNOTSUPP, ENOSPC, ERANGE, E2BIG: what hosts say about attributes that they do not store.
fn tolerable(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(1 | 7 | 13 | 28 | 34 | 95))
}

/// A relative path that cannot leave its directory.
fn safe(path: &[u8]) -> Outcome<&Path> {
    let bad = |name: &[u8]| matches!(name, b"." | b"..") || name.contains(&0);
    if path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(bad) {
        let message = format!("{}: a name that no directory can hold: run e2fsck on the image", path.escape_ascii());
        return Err(Failure::new(Status::Corrupt, message));
    }
    Ok(Path::new(OsStr::from_bytes(path)))
}

/// Removes what is in the way, unless it is a directory.
fn clear(path: &Path) -> Outcome {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let message = format!("{}: cannot be replaced: {}", path.display(), plain(&error));
            Err(Failure::new(Status::Failed, message))
        }
        _ => Ok(()),
    }
}

/// Makes a directory that only we may enter until its attributes are set; an existing one is used, a link to one is not.
fn make_directory(path: &Path) -> Outcome {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            _ => Err(Failure::host(path, &error)),
        },
        done => done.map_err(|error| Failure::host(path, &error)),
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_destination() {
        for good in ["", "a", "a/b", "..a/b..", "a b"] {
            assert!(safe(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["/etc", "..", "a/../b", ".", "a/./b", "a\0b"] {
            assert_eq!(safe(bad.as_bytes()).expect_err(bad).status, Status::Corrupt);
        }
    }
}
