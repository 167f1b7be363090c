//! `cairn get`: copies out of an image, with as many attributes as the host allows.
//!
//! Invariant: nothing is ever made outside the destination, whatever names and links the image
//! holds. Entries are made with "create new" calls. Existing entries are removed first and never
//! followed, except the one name that the user gives whole. A listing holds only checked names
//! ([`cairn_vfs::Name`]), which cannot leave their directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use cairn_base::Ino;
use cairn_build::{Leftovers, remove_inherited_lists};
use cairn_vfs::{Attributes, Error, FileKind, FileSystem, IoFlags, Seek, walk};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timestamps, makedev, mknodat, utimensat};

use super::cat;
use super::destination::{Transfer, host_path, no_directory};
use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::session::{Access, ImageArg, shown};
use crate::tree::{Passed, join};
use crate::{failure, pattern};

mod host;

use host::{
    behind_links, fill, host_name, make_directory, open_device, safe, timespec, tolerable, unmade,
};

/// Bytes moved at a time.
const CHUNK: usize = 1 << 20;

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn get disk.img /etc /boot/config.txt backup/
  cairn get disk.img /var/log/syslog - | grep error

Trees are copied whole, with modes, times, extended attributes, hard links and holes. Owners and \
devices need root; without it they are left out with a warning. A new version of an existing file \
is first copied beside it: if that fails, the old file remains. A single file whose new name is a \
symbolic link, a FIFO or a device is written through it. Files that are copied into a directory, \
and those inside trees, replace links of their name.")]
pub struct Args {
    /// Files and directories on the image, and where to put them; - is standard output (files
    /// only).
    #[command(flatten)]
    pub transfer: Transfer,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.transfer.image
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        let sources = pattern::expand(fs, &self.transfer.sources)?;
        let destination = host_path(&self.transfer.destination)?;
        if destination.as_os_str() == "-" {
            return cat::print(fs, sources, output);
        }
        let sources: Vec<&OsStr> = sources.iter().map(|source| OsStr::from_bytes(source)).collect();
        copy_out(fs, &sources, &destination)
    }
}

/// Copies out.
///
/// # Errors
/// A source does not exist, or the host refuses.
pub fn copy_out(fs: &dyn FileSystem, sources: &[&OsStr], destination: &Path) -> Outcome {
    // Also one to a directory.
    cairn::host::behind_links(destination).map_err(|error| Failure::host(destination, &error))?;
    if sources.len() > 1 && !destination.is_dir() {
        return Err(no_directory(&host_name(destination), "several sources"));
    }
    let mut copy = Copy {
        fs,
        leftovers: Leftovers::find(fs),
        links: HashMap::new(),
        directories: Vec::new(),
        progress: Progress::start("copied"),
        privileged: rustix::process::geteuid().is_root(),
        skipped: HashMap::new(),
        passed: Passed::default(),
        buffer: vec![0; CHUNK],
    };
    if let Some(note) = copy.leftovers.note() {
        copy.progress.note(&format!("warning: {note}"));
    }
    if copy.progress.is_shown() {
        copy.progress
            .expect(sources.iter().map(|source| volume_bytes(fs, source.as_bytes())).sum());
    }
    let copied = failure::each(sources, |source| copy.source(source.as_bytes(), destination));
    failure::all([copied, copy.finish()])
}

/// Bytes in the regular files of a tree, for the progress: what cannot be read is not counted.
fn volume_bytes(fs: &dyn FileSystem, path: &[u8]) -> u64 {
    let mut bytes = 0;
    if let Ok(found) = walk::resolve(fs, path, false) {
        let _ = walk::walk_past_damage(fs, found.ino, &mut |met| {
            if let walk::Reached::Entry(visit) = met
                && visit.attributes.kind == FileKind::Regular
            {
                bytes += visit.attributes.size;
            }
            Ok(walk::Next::Continue)
        });
    }
    bytes
}

/// What was left out, in the singular and in the plural.
type Kind = (&'static str, &'static str);
const DEVICES: Kind = ("device node (it needs root)", "device nodes (they need root)");
const XATTRS: Kind =
    ("extended attribute that the host refuses", "extended attributes that the host refuses");

/// A file that is being made on the host.
struct Target<'a> {
    /// The name under which it is made.
    path: &'a Path,
    /// Its final name, which messages give.
    name: &'a Path,
    /// Its path on the image.
    from: &'a [u8],
}

impl Target<'_> {
    fn host(&self, error: &std::io::Error) -> Failure {
        unmade(self.name, error)
    }

    fn volume(&self, error: &Error) -> Failure {
        Failure::volume(shown(self.from), error)
    }
}

