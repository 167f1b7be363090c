//! [`Sink`]: takes what a rescue finds, and makes it on the host.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cairn_check::salvage::{Contents, Found, Loss, Receiver};
use cairn_vfs::FileKind;
use rustix::fs::FileType;
use serde_json::Value;

use super::attributes::{self, Refused, is_list};
use super::host::{Host, Place, set_open};
use super::list::Watch;
use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::{json, print};

/// Most losses that a document lists.
const MOST_LOSSES: usize = 100_000;
/// Longest target of a symbolic link.
const LONGEST_TARGET: usize = 4095;

/// What was rescued.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) links: u64,
    pub(super) bytes: u64,
    pub(super) losses: u64,
    /// Attributes that the host has refused.
    pub(super) xattrs: u64,
}

/// Makes files on the host.
pub(super) struct Sink {
    host: Host,
    path: PathBuf,
    is_json: bool,
    is_root: bool,
    /// Directories get their mode and times when nothing is made in them any more.
    directories: Vec<Found>,
    /// The names that files with several names have got, if these are not those they should have.
    renamed: std::collections::HashMap<u64, Vec<u8>>,
    watch: Watch,
    failure: Option<Failure>,
    /// The first attribute that the host has refused.
    pub(super) refused: Option<String>,
    pub(super) counts: Counts,
    pub(super) losses: Vec<Value>,
}

impl Sink {
    /// Begins.
    ///
    /// # Errors
    /// The directory cannot be made or opened.
    pub(super) fn new(path: &Path, is_json: bool) -> Outcome<Self> {
        let host = Host::open(path).map_err(|error| Failure::host(path, &error))?;
        Ok(Self {
            host,
            path: path.to_owned(),
            is_json,
            is_root: rustix::process::geteuid().is_root(),
            directories: Vec::new(),
            renamed: std::collections::HashMap::new(),
            watch: Watch::start(),
            failure: None,
            refused: None,
            counts: Counts::default(),
            losses: Vec::new(),
        })
    }

    /// Sets what directories have. Returns why the rescue has ended early: the host has no room, or
    /// the losses could not be printed.
    pub(super) fn finish(&mut self) -> Option<Failure> {
        self.watch.end();
        for found in std::mem::take(&mut self.directories).iter().rev() {
            if let Ok(directory) = self.host.directory(&found.path) {
                let refused = set_open(directory, self.owner(found), found);
                self.note(found, refused);
            }
        }
        self.failure.take()
    }

    /// Counts attributes that the host has refused.
    fn note(&mut self, found: &Found, refused: Vec<Refused>) {
        self.counts.xattrs += refused.len() as u64;
        if let Some(Refused { name, why }) = refused.into_iter().next() {
            self.refused.get_or_insert_with(|| {
                let (name, path) = (print::escaped(&name), print::escaped(&found.path));
                format!("{name} of /{path}: {}", crate::failure::plain(&why))
            });
        }
    }

    fn owner(&self, found: &Found) -> Option<(u32, u32)> {
        self.is_root.then_some((found.uid, found.gid))
    }

