//! A directory of the host as a source.
//!
//! Attributes come from the host. The order of its directories does not matter, and access times
//! do not count, because reading changes them.

use std::collections::HashMap;
use std::fs::{self, Metadata as HostMetadata};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;
use cairn_vfs::{FileKind, Timestamp};

use crate::assembly::{Assembly, NewKind};
use crate::error::{Error, Result};
use crate::extents::next_data;
use crate::node::{self, Contents, Metadata, RegularFile, SELINUX, Xattr};
use crate::path::MemberPath;
use crate::regular;

/// A file of the host by device and inode, and the node that was made of it.
type Links = HashMap<(u64, u64), usize>;

/// Puts a directory of the host in: itself under its name, or with a slash at its end what is in
/// it.
///
/// # Errors
/// Something below it cannot be read.
pub(super) fn read(assembly: &mut Assembly, source: &Path) -> Result<()> {
    let bytes = source.as_os_str().as_bytes();
    let contents = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || matches!(bytes, b"." | b"..");
    let start = if contents {
        MemberPath::default()
    } else {
        let whole = fs::canonicalize(source).map_err(|error| Error::host(source, error))?;
        let name = whole.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        MemberPath::of_name(&name).map_err(|why| Error::source(source.escaped(), why))?
    };
    // Contents are read later, perhaps from another working directory.
    let root = fs::canonicalize(source).map_err(|error| Error::host(source, error))?;
    assembly.has_unlabelled = true;
    let mut links = Links::new();
    let mut labels = 0_u64;
    let mut pending = vec![(root, start)];
    while let Some((host, path)) = pending.pop() {
        let of = fs::symlink_metadata(&host).map_err(|error| Error::host(&host, error))?;
        if assembly.rules.own.contains(&(of.dev(), of.ino())) {
            continue;
        }
        let refused = |why: String| Error::source(host.escaped(), why);
        if of.nlink() > 1
            && !of.is_dir()
            && let Some(node) = links.get(&(of.dev(), of.ino()))
        {
            if !assembly.rules.excludes(&path, false) {
                assembly.link_node(&path, *node).map_err(refused)?;
            }
            continue;
        }
        if assembly.rules.excludes(&path, of.is_dir()) {
            continue;
        }
        let (mut metadata, kind) = node(assembly, &host, &of)?;
        let all = metadata.xattrs.len();
        // A label of the host's SELinux policy has no meaning in the image.
        metadata.xattrs.retain(|xattr| &*xattr.name != SELINUX);
        labels += (all - metadata.xattrs.len()) as u64;
        let node = assembly.put(&path, metadata, kind).map_err(refused)?;
        if let Some(node) = node.filter(|_| of.nlink() > 1 && !of.is_dir()) {
            links.insert((of.dev(), of.ino()), node);
        }
        if of.is_dir() {
            pending.extend(inside(&host, &path)?);
        }
    }
    if labels > 0 {
        let files: String = if labels == 1 { "1 file".into() } else { format!("{labels} files") };
        tracing::warn!(
            "{}: labels of the host's SELinux on {files} are left out: to label the image, give \
             file_contexts as a manifest",
            source.escaped()
        );
    }
    Ok(())
}

/// The entries of a host directory, the last name first.
fn inside(host: &Path, path: &MemberPath) -> Result<Vec<(PathBuf, MemberPath)>> {
    let failed = |error| Error::host(host, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(host).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name());
    }
    names.sort_by(|a, b| b.cmp(a));
    let place = |name: std::ffi::OsString| {
        let below = path.join(name.as_bytes());
        let below = below.map_err(|why| Error::source(host.escaped(), why))?;
        Ok((host.join(&name), below))
    };
    names.into_iter().map(place).collect()
}

/// A file of the host as a regular file of an image.
///
/// # Errors
/// It cannot be read, or is no regular file.
pub(crate) fn host_file(path: &Path) -> Result<RegularFile> {
    let whole = fs::canonicalize(path).map_err(|error| Error::host(path, error))?;
    let of = fs::symlink_metadata(&whole).map_err(|error| Error::host(path, error))?;
    match kind(&whole, &of)? {
        NewKind::Regular(file) => Ok(file),
        _ => Err(Error::source(path.escaped(), "is no regular file: name one")),
    }
}

