//! A volume that remembers what its users were promised: of each inode that was fsynced, what it
//! held then, until something begins to change it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use cairn_base::Ino;
use cairn_crash::states::{Promises, Recording};
use cairn_crash::workload::Promised;
use cairn_vfs::types::{
    AllocateMode, Attributes, Caller, FileKind, IoFlags, NewInode, RenameMode, SetAttributes,
};
use cairn_vfs::{Bytes, FileSystem, FileSystemOver, Result};
use parking_lot::Mutex;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// What an inode held: a hash of its contents, or of its names and their inodes.
type Held = u64;

#[derive(Default)]
struct State {
    promises: Promises<Ino, Held>,
    /// How often an inode was about to change.
    changes: HashMap<Ino, u64>,
    fsyncs: usize,
}

/// Passes all calls on.
pub(super) struct Watched {
    inner: Arc<dyn FileSystem>,
    recording: Arc<Recording>,
    state: Mutex<State>,
}

/// What was promised while a program ran.
pub(super) struct Watching {
    promises: Promises<Ino, Held>,
    /// Calls of fsync that returned.
    pub(super) fsyncs: usize,
}

impl Watched {
    /// Around an open volume that runs on the recording's device.
    pub(super) fn new(inner: Arc<dyn FileSystem>, recording: Arc<Recording>) -> Self {
        Self { inner, recording, state: Mutex::default() }
    }

    /// Notes what all inodes hold, writes everything, and unmounts.
    pub(super) fn finish(&self) -> Result<Watching> {
        let mut all = BTreeMap::new();
        walk(&*self.inner, &mut |ino, held| {
            all.insert(ino, held);
        })?;
        self.inner.unmount()?;
        let mut state = self.state.lock();
        let moment = self.recording.moment();
        for (ino, held) in all {
            state.promises.kept(ino, held, moment);
        }
        let State { promises, fsyncs, .. } = std::mem::take(&mut *state);
        Ok(Watching { promises, fsyncs })
    }

    /// An inode is about to change.
    fn changing(&self, ino: Ino) {
        let mut state = self.state.lock();
        *state.changes.entry(ino).or_default() += 1;
        let moment = self.recording.moment();
        state.promises.changing(ino, moment);
    }

    /// Does something that changes inodes. An fsync that runs meanwhile promises nothing.
    fn around<T>(&self, inos: &[Ino], work: impl FnOnce() -> T) -> T {
        inos.iter().for_each(|ino| self.changing(*ino));
        let done = work();
        inos.iter().for_each(|ino| self.changing(*ino));
        done
    }

    fn inode_of(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        let found = self.inner.lookup(parent, name).ok()?;
        self.inner.forget(found.ino, 1);
        Some(found.ino)
    }

    fn changes(&self, ino: Ino) -> u64 {
        self.state.lock().changes.get(&ino).copied().unwrap_or(0)
    }
}

/// What an inode holds.
fn held(fs: &dyn FileSystem, ino: Ino) -> Result<Held> {
    let attributes = fs.getattr(ino)?;
    let mut hasher = DefaultHasher::new();
    match attributes.kind {
        FileKind::Regular => {
            attributes.size.hash(&mut hasher);
            let (mut piece, mut at) = (vec![0; PIECE], 0);
            while at < attributes.size {
                let read = fs.read(ino, at, &mut piece, IoFlags::empty())?;
                if read == 0 {
                    break;
                }
                hasher.write(&piece[..read]);
                at += read as u64;
            }
        }
        FileKind::Directory => names(fs, ino)?.hash(&mut hasher),
        FileKind::Symlink => fs.readlink(ino)?.hash(&mut hasher),
        _ => attributes.device.hash(&mut hasher),
    }
    Ok(hasher.finish())
}

/// The names in a directory, in order, and their inodes.
fn names(fs: &dyn FileSystem, directory: Ino) -> Result<Vec<(Vec<u8>, Ino)>> {
    let mut names: Vec<(Vec<u8>, Ino)> = Vec::new();
    fs.readdir(directory, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        true
    })?;
    names.retain(|(name, _)| name != b"." && name != b"..");
    names.sort_unstable();
    Ok(names)
}

