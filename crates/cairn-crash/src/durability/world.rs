//! The directory that a history changes, and the promises about it.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::Ino;
use cairn_vfs::{
    Caller, Error, FileSystem, InodeFlags, IoFlags, NewInode, RenameMode, Result, SetAttributes,
    XattrMode,
};

use super::grammar::{Persist, Step};

pub(super) const XATTR: &[u8] = b"user.state";
const BLOCK: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub bytes: Vec<u8>,
    pub xattr: Option<Vec<u8>>,
    pub owner: u32,
}

impl File {
    fn empty() -> Self {
        Self { bytes: Vec::new(), xattr: None, owner: 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Directory,
    Whiteout,
    File(File),
}

/// The inode of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    File(Ino),
    Directory,
    Whiteout,
}

/// What must be found: a certain file, any file, or nothing.
#[derive(Clone, Debug)]
pub(super) enum Promise {
    Is(Thing),
    IsFile,
    Gone,
}

/// What must be found under which names, and whether other names are allowed.
#[derive(Clone, Debug, Default)]
pub(super) struct Promised {
    pub names: BTreeMap<String, Promise>,
    pub complete: bool,
}

/// The current directory.
pub(super) struct World<'f> {
    fs: &'f dyn FileSystem,
    pub directory: Ino,
    files: BTreeMap<Ino, File>,
    names: BTreeMap<String, Named>,
    /// Former names of the target.
    given_up: BTreeSet<String>,
    pub target: Ino,
    /// The target's names, the latest last.
    pub target_names: Vec<String>,
    counter: u8,
}

impl<'f> World<'f> {
    /// The directory `d` with the file `f`, durable, with the flags that `persist` needs.
    pub(super) fn new(fs: &'f dyn FileSystem, persist: Persist) -> Result<Self> {
        let root = fs.root();
        let directory = fs.create(root, b"d", NewInode::Directory, 0o755, &Caller::ROOT)?.ino;
        if let Some(flags) = persist.flags() {
            fs.setattr(directory, &SetAttributes { flags: Some(flags), ..Default::default() })?;
        }
        let target = fs.create(directory, b"f", NewInode::Regular, 0o644, &Caller::ROOT)?.ino;
        let bytes = vec![1; 5000];
        fs.write(target, 0, &bytes, IoFlags::empty())?;
        fs.sync()?;
        Ok(Self {
            fs,
            directory,
            files: BTreeMap::from([(target, File { bytes, ..File::empty() })]),
            names: BTreeMap::from([("f".to_owned(), Named::File(target))]),
            given_up: BTreeSet::new(),
            target,
            target_names: vec!["f".to_owned()],
            counter: 1,
        })
    }

    fn file(&mut self) -> &mut File {
        self.files.get_mut(&self.target).expect("the target is a file")
    }

    fn new_name(&self) -> String {
        format!("n{}", self.counter)
    }

    fn write(&mut self, offset: usize, len: usize, flags: IoFlags) -> Result<()> {
        let data = vec![self.counter; len];
        let done = self.fs.write(self.target, offset as u64, &data, flags)?;
        if done != len {
            return Err(Error::NoSpace);
        }
        let bytes = &mut self.file().bytes;
        let size = bytes.len().max(offset + len);
        bytes.resize(size, 0);
        bytes[offset..offset + len].copy_from_slice(&data);
        Ok(())
    }

    /// False if the target has no name, which the step needs.
    pub(super) fn step(&mut self, step: Step) -> Result<bool> {
        self.counter += 1;
        let latest = self.target_names.last().cloned();
        match step {
            Step::Rename | Step::RenameLeavingWhiteout | Step::Unlink | Step::Link => {
                let Some(latest) = latest else { return Ok(false) };
                self.change_names(step, latest)?;
            }
            Step::Create | Step::MakeDirectory => self.make(step)?,
            _ => self.change_target(step)?,
        }
        Ok(true)
    }

