//! The answers of the empty server, whatever brings the requests.

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use zerocopy::{Immutable, IntoBytes};

use super::tree::{self, DIRECTORY, Tree};
use crate::wire::abi::{
    Attr, AttrOut, BatchForgetIn, CreateIn, CreateOut, Dirent, EntryOut, FOPEN_KEEP_CACHE,
    ForgetIn, ForgetOne, LinkIn, MkdirIn, MknodIn, OpenOut, OutHeader, ReadIn, Rename2In, RenameIn,
    SetattrIn, StatfsOut, WriteIn, WriteOut, fattr, opcode,
};
use crate::wire::{MAX_WRITE, Request};

/// How long the kernel may keep names and attributes: as with Cairn.
const TIMEOUT: u64 = 3600;
static ZEROS: [u8; MAX_WRITE as usize] = [0; MAX_WRITE as usize];

/// Which requests the kernel sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Those that it sends to Cairn with its default options.
    AsCairn,
    /// Without `default_permissions`; open, close and extended attributes cost no request.
    Fewest,
}

/// What the empty server does.
#[derive(Clone, Copy, Debug)]
pub struct Empty {
    /// Which requests the kernel sends.
    pub requests: Requests,
    /// Written data is kept in memory. Otherwise reads return zeros.
    pub keeps: bool,
    /// Requests come through FUSE over io_uring.
    pub ring: bool,
}

/// What follows the header of an answer.
#[derive(Clone, Copy)]
enum Body {
    /// What is in `out`.
    Out,
    /// So many zero bytes.
    Zeros(usize),
    /// Bytes of a node, from this offset.
    Kept(u64, u64, usize),
    /// Nothing is answered.
    Silence,
}

/// The header of an answer, and what follows it.
pub(super) struct Answer<'a> {
    pub(super) header: OutHeader,
    pub(super) pieces: Vec<&'a [u8]>,
}

/// The tree, and the answer under way.
pub(super) struct Answerer {
    requests: Requests,
    keeps: bool,
    tree: Tree,
    out: Vec<u8>,
    served: u64,
}

impl Answerer {
    pub(super) fn new(empty: Empty) -> Self {
        let owner = Attr {
            mode: DIRECTORY | 0o755,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..Attr::default()
        };
        Self {
            requests: empty.requests,
            keeps: empty.keeps,
            tree: Tree::new(owner),
            out: Vec::new(),
            served: 0,
        }
    }