/// Gives each inode that can be reached, and what it holds.
fn walk(fs: &dyn FileSystem, emit: &mut dyn FnMut(Ino, Held)) -> Result<()> {
    let mut left = vec![fs.root()];
    while let Some(directory) = left.pop() {
        emit(directory, held(fs, directory)?);
        for (name, ino) in names(fs, directory)? {
            let found = fs.lookup(directory, &name)?;
            if found.kind == FileKind::Directory {
                // It is kept until its own names are read.
                left.push(ino);
                continue;
            }
            emit(ino, held(fs, ino)?);
            fs.forget(ino, 1);
        }
    }
    Ok(())
}

impl Promised for Watching {
    fn kept(&self, moment: u64, fs: &dyn FileSystem) -> Result<usize, String> {
        let mut found = BTreeMap::new();
        let walked = walk(fs, &mut |ino, held| {
            found.insert(ino, held);
        });
        walked.map_err(|error| format!("reading everything: {error}"))?;
        let promised = self.promises.at(moment);
        for (ino, held) in &promised {
            match found.get(ino) {
                None => return Err(format!("inode {ino} was fsynced, and no name leads to it")),
                Some(there) if there != *held => {
                    return Err(format!(
                        "inode {ino} does not hold what it held when fsync returned"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(promised.len())
    }
}

impl FileSystemOver for Watched {
    fn inner(&self) -> &dyn FileSystem {
        &*self.inner
    }

    fn create(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewInode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        let made =
            self.around(&[parent], || self.inner.create(parent, name, new, permissions, caller))?;
        // The number may have been another file's.
        self.changing(made.ino);
        Ok(made)
    }

    fn tmpfile(&self, parent: Ino, permissions: u32, caller: &Caller) -> Result<Attributes> {
        let made = self.inner.tmpfile(parent, permissions, caller)?;
        self.changing(made.ino);
        Ok(made)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.around(&[parent], || self.inner.link(ino, parent, name))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let changed = [Some(parent), self.inode_of(parent, name)];
        let changed: Vec<Ino> = changed.into_iter().flatten().collect();
        self.around(&changed, || self.inner.unlink(parent, name))
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let changed = [Some(parent), self.inode_of(parent, name)];
        let changed: Vec<Ino> = changed.into_iter().flatten().collect();
        self.around(&changed, || self.inner.rmdir(parent, name))
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let changed = [Some(parent), Some(new_parent), self.inode_of(new_parent, new_name)];
        let changed: Vec<Ino> = changed.into_iter().flatten().collect();
        self.around(&changed, || self.inner.rename(parent, name, new_parent, new_name, mode))
    }

    fn setattr(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        if set.size.is_none() {
            return self.inner.setattr(ino, set);
        }
        self.around(&[ino], || self.inner.setattr(ino, set))
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
        self.around(&[ino], || self.inner.write(ino, offset, data, flags))
    }

    fn write_shared(&self, ino: Ino, offset: u64, data: Bytes, flags: IoFlags) -> Result<usize> {
        self.around(&[ino], || self.inner.write_shared(ino, offset, data, flags))
    }

    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        self.around(&[ino], || self.inner.allocate(ino, mode, offset, len))
    }

    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.around(&[to], || self.inner.copy_range(from, from_offset, to, to_offset, len))
    }

    fn fsync(&self, ino: Ino, handle: u64, data_only: bool) -> Result<()> {
        let before = self.changes(ino);
        self.inner.fsync(ino, handle, data_only)?;
        let moment_of_return = self.recording.moment();
        let Ok(held) = held(&*self.inner, ino) else { return Ok(()) };
        // Of a file without a name nothing is left.
        let is_named = self.inner.getattr(ino).is_ok_and(|found| found.links > 0);
        let mut state = self.state.lock();
        state.fsyncs += 1;
        if is_named && state.changes.get(&ino).copied().unwrap_or(0) == before {
            state.promises.kept(ino, held, moment_of_return);
        }
        Ok(())
    }
}
