//! Operations on a full volume, or without memory: each succeeds completely or changes nothing. On
//! a full volume, operations that remove always succeed.
//!
//! This module is independent of the format: the caller makes the volume, and checks it with a
//! foreign judge afterwards.

use std::cell::Cell;
use std::path::Path;

use cairn_base::Ino;
use cairn_base::memory::faults;
use cairn_vfs::acl::{ACCESS, Acl, DEFAULT, Entry, Tag};
use cairn_vfs::{
    AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, RenameMode, Result, SetAttributes,
    XattrMode,
};

use crate::transfer;
use crate::tree::{SnapshotOptions, digest_volume};

/// Names in the directories that [`prepare`] makes.
const NAMES: usize = 6;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// An inode by its path.
fn find(fs: &dyn FileSystem, path: &str) -> Result<Ino> {
    path.split('/').filter(|name| !name.is_empty()).try_fold(fs.root(), |parent, name| {
        let found = fs.lookup(parent, name.as_bytes())?;
        fs.forget(found.ino, 1);
        Ok(found.ino)
    })
}

fn parts(path: &str) -> (&str, &[u8]) {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    (parent, name.as_bytes())
}

/// An access list with so many named users.
fn list(users: u32) -> Vec<u8> {
    let entry = |tag| Entry { tag, permissions: 0o6 };
    let mut entries: Vec<Entry> = (0..users).map(|user| entry(Tag::User(1000 + user))).collect();
    entries.extend([Tag::UserObj, Tag::GroupObj, Tag::Mask, Tag::Other].map(entry));
    Acl::new(entries).expect("a valid list").to_xattr()
}

/// Lengths of the files in each directory, in turn.
const LENGTHS: [usize; 3] = [40, 3000, 70_000];

/// The tree of [`prepare`] in a directory of the host, for a tool that makes a volume of it.
///
/// # Panics
/// Something cannot be made.
pub fn prepare_on_host(root: &Path) {
    for directory in ["one", "two"] {
        std::fs::create_dir_all(root.join(directory).join("inner")).unwrap();
        for n in 0..NAMES {
            let path = root.join(directory).join(format!("f{n}"));
            std::fs::write(path, bytes(n as u64, LENGTHS[n % 3])).unwrap();
        }
        std::os::unix::fs::symlink("f0", root.join(directory).join("link")).unwrap();
    }
}

/// The files that the operations use, made while there is room.
///
/// # Panics
/// Something cannot be made.
pub fn prepare(fs: &dyn FileSystem) {
    let create = |parent: Ino, name: &str, new: NewInode<'_>| {
        let made = fs.create(parent, name.as_bytes(), new.clone(), 0o755, &Caller::ROOT).unwrap();
        fs.forget(made.ino, 1);
        made.ino
    };
    for directory in ["one", "two"] {
        let parent = create(fs.root(), directory, NewInode::Directory);
        for n in 0..NAMES {
            let file = create(parent, &format!("f{n}"), NewInode::Regular);
            fs.write(file, 0, &bytes(n as u64, LENGTHS[n % 3]), IoFlags::empty()).unwrap();
        }
        create(parent, "inner", NewInode::Directory);
        create(parent, "link", NewInode::Symlink(b"f0"));
    }
    fs.sync().unwrap();
}

/// Attributes for the prepared tree.
///
/// # Panics
/// One cannot be set.
pub fn decorate(fs: &dyn FileSystem) {
    for directory in ["one", "two"] {
        for n in 0..NAMES {
            let file = find(fs, &format!("{directory}/f{n}")).unwrap();
            fs.setxattr(file, b"user.short", b"value", XattrMode::Set).unwrap();
        }
        fs.setxattr(
            find(fs, &format!("{directory}/f3")).unwrap(),
            ACCESS,
            &list(3),
            XattrMode::Set,
        )
        .unwrap();
    }
    fs.sync().unwrap();
}

