//! File contents.

use std::cell::RefCell;

use cairn_base::{Ino, memory};
use cairn_vfs::{Bytes, Error, FileSystem, InodeFlags, IoFlags, Result, Seek};
use fuser::InitFlags;
use rustix::io::Errno;

use super::Operations;
use crate::convert;
use crate::counters::Operation;
use crate::credentials::Credentials;
use crate::wire::abi::{
    CopyFileRangeIn, FSYNC_FDATASYNC, FallocateIn, FsyncIn, LseekIn, LseekOut, ReadIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, WriteIn, WriteOut, opcode,
};
use crate::wire::{MAX_WRITE, Reply, Request};
use crate::writers;

pub(super) const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Reads of this size and more are answered from the page cache, without a copy, and what they read
/// is not kept here: the kernel's cache has it.
const LARGE: usize = 64 << 10;
/// The data of writes of this size and more is not copied out of the request. It fills at least
/// half of the buffer that it keeps in use.
const LENT: usize = MAX_WRITE as usize / 2;

thread_local! {
    /// The buffer of a thread's smaller reads: fresh memory costs more than the copy.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// `O_APPEND` and `O_SYNC` are not passed on. The kernel has already set the offset to the end
/// (with its cache, only it knows the end), and sends an FSYNC after each synchronous write.
///
/// Without a writeback cache the kernel still writes mapped pages, but does not maintain their
/// file's times.
fn write_flags(asked: &WriteIn, keeps_times: bool) -> IoFlags {
    let from_cache = asked.write_flags & WRITE_CACHE != 0;
    let mut flags = IoFlags::empty();
    flags.set(IoFlags::WRITEBACK, from_cache && keeps_times);
    // The kernel's page cache has these pages, so this cache need not keep them.
    flags.set(IoFlags::DONTCACHE, from_cache);
    flags.set(IoFlags::DIRECT, !from_cache && asked.flags & O_DIRECT != 0);
    flags.set(IoFlags::KILL_PRIVILEGES, asked.write_flags & WRITE_KILL_SUIDGID != 0);
    flags
}

/// The data of a WRITE.
struct Data<'a> {
    bytes: &'a [u8],
    /// The same, if the filesystem may keep it without a copy.
    lent: Option<Bytes>,
}

impl Data<'_> {
    /// Writes the data from byte `from` on to `offset`.
    fn write(
        &self,
        fs: &dyn FileSystem,
        ino: Ino,
        offset: u64,
        from: usize,
        flags: IoFlags,
    ) -> Result<usize> {
        match &self.lent {
            Some(lent) => fs.write_shared(ino, offset, lent.slice(from..), flags),
            None => fs.write(ino, offset, &self.bytes[from..], flags),
        }
    }
}

/// Writes pages of the kernel's cache. The kernel takes them for written whatever the count of the
/// answer, so a short write must be an error: otherwise a later fsync would acknowledge lost data.
fn write_all(
    fs: &dyn FileSystem,
    ino: Ino,
    offset: u64,
    data: &Data<'_>,
    flags: IoFlags,
) -> Result<usize> {
    let mut done = 0;
    while done < data.bytes.len() {
        match data.write(fs, ino, offset + done as u64, done, flags)? {
            0 => return Err(Error::NoSpace),
            count => done += count,
        }
    }
    Ok(done)
}

/// Appends pages of the kernel's cache to an append-only file. The kernel sends whole pages, so the
/// part before the end must equal the file's data, and only the rest is added.
///
/// # Errors
/// [`Error::NotPermitted`] if the part before the end differs: without OPEN requests, nothing has
/// checked how the file was opened.
fn write_added(
    fs: &dyn FileSystem,
    ino: Ino,
    offset: u64,
    data: &[u8],
    flags: IoFlags,
) -> Result<usize> {
    let found = fs.getattr(ino)?;
    if !found.flags.contains(InodeFlags::APPEND) || offset >= found.size {
        return Err(Error::NotPermitted);
    }
    let there = usize::try_from(found.size - offset).unwrap_or(usize::MAX).min(data.len());
    let mut old = memory::zeroed("what a file holds", there)?;
    if fs.read(ino, offset, &mut old, IoFlags::empty())? != there || old != data[..there] {
        return Err(Error::NotPermitted);
    }
    let added = Data { bytes: &data[there..], lent: None };
    Ok(there + write_all(fs, ino, found.size, &added, flags)?)
}

