//! Translates each request to a call on the filesystem, without a policy of its own.
//!
//! Attributes and names: `names`; contents: `data`; extended attributes and the volume: `volume`.

mod data;
mod names;
mod volume;

use std::sync::Arc;

use rustix::io::Errno;

use crate::core::Core;
use crate::wire::abi::{ReadIn, WriteIn, opcode};
use crate::wire::{Reply, Request};

/// A read or write of this size is worth the wake-up of another thread.
const LONG: u32 = 128 << 10;

/// How long a request may keep its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Usually shorter than the wake-up of another thread.
    Quick,
    /// It copies much data.
    Copies,
    /// It waits for the disk, possibly together with other requests of its kind.
    MayTakeLong,
    /// It waits for other requests to be served.
    NeedsAnother,
}

/// The operations of a filesystem, by request.
pub(crate) struct Operations {
    core: Arc<Core>,
}

impl Operations {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The nodes to which the kernel refers.
    pub(crate) fn known_nodes(&self) -> Vec<u64> {
        let all = self.core.fs().referenced();
        all.into_iter().map(|ino| self.core.node(ino)).collect()
    }

    pub(crate) fn weight(&self, request: &Request<'_>) -> Weight {
        match request.header.opcode {
            // On a frozen volume, requests may wait for the thaw; reads continue.
            _ if self.core.is_frozen() => Weight::NeedsAnother,
            opcode::FSYNC
            | opcode::FSYNCDIR
            | opcode::SYNCFS
            | opcode::DESTROY
            | opcode::FALLOCATE
            | opcode::COPY_FILE_RANGE => Weight::MayTakeLong,
            opcode::CREATE | opcode::MKNOD | opcode::MKDIR | opcode::SYMLINK | opcode::LINK
                if self.core.synchronous.names() =>
            {
                Weight::MayTakeLong
            }
            opcode::UNLINK | opcode::RMDIR | opcode::RENAME | opcode::RENAME2
                if self.core.synchronous.names() =>
            {
                Weight::MayTakeLong
            }
            opcode::LSEEK => Weight::NeedsAnother,
            // It may make the kernel write its pages first.
            opcode::IOCTL => Weight::NeedsAnother,
            opcode::READ if request.peek::<ReadIn>().is_some_and(|read| read.size >= LONG) => {
                Weight::Copies
            }
            opcode::WRITE if request.peek::<WriteIn>().is_some_and(|write| write.size >= LONG) => {
                Weight::Copies
            }
            _ => Weight::Quick,
        }
    }

    /// Carries a request out and answers it.
    pub(crate) fn answer(&self, mut request: Request<'_>, reply: Reply) {
        let request = &mut request;
        let here = self.core.ino(request.header.nodeid);
        match request.header.opcode {
            opcode::GETXATTR | opcode::LISTXATTR | opcode::SETXATTR | opcode::REMOVEXATTR
                if self.core.noxattr =>
            {
                reply.error(Errno::NOSYS);
            }
            opcode::LOOKUP => reply.send(&self.lookup(request)),
            opcode::GETATTR => self.getattr(request, reply),
            opcode::STATX => reply.send(&self.statx(request)),
            opcode::SETATTR => {
                reply.send(&self.core.attributes_changed(self.setattr(request), here))
            }
            opcode::READLINK => {
                reply.send_bytes(self.readlink(request).as_deref().map_err(|error| *error))
            }
            opcode::SYMLINK => reply.send(&self.core.names_changed(self.symlink(request), &[here])),
            opcode::MKNOD => reply.send(&self.core.names_changed(self.mknod(request), &[here])),
            opcode::MKDIR => reply.send(&self.core.names_changed(self.mkdir(request), &[here])),
            opcode::UNLINK => reply.send(&self.core.names_changed(self.unlink(request), &[here])),
            opcode::RMDIR => reply.send(&self.core.names_changed(self.rmdir(request), &[here])),
            opcode::RENAME | opcode::RENAME2 => reply.send(&self.rename(request)),
            opcode::LINK => reply.send(&self.core.names_changed(self.link(request), &[here])),
            opcode::CREATE => reply.send(&self.core.names_changed(self.create(request), &[here])),
            opcode::TMPFILE => reply.send(&self.tmpfile(request)),
            opcode::ACCESS if self.core.private => reply.send(&self.access(request)),
            opcode::READDIR => {
                reply.send_bytes(self.readdir(request).as_deref().map_err(|error| *error))
            }
            opcode::READDIRPLUS => {
                reply.send_bytes(self.readdirplus(request).as_deref().map_err(|error| *error))
            }
            opcode::OPEN => reply.send(&self.open(request)),
            opcode::RELEASE => reply.send(&self.release(request)),
            opcode::READ => self.read(request, reply),
            opcode::WRITE => self.write(request, reply),
            opcode::FSYNC | opcode::FSYNCDIR => reply.send(&self.fsync(request)),
            opcode::FALLOCATE => {
                reply.send(&self.core.attributes_changed(self.fallocate(request), here))
            }
            opcode::LSEEK => reply.send(&self.lseek(request)),
            opcode::COPY_FILE_RANGE => reply.send(&self.copy_file_range(request)),
            opcode::GETXATTR => self.getxattr(request, reply),
            opcode::LISTXATTR => self.listxattr(request, reply),
            opcode::SETXATTR => {
                reply.send(&self.core.attributes_changed(self.setxattr(request), here))
            }
            opcode::REMOVEXATTR => {
                reply.send(&self.core.attributes_changed(self.removexattr(request), here))
            }
            opcode::STATFS => reply.send(&self.statfs()),
            opcode::SYNCFS => reply.send(&self.syncfs()),
            opcode::IOCTL => self.ioctl(request, reply),
            opcode::RELEASEDIR => reply.send(&Ok(())),
            opcode::DESTROY => {
                self.core.closing.call();
                reply.send(&Ok(()));
            }
            opcode::FORGET | opcode::BATCH_FORGET => {
                reply.none();
                self.forget(request);
            }
            // FLUSH: the kernel has already written its pages and keeps the locks itself. OPENDIR:
            // directories have no state. INTERRUPT: requests are never cut short. ACCESS, locks,
            // BMAP, POLL: the kernel's part. The kernel sends each of these once.
            _ => reply.error(Errno::NOSYS),
        }
    }
}