/// What is on the host, or what a list says of it.
fn node(assembly: &mut Assembly, host: &Path, of: &HostMetadata) -> Result<(Metadata, NewKind)> {
    let (mut metadata, kind) = (metadata(host, of)?, kind(host, of)?);
    let Some(stated) = assembly.stated.files.get(&(of.dev(), of.ino())) else {
        // Its programs see what they have not changed as root's.
        if !assembly.stated.files.is_empty() {
            (metadata.uid, metadata.gid) = (0, 0);
        }
        return Ok((metadata, kind));
    };
    let stands_for = match (FileKind::from_mode(stated.mode), FileKind::from_mode(of.mode())) {
        (is, on_host) if is == on_host => Some(kind),
        // What only root can make is an empty file on the host.
        (Some(FileKind::CharDevice), Some(FileKind::Regular)) => {
            Some(NewKind::CharDevice(stated.device))
        }
        (Some(FileKind::BlockDevice), Some(FileKind::Regular)) => {
            Some(NewKind::BlockDevice(stated.device))
        }
        // The inode of a file that is no longer there has become another file.
        _ => None,
    };
    let Some(kind) = stands_for else {
        (metadata.uid, metadata.gid) = (0, 0);
        return Ok((metadata, self::kind(host, of)?));
    };
    metadata.permissions = stated.mode & 0o7777;
    (metadata.uid, metadata.gid) = stated.owner;
    assembly.stated.matched += 1;
    Ok((metadata, kind))
}

fn metadata(host: &Path, of: &HostMetadata) -> Result<Metadata> {
    let nanoseconds = u32::try_from(of.mtime_nsec()).unwrap_or(0);
    let mtime = Timestamp { seconds: of.mtime(), nanoseconds };
    let mut metadata = Metadata::new(of.mode(), (of.uid(), of.gid()), mtime);
    let names = match xattr::list(host) {
        Ok(names) => names,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()) => {
            return Ok(metadata);
        }
        Err(error) => return Err(Error::host(host, error)),
    };
    for name in names {
        let value = xattr::get(host, &name).map_err(|error| Error::host(host, error))?;
        if let Some(value) = value {
            let name = name.as_bytes().into();
            metadata.xattrs.push(Xattr { name, value: value.into() });
        }
    }
    Ok(metadata)
}

fn kind(host: &Path, of: &HostMetadata) -> Result<NewKind> {
    let device = || {
        node::device(rustix::fs::major(of.rdev()), rustix::fs::minor(of.rdev()))
            .map_err(|why| Error::host(host, std::io::Error::other(why)))
    };
    Ok(match FileKind::from_mode(of.mode()) {
        Some(FileKind::Directory) => NewKind::Directory,
        Some(FileKind::Regular) => NewKind::Regular(RegularFile {
            size: of.len(),
            data: data(host, of)?,
            contents: match of.len() {
                0 => Contents::Empty,
                _ => Contents::Host(host.as_os_str().as_bytes().into()),
            },
        }),
        Some(FileKind::Symlink) => {
            let target = fs::read_link(host).map_err(|error| Error::host(host, error))?;
            NewKind::Symlink(target.as_os_str().as_bytes().into())
        }
        Some(FileKind::CharDevice) => NewKind::CharDevice(device()?),
        Some(FileKind::BlockDevice) => NewKind::BlockDevice(device()?),
        Some(FileKind::Fifo) => NewKind::Fifo,
        Some(FileKind::Socket) => NewKind::Socket,
        None => return Err(Error::source(host.escaped(), "of an unknown kind")),
    })
}

/// Where the file has data. Only a file with fewer blocks than its size needs is asked.
fn data(host: &Path, of: &HostMetadata) -> Result<Vec<Range<u64>>> {
    let size = of.len();
    if size == 0 {
        return Ok(Vec::new());
    }
    let mut ranges = Vec::new();
    if of.blocks().saturating_mul(512) >= size {
        ranges.push(Range { start: 0, end: size });
        return Ok(ranges);
    }
    let failed = |error| Error::host(host, error);
    let file = regular::open(host).map_err(failed)?;
    let mut at = 0;
    while let Some(range) = next_data(&file, at, size).map_err(failed)? {
        at = range.end;
        ranges.push(range);
    }
    Ok(ranges)
}
