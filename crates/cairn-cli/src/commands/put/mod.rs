//! `cairn put`: copies into an image, with all attributes that the host shows.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_base::Ino;
use cairn_vfs::{
    Caller, Error, FileKind, FileSystem, NewInode, OpenMode, SetAttributes, SetTime, Timestamp,
};

use super::destination::{
    Destination, Place, Transfer, UMASK, create_plain, host_path, in_the_way,
};
use super::on_volume::OnVolume;
use super::overwrite::{
    Contents, Made, OverwriteOptions, Target, overwrite, overwrite_by_stream, remove_access_lists,
};
use crate::commands::chown::Owner;
use crate::failure::{Failure, Outcome, Status};
use crate::output::Output;
use crate::progress::Progress;
use crate::session::{Access, FileId, ImageArg, shown, source_date_epoch};
use crate::tree::Passed;
use crate::{failure, print};

mod input;
mod source;
mod write;

pub use input::Input;
use write::{Source, set_xattr, stream};

use source::{
    Pending, device_number, host_bytes, inside, is_standard_input, means_contents, name_of,
};

/// Arguments of `put`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn put --owner 0:0 disk.img rootfs/. /
  cairn put disk.img rootfs/etc rootfs/usr /
  tar -cf - src | cairn put disk.img - /src.tar

Trees are copied whole, with owners, modes, times, extended attributes, hard links, holes and \
devices. A source that ends in /. means what is in it: it goes into the destination itself, which \
gets the source's attributes. The source - is standard input, and the destination its name. A file \
that cannot be read, or for which there is no room, is left out, and the status is then 1.
As with cp -a, an existing file gets the source's contents and attributes, an existing symbolic \
link is written through, and a file of several names is replaced, so that the other names keep the \
old contents. The source is read once before the old contents are removed: if that fails, or the \
image has no room, they remain. If the host of the image has no room, they are lost, and the \
message says so. From standard input, an existing file keeps its owner and mode.
With SOURCE_DATE_EPOCH set, the same tree makes the same bytes: times of change later than that \
are set to it, as tar --clamp-mtime does, and times of access are those of change.")]
pub struct Args {
    /// Owner of everything copied: UID, UID:GID or :GID. A part that is left out is copied from the
    /// host.
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_owner)]
    pub owner: Option<Owner>,
    /// Replace a symbolic link that leads to itself.
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Make a new file in the place of an existing one.
    #[arg(long)]
    pub remove_destination: bool,
    /// Files and directories of the host, and where to put them on the image.
    #[command(flatten)]
    pub transfer: Transfer,
    /// Standard input, if it is a source.
    #[arg(skip)]
    pub input: Input,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.transfer.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn prepare(&self) -> Outcome {
        let reads = self.transfer.sources.iter().any(|source| is_standard_input(source.as_ref()));
        if reads { self.input.read_ahead() } else { Ok(()) }
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        let sources = self.transfer.sources.iter().map(|word| host_path(word));
        let sources = sources.collect::<Outcome<Vec<PathBuf>>>()?;
        let own = self.transfer.image.files()?;
        let options = OverwriteOptions {
            remove_destination: self.remove_destination,
            force: self.force,
            replace_linked: true,
        };
        let destination = self.transfer.destination()?;
        copy(fs, &sources, destination, (self.owner, options), &own, &self.input)
    }
}

/// Copies in. `own` are the files that hold the volume: they cannot be copied into themselves.
///
/// # Errors
/// A source cannot be read, or the volume is full.
pub fn copy_in(
    fs: &dyn FileSystem,
    sources: &[PathBuf],
    destination: &[u8],
    owner: Option<Owner>,
    own: &[FileId],
) -> Outcome {
    let options = OverwriteOptions { replace_linked: true, ..OverwriteOptions::default() };
    copy(fs, sources, destination, (owner, options), own, &Input::default())
}

