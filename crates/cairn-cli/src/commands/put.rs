//! `cairn put`: copies into an image, keeping everything the host tells us.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use cairn_base::Ino;
use cairn_vfs::{
    Attributes, Caller, Error, FileKind, FileSystem, IoFlags, NewInode, OpenMode, SetAttributes, SetTime, Timestamp,
    XattrMode, walk,
};
use rustix::fs::SeekFrom;

use super::on_volume::OnVolume;
use crate::commands::chown::Owner;
use crate::failure::{Failure, Outcome, Status};
use crate::output::Output;
use crate::print;
use crate::progress::Progress;
use crate::session::{Access, ImageArg, shown, source_date_epoch};
use crate::tree::Passed;

/// Bytes moved at a time.
const CHUNK: usize = 1 << 20;

/// Arguments of `put`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn put --owner 0:0 disk.img rootfs/. /
  cairn put disk.img rootfs/etc rootfs/usr /
  tar -cf - src | cairn put disk.img - /src.tar

Trees are copied whole, with owners, modes, times, extended attributes, hard links, holes and devices. A source that ends in /. means \
what is in it: it goes into the destination itself, which gets the source's attributes. The source - is standard input, and the \
destination its name.
With SOURCE_DATE_EPOCH set, the same tree makes the same bytes: times of change later than that are set to it, as tar --clamp-mtime does, and \
times of access, which reading changes, are those of change.")]
pub struct Args {
    /// Owner of everything copied, instead of the host's: UID:GID.
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_owner)]
    pub owner: Option<Owner>,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Files and directories of the host; - is standard input.
    #[arg(required = true)]
    pub sources: Vec<PathBuf>,
    /// Where to put them on the image: a directory, or the new name of a single source.
    pub destination: OsString,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        copy_in(fs, &self.sources, self.destination.as_bytes(), self.owner)
    }
}

/// Copies in.
///
/// # Errors
/// A source cannot be read, or the volume is full.
pub fn copy_in(fs: &dyn FileSystem, sources: &[PathBuf], destination: &[u8], owner: Option<Owner>) -> Outcome {
    let into = match walk::resolve(fs, destination, true) {
        Ok(found) if found.kind == FileKind::Directory => Some(found.ino),
        Ok(_) | Err(Error::NotFound) if sources.len() == 1 => None,
        Ok(_) => return Err(Failure::volume(shown(destination), &Error::NotDirectory)),
        Err(error) => return Err(Failure::volume(shown(destination), &error)),
    };
    let mut copy = Copy {
        fs,
        owner,
        latest: source_date_epoch()?.map(|seconds| Timestamp { seconds, nanoseconds: 0 }),
        links: HashMap::new(),
        directories: Vec::new(),
        progress: Progress::start("copied"),
        passed: Passed::default(),
        buffer: vec![0; CHUNK],
    };
    if copy.progress.is_shown() {
        copy.progress.expect(sources.iter().map(|source| host_bytes(source)).sum());
    }
    for source in sources {
        if let Some(directory) = into.filter(|_| means_contents(source)) {
            copy.contents_of(source, directory)?;
            continue;
        }
        let (parent, name) = match into {
            Some(directory) => (directory, name_of(source)?),
            None => {
                let resolved = walk::resolve_parent(fs, destination);
                let (parent, name) = resolved.map_err(|error| Failure::volume(shown(destination), &error))?;
                (parent.ino, name.to_vec())
            }
        };
        if is_standard_input(source) {
            copy.standard_input(parent, &name)?;
        } else {
            copy.tree(source, parent, &name)?;
        }
    }
    copy.finish()
}

/// `dir/.`, `.`, `dir/..` and `..` name no entry: they mean what is in the directory.
fn means_contents(source: &Path) -> bool {
    let bytes = source.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    matches!(bytes.get(..end).and_then(|path| path.rsplit(|byte| *byte == b'/').next()), Some(b"." | b".."))
}

fn is_standard_input(source: &Path) -> bool {
    source.as_os_str() == "-"
}

/// Bytes in the regular files of a tree, for the progress: what cannot be read is not counted.
fn host_bytes(source: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(source) else { return 0 };
    match fs::read_dir(source) {
        Ok(entries) if metadata.is_dir() => entries.flatten().map(|entry| host_bytes(&entry.path())).sum(),
        _ if metadata.is_file() => metadata.len(),
        _ => 0,
    }
}

