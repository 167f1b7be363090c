//! Names, inodes and attributes.

use cairn_base::Ino;
use cairn_vfs::protection::left_permissions;
use cairn_vfs::{
    Attributes, Error, FileKind, FileSystem, NewInode, OpenMode, Result, SetAttributes,
};
use rustix::io::Errno;

use super::Operations;
use crate::convert;
use crate::core::{Core, checked_name};
use crate::counters::Operation;
use crate::credentials::Credentials;
use crate::directory;
use crate::guard::{Ask, Intent};
use crate::listing::Listing;
use crate::wire::abi::{
    AccessIn, AttrOut, BatchForgetIn, CreateIn, CreateOut, EntryOut, FOPEN_KEEP_CACHE, ForgetIn,
    ForgetOne, GETATTR_FH, GetattrIn, LinkIn, MkdirIn, MknodIn, OpenIn, OpenOut, ReadIn, ReleaseIn,
    Rename2In, RenameIn, SetattrIn, StatxOut, fattr, opcode,
};
use crate::wire::{Reply, Request};

const O_ACCMODE: u32 = 3;
const O_APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();

/// The set-group-id bit.
const SET_GID: u32 = 0o2000;
/// The execute bits of owner, group and others.
const EXECUTE: u32 = 0o111;
/// `access` asks for the right to run a file.
const X_OK: u32 = 1;

/// The answer to OPEN: the kernel may keep its cached contents.
const OPENED: OpenOut = OpenOut { fh: 0, open_flags: FOPEN_KEEP_CACHE, padding: 0 };

fn open_mode(flags: u32) -> OpenMode {
    OpenMode { write: flags & O_ACCMODE != 0, direct: flags & super::data::O_DIRECT != 0 }
}

/// The permissions without privileges, if any must be removed. With HANDLE_KILLPRIV_V2 a change of
/// owner always removes privileges, a truncation if the kernel says so.
fn permissions_left(
    fs: &dyn FileSystem,
    ino: Ino,
    set: &SetAttributes,
    caller: &Credentials,
) -> Result<Option<u32>> {
    let found = fs.getattr(ino)?;
    // overlayfs sets the mode of a copied-up file before its owner and its name: the mode must
    // stay.
    if found.links == 0 && set.size.is_none() {
        return Ok(None);
    }
    let left = left_permissions(&found, |gid| caller.is_member(gid));
    Ok(Some(left).filter(|left| *left != found.permissions))
}

impl Operations {
    fn entry(
        &self,
        what: Operation,
        sender: &Credentials,
        parent: Ino,
        mut make: impl FnMut(&dyn FileSystem) -> Result<Attributes>,
    ) -> Result<EntryOut, Errno> {
        self.core.run_taking_space(what, sender, |fs| {
            make(fs).map(|made| self.core.entry_in(fs, parent, &made))
        })
    }

    pub(super) fn lookup(&self, request: &mut Request<'_>) -> Result<EntryOut, Errno> {
        let name = request.name()?;
        let parent = self.core.ino(request.header.nodeid);
        self.core.run(Operation::Lookup, |fs| {
            match fs.lookup(parent, checked_name(name)?) {
                // Node 0: the kernel remembers that there is no such name.
                Err(Error::NotFound) => Ok(self.core.no_entry_in(fs, parent)),
                found => Ok(self.core.entry_in(fs, parent, &found?)),
            }
        })
    }

    pub(super) fn forget(&self, request: &mut Request<'_>) {
        let mut forgotten = Vec::new();
        if request.header.opcode == opcode::FORGET {
            if let Ok(one) = request.take::<ForgetIn>() {
                forgotten.push((request.header.nodeid, one.nlookup));
            }
        } else if let Ok(batch) = request.take::<BatchForgetIn>() {
            let ones = (0..batch.count).map_while(|_| request.take::<ForgetOne>().ok());
            forgotten.extend(ones.map(|one| (one.nodeid, one.nlookup)));
        }
        self.core.removals.forgetting(|| {
            for (node, count) in forgotten {
                self.core.counters.forgotten.add(count);
                // FORGET has no answer, so errors cannot be reported.
                let _ = self.core.run(Operation::Forget, |fs| {
                    fs.forget(self.core.ino(node), count);
                    Ok(())
                });
            }
        });
    }