    /// Carries a request out. `None` if it wants no answer.
    pub(super) fn serve(&mut self, mut request: Request<'_>) -> Option<Answer<'_>> {
        self.served += 1;
        self.out.clear();
        let unique = request.header.unique;
        let (error, pieces) = match self.answer(&mut request) {
            Ok(Body::Silence) => return None,
            Ok(Body::Out) => (0, vec![&*self.out]),
            Ok(Body::Zeros(len)) => (0, vec![&ZEROS[..len]]),
            Ok(Body::Kept(node, offset, len)) => (0, self.tree.data(node, offset, len)),
            Err(error) => (-error.raw_os_error(), Vec::new()),
        };
        let len = size_of::<OutHeader>() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        Some(Answer { header: OutHeader { len: len as u32, error, unique }, pieces })
    }

    fn say<T: IntoBytes + Immutable>(&mut self, answer: &T) -> Result<Body, Errno> {
        self.out.extend_from_slice(answer.as_bytes());
        Ok(Body::Out)
    }

    fn answer(&mut self, request: &mut Request<'_>) -> Result<Body, Errno> {
        let here = request.header.nodeid;
        match request.header.opcode {
            opcode::LOOKUP => self.look_up(here, request.name()?),
            opcode::GETATTR => {
                let attr = self.tree.node(here)?.attr;
                self.say(&attributes(attr))
            }
            opcode::SETATTR => self.set_attributes(here, &request.take()?),
            // The kernel then makes files with MKNOD, and learns that there is no OPEN.
            opcode::CREATE if self.requests == Requests::Fewest => Err(Errno::NOSYS),
            opcode::CREATE => self.create(here, request),
            opcode::MKNOD | opcode::MKDIR | opcode::SYMLINK | opcode::LINK => {
                self.add(here, request)
            }
            opcode::UNLINK | opcode::RMDIR => {
                self.tree.unlink(here, request.name()?)?;
                Ok(Body::Out)
            }
            opcode::RENAME => {
                let to = request.take::<RenameIn>()?.newdir;
                self.rename(here, to, request)
            }
            opcode::RENAME2 => {
                let to = request.take::<Rename2In>()?.newdir;
                self.rename(here, to, request)
            }
            opcode::READLINK => {
                let target = &self.tree.node(here)?.target;
                self.out.extend_from_slice(target);
                Ok(Body::Out)
            }
            opcode::READ => self.read(here, &request.take()?),
            opcode::WRITE => self.write(here, request),
            opcode::READDIR | opcode::READDIRPLUS => self.list(here, request),
            opcode::STATFS => self.statfs(),
            opcode::FORGET | opcode::BATCH_FORGET => self.forget(here, request),
            opcode::OPEN if self.requests == Requests::AsCairn => {
                self.say(&OpenOut { open_flags: FOPEN_KEEP_CACHE, ..OpenOut::default() })
            }
            opcode::GETXATTR | opcode::LISTXATTR if self.requests == Requests::AsCairn => {
                Err(Errno::NODATA)
            }
            opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::FSYNC
            | opcode::FSYNCDIR
            | opcode::SYNCFS
            | opcode::FALLOCATE
            | opcode::DESTROY => Ok(Body::Out),
            _ => Err(Errno::NOSYS),
        }
    }

    fn look_up(&mut self, parent: u64, name: &[u8]) -> Result<Body, Errno> {
        let found = match self.tree.find(parent, name)? {
            Some(node) => entry(self.tree.refer(node)?),
            None => EntryOut { entry_valid: TIMEOUT, ..EntryOut::default() },
        };
        self.say(&found)
    }

    /// Makes a node with a name, and refers the kernel to it.
    fn make(
        &mut self,
        parent: u64,
        name: &[u8],
        attr: Attr,
        target: &[u8],
    ) -> Result<EntryOut, Errno> {
        if self.tree.find(parent, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        let node = self.tree.add(attr, target);
        self.tree.link(parent, name, node)?;
        Ok(entry(self.tree.refer(node)?))
    }

    fn create(&mut self, parent: u64, request: &mut Request<'_>) -> Result<Body, Errno> {
        let create: CreateIn = request.take()?;
        let attr = new_file(request, create.mode & !create.umask);
        let entry = self.make(parent, request.name()?, attr, b"")?;
        let open = OpenOut { open_flags: FOPEN_KEEP_CACHE, ..OpenOut::default() };
        self.say(&CreateOut { entry, open })
    }

    fn add(&mut self, parent: u64, request: &mut Request<'_>) -> Result<Body, Errno> {
        let made = match request.header.opcode {
            opcode::MKNOD => {
                let mknod: MknodIn = request.take()?;
                let attr =
                    Attr { rdev: mknod.rdev, ..new_file(request, mknod.mode & !mknod.umask) };
                self.make(parent, request.name()?, attr, b"")?
            }
            opcode::MKDIR => {
                let mkdir: MkdirIn = request.take()?;
                let mode = DIRECTORY | mkdir.mode & !mkdir.umask & 0o7777;
                let attr = Attr { size: 4096, ..new_file(request, mode) };
                self.make(parent, request.name()?, attr, b"")?
            }
            opcode::SYMLINK => {
                let (name, target) = (request.name()?, request.name()?);
                let attr = Attr { size: target.len() as u64, ..new_file(request, 0o120_777) };
                self.make(parent, name, attr, target)?
            }
            _ => {
                let node = request.take::<LinkIn>()?.oldnodeid;
                self.tree.link(parent, request.name()?, node)?;
                self.tree.node(node)?.attr.nlink += 1;
                entry(self.tree.refer(node)?)
            }
        };
        self.say(&made)
    }

    fn rename(&mut self, from: u64, to: u64, request: &mut Request<'_>) -> Result<Body, Errno> {
        let (old, new) = (request.name()?, request.name()?);
        self.tree.rename((from, old), (to, new))?;
        Ok(Body::Out)
    }

    fn set_attributes(&mut self, node: u64, set: &SetattrIn) -> Result<Body, Errno> {
        let attr = &mut self.tree.node(node)?.attr;
        let has = |flag: u32| set.valid & flag != 0;
        if has(fattr::MODE) {
            attr.mode = attr.mode & tree::KIND | set.mode & 0o7777;
        }
        if has(fattr::UID) {
            attr.uid = set.uid;
        }
        if has(fattr::GID) {
            attr.gid = set.gid;
        }
        if has(fattr::SIZE) {
            resize(attr, set.size);
        }
        if has(fattr::ATIME) {
            (attr.atime, attr.atimensec) = (set.atime, set.atimensec);
        }
        if has(fattr::MTIME) {
            (attr.mtime, attr.mtimensec) = (set.mtime, set.mtimensec);
        }
        if has(fattr::CTIME) {
            (attr.ctime, attr.ctimensec) = (set.ctime, set.ctimensec);
        }
        let answer = attributes(*attr);
        self.say(&answer)
    }

    fn read(&mut self, node: u64, wanted: &ReadIn) -> Result<Body, Errno> {
        let left = self.tree.node(node)?.attr.size.saturating_sub(wanted.offset);
        let len = left.min(u64::from(wanted.size.min(MAX_WRITE))) as usize;
        Ok(if self.keeps { Body::Kept(node, wanted.offset, len) } else { Body::Zeros(len) })
    }

    fn write(&mut self, node: u64, request: &mut Request<'_>) -> Result<Body, Errno> {
        let write: WriteIn = request.take()?;
        if self.keeps {
            self.tree.keep(node, write.offset, request.bytes(write.size)?)?;
        }
        let attr = &mut self.tree.node(node)?.attr;
        resize(attr, attr.size.max(write.offset.saturating_add(write.size.into())));
        self.say(&WriteOut { size: write.size, padding: 0 })
    }

    /// A listing without `.` and `..`, which programs do not need.
    fn list(&mut self, node: u64, request: &mut Request<'_>) -> Result<Body, Errno> {
        let read: ReadIn = request.take()?;
        let plus = request.header.opcode == opcode::READDIRPLUS;
        let head = if plus { size_of::<EntryOut>() } else { 0 };
        let out = &mut self.out;
        let mut listed = Vec::new();
        self.tree.list(node, read.offset, |place, name, attr| {
            let size = head + (size_of::<Dirent>() + name.len()).next_multiple_of(8);
            let end = out.len() + size;
            if end > read.size as usize {
                return false;
            }
            if plus {
                out.extend_from_slice(entry(*attr).as_bytes());
                listed.push(attr.ino);
            }
            let kind = (attr.mode & tree::KIND) >> 12;
            let dirent = Dirent { ino: attr.ino, off: place, namelen: name.len() as u32, kind };
            out.extend_from_slice(dirent.as_bytes());
            out.extend_from_slice(name);
            out.resize(end, 0);
            true
        })?;
        for node in listed {
            self.tree.refer(node)?;
        }
        Ok(Body::Out)
    }

    fn statfs(&mut self) -> Result<Body, Errno> {
        let many = 1 << 40;
        let served = self.served;
        self.say(&StatfsOut {
            blocks: many,
            bfree: many,
            bavail: many,
            files: many,
            ffree: served,
            bsize: 4096,
            namelen: 255,
            frsize: 4096,
            ..StatfsOut::default()
        })
    }

    fn forget(&mut self, node: u64, request: &mut Request<'_>) -> Result<Body, Errno> {
        if request.header.opcode == opcode::FORGET {
            self.tree.forget(node, request.take::<ForgetIn>()?.nlookup);
        } else {
            for _ in 0..request.take::<BatchForgetIn>()?.count {
                let one: ForgetOne = request.take()?;
                self.tree.forget(one.nodeid, one.nlookup);
            }
        }
        Ok(Body::Silence)
    }
}

/// Its times come from the clock with which the kernel stamps files, as Cairn's do: the kernel then
/// finds them as it would set them.
fn new_file(request: &Request<'_>, mode: u32) -> Attr {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Attr {
        mode,
        nlink: 1,
        uid: request.header.uid,
        gid: request.header.gid,
        atime: seconds,
        mtime: seconds,
        ctime: seconds,
        atimensec: nanoseconds,
        mtimensec: nanoseconds,
        ctimensec: nanoseconds,
        ..Attr::default()
    }
}

fn resize(attr: &mut Attr, size: u64) {
    (attr.size, attr.blocks) = (size, size.div_ceil(512));
}

fn attributes(attr: Attr) -> AttrOut {
    AttrOut { attr_valid: TIMEOUT, attr, ..AttrOut::default() }
}

fn entry(attr: Attr) -> EntryOut {
    EntryOut {
        nodeid: attr.ino,
        entry_valid: TIMEOUT,
        attr_valid: TIMEOUT,
        attr,
        ..EntryOut::default()
    }
}
