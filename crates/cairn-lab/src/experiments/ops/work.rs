//! The operations, each on many files of one thread's own directory.

use std::sync::Arc;

use cairn::FileSystem;
use cairn_base::Ino;
use cairn_vfs::types::{Caller, IoFlags, NewInode, OpenMode, RenameMode};

use crate::error::Result;

/// Bytes of a written file.
const FILE: usize = 4096;

/// An operation on all files of a worker.
pub(super) struct Operation {
    /// The name of its row.
    pub(super) name: &'static str,
    pub(super) run: fn(&mut Worker) -> Result<()>,
    /// It makes this part of the files, or all: fsync takes longer than the others.
    pub(super) part: usize,
    /// What brings the directory back to what the next operation expects. Not measured.
    pub(super) then: Option<fn(&mut Worker) -> Result<()>>,
}

const fn operation(
    name: &'static str,
    run: fn(&mut Worker) -> Result<()>,
    part: usize,
    then: Option<fn(&mut Worker) -> Result<()>>,
) -> Operation {
    Operation { name, run, part, then }
}

/// All operations, in their order: each finds the files that the one before has left.
pub(super) const ALL: [Operation; 9] = [
    operation("create", |worker| worker.create(false, false), 1, None),
    operation("lookup", Worker::look_up, 1, None),
    operation("getattr", Worker::attributes, 1, None),
    operation("readdir, an entry", Worker::list, 1, None),
    operation("rename", Worker::rename, 1, None),
    operation("unlink", Worker::unlink, 1, None),
    operation("create + write 4K", |worker| worker.create(true, false), 1, Some(Worker::unlink)),
    operation("create + write 4K + fsync", |worker| worker.create(true, true), 4, None),
    operation("write 4K + fsync", Worker::overwrite, 4, Some(Worker::unlink)),
];

/// A thread's directory and its files. What the operations need is made beforehand, so that only
/// their own allocations are counted.
pub(super) struct Worker {
    volume: Arc<dyn FileSystem>,
    directory: Ino,
    /// The names of each file before and after its rename.
    names: Vec<[String; 2]>,
    /// How often the files were renamed, modulo 2.
    renamed: usize,
    /// The files that are there.
    inos: Vec<Ino>,
    /// Files that the next operation works on.
    pub(super) count: usize,
    data: Vec<u8>,
}

impl Worker {
    pub(super) fn new(volume: &Arc<dyn FileSystem>, number: usize, files: usize) -> Result<Self> {
        let name = format!("thread-{number}");
        let directory = volume.create(
            volume.root(),
            name.as_bytes(),
            NewInode::Directory,
            0o755,
            &Caller::ROOT,
        )?;
        let names = |file| [format!("file-{file:06}"), format!("renamed-{file:06}")];
        Ok(Self {
            volume: volume.clone(),
            directory: directory.ino,
            names: (0..files).map(names).collect(),
            renamed: 0,
            inos: Vec::with_capacity(files),
            count: files,
            data: vec![0x61; FILE],
        })
    }

    fn create(&mut self, write: bool, fsync: bool) -> Result<()> {
        self.inos.clear();
        for names in &self.names[..self.count] {
            let ino = self
                .volume
                .create(
                    self.directory,
                    names[self.renamed].as_bytes(),
                    NewInode::Regular,
                    0o644,
                    &Caller::ROOT,
                )?
                .ino;
            self.inos.push(ino);
            if write {
                let handle = self.volume.open(ino, OpenMode { write: true, direct: false })?;
                self.volume.write(ino, 0, &self.data, IoFlags::empty())?;
                if fsync {
                    self.volume.fsync(ino, handle, false)?;
                }
                self.volume.release(ino, handle);
            }
        }
        Ok(())
    }

    fn look_up(&mut self) -> Result<()> {
        for names in &self.names[..self.inos.len()] {
            let found = self.volume.lookup(self.directory, names[self.renamed].as_bytes())?;
            self.volume.forget(found.ino, 1);
        }
        Ok(())
    }

    fn attributes(&mut self) -> Result<()> {
        for ino in &self.inos {
            self.volume.getattr(*ino)?;
        }
        Ok(())
    }

    fn list(&mut self) -> Result<()> {
        Ok(self.volume.readdir(self.directory, 0, &mut |_| true)?)
    }

    fn rename(&mut self) -> Result<()> {
        let to = 1 - self.renamed;
        for names in &self.names[..self.inos.len()] {
            self.volume.rename(
                self.directory,
                names[self.renamed].as_bytes(),
                self.directory,
                names[to].as_bytes(),
                RenameMode::Replace,
            )?;
        }
        self.renamed = to;
        Ok(())
    }

    /// Removes the files and forgets them, so that their space is freed.
    fn unlink(&mut self) -> Result<()> {
        for (names, ino) in self.names.iter().zip(&self.inos) {
            self.volume.unlink(self.directory, names[self.renamed].as_bytes())?;
            self.volume.forget(*ino, 1);
        }
        self.inos.clear();
        Ok(())
    }

    /// Overwrites the files in turn, each with its fsync.
    fn overwrite(&mut self) -> Result<()> {
        for ino in &self.inos {
            let handle = self.volume.open(*ino, OpenMode { write: true, direct: false })?;
            self.volume.write(*ino, 0, &self.data, IoFlags::empty())?;
            self.volume.fsync(*ino, handle, false)?;
            self.volume.release(*ino, handle);
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.inos.iter().for_each(|ino| self.volume.forget(*ino, 1));
        self.volume.forget(self.directory, 1);
    }
}