    /// Notes what the host refuses. Without room on the host the rescue ends.
    fn refused(&mut self, found: &Found, error: &io::Error) -> bool {
        let what = format!("this host cannot store it: {}", crate::failure::plain(error));
        let goes_on = self.lost(Loss { path: found.path.clone(), ino: found.ino, what });
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            let path = self.path.join(OsStr::from_bytes(&found.path));
            let left = "neither it nor what follows it was rescued";
            self.failure = Some(Failure::host(path, error).leaving(left.into()));
            return false;
        }
        goes_on
    }

    fn file(&mut self, found: &Found, contents: &mut dyn Contents) -> io::Result<Vec<String>> {
        let mut place = self.host.place(&found.path)?;
        let file = place.file(found.ino)?;
        let (mut bytes, mut failed) = (0, None);
        let faults = contents.copy(&mut |offset, part| match write(&file, offset, part) {
            Ok(()) => {
                bytes += part.len() as u64;
                true
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        if let Err(error) = failed.map_or_else(|| file.set_len(found.size), Err) {
            return Err(place.withdraw(&file, error));
        }
        self.counts.bytes += bytes;
        self.counts.files += 1;
        self.named(found, &place);
        let refused = set_open(&file, self.owner(found), found);
        self.note(found, refused);
        Ok(faults)
    }

    /// Notes the name that a file has got.
    fn named(&mut self, found: &Found, place: &Place) {
        let wanted = found.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if wanted != place.name {
            let parent = found.path.len() - wanted.len();
            let path = [&found.path[..parent], &place.name].concat();
            self.renamed.insert(found.ino, path);
        }
    }

    fn symlink(&mut self, found: &Found, contents: &mut dyn Contents) -> io::Result<Vec<String>> {
        let mut target = Vec::new();
        let mut faults = contents.copy(&mut |offset, part| {
            if offset == target.len() as u64 && target.len() + part.len() <= LONGEST_TARGET + 1 {
                target.extend_from_slice(part);
            }
            target.len() <= LONGEST_TARGET
        });
        if let Some(end) = target.iter().position(|byte| *byte == 0) {
            target.truncate(end);
        }
        if target.is_empty() {
            faults.push("the target of the link is gone".into());
            return Ok(faults);
        }
        let mut place = self.host.place(&found.path)?;
        place.symlink(found.ino, &target)?;
        self.counts.files += 1;
        self.named(found, &place);
        let refused = place.set(self.owner(found), None, found);
        self.note(found, refused);
        Ok(faults)
    }

    fn node(&mut self, found: &Found, kind: FileKind) -> io::Result<Vec<String>> {
        let kind = match kind {
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::Socket => FileType::Socket,
            _ => FileType::Fifo,
        };
        let mut place = self.host.place(&found.path)?;
        place.node(found.ino, kind, found.device)?;
        self.counts.files += 1;
        self.named(found, &place);
        let refused = place.set(self.owner(found), Some(found.mode & 0o7777), found);
        self.note(found, refused);
        Ok(Vec::new())
    }

    /// One that exists keeps what it has. One that was made gets it in the end.
    fn directory(&mut self, found: &Found) -> io::Result<Vec<String>> {
        let is_new = self.host.make_directory(&found.path, found.ino)?;
        self.counts.directories += 1;
        if is_new {
            let mut kept = found.clone();
            if let Ok(directory) = self.host.directory(&found.path) {
                // Lists of rights hold for what is made in it.
                let (lists, rest) = kept.xattrs.into_iter().partition(|(name, _)| is_list(name));
                kept.xattrs = lists;
                let refused = attributes::set_open(directory.as_fd(), &rest);
                self.note(found, refused);
            }
            self.directories.push(kept);
        }
        Ok(Vec::new())
    }
}

fn write(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

impl Receiver for Sink {
    fn found(&mut self, found: &Found, contents: &mut dyn Contents) -> bool {
        let made = match FileKind::from_mode(found.mode) {
            Some(FileKind::Regular) => self.file(found, contents),
            Some(FileKind::Directory) => self.directory(found),
            Some(FileKind::Symlink) => self.symlink(found, contents),
            Some(kind) => self.node(found, kind),
            None => Ok(vec!["its mode is that of no file".into()]),
        };
        match made {
            Ok(faults) => faults
                .into_iter()
                .all(|what| self.lost(Loss { path: found.path.clone(), ino: found.ino, what })),
            Err(error) => self.refused(found, &error),
        }
    }

    fn linked(&mut self, path: &[u8], ino: u64, first: &[u8]) -> bool {
        let first = self.renamed.get(&ino).cloned().unwrap_or_else(|| first.to_vec());
        let made = self.host.first_place(&first).and_then(|first| {
            let mut place = self.host.place(path)?;
            place.link(ino, &first)
        });
        match made {
            Ok(()) => {
                self.counts.links += 1;
                true
            }
            Err(error) => {
                let found = Found { path: path.to_vec(), ino, ..Found::default() };
                self.refused(&found, &error)
            }
        }
    }

    fn lost(&mut self, loss: Loss) -> bool {
        self.counts.losses += 1;
        let Loss { path, ino, what } = loss;
        if self.is_json {
            if self.losses.len() < MOST_LOSSES {
                let mut object = json::Object::new();
                json::insert_name(&mut object, "path", &path);
                object.insert("inode".into(), ino.into());
                object.insert("what".into(), what.into());
                self.losses.push(Value::Object(object));
            }
            return true;
        }
        let path = print::escaped(path.strip_prefix(b"/").unwrap_or(&path));
        let line = format!("lost: /{path} (inode {ino}): {}", print::escaped(what.as_bytes()));
        match with_stdout(|output| writeln!(output, "{line}")) {
            Ok(()) => true,
            // A rescue goes on without a reader.
            Err(failure) if failure.status == Status::Success => true,
            Err(failure) => {
                self.failure = Some(failure);
                false
            }
        }
    }

    fn progress(&mut self, what: &'static str, done: u64, total: u64) -> bool {
        self.watch.step(what, done, total);
        true
    }
}
