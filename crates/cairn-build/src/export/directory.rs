//! Writes a tree into a directory of the host.
//!
//! Nobody else can reach the directory until it is whole, so its paths lead where they were made.
//! Directories get their attributes last, the deepest first: until then this user can write them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use cairn_vfs::Timestamp;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat, utimensat};
use rustix::io::Errno;

use super::inherited::remove_inherited_lists;
use super::left::Left;
use crate::error::{Error, Result};
use crate::node::{Kind, Metadata, Node, NodeId, RegularFile};
use crate::tree::Tree;

/// Bytes copied at a time.
const CHUNK: u64 = 1 << 20;
/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// Fills an empty directory. Returns what this user, or the filesystem of the host, does not allow.
///
/// # Errors
/// A source cannot be read, or the directory cannot be written.
pub(super) fn write(tree: &Tree, to: &Path) -> Result<Left> {
    let mut directory = Directory {
        tree,
        to,
        root: rustix::process::geteuid().is_root(),
        first: HashMap::new(),
        directories: Vec::new(),
        buffer: Vec::new(),
        left: Left::default(),
    };
    tree.each_name(&mut |path, id, node| directory.name(path, id, node))?;
    for (path, id) in std::mem::take(&mut directory.directories).into_iter().rev() {
        if let Some(node) = tree.node(id) {
            directory.attributes(&path, node)?;
        }
    }
    Ok(directory.left)
}

struct Directory<'a> {
    tree: &'a Tree,
    to: &'a Path,
    root: bool,
    /// The first path of each node with several names; none if it could not be made.
    first: HashMap<NodeId, Option<PathBuf>>,
    directories: Vec<(PathBuf, NodeId)>,
    buffer: Vec<u8>,
    left: Left,
}

impl Directory<'_> {
    fn name(&mut self, path: &[u8], id: NodeId, node: &Node) -> Result<()> {
        let host = self.to.join(OsStr::from_bytes(path));
        let failed = |error| Error::host(&host, error);
        if let Kind::Directory(_) = node.kind {
            if id != NodeId::ROOT {
                fs::create_dir(&host).map_err(failed)?;
            }
            // What comes from the umask must not be in the way.
            fs::set_permissions(&host, Permissions::from_mode(0o700)).map_err(failed)?;
            self.directories.push((host, id));
            return Ok(());
        }
        match self.first.get(&id) {
            Some(Some(first)) => return fs::hard_link(first, &host).map_err(failed),
            Some(None) => return Ok(()),
            None => {}
        }
        let made = self.make(&host, node)?;
        if made {
            self.attributes(&host, node)?;
        }
        if node.links > 1 {
            self.first.insert(id, made.then_some(host));
        }
        Ok(())
    }

    /// Makes a file. False if it is a device that this user may not make.
    fn make(&mut self, host: &Path, node: &Node) -> Result<bool> {
        let failed = |error: io::Error| Error::host(host, error);
        let special = |kind, device: u32| {
            let (major, minor) = cairn_vfs::decode_device(device);
            mknodat(CWD, host, kind, Mode::from(0o600), makedev(major, minor))
        };
        let made = match &node.kind {
            Kind::Directory(_) => Ok(()),
            Kind::Regular(file) => return self.file(host, file).map(|()| true),
            Kind::Symlink(target) => {
                return symlink(OsStr::from_bytes(target), host).map(|()| true).map_err(failed);
            }
            Kind::CharDevice(device) => special(FileType::CharacterDevice, *device),
            Kind::BlockDevice(device) => special(FileType::BlockDevice, *device),
            Kind::Fifo => special(FileType::Fifo, 0),
            Kind::Socket => special(FileType::Socket, 0),
        };
        match (made, &node.kind) {
            (Ok(()), _) => Ok(true),
            (Err(Errno::PERM), Kind::CharDevice(_) | Kind::BlockDevice(_)) => {
                self.left.devices += 1;
                Ok(false)
            }
            (Err(error), _) => Err(failed(error.into())),
        }
    }

    fn file(&mut self, host: &Path, file: &RegularFile) -> Result<()> {
        let failed = |error| Error::host(host, error);
        let to = File::options().write(true).create_new(true).mode(0o600).open(host);
        let to = to.map_err(failed)?;
        for range in &file.data {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(CHUNK);
                self.buffer.resize(usize::try_from(len).unwrap_or(0), 0);
                self.tree.read(file, at, &mut self.buffer)?;
                to.write_all_at(&self.buffer, at).map_err(failed)?;
                at += len;
            }
        }
        to.set_len(file.size).map_err(failed)
    }

    /// Sets the owner before the mode (a change of owner removes set-id bits), the access list
    /// before the mode, and the times last.
    fn attributes(&mut self, host: &Path, node: &Node) -> Result<()> {
        let failed = |error: io::Error| Error::host(host, error);
        let of = &node.metadata;
        let is_owned = match lchown(host, Some(of.uid), Some(of.gid)) {
            Ok(()) => true,
            Err(error) if refuses(&error) => false,
            Err(error) => return Err(failed(error)),
        };
        self.left.owners += u64::from(!is_owned);
        if !matches!(node.kind, Kind::Symlink(_)) {
            remove_inherited_lists(host).map_err(failed)?;
        }
        for xattr in &of.xattrs {
            match xattr::set(host, OsStr::from_bytes(&xattr.name), &xattr.value) {
                Ok(()) => {}
                Err(error) if refuses(&error) => self.left.xattrs += 1,
                Err(error) => return Err(failed(error)),
            }
        }
        if !matches!(node.kind, Kind::Symlink(_)) {
            let mode = self.mode(node, is_owned);
            fs::set_permissions(host, Permissions::from_mode(mode)).map_err(failed)?;
        }
        let times = times(of);
        let set = utimensat(CWD, host, &times, AtFlags::SYMLINK_NOFOLLOW);
        set.map_err(|error| failed(error.into()))
    }

    /// The permission bits that the host gets.
    fn mode(&mut self, node: &Node, is_owned: bool) -> u32 {
        let wanted = node.metadata.permissions;
        let needed = match node.kind {
            _ if self.root => 0,
            Kind::Directory(_) => 0o700,
            Kind::Regular(_) => 0o400,
            _ => 0,
        };
        let taken = if is_owned { 0 } else { SET_ID };
        let mode = (wanted | needed) & !taken;
        self.left.modes += u64::from(mode != wanted);
        mode
    }
}

/// True if the user, or the filesystem, does not allow it.
fn refuses(error: &io::Error) -> bool {
    let refusals = [Errno::PERM, Errno::INVAL, Errno::OPNOTSUPP, Errno::TOOBIG, Errno::ACCESS];
    Errno::from_io_error(error).is_some_and(|error| refusals.contains(&error))
}

fn times(of: &Metadata) -> Timestamps {
    let time = |of: Timestamp| Timespec { tv_sec: of.seconds, tv_nsec: of.nanoseconds.into() };
    Timestamps { last_access: time(of.atime), last_modification: time(of.mtime) }
}
