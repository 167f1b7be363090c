//! Copies a tree, on one volume or from one to another.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::ops::ControlFlow;

use cairn_base::{Ino, memory};
use cairn_vfs::walk::{self, Next};
use cairn_vfs::{
    Attributes, Caller, FileKind, FileSystem, IoFlags, NewInode, Seek, SetAttributes, SetTime,
    XattrMode,
};

use super::last::{Entry, Use, entry, resolve};
use super::path::join;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// How far a copy is.
#[derive(Clone, Copy, Debug)]
pub struct CopyProgress<'a> {
    /// The file that is copied, below the tree's root.
    pub path: &'a [u8],
    /// What was copied.
    pub copied: Copied,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files, directories and all other kinds.
    pub files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
}

type Progress<'p> = dyn FnMut(&CopyProgress<'_>) -> ControlFlow<()> + 'p;

/// One copy.
struct Copy<'a, 'p> {
    from: &'a dyn FileSystem,
    to: &'a dyn FileSystem,
    progress: &'a mut Progress<'p>,
    copied: Copied,
    /// New inodes by old ones, of files with several names.
    links: HashMap<Ino, Ino>,
    buffer: Vec<u8>,
}

pub(super) fn tree(
    from: &dyn FileSystem,
    source: &[u8],
    to: &dyn FileSystem,
    target: &[u8],
    progress: &mut Progress<'_>,
) -> Result<Copied> {
    let start = resolve(from, source, false)?;
    let buffer = memory::zeroed("a copy", PIECE).map_err(cairn_vfs::Error::from)?;
    let mut copy =
        Copy { from, to, progress, copied: Copied::default(), links: HashMap::new(), buffer };
    // A copy into its own source must not meet itself, so the names are read first.
    let mut all = Vec::new();
    walk::walk(from, start.ino, &mut |met| {
        all.push((met.path.to_vec(), met.attributes.clone()));
        Ok(Next::Continue)
    })?;
    let mut directories = Vec::new();
    for (path, found) in &all {
        let made = copy.one(path, found, &join(target, path))?;
        if found.kind == FileKind::Directory {
            directories.push((made, found));
        }
    }
    // What was made in a directory changed its times.
    for (ino, found) in directories.iter().rev() {
        to.setattr(*ino, &times(found))?;
    }
    Ok(copy.copied)
}

fn times(of: &Attributes) -> SetAttributes {
    SetAttributes {
        atime: Some(SetTime::To(of.atime)),
        mtime: Some(SetTime::To(of.mtime)),
        ..SetAttributes::default()
    }
}

impl Copy<'_, '_> {
    fn one(&mut self, path: &[u8], found: &Attributes, target: &[u8]) -> Result<Ino> {
        let Entry { directory, name, .. } = entry(self.to, target, Use::Make)?;
        let has_names = found.links > 1 && found.kind != FileKind::Directory;
        if let Some(first) = self.links.get(&found.ino).filter(|_| has_names) {
            let made = self.to.link(*first, directory, name)?;
            self.to.forget(made.ino, 1);
            self.tell(path, 1, 0)?;
            return Ok(made.ino);
        }
        let link;
        let new = match found.kind {
            FileKind::Regular => NewInode::Regular,
            FileKind::Directory => NewInode::Directory,
            FileKind::Symlink => {
                link = self.from.readlink(found.ino)?;
                NewInode::Symlink(&link)
            }
            FileKind::BlockDevice => NewInode::BlockDevice(found.device),
            FileKind::CharDevice => NewInode::CharDevice(found.device),
            FileKind::Fifo => NewInode::Fifo,
            FileKind::Socket => NewInode::Socket,
        };
        let caller = Caller { uid: found.uid, gid: found.gid, ..Caller::COPIER };
        let made = self.to.create(directory, name, new, found.permissions, &caller)?.ino;
        let done = self.fill(path, found, made);
        self.to.forget(made, 1);
        done?;
        if has_names {
            self.links.insert(found.ino, made);
        }
        self.tell(path, 1, 0)?;
        Ok(made)
    }

    /// Contents, attributes, owner, mode and times, in this order: each undoes some of the next.
    fn fill(&mut self, path: &[u8], found: &Attributes, made: Ino) -> Result<()> {
        if found.kind == FileKind::Regular {
            self.contents(path, found, made)?;
        }
        for name in self.from.listxattr(found.ino)? {
            let value = self.from.getxattr(found.ino, &name)?;
            self.to.setxattr(made, &name, &value, XattrMode::Set)?;
        }
        let link = found.kind == FileKind::Symlink;
        let set = SetAttributes {
            uid: Some(found.uid),
            gid: Some(found.gid),
            permissions: (!link).then_some(found.permissions),
            ..times(found)
        };
        self.to.setattr(made, &set)?;
        Ok(())
    }

    fn contents(&mut self, path: &[u8], found: &Attributes, made: Ino) -> Result<()> {
        let mut at = 0;
        while let Some(data) = found_at(self.from.seek(found.ino, at, Seek::Data))? {
            let end = found_at(self.from.seek(found.ino, data, Seek::Hole))?;
            let end = end.unwrap_or(found.size);
            at = data;
            while at < end {
                let want = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
                let Some(piece) = self.buffer.get_mut(..want) else { break };
                let read = self.from.read(found.ino, at, piece, IoFlags::empty())?;
                if read == 0 {
                    break;
                }
                self.write(made, at, read)?;
                at += read as u64;
                self.tell(path, 0, read as u64)?;
            }
            at = end;
        }
        let set = SetAttributes { size: Some(found.size), ..SetAttributes::default() };
        self.to.setattr(made, &set)?;
        Ok(())
    }

    /// Writes the first bytes of the buffer.
    fn write(&self, ino: Ino, offset: u64, len: usize) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = self.buffer.get(done..len).filter(|rest| !rest.is_empty()) {
            let written = self.to.write(ino, offset + done as u64, rest, IoFlags::empty())?;
            if written == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            done += written;
        }
        Ok(())
    }

    fn tell(&mut self, path: &[u8], files: u64, bytes: u64) -> Result<()> {
        self.copied.files += files;
        self.copied.bytes += bytes;
        match (self.progress)(&CopyProgress { path, copied: self.copied }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(Error::new(ErrorKind::Interrupted, "the copy was ended by its caller"))
            }
        }
    }
}

fn found_at(found: cairn_vfs::Result<u64>) -> Result<Option<u64>> {
    match found {
        Ok(at) => Ok(Some(at)),
        Err(cairn_vfs::Error::NoData) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
