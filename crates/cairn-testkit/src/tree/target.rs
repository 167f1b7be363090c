//! Where a tree is built: a host directory, or a volume.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use cairn_base::Ino;
use cairn_vfs::{
    AllocateMode, Attributes, Caller, FileSystem, IoFlags, NewInode, RenameMode, SetAttributes,
    SetTime, Timestamp, XattrMode,
};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, fallocate, makedev,
    mknodat, utimensat,
};

use super::plan::{Content, Step};

/// Carries out steps.
pub trait Target {
    /// Carries out one step.
    ///
    /// # Errors
    /// The filesystem's error.
    fn apply(&self, step: &Step) -> Result<(), Box<dyn std::error::Error>>;
}

/// Carries out all steps.
///
/// # Panics
/// A step fails; the message names it.
#[track_caller]
pub fn build(target: &dyn Target, steps: &[Step]) {
    for (number, step) in steps.iter().enumerate() {
        if let Err(error) = target.apply(step) {
            panic!("step {number} {}: {error}", describe(step));
        }
    }
}

/// Contents abbreviated.
fn describe(step: &Step) -> String {
    match step {
        Step::Xattr(path, name, value) => {
            format!("Xattr {} {} ({} bytes)", path.escape_ascii(), name.escape_ascii(), value.len())
        }
        Step::Directory(path) => format!("Directory {}", path.escape_ascii()),
        Step::File(path, content) => format!("File {} {content:?}", path.escape_ascii()),
        Step::Write(path, content) => format!("Write {} {content:?}", path.escape_ascii()),
        Step::Sync(path) | Step::SyncData(path) => format!("Sync {}", path.escape_ascii()),
        Step::Symlink(path, target) => {
            format!("Symlink {} ({} bytes)", path.escape_ascii(), target.len())
        }
        other => format!("{other:?}"),
    }
}

/// A directory of the host.
#[derive(Clone, Debug)]
pub struct PathTarget {
    root: PathBuf,
}

impl PathTarget {
    /// Builds below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    fn writable(&self, path: &[u8]) -> std::io::Result<fs::File> {
        fs::File::options().write(true).open(self.path(path))
    }
}

fn write_ranges(file: &fs::File, content: &Content) -> std::io::Result<()> {
    content.data.iter().try_for_each(|range| file.write_all_at(&content.bytes(range), range.start))
}

fn fallocate_flags(mode: AllocateMode) -> FallocateFlags {
    let keep = |keep| if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    match mode {
        AllocateMode::Extend => FallocateFlags::empty(),
        AllocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
        AllocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        AllocateMode::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
        AllocateMode::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
        AllocateMode::InsertRange => FallocateFlags::INSERT_RANGE,
    }
}

impl Target for PathTarget {
    fn apply(&self, step: &Step) -> Result<(), Box<dyn std::error::Error>> {
        match step {
            Step::Directory(path) => fs::create_dir(self.path(path))?,
            Step::File(path, content) => {
                let file = fs::File::create_new(self.path(path))?;
                write_ranges(&file, content)?;
                file.set_len(content.size)?;
            }
            Step::Write(path, content) => write_ranges(&self.writable(path)?, content)?,
            Step::Resize(path, size) => self.writable(path)?.set_len(*size)?,
            Step::Allocate(path, mode, range) => {
                fallocate(
                    self.writable(path)?,
                    fallocate_flags(*mode),
                    range.start,
                    range.end - range.start,
                )?;
            }
            Step::Rename(from, to) => fs::rename(self.path(from), self.path(to))?,
            Step::Remove(path) => fs::remove_file(self.path(path))?,
            Step::RemoveXattr(path, name) => {
                xattr::remove(self.path(path), OsStr::from_bytes(name))?
            }
            Step::Sync(path) => fs::File::open(self.path(path))?.sync_all()?,
            Step::SyncData(path) => fs::File::open(self.path(path))?.sync_data()?,
            Step::Symlink(path, target) => symlink(OsStr::from_bytes(target), self.path(path))?,
            Step::HardLink(existing, path) => fs::hard_link(self.path(existing), self.path(path))?,
            Step::Fifo(path) => {
                mknodat(CWD, self.path(path), FileType::Fifo, Mode::from(0o644), 0)?
            }
            Step::Device(path, block, major, minor) => {
                let kind = if *block { FileType::BlockDevice } else { FileType::CharacterDevice };
                mknodat(CWD, self.path(path), kind, Mode::from(0o644), makedev(*major, *minor))?;
            }
            Step::Xattr(path, name, value) => {
                xattr::set(self.path(path), OsStr::from_bytes(name), value)?
            }
            Step::Owner(path, uid, gid) => lchown(self.path(path), Some(*uid), Some(*gid))?,
            Step::Mode(path, mode) => {
                fs::set_permissions(self.path(path), fs::Permissions::from_mode(*mode))?
            }
            Step::Times(path, atime, mtime) => set_times(&self.path(path), *atime, *mtime)?,
        }
        Ok(())
    }
}

fn set_times(path: &Path, atime: Timestamp, mtime: Timestamp) -> rustix::io::Result<()> {
    let timespec =
        |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

/// A volume, from its root down.
#[derive(Clone, Copy)]
pub struct VolumeTarget<'a> {
    volume: &'a dyn FileSystem,
}

impl<'a> VolumeTarget<'a> {
    /// Builds below the volume's root.
    #[must_use]
    pub fn new(volume: &'a dyn FileSystem) -> Self {
        Self { volume }
    }