    fn attributes(&self, found: &Attributes) -> AttrOut {
        let (attr_valid, attr_valid_nsec) = self.core.validity(found);
        AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: self.core.attributes(found) }
    }

    pub(super) fn getattr(&self, request: &mut Request<'_>, reply: Reply) {
        let node = request.header.nodeid;
        let with_handle =
            request.take().is_ok_and(|asked: GetattrIn| asked.getattr_flags & GETATTR_FH != 0);
        let found = match self.core.run(Operation::GetAttr, |fs| fs.getattr(self.core.ino(node))) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let answer = self.attributes(&found);
        if !with_handle || !self.core.guard.watches(&found) {
            return reply.send(&Ok(answer));
        }
        // The sender may be about to write.
        let intent = Intent::of(request.header.pid, node);
        match self.core.guard.check(self.core.fs(), found.flags, intent) {
            Ok(()) => {
                let ask = Ask {
                    reserved: Credentials::of(request).may_use_reserved(self.core.fs()),
                    thread: request.header.pid,
                    node,
                    ino: found.ino,
                    block: found.block_size,
                    intent,
                    answer,
                    reply,
                };
                self.core.guard.answer(self.core.fs(), ask);
            }
            Err(error) => reply.error(error),
        }
    }

    /// As [`Self::getattr`], with the time of creation.
    pub(super) fn statx(&self, request: &Request<'_>) -> Result<StatxOut, Errno> {
        let ino = self.core.ino(request.header.nodeid);
        let found = self.core.run(Operation::Statx, |fs| fs.getattr(ino))?;
        let (attr_valid, attr_valid_nsec) = self.core.validity(&found);
        Ok(StatxOut {
            attr_valid,
            attr_valid_nsec,
            flags: 0,
            spare: [0; 2],
            stat: self.core.statx(&found),
        })
    }

    pub(super) fn setattr(&self, request: &mut Request<'_>) -> Result<AttrOut, Errno> {
        let asked: SetattrIn = request.take()?;
        let given = |bit: u32| asked.valid & bit != 0;
        let (uid, gid) =
            (given(fattr::UID).then_some(asked.uid), given(fattr::GID).then_some(asked.gid));
        let set = SetAttributes {
            permissions: given(fattr::MODE).then_some(asked.mode & 0o7777),
            uid,
            gid,
            size: given(fattr::SIZE).then_some(asked.size),
            atime: given(fattr::ATIME)
                .then(|| convert::set_time(given(fattr::ATIME_NOW), asked.atime, asked.atimensec)),
            mtime: given(fattr::MTIME)
                .then(|| convert::set_time(given(fattr::MTIME_NOW), asked.mtime, asked.mtimensec)),
            ctime: given(fattr::CTIME).then(|| convert::timestamp(asked.ctime, asked.ctimensec)),
            flags: None,
            kill_privileges: false,
        };
        let kill = uid.is_some() || gid.is_some() || given(fattr::KILL_SUIDGID);
        let (ino, sender) = (self.core.ino(request.header.nodeid), Credentials::of(request));
        self.core
            .run_taking_space(Operation::SetAttr, &sender, |fs| {
                if set.size.is_some() || uid.is_some() || gid.is_some() {
                    self.core.drop_unseen_capabilities(fs, ino)?;
                }
                // Empty if the change was only to remove privileges, which the kernel leaves to
                // Cairn.
                if set == SetAttributes::default() {
                    return fs.getattr(ino);
                }
                if let Some(asked) = set.permissions {
                    let permissions = Some(self.permissions_allowed(fs, ino, asked, &sender)?);
                    return fs.setattr(ino, &SetAttributes { permissions, ..set.clone() });
                }
                if !kill {
                    return fs.setattr(ino, &set);
                }
                let permissions = permissions_left(fs, ino, &set, &sender)?;
                fs.setattr(ino, &SetAttributes { permissions, ..set.clone() })
            })
            .map(|found| self.attributes(&found))
    }

    /// The permissions that the sender may set. Without `default_permissions` the kernel does not
    /// check that who sets set-group-id is in the group of the file.
    fn permissions_allowed(
        &self,
        fs: &dyn FileSystem,
        ino: Ino,
        asked: u32,
        sender: &Credentials,
    ) -> Result<u32> {
        let stranger =
            self.core.private && asked & SET_GID != 0 && !sender.is_member(fs.getattr(ino)?.gid);
        Ok(if stranger { asked & !SET_GID } else { asked })
    }

    /// `access` and `chdir`: the kernel asks if it does not check permissions itself. The sender
    /// may do everything but run a file that nobody may run.
    pub(super) fn access(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let asked: AccessIn = request.take()?;
        let ino = self.core.ino(request.header.nodeid);
        self.core.run(Operation::Access, |fs| {
            let found = fs.getattr(ino)?;
            let refused = asked.mask & X_OK != 0
                && found.kind == FileKind::Regular
                && found.permissions & EXECUTE == 0;
            if refused { Err(Error::AccessDenied) } else { Ok(()) }
        })
    }

    pub(super) fn readlink(&self, request: &Request<'_>) -> Result<Vec<u8>, Errno> {
        let ino = self.core.ino(request.header.nodeid);
        self.core.run(Operation::ReadLink, |fs| fs.readlink(ino))
    }

    pub(super) fn symlink(&self, request: &mut Request<'_>) -> Result<EntryOut, Errno> {
        let (name, target) = (request.name()?, request.name()?);
        let (parent, sender) = (self.core.ino(request.header.nodeid), Credentials::of(request));
        let caller = sender.caller(0);
        self.entry(Operation::SymLink, &sender, parent, |fs| {
            fs.create(parent, checked_name(name)?, NewInode::Symlink(target), 0o777, &caller)
        })
    }

    pub(super) fn mknod(&self, request: &mut Request<'_>) -> Result<EntryOut, Errno> {
        let asked: MknodIn = request.take()?;
        let name = request.name()?;
        let (parent, sender) = (self.core.ino(request.header.nodeid), Credentials::of(request));
        let caller = sender.caller(asked.umask);
        self.entry(Operation::MkNod, &sender, parent, |fs| {
            let new = convert::new_node(asked.mode, asked.rdev)?;
            fs.create(parent, checked_name(name)?, new, asked.mode & 0o7777, &caller)
        })
    }

    pub(super) fn mkdir(&self, request: &mut Request<'_>) -> Result<EntryOut, Errno> {
        let asked: MkdirIn = request.take()?;
        let name = request.name()?;
        let (parent, sender) = (self.core.ino(request.header.nodeid), Credentials::of(request));
        let caller = sender.caller(asked.umask);
        self.entry(Operation::MkDir, &sender, parent, |fs| {
            fs.create(
                parent,
                checked_name(name)?,
                NewInode::Directory,
                asked.mode & 0o7777,
                &caller,
            )
        })
    }

    pub(super) fn unlink(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let (parent, name) = (self.core.ino(request.header.nodeid), request.name()?);
        let done = self.core.run(Operation::Unlink, |fs| fs.unlink(parent, checked_name(name)?));
        if done.is_ok() {
            self.core.removals.note();
        }
        done
    }

    pub(super) fn rmdir(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let (parent, name) = (self.core.ino(request.header.nodeid), request.name()?);
        let done = self.core.run(Operation::RmDir, |fs| fs.rmdir(parent, checked_name(name)?));
        if done.is_ok() {
            self.core.removals.note();
        }
        done
    }

    pub(super) fn rename(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let asked: Rename2In = if request.header.opcode == opcode::RENAME {
            Rename2In { newdir: request.take::<RenameIn>()?.newdir, ..Rename2In::default() }
        } else {
            request.take()?
        };
        let (from, to) = (self.core.ino(request.header.nodeid), self.core.ino(asked.newdir));
        let (name, new_name) = (request.name()?, request.name()?);
        let sender = Credentials::of(request);
        let caller = sender.caller(0);
        let done = self.core.run_taking_space(Operation::Rename, &sender, |fs| {
            let mode = convert::rename_mode(asked.flags, caller)?;
            fs.rename(from, checked_name(name)?, to, checked_name(new_name)?, mode)
        });
        if done.is_ok() {
            self.core.removals.note();
        }
        self.core.names_changed(done, &[to, from])
    }

    pub(super) fn link(&self, request: &mut Request<'_>) -> Result<EntryOut, Errno> {
        let asked: LinkIn = request.take()?;
        let name = request.name()?;
        let (ino, parent) = (self.core.ino(asked.oldnodeid), self.core.ino(request.header.nodeid));
        self.entry(Operation::Link, &Credentials::of(request), parent, |fs| {
            fs.link(ino, parent, checked_name(name)?)
        })
    }

    /// With `no_open` the kernel is told once that there is no CREATE. It then makes files with
    /// MKNOD and opens them with OPEN, and learns so that there is no OPEN: from then on a new file
    /// costs neither OPEN nor RELEASE. A program that only creates files would otherwise never send
    /// an OPEN.
    pub(super) fn create(&self, request: &mut Request<'_>) -> Result<CreateOut, Errno> {
        if self.core.no_open {
            return Err(Errno::NOSYS);
        }
        let asked: CreateIn = request.take()?;
        let name = request.name()?;
        let (parent, sender) = (self.core.ino(request.header.nodeid), Credentials::of(request));
        let caller = sender.caller(asked.umask);
        self.core.run_taking_space(Operation::Create, &sender, |fs| {
            let made = fs.create(
                parent,
                checked_name(name)?,
                NewInode::Regular,
                asked.mode & 0o7777,
                &caller,
            )?;
            self.created(fs, (parent, &made), asked.flags, &sender)
        })
    }

    pub(super) fn tmpfile(&self, request: &mut Request<'_>) -> Result<CreateOut, Errno> {
        let asked: CreateIn = request.take()?;
        let (parent, sender) = (self.core.ino(request.header.nodeid), Credentials::of(request));
        let caller = sender.caller(asked.umask);
        self.core.run_taking_space(Operation::TmpFile, &sender, |fs| {
            let made = fs.tmpfile(parent, asked.mode & 0o7777, &caller)?;
            self.created(fs, (parent, &made), asked.flags, &sender)
        })
    }

    fn created(
        &self,
        fs: &dyn FileSystem,
        (parent, made): (Ino, &Attributes),
        flags: u32,
        sender: &Credentials,
    ) -> Result<CreateOut> {
        // A file without a name, with `no_open`.
        let fh = if self.core.no_open {
            0
        } else {
            let mode = open_mode(flags);
            let fh = fs.open(made.ino, mode).inspect_err(|_| fs.forget(made.ino, 1))?;
            self.handle(self.core.node(made.ino), fh, mode, sender)
        };
        let entry = self.core.entry_in(fs, parent, made);
        Ok(CreateOut { entry, open: OpenOut { fh, ..OPENED } })
    }

    pub(super) fn open(&self, request: &mut Request<'_>) -> Result<OpenOut, Errno> {
        if self.core.no_open {
            return Err(Errno::NOSYS);
        }
        let asked: OpenIn = request.take()?;
        let ino = self.core.ino(request.header.nodeid);
        let mode = open_mode(asked.flags);
        let mut was_empty = false;
        let fh = self.core.run(Operation::Open, |fs| {
            if mode.write {
                let append = asked.flags & O_APPEND != 0 && asked.flags & O_TRUNC == 0;
                let found = fs.getattr(ino)?;
                found.flags.check_open(mode.write, append)?;
                was_empty = found.sectors == 0;
            }
            fs.open(ino, mode)
        })?;
        let node = request.header.nodeid;
        let fh = self.handle(node, fh, mode, &Credentials::of(request));
        if was_empty && self.core.kernel.has_writeback_cache() {
            // From now on it may have data without blocks ([`Core::sectors`]).
            self.core.kernel.attributes_changed(node);
        }
        Ok(OpenOut { fh, ..OPENED })
    }

    /// The number of an opened handle for the kernel.
    fn handle(&self, node: u64, fh: u64, mode: OpenMode, sender: &Credentials) -> u64 {
        if mode.write {
            let admitted = sender.may_use_reserved_later(self.core.fs());
            self.core.writers.opened(node, fh, admitted)
        } else {
            fh
        }
    }

    pub(super) fn release(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let asked: ReleaseIn = request.take()?;
        let ino = self.core.ino(request.header.nodeid);
        let (fh, last) = self.core.writers.released(request.header.nodeid, asked.fh);
        if last {
            self.core.kernel.closed(request.header.nodeid);
        }
        self.core.run(Operation::Release, |fs| {
            if fh != 0 {
                fs.release(ino, fh);
            }
            Ok(())
        })
    }

    pub(super) fn readdir(&self, request: &mut Request<'_>) -> Result<Vec<u8>, Errno> {
        self.list(Operation::ReadDir, request, directory::read)
    }

    pub(super) fn readdirplus(&self, request: &mut Request<'_>) -> Result<Vec<u8>, Errno> {
        self.list(Operation::ReadDirPlus, request, directory::read_plus)
    }

    fn list(
        &self,
        what: Operation,
        request: &mut Request<'_>,
        fill: fn(&Core, &dyn FileSystem, u64, u64, &mut Listing) -> Result<()>,
    ) -> Result<Vec<u8>, Errno> {
        let asked: ReadIn = request.take()?;
        let mut listing = Listing::new(asked.size as usize);
        let node = request.header.nodeid;
        self.core.run(what, |fs| {
            let filled = fill(&self.core, fs, node, asked.offset, &mut listing);
            self.core.damaged.answer(node, asked.offset, &listing, filled)
        })?;
        Ok(listing.into_bytes())
    }
}
