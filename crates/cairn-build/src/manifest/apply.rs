//! Applies entries to an assembly.

use std::ops::Range;

use cairn_base::names::Escaped;
use cairn_vfs::{Acl, FileKind, acl};
use tracing::warn;

use super::entry::{Act, Changes, Entry, Id, Missing, New, There};
use crate::assembly::{Assembly, NewKind};
use crate::error::{Error, Result};
use crate::node::{Metadata, RegularFile};
use crate::path::MemberPath;
use crate::read::host_file;
use crate::store::Keep;
use crate::users::Users;

/// Why an entry cannot be applied.
type Applied<T = ()> = Result<T, String>;

/// A manifest that is being applied.
pub(super) struct Apply<'a> {
    pub(super) assembly: &'a mut Assembly,
    /// Its name.
    pub(super) file: &'a str,
    pub(super) users: &'a Users,
}

impl Apply<'_> {
    /// Applies all entries, in order.
    ///
    /// # Errors
    /// An entry matches nothing and must, or cannot be put in.
    pub(super) fn all(&mut self, entries: Vec<Entry>) -> Result<()> {
        for entry in entries {
            let is_directory = match (&entry.act, self.assembly.find(&entry.path)) {
                (_, Some(node)) => self.assembly.is_directory(node),
                (Act::Put { new, .. }, None) => matches!(new, New::Directory),
                // It may be one that was left out.
                (_, None) => true,
            };
            if self.assembly.rules.excludes(&entry.path, is_directory) {
                continue;
            }
            let line = entry.line;
            self.entry(entry).map_err(|why| at_line(self.file, line, why))?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry) -> Applied {
        let Entry { line, path, act, set } = entry;
        let about = |why: String| format!("/{}: {why}", path.bytes().escaped());
        let found = self.assembly.find(&path);
        match act {
            Act::Change { kind, below, missing } => {
                let Some(node) = found else {
                    let why = about("no source has such a file".into());
                    return match missing {
                        Missing::Error => Err(why),
                        Missing::Warn => {
                            warn!("{}: line {line}: {why}", self.file);
                            Ok(())
                        }
                        Missing::Ignore => Ok(()),
                    };
                };
                self.check(node, kind).map_err(about)?;
                match below {
                    true => self.change_below(node, &path, &set).map_err(about),
                    false => self.change(node, &set).map_err(about),
                }
            }
            Act::Link(target) => {
                let to = || format!("a hard link to /{}", target.bytes().escaped());
                let node = self.assembly.find(&target);
                let node = node.ok_or_else(|| about(format!("{}, which is not there", to())))?;
                if found == Some(node) {
                    return Ok(());
                }
                let linked = self.assembly.link_node(&path, node);
                linked.map_err(|why| about(format!("{}: {why}", to())))
            }
            Act::Put { new, there } => {
                if let (Some(_), There::Keep) = (found, there) {
                    let why = about("is in a source, which stays as it is".into());
                    warn!("{}: line {line}: {why}", self.file);
                    return Ok(());
                }
                self.put(&path, found, new, there, &set).map_err(about)
            }
        }
    }

    fn put(
        &mut self,
        path: &MemberPath,
        found: Option<usize>,
        new: New,
        there: There,
        set: &Changes,
    ) -> Applied {
        let kind = new.kind();
        if let Some(node) = found {
            let directories = [self.assembly.kind(node), Some(kind)]
                .iter()
                .filter(|kind| **kind == Some(FileKind::Directory))
                .count();
            if there == There::Restate || directories == 1 {
                self.check(node, Some(kind))?;
            }
            if kind != FileKind::Directory {
                let contents = self.contents(new)?;
                self.assembly.set_kind(node, contents);
            }
            return self.change(node, set);
        }
        let permissions = match kind {
            FileKind::Directory => 0o755,
            FileKind::Symlink => 0o777,
            _ => 0o644,
        };
        let metadata = Metadata::new(permissions, (0, 0), self.assembly.time_near(path));
        let contents = self.contents(new)?;
        match self.assembly.put(path, metadata, contents)? {
            Some(node) => self.change(node, set),
            None => Ok(()),
        }
    }

    fn contents(&mut self, new: New) -> Applied<NewKind> {
        Ok(match new {
            New::Directory => NewKind::Directory,
            New::Bytes(bytes) => {
                let len = bytes.len() as u64;
                let data: Vec<Range<u64>> =
                    Some(0..len).filter(|range| !range.is_empty()).into_iter().collect();
                let kept = self.assembly.stores.keep(&mut bytes.as_slice(), len);
                let (store, at) = kept.map_err(crate::read::kept)?;
                NewKind::Regular(RegularFile::stored(len, data, store, at))
            }
            New::Host(path) => {
                NewKind::Regular(host_file(&path).map_err(|error| error.to_string())?)
            }
            New::Symlink(target) => NewKind::Symlink(target.into()),
            New::CharDevice(device) => NewKind::CharDevice(device),
            New::BlockDevice(device) => NewKind::BlockDevice(device),
            New::Fifo => NewKind::Fifo,
            New::Socket => NewKind::Socket,
        })
    }

    fn check(&self, node: usize, wanted: Option<FileKind>) -> Applied {
        match (self.assembly.kind(node), wanted) {
            (Some(is), Some(wanted)) if is != wanted => {
                Err(format!("is {} in the sources, not {}", word(is), word(wanted)))
            }
            _ => Ok(()),
        }
    }

    fn change_below(&mut self, node: usize, path: &MemberPath, set: &Changes) -> Applied {
        let mut nodes = Vec::new();
        self.assembly.walk((path.bytes(), node), &mut |_, node| nodes.push(node));
        for node in nodes {
            // As chmod -R, which does not change links.
            if self.assembly.kind(node) == Some(FileKind::Symlink) {
                self.change(node, &Changes { permissions: None, ..set.clone() })?;
            } else {
                self.change(node, set)?;
            }
        }
        Ok(())
    }

    /// Changes the attributes of a node.
    pub(super) fn change(&mut self, node: usize, set: &Changes) -> Applied {
        let user = |name: &[u8]| self.users.user(name);
        let group = |name: &[u8]| self.users.group(name);
        let uid = set.uid.as_ref().map(|id| number(id, &user, "etc/passwd")).transpose()?;
        let gid = set.gid.as_ref().map(|id| number(id, &group, "etc/group")).transpose()?;
        let Some(metadata) = self.assembly.metadata_mut(node) else { return Ok(()) };
        metadata.uid = uid.unwrap_or(metadata.uid);
        metadata.gid = gid.unwrap_or(metadata.gid);
        if let Some(mtime) = set.mtime {
            (metadata.mtime, metadata.atime, metadata.ctime) = (mtime, mtime, mtime);
        }
        if set.all_xattrs {
            metadata.xattrs.clear();
        }
        for xattr in &set.xattrs {
            metadata.xattrs.retain(|known| known.name != xattr.name);
            metadata.xattrs.push(xattr.clone());
        }
        if !set.xattrs.is_empty() {
            metadata.settle().map_err(|error| error.to_string())?;
        }
        if let Some(permissions) = set.permissions {
            set_permissions(metadata, permissions).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// An error about a line of a manifest.
pub(super) fn at_line(file: &str, line: usize, why: impl std::fmt::Display) -> Error {
    Error::member(file, format!("line {line}").as_bytes(), why)
}

fn number(id: &Id, find: &dyn Fn(&[u8]) -> Option<u32>, file: &str) -> Applied<u32> {
    match id {
        Id::Number(number) => Ok(*number),
        Id::Name(name) => find(name).ok_or_else(|| {
            format!("'{}' is not in {file} of the image: give a number", name.escaped())
        }),
    }
}

/// As chmod(2): an access list follows.
fn set_permissions(metadata: &mut Metadata, permissions: u32) -> Result<(), acl::AclError> {
    metadata.permissions = permissions;
    for xattr in &mut metadata.xattrs {
        if &*xattr.name == acl::ACCESS
            && let Some(list) = Acl::from_xattr(&xattr.value)?
        {
            xattr.value = list.with_mode(permissions).to_xattr().into();
        }
    }
    Ok(())
}

fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "a directory",
        FileKind::Regular => "a regular file",
        FileKind::Symlink => "a symbolic link",
        FileKind::CharDevice => "a character device",
        FileKind::BlockDevice => "a block device",
        FileKind::Fifo => "a FIFO",
        FileKind::Socket => "a socket",
    }
}