/// The last component of a host path.
fn name_of(source: &Path) -> Outcome<Vec<u8>> {
    if is_standard_input(source) {
        return Err(Failure::usage("-: standard input has no name: give the file's whole path as the destination"));
    }
    if let Some(name) = source.file_name() {
        return Ok(name.as_bytes().to_vec());
    }
    let canonical = fs::canonicalize(source).map_err(|error| Failure::host(source, &error))?;
    canonical
        .file_name()
        .map(|name| name.as_bytes().to_vec())
        .ok_or_else(|| Failure::new(Status::Usage, format!("{}: give a new name for it", source.display())))
}

struct Copy<'a> {
    fs: &'a dyn FileSystem,
    owner: Option<Owner>,
    /// Later times are set to this.
    latest: Option<Timestamp>,
    /// Host device and inode of files with several links, and where they went.
    links: HashMap<(u64, u64), Ino>,
    /// Attributes of directories are set last, deepest first.
    directories: Vec<(PathBuf, Ino, Metadata)>,
    progress: Progress,
    passed: Passed,
    buffer: Vec<u8>,
}

impl Copy<'_> {
    fn tree(&mut self, source: &Path, parent: Ino, name: &[u8]) -> Outcome {
        self.entries(vec![(source.to_owned(), parent, name.to_vec())])
    }

    /// What is in `source`, into a directory that is there; it gets the source's attributes.
    fn contents_of(&mut self, source: &Path, directory: Ino) -> Outcome {
        let metadata = fs::metadata(source).map_err(|error| Failure::host(source, &error))?;
        self.directories.push((source.to_owned(), directory, metadata));
        self.entries(inside(source, directory)?)
    }

    /// Entries and everything below them, the last first.
    fn entries(&mut self, mut pending: Vec<Pending>) -> Outcome {
        while let Some((path, parent, name)) = pending.pop() {
            let metadata = fs::symlink_metadata(&path).map_err(|error| Failure::host(&path, &error))?;
            if !metadata.is_dir() {
                let done = self.leaf(&path, parent, &name, &metadata);
                if self.pass(done)?.is_some() {
                    self.progress.entry();
                }
                continue;
            }
            let made = self.directory(&path, parent, &name);
            let Some(directory) = self.pass(made)? else { continue };
            pending.extend(inside(&path, directory)?);
            self.directories.push((path, directory, metadata));
        }
        Ok(())
    }

    /// Damage on the image keeps nothing beside it from being copied. Where the device fails, nothing more is worth writing.
    fn pass<T>(&mut self, done: Outcome<T>) -> Outcome<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(failure) if failure.status == Status::Corrupt => {
                self.passed.pass(failure, |warning| self.progress.note(warning)).map(|()| None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The directory of this name, made if absent.
    fn directory(&self, path: &Path, parent: Ino, name: &[u8]) -> Outcome<Ino> {
        let failed = |error: Error| Failure::volume(path.display(), &error);
        match walk::lookup(self.fs, parent, name) {
            Ok(found) if found.kind == FileKind::Directory => Ok(found.ino),
            Ok(_) => Err(failed(Error::NotDirectory)),
            Err(Error::NotFound) => self.create(parent, name, NewInode::Directory).map_err(failed),
            Err(error) => Err(failed(error)),
        }
    }

    fn create(&self, parent: Ino, name: &[u8], new: NewInode<'_>) -> cairn_vfs::Result<Ino> {
        let made = self.fs.create(parent, name, new, 0o600, &Caller::ROOT)?;
        self.fs.forget(made.ino, 1);
        Ok(made.ino)
    }

    fn leaf(&mut self, path: &Path, parent: Ino, name: &[u8], metadata: &Metadata) -> Outcome {
        let failed = |error: Error| Failure::volume(path.display(), &error);
        self.clear(parent, name).map_err(failed)?;
        let identity = (metadata.dev(), metadata.ino());
        if let Some(first) = self.links.get(&identity) {
            let linked = self.fs.link(*first, parent, name).map_err(failed)?;
            self.fs.forget(linked.ino, 1);
            return Ok(());
        }
        let device = || device_number(metadata.rdev());
        let kind = FileKind::from_mode(metadata.mode()).ok_or_else(|| failed(Error::Unsupported("kind of file")))?;
        let target;
        let new = match kind {
            FileKind::Regular | FileKind::Directory => NewInode::Regular,
            FileKind::Symlink => {
                target = fs::read_link(path).map_err(|error| Failure::host(path, &error))?;
                NewInode::Symlink(target.as_os_str().as_bytes())
            }
            FileKind::BlockDevice => NewInode::BlockDevice(device()),
            FileKind::CharDevice => NewInode::CharDevice(device()),
            FileKind::Fifo => NewInode::Fifo,
            FileKind::Socket => NewInode::Socket,
        };
        let ino = self.create(parent, name, new).map_err(failed)?;
        if kind == FileKind::Regular {
            self.contents(path, ino, metadata.len())?;
        }
        if metadata.nlink() > 1 {
            self.links.insert(identity, ino);
        }
        self.attributes(path, ino, metadata)
    }

    /// Removes what has the name, unless it is a directory.
    fn clear(&self, parent: Ino, name: &[u8]) -> cairn_vfs::Result<()> {
        let found: Result<Attributes, Error> = walk::lookup(self.fs, parent, name);
        match found {
            Ok(found) if found.kind == FileKind::Directory => Err(Error::IsDirectory),
            Ok(_) => self.fs.unlink(parent, name),
            Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn contents(&mut self, path: &Path, ino: Ino, size: u64) -> Outcome {
        let volume = |error: Error| Failure::volume(path.display(), &error);
        let file = File::open(path).map_err(|error| Failure::host(path, &error))?;
        let handle = self.fs.open(ino, OpenMode { write: true, direct: false }).map_err(volume)?;
        let done = self.data(path, &file, ino, size);
        self.fs.release(ino, handle);
        let copied = done?;
        if copied != size {
            // Files of /proc and /sys do not know their sizes; others change while we read.
            let path = print::escaped(path.as_os_str().as_bytes());
            self.progress.note(&format!(
                "warning: {path}: {size} bytes long by its attributes, but {copied} could be read: copied these"
            ));
        }
        let set = SetAttributes { size: Some(copied), ..Default::default() };
        self.fs.setattr(ino, &set).map_err(volume).map(drop)
    }

    /// Copies the ranges that hold data; gives the file's length. One that says it is empty is read to its end.
    fn data(&mut self, path: &Path, file: &File, ino: Ino, size: u64) -> Outcome<u64> {
        if size == 0 {
            return self.stream(path, &mut &*file, ino);
        }
        let host = |error: io::Error| Failure::host(path, &error);
        let mut at = 0;
        while at < size {
            let Some((data, hole)) = next_data(file, at, size).map_err(host)? else { break };
            at = data;
            while at < hole {
                let want = usize::try_from(hole - at).unwrap_or(CHUNK).min(CHUNK);
                let buffer = self.buffer.get_mut(..want).unwrap_or_default();
                let count = file.read_at(buffer, at).map_err(host)?;
                if count == 0 {
                    // It is shorter by now: what is there is what we copy.
                    return Ok(at);
                }
                let bytes = self.buffer.get(..count).unwrap_or_default();
                write_all(self.fs, ino, at, bytes).map_err(|error| Failure::volume(path.display(), &error))?;
                at += count as u64;
                self.progress.bytes(count as u64);
            }
        }
        Ok(size)
    }

    /// Copies to the end of what has no length that could be known; gives the bytes.
    fn stream(&mut self, path: &Path, from: &mut dyn Read, ino: Ino) -> Outcome<u64> {
        let mut at = 0;
        loop {
            let count = match from.read(&mut self.buffer) {
                Ok(0) => return Ok(at),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::host(path, &error)),
            };
            let bytes = self.buffer.get(..count).unwrap_or_default();
            write_all(self.fs, ino, at, bytes).map_err(|error| Failure::volume(path.display(), &error))?;
            at += count as u64;
            self.progress.bytes(count as u64);
        }
    }

    /// Standard input, as a regular file.
    fn standard_input(&mut self, parent: Ino, name: &[u8]) -> Outcome {
        let failed = |error: Error| Failure::volume(shown(name), &error);
        self.clear(parent, name).map_err(failed)?;
        let ino = self.create(parent, name, NewInode::Regular).map_err(failed)?;
        self.stream(Path::new("standard input"), &mut io::stdin().lock(), ino)?;
        let owner = self.owner.map_or((None, None), |owner| (owner.uid, owner.gid));
        let set = SetAttributes { permissions: Some(0o644), uid: owner.0, gid: owner.1, ..Default::default() };
        self.fs.setattr(ino, &set).map_err(failed)?;
        self.progress.entry();
        Ok(())
    }

    /// Owner before mode (chown takes set-id bits), times last.
    fn attributes(&self, path: &Path, ino: Ino, metadata: &Metadata) -> Outcome {
        let volume = |error: Error| Failure::volume(path.display(), &error);
        let (uid, gid) = self.owner.map_or((None, None), |owner| (owner.uid, owner.gid));
        for name in xattr::list(path).into_iter().flatten() {
            // A label of the host's policy means nothing on the image.
            if name == "security.selinux" {
                continue;
            }
            if let Ok(Some(value)) = xattr::get(path, &name) {
                self.xattr(ino, &name, &value).map_err(volume)?;
            }
        }
        let time = |seconds, nanoseconds: i64| {
            let time = Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) };
            self.latest.map_or(time, |latest| time.min(latest))
        };
        let mtime = time(metadata.mtime(), metadata.mtime_nsec());
        // Reading a file for the first copy changes what the second would find.
        let atime = if self.latest.is_some() { mtime } else { time(metadata.atime(), metadata.atime_nsec()) };
        let symlink = metadata.is_symlink();
        let owner = SetAttributes {
            uid: Some(uid.unwrap_or(metadata.uid())),
            gid: Some(gid.unwrap_or(metadata.gid())),
            ..Default::default()
        };
        let rest = SetAttributes {
            permissions: (!symlink).then_some(metadata.mode() & 0o7777),
            atime: Some(SetTime::To(atime)),
            mtime: Some(SetTime::To(mtime)),
            ..Default::default()
        };
        self.fs.setattr(ino, &owner).map_err(volume)?;
        self.fs.setattr(ino, &rest).map_err(volume)?;
        Ok(())
    }

    fn xattr(&self, ino: Ino, name: &OsStr, value: &[u8]) -> cairn_vfs::Result<()> {
        match self.fs.setxattr(ino, name.as_bytes(), value, XattrMode::Set) {
            Err(Error::Unsupported(what)) => {
                self.progress.note(&format!("warning: left out attribute {}: {what}", name.display()));
                Ok(())
            }
            done => done,
        }
    }

    fn finish(mut self) -> Outcome {
        for (path, ino, metadata) in std::mem::take(&mut self.directories).into_iter().rev() {
            let done = self.attributes(&path, ino, &metadata);
            self.pass(done)?;
            self.progress.entry();
        }
        self.passed.end()
    }
}