    fn make(&mut self, step: Step) -> Result<()> {
        let (fs, directory, new) = (self.fs, self.directory, self.new_name());
        if step == Step::MakeDirectory {
            let made = fs
                .create(directory, new.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)?
                .ino;
            fs.forget(made, 1);
            self.names.insert(new, Named::Directory);
            return Ok(());
        }
        self.target =
            fs.create(directory, new.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?.ino;
        self.files.insert(self.target, File::empty());
        self.names.insert(new.clone(), Named::File(self.target));
        (self.target_names, self.given_up) = (vec![new], BTreeSet::new());
        Ok(())
    }

    fn change_names(&mut self, step: Step, old: String) -> Result<()> {
        let (fs, directory, new) = (self.fs, self.directory, self.new_name());
        let rename = |mode| fs.rename(directory, old.as_bytes(), directory, new.as_bytes(), mode);
        match step {
            Step::Rename => {
                rename(RenameMode::Replace)?;
                self.take_name(&old);
                self.give_name(new);
            }
            Step::RenameLeavingWhiteout => {
                rename(RenameMode::Whiteout(Caller::ROOT))?;
                self.target_names.retain(|name| *name != old);
                self.names.insert(old, Named::Whiteout);
                self.give_name(new);
            }
            Step::Unlink => {
                fs.unlink(directory, old.as_bytes())?;
                self.take_name(&old);
            }
            _ => {
                fs.link(self.target, directory, new.as_bytes())?;
                fs.forget(self.target, 1);
                self.give_name(new);
            }
        }
        Ok(())
    }

    fn change_target(&mut self, step: Step) -> Result<()> {
        let (fs, target, counter) = (self.fs, self.target, self.counter);
        let size = self.file().bytes.len();
        match step {
            Step::SetXattr => {
                let value = vec![counter; 20];
                fs.setxattr(target, XATTR, &value, XattrMode::Set)?;
                self.file().xattr = Some(value);
            }
            Step::Own => {
                let owner = 1000 + u32::from(counter);
                fs.setattr(target, &SetAttributes { uid: Some(owner), ..Default::default() })?;
                self.file().owner = owner;
            }
            Step::Append => self.write(size, 3000, IoFlags::empty())?,
            Step::AppendDirect => {
                self.write(size.next_multiple_of(BLOCK), 2 * BLOCK, IoFlags::DIRECT)?
            }
            Step::OverwriteDirect => self.write(0, BLOCK, IoFlags::DIRECT)?,
            _ => {
                let size = size.saturating_sub(1000);
                fs.setattr(
                    target,
                    &SetAttributes { size: Some(size as u64), ..Default::default() },
                )?;
                self.file().bytes.truncate(size);
            }
        }
        Ok(())
    }

    fn take_name(&mut self, old: &str) {
        self.names.remove(old);
        self.target_names.retain(|name| name != old);
        self.given_up.insert(old.to_owned());
    }

    fn give_name(&mut self, new: String) {
        self.names.insert(new.clone(), Named::File(self.target));
        self.target_names.push(new);
    }

    pub(super) fn persist(&self, persist: Persist) -> Result<()> {
        match persist {
            Persist::File => self.fs.fsync(self.target, 0, false),
            Persist::FileData => self.fs.fsync(self.target, 0, true),
            Persist::Directory => self.fs.fsync(self.directory, 0, false),
            Persist::DirectoryData => self.fs.fsync(self.directory, 0, true),
            Persist::All => self.fs.sync(),
            Persist::ReadOnly => self.fs.remount("ro"),
            Persist::SynchronousFlag | Persist::DirsyncFlag => Ok(()),
        }
    }

    fn thing(&self, named: Named) -> Thing {
        match named {
            Named::File(ino) => Thing::File(self.files[&ino].clone()),
            Named::Directory => Thing::Directory,
            Named::Whiteout => Thing::Whiteout,
        }
    }

    /// The promises after `persist`.
    pub(super) fn promised(&self, persist: Persist) -> Promised {
        let gone = self.given_up.iter().map(|name| (name.clone(), Promise::Gone));
        let all = self.names.iter();
        let is = |named: &Named| Promise::Is(self.thing(*named));
        match persist {
            Persist::File | Persist::FileData => {
                let mine = all.filter(|(_, named)| **named == Named::File(self.target));
                let mine = mine.map(|(name, named)| (name.clone(), is(named)));
                Promised { names: mine.chain(gone).collect(), complete: false }
            }
            Persist::Directory | Persist::DirectoryData | Persist::DirsyncFlag => {
                let kind = |named: &Named| {
                    if let Named::File(_) = named { Promise::IsFile } else { is(named) }
                };
                Promised {
                    names: all.map(|(name, named)| (name.clone(), kind(named))).collect(),
                    complete: true,
                }
            }
            Persist::All | Persist::ReadOnly | Persist::SynchronousFlag => Promised {
                names: all.map(|(name, named)| (name.clone(), is(named))).collect(),
                complete: true,
            },
        }
    }
}

impl Persist {
    /// The `chattr` flags of a word.
    fn flags(self) -> Option<InodeFlags> {
        match self {
            Self::SynchronousFlag => Some(InodeFlags::SYNC),
            Self::DirsyncFlag => Some(InodeFlags::DIRSYNC),
            _ => None,
        }
    }
}
