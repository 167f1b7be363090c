//! One method a FUSE request: translate, ask, answer. No policy lives here but the INIT flags.
//!
//! Requests that may wait long for the disk go to the pool; all others are answered by the thread that read them.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use cairn_base::Ino;
use cairn_vfs::{
    Attributes, Caller, Error, FileSystem, IoFlags, NewInode, OpenMode, Result, Seek, SetAttributes, XattrMode,
};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::convert;
use crate::core::{Core, name};
use crate::directory;
use crate::ioctl::Ioctl;
use crate::pool::Pool;

const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits().cast_signed();
const MAX_WRITE: u32 = 1 << 20;
const MAX_BACKGROUND: u16 = 64;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

thread_local! {
    /// Read requests of a thread are answered from here: fresh memory costs more than the copy.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The filesystem as fuser wants it.
pub(crate) struct Adapter {
    core: Arc<Core>,
    pool: Arc<Pool>,
}

impl Adapter {
    pub(crate) fn new(core: Arc<Core>, pool: Arc<Pool>) -> Self {
        Self { core, pool }
    }

    fn run<T>(&self, what: &'static str, operation: impl FnOnce(&dyn FileSystem) -> Result<T>) -> Result<T, Errno> {
        self.core.run(what, operation)
    }

    /// Runs an operation on a thread of the pool, then answers there.
    fn defer<T>(
        &self,
        what: &'static str,
        operation: impl FnOnce(&Core, &dyn FileSystem) -> Result<T> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let core = self.core.clone();
        self.pool.run(move || answer(core.run(what, |fs| operation(&core, fs))));
    }

    fn entry(&self, reply: ReplyEntry, found: Result<Attributes, Errno>) {
        match found {
            Ok(found) => {
                let (attributes, generation) = self.core.entry(&found);
                reply.entry(&self.core.timeout, &attributes, generation);
            }
            Err(error) => reply.error(error),
        }
    }

    fn attributes(&self, reply: ReplyAttr, found: Result<Attributes, Errno>) {
        match found {
            Ok(found) => {
                let attributes = convert::attributes(&found, INodeNo(found.ino.get()));
                reply.attr(&self.core.timeout, &attributes);
            }
            Err(error) => reply.error(error),
        }
    }

    fn init_flags(&self) -> InitFlags {
        let mut flags = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            // The kernel checks access control lists; we apply default lists and the umask.
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_DONT_MASK;
        flags.set(InitFlags::FUSE_WRITEBACK_CACHE, self.core.writeback_cache);
        flags.set(InitFlags::FUSE_NO_OPEN_SUPPORT, self.core.no_open);
        flags
    }
}

fn caller(request: &Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), umask }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn xattr(reply: ReplyXattr, size: u32, found: Result<Vec<u8>, Errno>) {
    match found {
        // An attribute's value or list of names is far below 4 GiB.
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(error),
    }
}

fn open_mode(flags: i32) -> OpenMode {
    OpenMode { write: OpenFlags(flags).acc_mode() != OpenAccMode::O_RDONLY, direct: flags & O_DIRECT != 0 }
}

/// `O_APPEND` and `O_SYNC` are not passed on: the kernel has put the offset at the end already (with its cache, it alone knows the
/// end), and sends an FSYNC after each synchronous write.
fn write_flags(write: WriteFlags, open: OpenFlags) -> IoFlags {
    let from_cache = write.contains(WriteFlags::FUSE_WRITE_CACHE);
    let mut flags = IoFlags::empty();
    flags.set(IoFlags::WRITEBACK, from_cache);
    flags.set(IoFlags::DIRECT, !from_cache && open.0 & O_DIRECT != 0);
    flags.set(IoFlags::KILL_PRIVILEGES, write.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID));
    flags
}