/// A host path, and the directory and name that it gets.
type Pending = (PathBuf, Ino, Vec<u8>);

/// What is in a host directory, the last name first: the order of the names decides the image, not that of the host.
fn inside(path: &Path, directory: Ino) -> Outcome<Vec<Pending>> {
    let failed = |error: io::Error| Failure::host(path, &error);
    let entries = fs::read_dir(path).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let mut names: Vec<OsString> = entries.iter().map(fs::DirEntry::file_name).collect();
    names.sort_by(|a, b| b.cmp(a));
    Ok(names.into_iter().map(|name| (path.join(&name), directory, name.as_bytes().to_vec())).collect())
}

pub(super) fn write_all(fs: &dyn FileSystem, ino: Ino, offset: u64, bytes: &[u8]) -> cairn_vfs::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match fs.write(ino, offset + done as u64, rest, IoFlags::empty())? {
            0 => return Err(Error::NoSpace),
            count => done += count,
        }
    }
    Ok(())
}

/// The next range with data at or after `at`; the whole rest where the host does not know holes.
fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(rustix::io::Errno::INVAL) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?;
    Ok(Some((data, hole.min(size))).filter(|(data, hole)| data < hole))
}

/// The host's device number in the image's encoding.
fn device_number(rdev: u64) -> u32 {
    print::encode_device(rustix::fs::major(rdev), rustix::fs::minor(rdev))
}