impl Operations {
    pub(super) fn read(&self, request: &mut Request<'_>, reply: Reply) {
        let asked: ReadIn = match request.take() {
            Ok(asked) => asked,
            Err(error) => return reply.error(error),
        };
        let direct = asked.flags & O_DIRECT != 0;
        let mut flags = IoFlags::empty();
        flags.set(IoFlags::DIRECT, direct);
        flags.set(IoFlags::DONTCACHE, !direct && asked.size as usize >= LARGE);
        let node = request.header.nodeid;
        if !direct {
            self.core.kernel.caches(node);
        }
        // The limit that the handshake gave to the kernel.
        let size = asked.size.min(MAX_WRITE) as usize;
        let ino = self.core.ino(node);
        // Large answers are sent from the page cache.
        let mut reply = Some(reply);
        if size >= LARGE {
            let answered = self.core.run_taking_memory(Operation::Read, |fs| {
                fs.read_shared(ino, asked.offset, size, flags, &mut |pieces| {
                    let count: usize = pieces.iter().map(|piece| piece.len()).sum();
                    self.core.counters.read_bytes.add(count as u64);
                    if let Some(reply) = reply.take() {
                        reply.data(pieces);
                    }
                })
            });
            if let Err(error) = answered {
                return reply.into_iter().for_each(|reply| reply.error(error));
            }
        }
        let Some(reply) = reply else { return };
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                match memory::zeroed("an answer", size) {
                    Ok(larger) => *buffer = larger,
                    Err(_) => return reply.error(Errno::NOMEM),
                }
            }
            let read = self.core.run_taking_memory(Operation::Read, |fs| {
                fs.read(ino, asked.offset, &mut buffer[..size], flags)
            });
            if let Ok(count) = read {
                self.core.counters.read_bytes.add(count as u64);
            }
            reply.send_bytes(read.map(|count| &buffer[..count]));
        });
    }

    pub(super) fn write(&self, request: &mut Request<'_>, reply: Reply) {
        let asked =
            request.take::<WriteIn>().and_then(|asked| Ok((asked, request.bytes(asked.size)?)));
        let (asked, data) = match asked {
            Ok(asked) => asked,
            Err(error) => return reply.error(error),
        };
        let node = request.header.nodeid;
        let flags = write_flags(&asked, self.core.agreed(InitFlags::FUSE_WRITEBACK_CACHE));
        let lent = if data.len() >= LENT { request.lend(data) } else { None };
        let data = Data { bytes: data, lent };
        let written = self.write_data(request, &asked, &data, flags);
        self.core.guard.arrived(self.core.fs(), node);
        match written {
            Err(error) => reply.error(error),
            Ok(count) => {
                self.core.counters.written_bytes.add(count as u64);
                if asked.write_flags & WRITE_CACHE != 0 {
                    self.core.kernel.wrote_back(node);
                }
                // At most MAX_WRITE.
                let answer = move || reply.send(&Ok(WriteOut { size: count as u32, padding: 0 }));
                if flags.contains(IoFlags::DIRECT) {
                    // The kernel drops its own pages only for synchronous calls, so asynchronous
                    // writes need this.
                    self.core.kernel.pages_replaced(node, asked.offset, count as u64, answer);
                } else {
                    answer();
                }
            }
        }
    }

    fn write_data(
        &self,
        request: &Request<'_>,
        asked: &WriteIn,
        data: &Data<'_>,
        flags: IoFlags,
    ) -> Result<usize, Errno> {
        let (node, offset) = (request.header.nodeid, asked.offset);
        let (ino, sender) = (self.core.ino(node), Credentials::of(request));
        let drop_privileges = |fs: &dyn FileSystem| {
            let drops = flags.contains(IoFlags::KILL_PRIVILEGES);
            self.core.drop_unseen_capabilities(fs, ino)?;
            if drops { self.core.drop_privileges(fs, node, &sender) } else { Ok(()) }
        };
        if asked.write_flags & WRITE_CACHE == 0 {
            return self.core.run_taking_space(Operation::Write, &sender, |fs| {
                drop_privileges(fs)?;
                data.write(fs, ino, offset, 0, flags)
            });
        }
        let range = offset..offset.saturating_add(data.bytes.len() as u64);
        self.core.run_taking_cached_space(node, &range, |fs| {
            drop_privileges(fs)?;
            match write_all(fs, ino, offset, data, flags) {
                Err(Error::NotPermitted) => write_added(fs, ino, offset, data.bytes, flags),
                written => written,
            }
        })
    }

    pub(super) fn fsync(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let asked: FsyncIn = request.take()?;
        let (ino, data_only) =
            (self.core.ino(request.header.nodeid), asked.fsync_flags & FSYNC_FDATASYNC != 0);
        if request.header.opcode == opcode::FSYNCDIR {
            self.core.run(Operation::FsyncDir, |fs| fs.fsync(ino, 0, data_only))
        } else {
            let handle = writers::plain(asked.fh);
            let synced = self.core.run(Operation::Fsync, |fs| fs.fsync(ino, handle, data_only));
            if synced.is_err() {
                // The device may have no room: the guard then makes the kernel ask before the next
                // write.
                self.core.guard.arrived(self.core.fs(), request.header.nodeid);
            }
            synced
        }
    }

    pub(super) fn fallocate(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let asked: FallocateIn = request.take()?;
        let node = request.header.nodeid;
        let (ino, sender) = (self.core.ino(node), Credentials::of(request));
        self.core.run_taking_space(Operation::Fallocate, &sender, |fs| {
            let mode = convert::allocate_mode(asked.mode)?;
            self.core.guard_privileges(fs, node, &sender)?;
            fs.allocate(ino, mode, asked.offset, asked.length)
        })
    }

    pub(super) fn lseek(&self, request: &mut Request<'_>) -> Result<LseekOut, Errno> {
        let asked: LseekIn = request.take()?;
        let node = request.header.nodeid;
        let offset = self.core.run(Operation::Seek, |fs| {
            let what = match asked.whence {
                SEEK_DATA => Seek::Data,
                SEEK_HOLE => Seek::Hole,
                _ => return Err(Error::Invalid("lseek of this kind is the kernel's")),
            };
            // A negative offset.
            if i64::try_from(asked.offset).is_err() {
                return Err(Error::NoData);
            }
            // The kernel does not write its dirty pages for this request, and the newest data is
            // only in them.
            self.core.kernel.collect_dirty_pages(node);
            fs.seek(self.core.ino(node), asked.offset, what)
        })?;
        i64::try_from(offset).map(|_| LseekOut { offset }).map_err(|_| Errno::OVERFLOW)
    }

    pub(super) fn copy_file_range(&self, request: &mut Request<'_>) -> Result<WriteOut, Errno> {
        let asked: CopyFileRangeIn = request.take()?;
        // The answer has 32 bits. A caller continues after a short count.
        let len = asked.len.min(u64::from(u32::MAX) & !0xfff);
        let (from, to) = (self.core.ino(request.header.nodeid), self.core.ino(asked.nodeid_out));
        let sender = Credentials::of(request);
        let copied = self.core.run_taking_space(Operation::CopyFileRange, &sender, |fs| {
            self.core.guard_privileges(fs, asked.nodeid_out, &sender)?;
            fs.copy_range(from, asked.off_in, to, asked.off_out, len)
        })?;
        Ok(WriteOut { size: copied as u32, padding: 0 })
    }
}