fn copy(
    fs: &dyn FileSystem,
    sources: &[PathBuf],
    destination: &[u8],
    (owner, options): (Option<Owner>, OverwriteOptions),
    own: &[FileId],
    input: &Input,
) -> Outcome {
    let destination = Destination::find(fs, destination, sources.len())?;
    let mut copy = Copy {
        fs,
        owner,
        input,
        own,
        latest: source_date_epoch()?.map(|seconds| Timestamp { seconds, nanoseconds: 0 }),
        links: HashMap::new(),
        overwrite: options,
        made: Made::default(),
        directories: Vec::new(),
        progress: Progress::start("copied"),
        passed: Passed::by_writer(),
    };
    if copy.progress.is_shown() {
        copy.progress.expect(sources.iter().map(|source| host_bytes(source)).sum());
    }
    let copied = failure::each(sources, |source| copy.source(source, &destination));
    failure::all([copied, copy.finish()])
}

struct Copy<'a> {
    fs: &'a dyn FileSystem,
    owner: Option<Owner>,
    input: &'a Input,
    /// The files that hold the volume.
    own: &'a [FileId],
    /// Later times are set to this.
    latest: Option<Timestamp>,
    /// Files with several links, by host device and inode, and their copies.
    links: HashMap<FileId, Ino>,
    overwrite: OverwriteOptions,
    made: Made<FileId>,
    /// Attributes of directories are set last, deepest first.
    directories: Vec<(PathBuf, Place, Ino, Metadata)>,
    progress: Progress,
    passed: Passed,
}