/// Pages of the kernel's cache: it takes them for written whatever count it is told, so what does not fit must be an error,
/// or a later fsync would acknowledge it.
fn write_all(fs: &dyn FileSystem, ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
    let mut done = 0;
    while done < data.len() {
        match fs.write(ino, offset + done as u64, &data[done..], flags)? {
            0 => return Err(Error::NoSpace),
            count => done += count,
        }
    }
    Ok(done)
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = self.init_flags() & config.capabilities();
        let refused = |error: InitFlags| io::Error::other(format!("the kernel takes {error:?} back"));
        config.add_capabilities(wanted).map_err(refused)?;
        // The nearest value that fits is as good.
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_readahead(MAX_WRITE).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEntry) {
        let found = self.run("lookup", |fs| match fs.lookup(self.core.ino(parent), name(entry)?) {
            Err(Error::NotFound) => Ok(None),
            found => found.map(Some),
        });
        match found {
            // Node 0: the kernel remembers that there is no such name.
            Ok(None) => reply.entry(&self.core.timeout, &convert::no_attributes(), Generation(0)),
            Ok(Some(found)) => self.entry(reply, Ok(found)),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _request: &Request, node: INodeNo, count: u64) {
        // There is nobody to tell of an error.
        let _ = self.run("forget", |fs| {
            self.core.counters.forgotten.add(count);
            fs.forget(self.core.ino(node), count);
            Ok(())
        });
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes(reply, self.run("getattr", |fs| fs.getattr(self.core.ino(node))));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttributes {
            permissions: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            ctime: ctime.map(convert::timestamp),
            flags: None,
            // HANDLE_KILLPRIV_V2: a change of owner always takes the bits away, a truncation only if the caller is not privileged.
            kill_privileges: uid.is_some() || gid.is_some() || (size.is_some() && request.uid() != 0),
        };
        self.attributes(reply, self.run("setattr", |fs| fs.setattr(self.core.ino(node), &set)));
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        match self.run("readlink", |fs| fs.readlink(self.core.ino(node))) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.run("mknod", |fs| {
            let new = convert::new_node(mode, device)?;
            fs.create(self.core.ino(parent), name(entry)?, new, mode & 0o7777, &caller(request, umask))
        });
        self.entry(reply, made);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, entry: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let made = self.run("mkdir", |fs| {
            let caller = caller(request, umask);
            fs.create(self.core.ino(parent), name(entry)?, NewInode::Directory, mode & 0o7777, &caller)
        });
        self.entry(reply, made);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.run("unlink", |fs| fs.unlink(self.core.ino(parent), name(entry)?)));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.run("rmdir", |fs| fs.rmdir(self.core.ino(parent), name(entry)?)));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, entry: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.run("symlink", |fs| {
            let new = NewInode::Symlink(target.as_os_str().as_bytes());
            fs.create(self.core.ino(parent), name(entry)?, new, 0o777, &caller(request, 0))
        });
        self.entry(reply, made);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        new_parent: INodeNo,
        new_entry: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.run("rename", |fs| {
            let (from, to) = (self.core.ino(parent), self.core.ino(new_parent));
            fs.rename(from, name(entry)?, to, name(new_entry)?, convert::rename_mode(flags)?)
        });
        empty(reply, done);
    }

    fn link(&self, _request: &Request, node: INodeNo, parent: INodeNo, entry: &OsStr, reply: ReplyEntry) {
        let made = self.run("link", |fs| fs.link(self.core.ino(node), self.core.ino(parent), name(entry)?));
        self.entry(reply, made);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.run("create", |fs| {
            let caller = caller(request, umask);
            let made = fs.create(self.core.ino(parent), name(entry)?, NewInode::Regular, mode & 0o7777, &caller)?;
            if self.core.no_open {
                return Ok((made, 0));
            }
            let opened = fs.open(made.ino, open_mode(flags)).inspect_err(|_| fs.forget(made.ino, 1));
            Ok((made, opened?))
        });
        match made {
            Ok((made, handle)) => {
                let (attributes, generation) = self.core.entry(&made);
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&self.core.timeout, &attributes, generation, FileHandle(handle), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.core.no_open {
            return reply.error(Errno::ENOSYS);
        }
        match self.run("open", |fs| fs.open(self.core.ino(node), open_mode(flags.0))) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let done = self.run("release", |fs| {
            if handle.0 != 0 {
                fs.release(self.core.ino(node), handle.0);
            }
            Ok(())
        });
        empty(reply, done);
    }

    /// Asked once: the kernel has written its pages already, and locks are its own.
    fn flush(&self, _request: &Request, _node: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let flags = if flags.0 & O_DIRECT != 0 { IoFlags::DIRECT } else { IoFlags::empty() };
        let size = size as usize;
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.run("read", |fs| fs.read(self.core.ino(node), offset, &mut buffer[..size], flags)) {
                Ok(count) => {
                    self.core.counters.read_bytes.add(count as u64);
                    reply.data(&buffer[..count]);
                }
                Err(error) => reply.error(error),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let flags = write_flags(flags, open_flags);
        let written = self.run("write", |fs| {
            let ino = self.core.ino(node);
            if flags.contains(IoFlags::WRITEBACK) {
                write_all(fs, ino, offset, data, flags)
            } else {
                fs.write(ino, offset, data, flags)
            }
        });
        match written {
            // At most MAX_WRITE.
            Ok(count) => {
                self.core.counters.written_bytes.add(count as u64);
                reply.written(count as u32);
            }
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _request: &Request, node: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let sync = move |core: &Core, fs: &dyn FileSystem| fs.fsync(core.ino(node), handle.0, data_only);
        self.defer("fsync", sync, |done| empty(reply, done));
    }

    /// Asked once.
    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _request: &Request, node: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.run("readdir", |fs| directory::read(&self.core, fs, node, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.run("readdirplus", |fs| directory::read_plus(&self.core, fs, node, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(&self, _request: &Request, node: INodeNo, _handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let sync = move |core: &Core, fs: &dyn FileSystem| fs.fsync(core.ino(node), 0, data_only);
        self.defer("fsyncdir", sync, |done| empty(reply, done));
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        match self.run("statfs", |fs| fs.statfs()) {
            Ok(stats) => reply.statfs(
                stats.blocks,
                stats.free_blocks,
                stats.available_blocks,
                stats.inodes,
                stats.free_inodes,
                stats.block_size,
                stats.name_max,
                stats.block_size,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        key: &OsStr,
        value: &[u8],
        flags: i32,
        _at: u32,
        reply: ReplyEmpty,
    ) {
        let done = self.run("setxattr", |fs| {
            let mode = match flags {
                0 => XattrMode::Set,
                XATTR_CREATE => XattrMode::Create,
                XATTR_REPLACE => XattrMode::Replace,
                _ => return Err(Error::Invalid("setxattr flags")),
            };
            fs.setxattr(self.core.ino(node), key.as_bytes(), value, mode)
        });
        empty(reply, done);
    }

    fn getxattr(&self, _request: &Request, node: INodeNo, key: &OsStr, size: u32, reply: ReplyXattr) {
        xattr(reply, size, self.run("getxattr", |fs| fs.getxattr(self.core.ino(node), key.as_bytes())));
    }

    fn listxattr(&self, _request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.run("listxattr", |fs| {
            let names = fs.listxattr(self.core.ino(node))?;
            Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
        });
        xattr(reply, size, names);
    }

    fn removexattr(&self, _request: &Request, node: INodeNo, key: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.run("removexattr", |fs| fs.removexattr(self.core.ino(node), key.as_bytes())));
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        output_size: u32,
        reply: ReplyIoctl,
    ) {
        let (ino, input) = (self.core.ino(node), input.to_vec());
        let ioctl = Ioctl { ino, uid: request.uid(), command, input, output_size: output_size as usize };
        if !ioctl.is_known() {
            return reply.error(Errno::ENOTTY);
        }
        let answer = |done: Result<Vec<u8>, Errno>| match done {
            Ok(output) => reply.ioctl(0, &output),
            Err(error) => reply.error(error),
        };
        self.defer("ioctl", move |_, fs| ioctl.run(fs), answer);
    }

    fn fallocate(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = move |core: &Core, fs: &dyn FileSystem| {
            fs.allocate(core.ino(node), convert::allocate_mode(mode)?, offset, len)
        };
        self.defer("fallocate", allocate, |done| empty(reply, done));
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let seek = move |core: &Core, fs: &dyn FileSystem| {
            let what = match whence {
                SEEK_DATA => Seek::Data,
                SEEK_HOLE => Seek::Hole,
                _ => return Err(Error::Invalid("lseek of this kind is the kernel's")),
            };
            let offset = u64::try_from(offset).map_err(|_| Error::NoData)?;
            // The kernel does not write its dirty pages for this request, and only they know of data written just now.
            core.collect_dirty_pages(node);
            fs.seek(core.ino(node), offset, what)
        };
        self.defer("lseek", seek, |done| match done.map(i64::try_from) {
            Ok(Ok(offset)) => reply.offset(offset),
            Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
            Err(error) => reply.error(error),
        });
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        to_node: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has 32 bits; a caller goes on from a short count.
        let len = len.min(u64::from(u32::MAX) & !0xfff);
        let copy = move |core: &Core, fs: &dyn FileSystem| {
            fs.copy_range(core.ino(node), offset, core.ino(to_node), to_offset, len)
        };
        self.defer("copy_file_range", copy, |done| match done {
            Ok(count) => reply.written(count as u32),
            Err(error) => reply.error(error),
        });
    }
}