    /// Looks a path up. The reference is released at once, because nothing else uses the volume.
    ///
    /// # Errors
    /// A component is missing or not a directory.
    pub fn resolve(&self, path: &[u8]) -> cairn_vfs::Result<Attributes> {
        let mut found = self.volume.getattr(self.volume.root())?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            found = self.volume.lookup(found.ino, name)?;
            self.volume.forget(found.ino, 1);
        }
        Ok(found)
    }

    fn parent<'p>(&self, path: &'p [u8]) -> cairn_vfs::Result<(Ino, &'p [u8])> {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = at.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]));
        Ok((self.resolve(parent)?.ino, name))
    }

    fn make(&self, path: &[u8], new: NewInode<'_>, permissions: u32) -> cairn_vfs::Result<Ino> {
        let (parent, name) = self.parent(path)?;
        let made = self.volume.create(parent, name, new, permissions, &Caller::ROOT)?;
        self.volume.forget(made.ino, 1);
        Ok(made.ino)
    }

    fn write(&self, ino: Ino, content: &Content) -> cairn_vfs::Result<()> {
        let handle = self.volume.open(ino, cairn_vfs::OpenMode { write: true, direct: false })?;
        for range in &content.data {
            let bytes = content.bytes(range);
            let mut done = 0;
            while done < bytes.len() {
                let offset = range.start + done as u64;
                match self.volume.write(ino, offset, &bytes[done..], IoFlags::empty())? {
                    0 => return Err(cairn_vfs::Error::NoSpace),
                    written => done += written,
                }
            }
        }
        self.volume.release(ino, handle);
        Ok(())
    }

    fn resize(&self, ino: Ino, size: u64) -> cairn_vfs::Result<()> {
        self.set(ino, SetAttributes { size: Some(size), ..Default::default() })
    }

    fn sync(&self, path: &[u8], data_only: bool) -> cairn_vfs::Result<()> {
        self.volume.fsync(self.resolve(path)?.ino, 0, data_only)
    }

    fn set(&self, ino: Ino, set: SetAttributes) -> cairn_vfs::Result<()> {
        self.volume.setattr(ino, &set).map(drop)
    }
}

impl Target for VolumeTarget<'_> {
    fn apply(&self, step: &Step) -> Result<(), Box<dyn std::error::Error>> {
        match step {
            Step::Directory(path) => drop(self.make(path, NewInode::Directory, 0o755)?),
            Step::File(path, content) => {
                let ino = self.make(path, NewInode::Regular, 0o644)?;
                self.write(ino, content)?;
                self.resize(ino, content.size)?;
            }
            Step::Write(path, content) => self.write(self.resolve(path)?.ino, content)?,
            Step::Resize(path, size) => self.resize(self.resolve(path)?.ino, *size)?,
            Step::Allocate(path, mode, range) => {
                self.volume.allocate(
                    self.resolve(path)?.ino,
                    *mode,
                    range.start,
                    range.end - range.start,
                )?;
            }
            Step::Rename(from, to) => {
                let ((parent, name), (new_parent, new_name)) =
                    (self.parent(from)?, self.parent(to)?);
                self.volume.rename(parent, name, new_parent, new_name, RenameMode::Replace)?;
            }
            Step::Remove(path) => {
                let (parent, name) = self.parent(path)?;
                self.volume.unlink(parent, name)?;
            }
            Step::RemoveXattr(path, name) => {
                self.volume.removexattr(self.resolve(path)?.ino, name)?
            }
            Step::Sync(path) => self.sync(path, false)?,
            Step::SyncData(path) => self.sync(path, true)?,
            Step::Symlink(path, target) => {
                self.make(path, NewInode::Symlink(target), 0o777)?;
            }
            Step::HardLink(existing, path) => {
                let (parent, name) = self.parent(path)?;
                let linked = self.volume.link(self.resolve(existing)?.ino, parent, name)?;
                self.volume.forget(linked.ino, 1);
            }
            Step::Fifo(path) => drop(self.make(path, NewInode::Fifo, 0o644)?),
            Step::Device(path, block, major, minor) => {
                let number = encode_device(*major, *minor);
                let new = if *block {
                    NewInode::BlockDevice(number)
                } else {
                    NewInode::CharDevice(number)
                };
                self.make(path, new, 0o644)?;
            }
            Step::Xattr(path, name, value) => {
                self.volume.setxattr(self.resolve(path)?.ino, name, value, XattrMode::Set)?;
            }
            Step::Owner(path, uid, gid) => {
                let set = SetAttributes { uid: Some(*uid), gid: Some(*gid), ..Default::default() };
                self.set(self.resolve(path)?.ino, set)?;
            }
            Step::Mode(path, mode) => {
                let set = SetAttributes { permissions: Some(*mode), ..Default::default() };
                self.set(self.resolve(path)?.ino, set)?;
            }
            Step::Times(path, atime, mtime) => {
                let (atime, mtime) = (Some(SetTime::To(*atime)), Some(SetTime::To(*mtime)));
                self.set(
                    self.resolve(path)?.ino,
                    SetAttributes { atime, mtime, ..Default::default() },
                )?;
            }
        }
        Ok(())
    }
}

/// Linux's 32-bit `dev_t` (`new_encode_dev`): low eight bits of the minor, twelve of the major, the
/// rest of the minor.
pub(super) const fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}