/// Takes all the room there is.
///
/// # Panics
/// The volume never becomes full, or another error comes first.
pub fn fill(fs: &dyn FileSystem) {
    let made = fs.create(fs.root(), b"filler", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    let mut at = 0;
    for piece in [1 << 20, 64 << 10, 4096, 1024] {
        loop {
            match fs.write(made.ino, at, &bytes(at, piece), IoFlags::empty()) {
                Ok(count) => at += count as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("at {at}: {error}"),
            }
            assert!(at < 1 << 30, "no end at {at}");
        }
    }
    fs.forget(made.ino, 1);
    fs.sync().unwrap();
}

/// True if the operation may fail for lack of space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Space,
    Nothing,
}

/// The resource that is short.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scarce {
    Space,
    Memory,
}

struct Round<'f> {
    fs: &'f dyn FileSystem,
    label: &'f str,
    scarce: Scarce,
    /// Allocations that were refused.
    refused: Cell<u64>,
    /// Operations that failed because of it.
    failed: Cell<u64>,
}

impl Round<'_> {
    fn snapshot(&self) -> String {
        let options = SnapshotOptions { times: false, ..SnapshotOptions::default() };
        digest_volume(self.fs, options)
            .unwrap_or_else(|error| panic!("{}: {error}", self.label))
            .to_text()
    }

    /// Does an operation, which must succeed completely or change nothing.
    fn attempt(&self, what: &str, needs: Needs, operation: impl Fn(&dyn FileSystem) -> Result<()>) {
        let before = self.snapshot();
        let outcome = match self.scarce {
            Scarce::Space => operation(self.fs),
            Scarce::Memory => self.refuse(what, &before, operation),
        };
        match outcome {
            Ok(()) => {}
            Err(Error::NoSpace | Error::NoAttributeSpace | Error::TooBig)
                if needs == Needs::Space =>
            {
                assert!(
                    self.snapshot() == before,
                    "{}: {what} found no space, and has changed something",
                    self.label
                );
            }
            Err(error) => panic!("{}: {what}: {error}", self.label),
        }
    }
}

impl Round<'_> {
    /// Makes the system refuse all allocations from the n-th one on, for every n.
    fn refuse(
        &self,
        what: &str,
        before: &str,
        operation: impl Fn(&dyn FileSystem) -> Result<()>,
    ) -> Result<()> {
        for n in 0..MOST_ALLOCATIONS {
            faults::refuse_after(n);
            let outcome = operation(self.fs);
            let refused = faults::end();
            self.refused.set(self.refused.get() + refused);
            let Err(Error::NoMemory(_)) = outcome else { return outcome };
            assert!(refused > 0, "{}: {what}: nothing was refused", self.label);
            self.failed.set(self.failed.get() + 1);
            assert!(
                self.snapshot() == before,
                "{}: {what} had no memory at {n}, and has changed something",
                self.label
            );
        }
        panic!("{}: {what} asks for memory without end", self.label);
    }
}

/// Most allocations of one operation.
const MOST_ALLOCATIONS: u64 = 10_000;

