//! The calls of a worker that change names.

use super::*;

impl Worker {
    pub(super) fn rename(&mut self) -> Result<()> {
        let id = self.pick_file();
        let from = self.files[&id].names.first().expect("a name").clone();
        let target = self.pick_file();
        let replace = self.random.bool() && target != id;
        let (new_dir, new_name, to) = if replace {
            let to = self.files[&target].names.first().expect("a name").clone();
            let (dir, name) = self.place(&to);
            (dir, name, to)
        } else {
            self.new_name()
        };
        let (dir, name) = self.place(&from);
        let promised = self.current.get(&from).cloned();
        self.either(&from, promised.is_some().then_some(Expect::Gone));
        self.either(&to, promised);
        self.fs.rename(dir, name.as_bytes(), new_dir, new_name.as_bytes(), RenameMode::Replace)?;
        if replace {
            self.drop_name(target, &to);
        }
        let file = self.files.get_mut(&id).expect("a file");
        file.names.remove(&from);
        file.names.insert(to.clone());
        self.gone.remove(&to);
        self.gone.insert(from);
        Ok(())
    }

    /// A name of a file was removed. With the last name the file is deleted, at once or when its
    /// reference is dropped.
    pub(super) fn drop_name(&mut self, id: u16, path: &str) {
        let file = self.files.get_mut(&id).expect("a file");
        file.names.remove(path);
        if !file.names.is_empty() {
            return;
        }
        let file = self.files.remove(&id).expect("a file");
        if self.random.bool() {
            self.unlinked.push((id, file))
        } else {
            self.fs.forget(file.ino, 1)
        }
        if self.unlinked.len() > 3 {
            let (_, oldest) = self.unlinked.remove(0);
            self.fs.forget(oldest.ino, 1);
        }
    }

    pub(super) fn link(&mut self) -> Result<()> {
        let id = self.pick_file();
        let (dir, name, path) = self.new_name();
        let file = self.files.get_mut(&id).expect("a file");
        self.fs.link(file.ino, dir, name.as_bytes())?;
        self.fs.forget(file.ino, 1);
        file.names.insert(path);
        Ok(())
    }

    pub(super) fn unlink(&mut self) -> Result<()> {
        let id = self.pick_file();
        let path = self.files[&id].names.first().expect("a name").clone();
        let (dir, name) = self.place(&path);
        self.either(&path, Some(Expect::Gone));
        self.fs.unlink(dir, name.as_bytes())?;
        self.gone.insert(path.clone());
        self.drop_name(id, &path);
        Ok(())
    }

    pub(super) fn write_unlinked(&mut self) -> Result<()> {
        let Some((id, file)) = self.unlinked.last_mut() else { return self.unlink() };
        let id = *id;
        file.version += 1;
        let (ino, offset) = (file.ino, file.bytes.len() as u64);
        let data = pattern::fill(id, file.version, offset, 4096);
        // One of its names may still be on disk.
        self.changing(id);
        self.fs.write(ino, offset, &data, IoFlags::empty())?;
        Ok(())
    }

    pub(super) fn make_directory(&mut self) -> Result<()> {
        let (dir, name, path) = self.new_name();
        let ino =
            self.fs.create(dir, name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)?.ino;
        self.directories.insert(path.clone(), ino);
        self.others.insert(path, Expect::Directory);
        Ok(())
    }

    pub(super) fn remove_directory(&mut self) -> Result<()> {
        let mine = format!("{}-", self.number);
        let own =
            |path: &&String| path.rsplit('/').next().is_some_and(|name| name.starts_with(&mine));
        let Some(path) = self.directories.keys().rfind(own).cloned() else {
            return self.make_directory();
        };
        let (dir, name) = self.place(&path);
        self.either(&path, Some(Expect::Gone));
        match self.fs.rmdir(dir, name.as_bytes()) {
            Err(Error::NotEmpty) => return Ok(()),
            other => other?,
        }
        let ino = self.directories.remove(&path).expect("it was there");
        self.fs.forget(ino, 1);
        self.others.remove(&path);
        self.gone.insert(path);
        Ok(())
    }

    pub(super) fn symlink(&mut self) -> Result<()> {
        let (dir, name, path) = self.new_name();
        let target = vec![b't'; self.random.usize(1..200)];
        let ino = self
            .fs
            .create(dir, name.as_bytes(), NewInode::Symlink(&target), 0o777, &Caller::ROOT)?
            .ino;
        self.fs.forget(ino, 1);
        self.others.insert(path, Expect::Symlink(target));
        Ok(())
    }
}
