//! The calls of a worker that make changes durable, and their promises.

use std::sync::Arc;

use cairn_vfs::{Error, Result};

use super::{Worker, parent};
use crate::workload::expect::Expect;

impl Worker {
    fn expected(&self, id: u16) -> Expect {
        let file = &self.files[&id];
        Expect::File {
            id,
            bytes: Arc::new(file.bytes.clone()),
            tail: None,
            xattr: Some(file.xattr.clone()),
        }
    }

    /// Contents, attributes and names of a file are durable.
    pub(super) fn promise_file(&mut self, id: u16) {
        let expect = self.expected(id);
        for path in self.files[&id].names.clone() {
            self.promise(&path, Some(expect.clone()));
        }
    }

    /// fdatasync leaves out times, which no check here reads.
    pub(super) fn fsync(&mut self, id: u16, data_only: bool) -> Result<()> {
        self.fs.fsync(self.files[&id].ino, 0, data_only)?;
        self.promise_file(id);
        Ok(())
    }

    /// The names in a directory and the removal of others are durable.
    pub(super) fn sync_directory(&mut self, dir: &str, data_only: bool) -> Result<()> {
        self.fs.fsync(self.directories[dir], 0, data_only)?;
        let is_in = |path: &String| parent(path) == dir;
        let gone: Vec<String> = self.gone.iter().filter(|path| is_in(path)).cloned().collect();
        for path in gone {
            self.gone.remove(&path);
            self.promise(&path, Some(Expect::Gone));
        }
        let others: Vec<_> = self
            .others
            .iter()
            .filter(|(path, _)| is_in(path))
            .map(|(path, expect)| (path.clone(), expect.clone()))
            .collect();
        for (path, expect) in others {
            self.promise(&path, Some(expect));
        }
        Ok(())
    }

    /// A file is written, but neither flushed nor committed, and is evicted.
    pub(super) fn evict(&mut self, id: u16) -> Result<()> {
        let ino = self.files[&id].ino;
        self.fs.extents(ino, 0, u64::MAX >> 1, true, &mut |_| true)?;
        self.fs.forget(ino, 1);
        (self.evict)();
        let (dir, name) = self.place(self.files[&id].names.first().expect("a name"));
        let found = self.fs.lookup(dir, name.as_bytes())?.ino;
        if found == ino { Ok(()) } else { Err(Error::NotFound) }
    }

    /// `sync`: all changes of this worker are durable.
    ///
    /// # Errors
    /// The volume's.
    pub fn sync(&mut self) -> Result<()> {
        self.fs.sync()?;
        for id in self.files.keys().copied().collect::<Vec<_>>() {
            self.promise_file(id);
        }
        for path in std::mem::take(&mut self.gone) {
            self.promise(&path, Some(Expect::Gone));
        }
        for (path, expect) in self.others.clone() {
            self.promise(&path, Some(expect));
        }
        Ok(())
    }
}