/// Does all operations on the files of [`prepare`], on a system that refuses memory. Returns how
/// many allocations were refused, and how many operations failed.
///
/// # Panics
/// An operation was half done, or failed in another way.
pub fn operate_without_memory(fs: &dyn FileSystem, label: &str) -> (u64, u64) {
    let made = fs.create(fs.root(), b"filler", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    fs.write(made.ino, 0, &bytes(7, 3 << 20), IoFlags::empty()).unwrap();
    fs.sync().unwrap();
    let round =
        Round { fs, label, scarce: Scarce::Memory, refused: Cell::new(0), failed: Cell::new(0) };
    transfers(&round, made.ino);
    names(&round);
    attributes(&round);
    contents(&round);
    removals(&round);
    fs.forget(made.ino, 1);
    (round.refused.get(), round.failed.get())
}

/// All kinds of reads and writes, of cached and of uncached data.
fn transfers(round: &Round<'_>, ino: Ino) {
    let whole = bytes(7, 3 << 20);
    for flags in [IoFlags::empty(), IoFlags::DIRECT, IoFlags::DONTCACHE] {
        round.attempt("a read", Needs::Nothing, |fs| {
            let mut buf = vec![0; 1 << 20];
            let count = transfer::read(fs, ino, 1 << 20, &mut buf, flags)?;
            assert!(
                buf[..count] == whole[1 << 20..(1 << 20) + count],
                "{}: other bytes",
                round.label
            );
            Ok(())
        });
        for (at, len) in [(4096, 64 << 10), (100, 5000), (2 << 20, 1 << 20)] {
            round.attempt("a write of the same", Needs::Nothing, |fs| {
                transfer::write(fs, ino, at, &whole[at as usize..at as usize + len], flags)
                    .map(drop)
            });
        }
    }
    round.attempt("a lent read", Needs::Nothing, |fs| {
        fs.read_shared(ino, 0, 3 << 20, IoFlags::empty(), &mut |pieces| {
            assert!(
                pieces.concat() == whole[..pieces.iter().map(|piece| piece.len()).sum()],
                "{}",
                round.label
            );
        })
        .map(drop)
    });
    round.attempt("an fsync", Needs::Nothing, |fs| {
        fs.write(ino, 0, &whole[..300_000], IoFlags::empty())?;
        fs.fsync(ino, 0, false)
    });
    round.attempt("a sync", Needs::Nothing, |fs| fs.sync());
}

/// Does all operations on a full volume with the files of [`prepare`].
///
/// # Panics
/// An operation was half done, or one that removes found no space.
pub fn operate(fs: &dyn FileSystem, label: &str) {
    let round =
        Round { fs, label, scarce: Scarce::Space, refused: Cell::new(0), failed: Cell::new(0) };
    names(&round);
    attributes(&round);
    contents(&round);
    removals(&round);
}

fn names(round: &Round<'_>) {
    let long = "n".repeat(200);
    for name in ["new", &long] {
        let make = |what: &str, new: NewInode<'_>| {
            round.attempt(what, Needs::Space, |fs| {
                let made = fs.create(
                    find(fs, "one")?,
                    name.as_bytes(),
                    new.clone(),
                    0o755,
                    &Caller::ROOT,
                )?;
                fs.forget(made.ino, 1);
                fs.unlink(find(fs, "one")?, name.as_bytes())
            });
        };
        make("create", NewInode::Regular);
        make("mknod", NewInode::Fifo);
        make("a short symlink", NewInode::Symlink(b"target"));
        make("a long symlink", NewInode::Symlink(&[b't'; 900]));
        round.attempt("mkdir", Needs::Space, |fs| {
            let made = fs.create(
                find(fs, "one")?,
                name.as_bytes(),
                NewInode::Directory,
                0o755,
                &Caller::ROOT,
            )?;
            fs.forget(made.ino, 1);
            fs.rmdir(find(fs, "one")?, name.as_bytes())
        });
        round.attempt("link", Needs::Space, |fs| {
            let linked = fs.link(find(fs, "one/f0")?, find(fs, "two")?, name.as_bytes())?;
            fs.forget(linked.ino, 1);
            fs.unlink(find(fs, "two")?, name.as_bytes())
        });
        let moves = [
            ("a rename into another directory", "one", "f1", "two", name.to_owned()),
            ("a rename in one directory", "two", "f1", "two", format!("{name}2")),
            ("a move of a directory", "one", "inner", "two", format!("{name}3")),
        ];
        for (what, from, old, to, new) in moves {
            round.attempt(what, Needs::Space, |fs| {
                let (from, to, old, new) =
                    (find(fs, from)?, find(fs, to)?, old.as_bytes(), new.as_bytes());
                fs.rename(from, old, to, new, RenameMode::NoReplace)?;
                // Its old place is still there.
                fs.rename(to, new, from, old, RenameMode::Replace)
                    .map_err(|_| Error::Invalid("the way back"))
            });
        }
    }
    round.attempt("tmpfile", Needs::Space, |fs| {
        let made = fs.tmpfile(find(fs, "one")?, 0o600, &Caller::ROOT)?;
        fs.forget(made.ino, 1);
        Ok(())
    });
    round.attempt("an exchange", Needs::Nothing, |fs| {
        fs.rename(find(fs, "one")?, b"f0", find(fs, "two")?, b"link", RenameMode::Exchange)
    });
    round.attempt("a rename over a file", Needs::Nothing, |fs| {
        fs.rename(find(fs, "one")?, b"f2", find(fs, "two")?, b"f2", RenameMode::Replace)
    });
}