impl Copy<'_> {
    fn source(&mut self, source: &Path, destination: &Destination<'_>) -> Outcome {
        if let Some(directory) = destination.directory.filter(|_| means_contents(source)) {
            return self.contents_of(
                source,
                &Place { parent: directory, name: Vec::new(), path: destination.path.to_vec() },
            );
        }
        let name = if destination.directory.is_some() { name_of(source)? } else { Vec::new() };
        if is_standard_input(source) {
            return self.standard_input(&destination.place(&name, false)?);
        }
        let metadata =
            fs::symlink_metadata(source).map_err(|error| Failure::host(source, &error))?;
        let place = destination.place(&name, metadata.is_dir())?;
        if !metadata.is_dir() && !self.made.take(&place, FileId::of(&metadata))? {
            let source = print::escaped(source.as_os_str().as_bytes());
            self.progress.note(&format!("warning: {source}: named more than once"));
            return Ok(());
        }
        self.entries(vec![(source.to_owned(), place)])
    }

    /// Copies the contents of `source` into an existing directory (its inode is `at.parent`), which
    /// gets the source's attributes.
    fn contents_of(&mut self, source: &Path, at: &Place) -> Outcome {
        let metadata = fs::metadata(source).map_err(|error| Failure::host(source, &error))?;
        self.directories.push((source.to_owned(), at.clone(), at.parent, metadata));
        self.entries(inside(source, at, at.parent)?)
    }

    /// Copies entries and everything below them, the last entry first.
    fn entries(&mut self, mut pending: Vec<Pending>) -> Outcome {
        while let Some((path, place)) = pending.pop() {
            let metadata =
                fs::symlink_metadata(&path).map_err(|error| Failure::host(&path, &error));
            let Some(metadata) = self.pass(metadata)? else { continue };
            if !metadata.is_dir() {
                let done = self.leaf(&path, &place, &metadata);
                if self.pass(done)?.is_some() {
                    self.progress.entry();
                }
                continue;
            }
            let made = self.directory(&place);
            let Some(directory) = self.pass(made)? else { continue };
            let inside = inside(&path, &place, directory);
            pending.extend(self.pass(inside)?.unwrap_or_default());
            self.directories.push((path, place, directory, metadata));
        }
        Ok(())
    }

    /// Records damage on the image or a failure of one file; the other files are still copied.
    fn pass<T>(&mut self, done: Outcome<T>) -> Outcome<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(failure) => {
                self.passed.pass(failure, |warning| self.progress.note(warning)).map(|()| None)
            }
        }
    }

    /// The directory at this place, made if absent.
    fn directory(&self, place: &Place) -> Outcome<Ino> {
        match place.existing(self.fs)? {
            Some(found) if found.kind == FileKind::Directory => Ok(found.ino),
            Some(_) => Err(in_the_way(&shown(&place.path))),
            None => self
                .create(place.parent, &place.name, NewInode::Directory)
                .map_err(|error| place.failed(&error)),
        }
    }

    fn create(&self, parent: Ino, name: &[u8], new: NewInode<'_>) -> cairn_vfs::Result<Ino> {
        let made = self.fs.create(parent, name, new, 0o600, &Caller::COPIER)?;
        self.fs.forget(made.ino, 1);
        Ok(made.ino)
    }

    fn leaf(&mut self, path: &Path, place: &Place, metadata: &Metadata) -> Outcome {
        let identity = FileId::of(metadata);
        if let Some(first) = self.links.get(&identity).copied() {
            if place.existing(self.fs)?.is_some_and(|found| found.ino == first) {
                return Ok(());
            }
            return place.fill(self.fs, 0, |name| {
                let linked = self
                    .fs
                    .link(first, place.parent, name)
                    .map_err(|error| place.failed(&error))?;
                self.fs.forget(linked.ino, 1);
                Ok(())
            });
        }
        self.check_own(path, metadata)?;
        let made = if metadata.is_file() {
            self.file(path, place, metadata)?
        } else {
            place.fill(self.fs, 0, |name| self.make(path, place, name, metadata))?
        };
        if metadata.nlink() > 1 {
            self.links.insert(identity, made);
        }
        Ok(())
    }

    /// The image cannot be read while it is written.
    fn check_own(&self, path: &Path, metadata: &Metadata) -> Outcome {
        if !self.own.contains(&FileId::of(metadata)) {
            return Ok(());
        }
        let path = print::escaped(path.as_os_str().as_bytes());
        let message =
            format!("{path}: is the image itself and cannot be copied into itself: leave it out");
        Err(Failure::new(Status::Failed, message))
    }

    /// Copies a regular file, into an existing file or a new one.
    fn file(&mut self, path: &Path, place: &Place, metadata: &Metadata) -> Outcome<Ino> {
        let fs = self.fs;
        // Opened before anything is made, because it may be forbidden.
        let file = File::open(path).map_err(|error| Failure::host(path, &error))?;
        let source = Source { path, file: &file, size: metadata.len() };
        let bytes = metadata.blocks().saturating_mul(512).min(metadata.len());
        let target = self.overwrite.target(fs, place)?;
        if let Some(existing) = place.existing(fs)? {
            self.made.check(&existing, place, &target)?;
        }
        let old = match target {
            Target::Existing(old) => old,
            Target::New => {
                return place.fill(fs, bytes, |name| {
                    let failed = |error: Error| place.failed(&error);
                    let ino = self.create(place.parent, name, NewInode::Regular).map_err(failed)?;
                    let handle = fs.open(ino, OpenMode { write: true, direct: false });
                    let handle = handle.map_err(failed)?;
                    let done = source.copy(fs, (place, ino), &self.progress);
                    fs.release(ino, handle);
                    done?;
                    self.attributes(path, place, ino, metadata).map(|()| ino)
                });
            }
        };
        let progress = &self.progress;
        if source.size == 0 {
            // A file whose size is zero may have contents all the same, and give them only once.
            overwrite_by_stream(fs, place, &old, |ino| source.copy(fs, (place, ino), progress))?;
        } else {
            let check = || source.check();
            let write = |ino| source.copy(fs, (place, ino), progress).map(drop);
            overwrite(fs, place, &old, Contents { bytes, size: source.size, check, write })?;
        }
        self.attributes(path, place, old.ino, metadata)?;
        Ok(old.ino)
    }

    /// Makes an entry that is neither a regular file nor a directory, under this name.
    fn make(
        &mut self,
        path: &Path,
        place: &Place,
        name: &[u8],
        metadata: &Metadata,
    ) -> Outcome<Ino> {
        let failed = |error: Error| place.failed(&error);
        let device = || device_number(metadata.rdev());
        let target;
        let new = match FileKind::from_mode(metadata.mode()) {
            Some(FileKind::Symlink) => {
                target = fs::read_link(path).map_err(|error| Failure::host(path, &error))?;
                NewInode::Symlink(target.as_os_str().as_bytes())
            }
            Some(FileKind::BlockDevice) => NewInode::BlockDevice(device()),
            Some(FileKind::CharDevice) => NewInode::CharDevice(device()),
            Some(FileKind::Fifo) => NewInode::Fifo,
            Some(FileKind::Socket) => NewInode::Socket,
            _ => return Err(failed(Error::Unsupported("kind of file"))),
        };
        let ino = self.create(place.parent, name, new).map_err(failed)?;
        if metadata.is_symlink() {
            self.made.link(ino);
        }
        self.attributes(path, place, ino, metadata)?;
        Ok(ino)
    }

    /// Copies standard input to a regular file. An existing file gets only new contents.
    fn standard_input(&mut self, place: &Place) -> Outcome {
        const NAME: &str = "standard input";
        let stdin = io::stdin();
        let is_file =
            stdin.as_fd().try_clone_to_owned().and_then(|file| File::from(file).metadata());
        is_file.map_or(Ok(()), |metadata| self.check_own(Path::new(NAME), &metadata))?;
        let (fs, failed) = (self.fs, |error: Error| place.failed(&error));
        let mut input = self.input.reader();
        let mut copy =
            |ino| stream(fs, (Path::new(NAME), &mut input), (place, ino), &self.progress);
        let own = |ino| match self.owner {
            Some(Owner { uid, gid }) => {
                let owner = SetAttributes { uid, gid, ..Default::default() };
                fs.setattr(ino, &owner).map(drop).map_err(failed)
            }
            None => Ok(()),
        };
        match (OverwriteOptions { replace_linked: false, ..self.overwrite }).target(fs, place)? {
            Target::Existing(old) => {
                overwrite_by_stream(fs, place, &old, copy)?;
                own(old.ino)?;
            }
            Target::New => place.fill(fs, 0, |name| {
                let mode = (0o666, UMASK);
                let new = create_plain(fs, (place.parent, name), NewInode::Regular, mode);
                let ino = new.map_err(failed)?.ino;
                copy(ino)?;
                own(ino)
            })?,
        }
        self.progress.entry();
        Ok(())
    }

    /// Sets the owner before the mode (chown removes set-id bits), and the times last.
    fn attributes(&self, path: &Path, place: &Place, ino: Ino, metadata: &Metadata) -> Outcome {
        let volume = |error: Error| place.failed(&error);
        let (uid, gid) = self.owner.map_or((None, None), |owner| (owner.uid, owner.gid));
        // One that was there may have lists that the source has not.
        remove_access_lists(self.fs, ino).map_err(volume)?;
        for name in xattr::list(path).into_iter().flatten() {
            // A label of the host's SELinux policy has no meaning on the image.
            if name == "security.selinux" {
                continue;
            }
            if let Ok(Some(value)) = xattr::get(path, &name) {
                set_xattr(self.fs, ino, (&name, &value), &self.progress).map_err(volume)?;
            }
        }
        let time = |seconds, nanoseconds: i64| {
            let time = Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) };
            self.latest.map_or(time, |latest| time.min(latest))
        };
        let mtime = time(metadata.mtime(), metadata.mtime_nsec());
        // Reading a file changes its access time, so a second copy would differ.
        let atime = if self.latest.is_some() {
            mtime
        } else {
            time(metadata.atime(), metadata.atime_nsec())
        };
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

    fn finish(mut self) -> Outcome {
        for (path, place, ino, metadata) in std::mem::take(&mut self.directories).into_iter().rev()
        {
            let done = self.attributes(&path, &place, ino, &metadata);
            self.pass(done)?;
            self.progress.entry();
        }
        self.passed.end()
    }
}