struct Copy<'a> {
    fs: &'a dyn FileSystem,
    /// What a killed run has left. It is copied only if it is named.
    leftovers: Leftovers,
    /// First path of each file with several links.
    links: HashMap<Ino, PathBuf>,
    /// Directories, whose attributes are set last, deepest first: earlier, work inside would change
    /// their times or be forbidden.
    directories: Vec<(PathBuf, Vec<u8>, Attributes)>,
    progress: Progress,
    privileged: bool,
    /// What was left out, and how often.
    skipped: HashMap<Kind, u64>,
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
            _ if found.kind == FileKind::Regular => {
                let target = behind_links(destination)?;
                if let Some(device) = open_device(&target)? {
                    return self.stream(path, &found, &target, device);
                }
                target
            }
            _ => destination.to_owned(),
        };
        let slash = destination.as_os_str().as_bytes().ends_with(b"/");
        if slash && found.kind != FileKind::Directory && !destination.is_dir() {
            return Err(no_directory(&host_name(destination), "a name with a slash at its end"));
        }
        let mut failure = None;
        let walked = walk::walk_past_damage(self.fs, found.ino, &mut |met| {
            let done = match met {
                walk::Reached::Entry(visit)
                    if visit.depth > 0 && self.leftovers.contains(visit.attributes.ino) =>
                {
                    return Ok(walk::Next::Skip);
                }
                walk::Reached::Entry(visit) => safe(visit.path).and_then(|below| {
                    let host = if below.as_os_str().is_empty() {
                        target.clone()
                    } else {
                        target.join(below)
                    };
                    self.entry(host, &join(path, visit.path), visit.attributes)
                }),
                walk::Reached::Damaged { path: below, error } => {
                    Err(failed_at(&join(path, below), &error))
                }
            };
            let done = done.map(|()| walk::Next::Continue);
            // Nothing is made below a directory that failed: an entry in its place may lead
            // elsewhere.
            Ok(match done.or_else(|failure| self.pass(failure).map(|()| walk::Next::Skip)) {
                Ok(next) => next,
                Err(error) => {
                    failure = Some(error);
                    walk::Next::Stop
                }
            })
        });
        failure.map_or(Ok(()), Err)?;
        walked.map_err(|error| failed(&error))
    }

    /// Writes only the contents, to a device or FIFO.
    fn stream(&mut self, from: &[u8], of: &Attributes, to: &Path, mut device: File) -> Outcome {
        let mut at = 0;
        loop {
            let count = self
                .fs
                .read(of.ino, at, &mut self.buffer, IoFlags::empty())
                .map_err(|error| Failure::volume(shown(from), &error))?;
            let bytes = self.buffer.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(());
            }
            device.write_all(bytes).map_err(|error| Failure::host(to, &error))?;
            at += count as u64;
            self.progress.bytes(count as u64);
        }
    }

    /// `from` is its path on the image.
    fn entry(&mut self, path: PathBuf, from: &[u8], of: &Attributes) -> Outcome {
        if of.kind == FileKind::Directory {
            make_directory(&path)?;
            self.directories.push((path, from.to_vec(), of.clone()));
            return Ok(());
        }
        let first = if of.links > 1 { self.links.get(&of.ino).cloned() } else { None };
        let made = fill(&path, |made| match &first {
            Some(first) => fs::hard_link(first, made)
                .map_err(|error| Failure::host(&path, &error))
                .map(|()| true),
            None => {
                let target = Target { path: made, name: &path, from };
                Ok(self.make(&target, of)? && self.attributes(&target, of).map(|()| true)?)
            }
        })?;
        if made {
            self.progress.entry();
            if of.links > 1 {
                self.links.entry(of.ino).or_insert(path);
            }
        }
        Ok(())
    }

    /// False if the entry was left out.
    fn make(&mut self, target: &Target<'_>, of: &Attributes) -> Outcome<bool> {
        let path = target.path;
        let host = |error: &std::io::Error| target.host(error);
        let node = |kind, device| {
            mknodat(CWD, path, kind, Mode::from(0o600), device).map_err(|e| host(&e.into()))
        };
        let (major, minor) = cairn_vfs::decode_device(of.device);
        match of.kind {
            FileKind::Regular => self.file(target, of)?,
            FileKind::Symlink => {
                let leads_to = self.fs.readlink(of.ino).map_err(|error| target.volume(&error))?;
                symlink(OsStr::from_bytes(&leads_to), path).map_err(|error| host(&error))?;
            }
            FileKind::Fifo => node(FileType::Fifo, 0)?,
            FileKind::Socket => node(FileType::Socket, 0)?,
            FileKind::BlockDevice | FileKind::CharDevice if !self.privileged => {
                self.skip(DEVICES);
                return Ok(false);
            }
            FileKind::BlockDevice => node(FileType::BlockDevice, makedev(major, minor))?,
            FileKind::CharDevice => node(FileType::CharacterDevice, makedev(major, minor))?,
            FileKind::Directory => unreachable!("directories are made by their own path"),
        }
        Ok(true)
    }

    /// Copies only data; holes stay holes.
    fn file(&mut self, target: &Target<'_>, of: &Attributes) -> Outcome {
        let host = |error: &std::io::Error| target.host(error);
        let volume = |error: &Error| target.volume(error);
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(target.path)
            .map_err(|e| host(&e))?;
        let mut at = 0;
        while at < of.size {
            let data = match self.fs.seek(of.ino, at, Seek::Data) {
                Ok(data) => data,
                Err(Error::NoData) => break,
                Err(error) => return Err(volume(&error)),
            };
            let hole = self
                .fs
                .seek(of.ino, data, Seek::Hole)
                .map_err(|error| volume(&error))?
                .min(of.size);
            at = data;
            while at < hole {
                let want = usize::try_from(hole - at).unwrap_or(CHUNK).min(CHUNK);
                let buffer = self.buffer.get_mut(..want).unwrap_or_default();
                let count = self
                    .fs
                    .read(of.ino, at, buffer, IoFlags::empty())
                    .map_err(|error| volume(&error))?;
                let bytes = buffer.get(..count).unwrap_or_default();
                if bytes.is_empty() {
                    return Err(volume(&Error::Invalid(
                        "the file ended before the size in its attributes",
                    )));
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

    /// Sets the owner before the mode (chown removes set-id bits), and the times last.
    fn attributes(&mut self, target: &Target<'_>, of: &Attributes) -> Outcome {
        let path = target.path;
        let host = |error: &std::io::Error| target.host(error);
        if self.privileged {
            lchown(path, Some(of.uid), Some(of.gid)).map_err(|error| host(&error))?;
        }
        if of.kind != FileKind::Symlink {
            remove_inherited_lists(path).map_err(|error| host(&error))?;
        }
        self.xattrs(target, of)?;
        if of.kind != FileKind::Symlink {
            let permissions = fs::Permissions::from_mode(of.permissions);
            fs::set_permissions(path, permissions).map_err(|error| host(&error))?;
        }
        let times =
            Timestamps { last_access: timespec(of.atime), last_modification: timespec(of.mtime) };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| host(&error.into()))
    }

    fn xattrs(&mut self, target: &Target<'_>, of: &Attributes) -> Outcome {
        let volume = |error: &Error| target.volume(error);
        for name in self.fs.listxattr(of.ino).map_err(|error| volume(&error))? {
            if self.leftovers.is_list(of.ino, &name) {
                continue;
            }
            let value = self.fs.getxattr(of.ino, &name).map_err(|error| volume(&error))?;
            match xattr::set(target.path, OsStr::from_bytes(&name), &value) {
                Ok(()) => {}
                // The host's filesystem or the user's rights do not allow extended attributes: a
                // limit of the host, not a failure.
                Err(error) if tolerable(&error) => self.skip(XATTRS),
                Err(error) => return Err(target.host(&error)),
            }
        }
        Ok(())
    }

    /// Records a failure of one file; the other files are still copied.
    fn pass(&mut self, failure: Failure) -> Outcome {
        self.passed.pass(failure, |warning| self.progress.note(warning))
    }

    fn skip(&mut self, what: Kind) {
        *self.skipped.entry(what).or_default() += 1;
    }

    fn finish(mut self) -> Outcome {
        for (path, from, of) in std::mem::take(&mut self.directories).into_iter().rev() {
            self.attributes(&Target { path: &path, name: &path, from: &from }, &of)
                .or_else(|failure| self.pass(failure))?;
            self.progress.entry();
        }
        if !self.privileged && self.progress.entries() > 0 {
            self.progress.note("warning: not root: the copies belong to you, not to their owners");
        }
        for ((one, many), count) in &self.skipped {
            let what = if *count == 1 { one } else { many };
            self.progress.note(&format!("warning: left out {count} {what}"));
        }
        self.passed.end()
    }
}

#[cfg(test)]
mod tests;
