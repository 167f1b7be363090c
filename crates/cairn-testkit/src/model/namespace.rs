//! Names of the oracle: lookup, creation, links, removal, renaming.

use cairn_base::Ino;
use cairn_vfs::{
    Acl, Attributes, Caller, DirEntry, Error, FileKind, Name, NewInode, RenameMode, Result, acl,
};

use super::directory::Directory;
use super::file::SparseFile;
use super::node::{Content, Node};
use super::{MAX_INODES, ROOT, State};

/// Links of a file, as in ext4.
const MAX_LINKS: u32 = 65_000;
const NAME_MAX: usize = 255;
const SYMLINK_MAX: usize = 4095;

/// Checks the name of an entry. The error for `.` and `..` depends on the call.
fn check_name(name: &[u8], dots: Error) -> Result<()> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(dots),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => {
            Err(Error::Invalid("NUL or slash in a name"))
        }
        _ => Ok(()),
    }
}

impl State {
    pub(super) fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let ino = match name {
            // Callers that resolve a file handle look up `.` of inodes of any type.
            b"." => parent,
            b".." => self.directory(parent)?.parent,
            _ if name.len() > NAME_MAX => return Err(Error::NameTooLong),
            _ => self.directory(parent)?.get(name).ok_or(Error::NotFound)?,
        };
        self.refer(ino)
    }

    /// Takes a reference.
    fn refer(&mut self, ino: Ino) -> Result<Attributes> {
        let node = self.node_mut(ino)?;
        node.references += 1;
        Ok(node.attributes(ino))
    }

    pub(super) fn forget(&mut self, ino: Ino, count: u64) {
        let Some(node) = self.nodes.get_mut(&ino) else {
            panic!("forget of inode {ino}, which is gone")
        };
        assert!(
            ino == ROOT || count <= node.references,
            "{count} of {} references on {ino} dropped",
            node.references
        );
        node.references = node.references.saturating_sub(count);
        self.delete_if_dead(ino);
    }

    /// The directory, if an entry with this name may be added to it.
    fn check_new_entry(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let directory = self.directory(parent)?;
        check_name(name, Error::Exists)?;
        if directory.get(name).is_some() {
            return Err(Error::Exists);
        }
        self.check_grows(parent)
    }

    fn check_grows(&self, parent: Ino) -> Result<()> {
        let node = self.node(parent)?;
        if node.links == 0 {
            return Err(Error::NotFound);
        }
        node.refuse_immutable()
    }

    fn touch(&mut self, ino: Ino) -> Result<()> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        (node.mtime, node.ctime) = (now, now);
        Ok(())
    }

    pub(super) fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &NewInode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        self.check_new_entry(parent, name)?;
        let content = match new {
            NewInode::Regular => Content::Regular(SparseFile::default()),
            NewInode::Directory => Content::Directory(Directory::new(parent)),
            NewInode::Symlink([]) => return Err(Error::NotFound),
            NewInode::Symlink(target) if target.len() > SYMLINK_MAX => {
                return Err(Error::TargetTooLong);
            }
            NewInode::Symlink(target) => Content::Symlink(target.to_vec()),
            NewInode::BlockDevice(device) => Content::BlockDevice(*device),
            NewInode::CharDevice(device) => Content::CharDevice(*device),
            NewInode::Fifo => Content::Fifo,
            NewInode::Socket => Content::Socket,
        };
        let ino = self.insert(parent, content, permissions, caller)?;
        if matches!(new, NewInode::Directory) {
            self.node_mut(ino)?.links = 2;
            self.node_mut(parent)?.links += 1;
        }
        self.directory_mut(parent)?.set(name, ino);
        self.touch(parent)?;
        self.refer(ino)
    }

    pub(super) fn tmpfile(
        &mut self,
        parent: Ino,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        self.directory(parent)?;
        self.check_grows(parent)?;
        let ino =
            self.insert(parent, Content::Regular(SparseFile::default()), permissions, caller)?;
        self.node_mut(ino)?.links = 0;
        self.refer(ino)
    }

    /// A new inode with what it inherits from its directory: group, special bits and access control
    /// lists.
    fn insert(
        &mut self,
        parent: Ino,
        content: Content,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Ino> {
        if self.nodes.len() as u64 >= MAX_INODES {
            return Err(Error::NoSpace);
        }
        let now = self.now();
        let default = self.stored_acl(parent, acl::DEFAULT)?.filter(|_| caller.inherits);
        let directory = self.node(parent)?;
        let inherits_group = caller.inherits && directory.permissions & 0o2000 != 0;
        let gid = if inherits_group { directory.gid } else { caller.gid };
        let mut node = Node::new(content, 0, (caller.uid, gid), now);
        let kind = node.kind();
        let mode = kind.mode_bits() | permissions & 0o7777;
        let (mode, access, default) = Acl::for_new_inode(default.as_ref(), mode, caller.umask);
        node.permissions = match kind {
            FileKind::Symlink => 0o777,
            FileKind::Directory if inherits_group => mode & 0o7777 | 0o2000,
            _ => mode & 0o7777,
        };
        for (name, list) in [(acl::ACCESS, access), (acl::DEFAULT, default)] {
            if let Some(list) = list {
                node.xattrs.insert(name.to_vec(), list.to_xattr());
            }
        }
        node.generation = self.next_generation;
        self.next_generation = self.next_generation.wrapping_add(1);
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        self.nodes.insert(ino, node);
        Ok(ino)
    }

    pub(super) fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.check_new_entry(parent, name)?;
        let node = self.node(ino)?;
        if node.kind() == FileKind::Directory {
            return Err(Error::NotPermitted);
        }
        node.refuse_fixed()?;
        if node.links >= MAX_LINKS {
            return Err(Error::TooManyLinks);
        }
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.links += 1;
        node.ctime = now;
        self.directory_mut(parent)?.set(name, ino);
        self.touch(parent)?;
        self.refer(ino)
    }

    /// The inode of a name that may be removed.
    fn check_removal(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        let ino = self.directory(parent)?.get(name).ok_or(Error::NotFound)?;
        self.node(parent)?.refuse_fixed()?;
        self.node(ino)?.refuse_fixed()?;
        Ok(ino)
    }

    pub(super) fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        self.directory(parent)?;
        check_name(name, Error::IsDirectory)?;
        let ino = self.check_removal(parent, name)?;
        if self.node(ino)?.kind() == FileKind::Directory {
            return Err(Error::IsDirectory);
        }
        self.directory_mut(parent)?.remove(name);
        self.touch(parent)?;
        self.drop_link(ino)
    }

    pub(super) fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        self.directory(parent)?;
        check_name(
            name,
            if name == b".." { Error::NotEmpty } else { Error::Invalid("`.` cannot be removed") },
        )?;
        let ino = self.check_removal(parent, name)?;
        if !self.directory(ino)?.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.directory_mut(parent)?.remove(name);
        self.node_mut(parent)?.links -= 1;
        self.touch(parent)?;
        self.drop_link(ino)
    }

    /// Drops a link of an inode. A directory has only one name.
    fn drop_link(&mut self, ino: Ino) -> Result<()> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.links = if node.kind() == FileKind::Directory { 0 } else { node.links - 1 };
        node.ctime = now;
        self.delete_if_dead(ino);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (self.directory(parent)?, self.directory(new_parent)?);
        check_name(name, Error::Busy)?;
        check_name(
            new_name,
            if mode == RenameMode::NoReplace { Error::Exists } else { Error::Busy },
        )?;
        let (found, target) = (from.get(name), to.get(new_name));
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) if found.is_some() => return Err(Error::Exists),
            (RenameMode::Exchange, None) if found.is_some() => return Err(Error::NotFound),
            // Two names of one file: POSIX requires success without a change, whatever the
            // directories forbid.
            (_, Some(_)) if target == found => return Ok(()),
            _ => {}
        }
        let ino = self.check_removal(parent, name)?;
        self.check_grows(new_parent)?;
        self.refuse_own_subtree(ino, new_parent)?;
        match target {
            Some(target) if mode == RenameMode::Exchange => {
                self.exchange((parent, name, ino), (new_parent, new_name, target))
            }
            _ => {
                self.rename_over((parent, name, ino), (new_parent, new_name), target)?;
                let RenameMode::Whiteout(caller) = mode else { return Ok(()) };
                let left = self.create(parent, name, &NewInode::WHITEOUT, 0, &caller)?;
                self.forget(left.ino, 1);
                Ok(())
            }
        }
    }

    /// A directory must not move into itself or below.
    fn refuse_own_subtree(&self, ino: Ino, new_parent: Ino) -> Result<()> {
        let mut at = new_parent;
        loop {
            if at == ino {
                return Err(Error::Invalid("a directory cannot move into itself"));
            }
            if at == ROOT {
                return Ok(());
            }
            at = self.directory(at)?.parent;
        }
    }

    fn rename_over(
        &mut self,
        (parent, name, ino): (Ino, &[u8], Ino),
        (new_parent, new_name): (Ino, &[u8]),
        target: Option<Ino>,
    ) -> Result<()> {
        let is_directory = self.node(ino)?.kind() == FileKind::Directory;
        if let Some(target) = target {
            let target_node = self.node(target)?;
            self.node(new_parent)?.refuse_fixed()?;
            target_node.refuse_fixed()?;
            match (&target_node.content, is_directory) {
                (Content::Directory(_), false) => return Err(Error::IsDirectory),
                (Content::Directory(directory), true) if !directory.is_empty() => {
                    return Err(Error::NotEmpty);
                }
                (Content::Directory(_), true) => self.node_mut(new_parent)?.links -= 1,
                (_, true) => return Err(Error::NotDirectory),
                (_, false) => {}
            }
        }
        self.directory_mut(parent)?.remove(name);
        self.directory_mut(new_parent)?.set(new_name, ino);
        self.moved(ino, parent, new_parent)?;
        self.touch(parent)?;
        self.touch(new_parent)?;
        target.map_or(Ok(()), |target| self.drop_link(target))
    }

    fn exchange(
        &mut self,
        (parent, name, ino): (Ino, &[u8], Ino),
        (other, other_name, target): (Ino, &[u8], Ino),
    ) -> Result<()> {
        self.node(target)?.refuse_fixed()?;
        self.node(other)?.refuse_fixed()?;
        self.refuse_own_subtree(target, parent)?;
        self.directory_mut(parent)?.set(name, target);
        self.directory_mut(other)?.set(other_name, ino);
        self.moved(ino, parent, other)?;
        self.moved(target, other, parent)?;
        self.touch(parent)?;
        self.touch(other)
    }

    /// The inode's name moved to another directory: `..` and the link counts of both parents
    /// change.
    fn moved(&mut self, ino: Ino, from: Ino, to: Ino) -> Result<()> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.ctime = now;
        if let Content::Directory(directory) = &mut node.content {
            directory.parent = to;
            self.node_mut(from)?.links -= 1;
            self.node_mut(to)?.links += 1;
        }
        Ok(())
    }

    pub(super) fn entries_after(&self, ino: Ino, position: u64) -> Result<Vec<DirEntry>> {
        let entries = self.directory(ino)?.after(position, ino).map(|(next, name, ino)| DirEntry {
            ino,
            kind: self.nodes.get(&ino).map(Node::kind),
            name: Name::check(name).expect("the model checks names when it makes them").to_buf(),
            next,
        });
        Ok(entries.collect())
    }
}
