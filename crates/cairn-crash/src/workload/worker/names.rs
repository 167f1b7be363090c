//! The calls of a worker that change names.

use cairn_vfs::{Caller, Error, IoFlags, NewInode, RenameMode, Result};

use super::Worker;
use crate::workload::expect::Expect;
use crate::workload::pattern;

/// Files without a name that stay open.
const UNLINKED_MAX: usize = 3;

impl Worker {
    pub(super) fn rename(&mut self, from: &str, to: &str, held: bool) -> Result<()> {
        let (id, replaced) = (self.owner(from).expect("a file"), self.owner(to));
        let ((dir, name), (new_dir, new_name)) = (self.place(from), self.place(to));
        let promised = self.current.get(from).cloned();
        self.either(from, promised.is_some().then_some(Expect::Gone));
        self.either(to, promised);
        self.fs.rename(dir, name.as_bytes(), new_dir, new_name.as_bytes(), RenameMode::Replace)?;
        if let Some(target) = replaced {
            self.drop_name(target, to, held);
        }
        let file = self.file(id);
        file.names.remove(from);
        file.names.insert(to.to_owned());
        self.gone.remove(to);
        self.gone.insert(from.to_owned());
        Ok(())
    }

    /// A name of a file was removed. With the last name the file is deleted, at once or when its
    /// reference is dropped.
    fn drop_name(&mut self, id: u16, path: &str, held: bool) {
        let file = self.file(id);
        file.names.remove(path);
        if !file.names.is_empty() {
            return;
        }
        let file = self.files.remove(&id).expect("a file");
        if held {
            self.unlinked.push((id, file))
        } else {
            self.fs.forget(file.ino, 1)
        }
        if self.unlinked.len() > UNLINKED_MAX {
            let (_, oldest) = self.unlinked.remove(0);
            self.fs.forget(oldest.ino, 1);
        }
    }

    pub(super) fn link(&mut self, id: u16, path: &str) -> Result<()> {
        let (dir, name) = self.place(path);
        let ino = self.files[&id].ino;
        self.fs.link(ino, dir, name.as_bytes())?;
        self.fs.forget(ino, 1);
        self.file(id).names.insert(path.to_owned());
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &str, held: bool) -> Result<()> {
        let id = self.owner(path).expect("a file");
        let (dir, name) = self.place(path);
        self.either(path, Some(Expect::Gone));
        self.fs.unlink(dir, name.as_bytes())?;
        self.gone.insert(path.to_owned());
        self.drop_name(id, path, held);
        Ok(())
    }

    pub(super) fn write_unlinked(&mut self) -> Result<()> {
        let (id, file) = self.unlinked.last_mut().expect("a file without a name");
        let id = *id;
        file.version += 1;
        let (ino, offset) = (file.ino, file.bytes.len() as u64);
        let data = pattern::fill(id, file.version, offset, 4096);
        // One of its names may still be on disk.
        self.changing(id);
        self.fs.write(ino, offset, &data, IoFlags::empty())?;
        Ok(())
    }

    pub(super) fn make_directory(&mut self, path: &str) -> Result<()> {
        let (dir, name) = self.place(path);
        let made =
            self.fs.create(dir, name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)?;
        self.directories.insert(path.to_owned(), made.ino);
        self.others.insert(path.to_owned(), Expect::Directory);
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, path: &str) -> Result<()> {
        let (dir, name) = self.place(path);
        self.either(path, Some(Expect::Gone));
        match self.fs.rmdir(dir, name.as_bytes()) {
            Err(Error::NotEmpty) => return Ok(()),
            other => other?,
        }
        let ino = self.directories.remove(path).expect("it was there");
        self.fs.forget(ino, 1);
        self.others.remove(path);
        self.gone.insert(path.to_owned());
        Ok(())
    }

    pub(super) fn symlink(&mut self, path: &str, len: usize) -> Result<()> {
        let (dir, name) = self.place(path);
        let target = vec![b't'; len];
        let new = NewInode::Symlink(&target);
        let made = self.fs.create(dir, name.as_bytes(), new, 0o777, &Caller::ROOT)?;
        self.fs.forget(made.ino, 1);
        self.others.insert(path.to_owned(), Expect::Symlink(target));
        Ok(())
    }
}