fn attributes(round: &Round<'_>) {
    for path in ["one/f3", "one/f4", "two", "two/f3"] {
        for len in [1, 60, 300, 900, 3000, 5000] {
            round.attempt("setxattr", Needs::Space, |fs| {
                fs.setxattr(find(fs, path)?, b"user.new", &bytes(len as u64, len), XattrMode::Set)
            });
        }
        for users in [1, 40, 100, 400] {
            round.attempt("an access list", Needs::Space, |fs| {
                fs.setxattr(find(fs, path)?, ACCESS, &list(users), XattrMode::Set)
            });
        }
        round.attempt("chmod", Needs::Nothing, |fs| {
            let set = SetAttributes { permissions: Some(0o640), ..SetAttributes::default() };
            fs.setattr(find(fs, path)?, &set).map(drop)
        });
    }
    round.attempt("a default list", Needs::Space, |fs| {
        fs.setxattr(find(fs, "two")?, DEFAULT, &list(2), XattrMode::Set)
    });
    round.attempt("a removal of an access list", Needs::Nothing, |fs| {
        fs.removexattr(find(fs, "two/f3")?, ACCESS)
    });
    round.attempt("a removal of an attribute", Needs::Nothing, |fs| {
        fs.removexattr(find(fs, "one/f4")?, b"user.short")
    });
    round.attempt("chown", Needs::Nothing, |fs| {
        fs.setattr(
            find(fs, "one/f4")?,
            &SetAttributes { uid: Some(77), ..SetAttributes::default() },
        )
        .map(drop)
    });
}

fn contents(round: &Round<'_>) {
    let resize = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    for path in ["one/f3", "one/f4", "one/f5", "two/f3", "two/f4", "two/f5"] {
        round.attempt("an appending write", Needs::Space, |fs| {
            fs.write(find(fs, path)?, 0, &bytes(1, 5000), IoFlags::APPEND).map(drop)
        });
        round.attempt("fallocate", Needs::Space, |fs| {
            match fs.allocate(find(fs, path)?, AllocateMode::KeepSize, 1 << 20, 64 << 20) {
                Err(Error::Unsupported(_)) => Ok(()),
                done => done,
            }
        });
        round.attempt("a hole", Needs::Nothing, |fs| {
            let size = fs.getattr(find(fs, path)?)?.size;
            fs.allocate(find(fs, path)?, AllocateMode::PunchHole, size / 3, size / 3)
        });
        round.attempt("a truncation", Needs::Nothing, |fs| {
            let size = fs.getattr(find(fs, path)?)?.size;
            fs.setattr(find(fs, path)?, &resize(size / 2)).map(drop)
        });
        round.attempt("a truncation to nothing", Needs::Nothing, |fs| {
            fs.setattr(find(fs, path)?, &resize(0)).map(drop)
        });
    }
    round.attempt("a copy", Needs::Space, |fs| {
        fs.copy_range(find(fs, "filler")?, 0, find(fs, "one/f5")?, 0, 1 << 20).map(drop)
    });
}

/// Everything can be removed.
fn removals(round: &Round<'_>) {
    fn empty(fs: &dyn FileSystem, directory: &str) -> Result<()> {
        let parent = find(fs, directory)?;
        let mut names = Vec::new();
        fs.readdir(parent, 0, &mut |entry| {
            names.push((entry.name.clone().into_bytes(), entry.ino));
            true
        })?;
        for (name, ino) in names.into_iter().filter(|(name, _)| name != b"." && name != b"..") {
            if fs.getattr(ino)?.kind == cairn_vfs::FileKind::Directory {
                empty(fs, &format!("{directory}/{}", String::from_utf8_lossy(&name)))?;
                fs.rmdir(parent, &name)?;
            } else {
                fs.unlink(parent, &name)?;
            }
        }
        Ok(())
    }
    for directory in ["one", "two"] {
        round.attempt("removing everything", Needs::Nothing, |fs| {
            empty(fs, directory)?;
            let (parent, name) = parts(directory);
            fs.rmdir(find(fs, parent)?, name)
        });
    }
}
