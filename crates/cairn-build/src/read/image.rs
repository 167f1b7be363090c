//! Another image as a source: an ext4 or F2FS volume, which is opened for reading only.

use std::collections::HashMap;
use std::ops::Range;

use cairn::{ImageSpec, OpenOptions, Volume};
use cairn_base::Ino;
use cairn_base::names::Escaped;
use cairn_vfs::walk::{self, Reached};
use cairn_vfs::{Attributes, FileKind, FileSystem, Seek};

use crate::assembly::{Assembly, NewKind};
use crate::error::{Error, Result};
use crate::leftovers::Leftovers;
use crate::node::{Contents, LOST_AND_FOUND, Metadata, RegularFile, Xattr};
use crate::path::MemberPath;

/// Opens the image, if a volume is in it.
///
/// # Errors
/// The image has a volume that cannot be opened.
pub(super) fn open(image: &ImageSpec) -> Result<Volume> {
    cairn::open(image, &OpenOptions::read_only()).map_err(Error::image)
}

/// Puts everything on a volume in. An empty `lost+found` as mkfs makes it is left out: the next
/// mkfs makes it where the format has it. So is what a killed run has left.
///
/// # Errors
/// The volume is damaged, or cannot be read.
pub(super) fn read(assembly: &mut Assembly, source: &str, volume: Volume) -> Result<()> {
    let fs = volume.filesystem().clone();
    let number = u32::try_from(assembly.stores.volumes.len()).unwrap_or(u32::MAX);
    let leftovers = Leftovers::find(&*fs);
    assembly.has_leftovers |= leftovers.is_listed();
    if let Some(note) = leftovers.note() {
        tracing::warn!("{source}: {note}");
    }
    let mut found = Vec::new();
    let mut failed = None;
    walk::walk_past_damage(&*fs, fs.root(), &mut |met| match met {
        Reached::Entry(visit) if leftovers.contains(visit.attributes.ino) => Ok(walk::Next::Skip),
        Reached::Entry(visit) => {
            found.push((visit.path.to_vec(), visit.attributes.clone()));
            Ok(walk::Next::Continue)
        }
        Reached::Damaged { path, error } => {
            failed = Some(path.to_vec());
            Err(error)
        }
    })
    .map_err(|error| match failed {
        Some(path) => Error::volume(format!("{source}: {}", path.escaped()), error),
        None => Error::volume(source, error),
    })?;
    let mut links: HashMap<Ino, usize> = HashMap::new();
    let holds_lost = found.iter().any(|(path, _)| path.starts_with(b"lost+found/"));
    for (path, of) in &found {
        let failed = |why: String| Error::member(source, path, why);
        let place = MemberPath::parse(path).map_err(failed)?;
        let is_directory = of.kind == FileKind::Directory;
        let is_linked = of.links > 1 && !is_directory;
        if assembly.rules.excludes(&place, is_directory) {
            continue;
        }
        if let Some(node) = links.get(&of.ino).filter(|_| is_linked) {
            assembly.link_node(&place, *node).map_err(failed)?;
            continue;
        }
        let volume_error = |error| Error::volume(format!("{source}: {}", path.escaped()), error);
        let kind = kind(&*fs, of, number).map_err(volume_error)?;
        let metadata = metadata(&*fs, of, &leftovers).map_err(volume_error)?;
        if path == LOST_AND_FOUND && is_directory && !holds_lost && metadata.is_of_mkfs() {
            continue;
        }
        let node = assembly.put(&place, metadata, kind).map_err(failed)?;
        if let Some(node) = node.filter(|_| is_linked) {
            links.insert(of.ino, node);
        }
    }
    assembly.stores.add_volume(volume, source);
    Ok(())
}

fn metadata(
    fs: &dyn FileSystem,
    of: &Attributes,
    leftovers: &Leftovers,
) -> cairn_vfs::Result<Metadata> {
    let mut metadata = Metadata::new(of.permissions, (of.uid, of.gid), of.mtime);
    (metadata.atime, metadata.ctime) = (of.atime, of.ctime);
    if let Some(before) = leftovers.times(of.ino) {
        [metadata.mtime, metadata.ctime] = before;
    }
    for name in fs.listxattr(of.ino)? {
        if leftovers.is_list(of.ino, &name) {
            continue;
        }
        let value = fs.getxattr(of.ino, &name)?;
        metadata.xattrs.push(Xattr { name: name.into(), value: value.into() });
    }
    Ok(metadata)
}

fn kind(fs: &dyn FileSystem, of: &Attributes, volume: u32) -> cairn_vfs::Result<NewKind> {
    Ok(match of.kind {
        FileKind::Directory => NewKind::Directory,
        FileKind::Regular => NewKind::Regular(RegularFile {
            size: of.size,
            data: data(fs, of)?,
            contents: Contents::Volume { volume, ino: of.ino },
        }),
        FileKind::Symlink => NewKind::Symlink(fs.readlink(of.ino)?.into()),
        FileKind::CharDevice => NewKind::CharDevice(of.device),
        FileKind::BlockDevice => NewKind::BlockDevice(of.device),
        FileKind::Fifo => NewKind::Fifo,
        FileKind::Socket => NewKind::Socket,
    })
}

/// Where the file has data.
fn data(fs: &dyn FileSystem, of: &Attributes) -> cairn_vfs::Result<Vec<Range<u64>>> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < of.size {
        let start = match fs.seek(of.ino, at, Seek::Data) {
            Ok(start) => start,
            Err(cairn_vfs::Error::NoData) => break,
            Err(error) => return Err(error),
        };
        let end = fs.seek(of.ino, start, Seek::Hole)?.min(of.size);
        if start >= end {
            break;
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}
