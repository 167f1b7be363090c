//! [`cairn_vfs::FileSystem`] for an F2FS volume: numbers in, numbers out; the work is done below.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_base::Ino;
use cairn_base::ranked_lock::RwLockReadGuard;
use cairn_base::stats::Report;
use cairn_vfs::{
    AllocateMode, Attributes, Caller, DirEntry, Error, FileExtent, FileSystem, GoingDown, IoFlags, NewInode, OpenMode,
    RenameMode, Result, Seek, SetAttributes, VolumeStats, XattrMode,
};

use crate::dir::readdir;
use crate::inode::mapper::InodeMapper;
use crate::inode::{Inode, access_times, attributes, data, preallocate, setattr, symlink, write};
use crate::{F2fs, fsync, namespace, remount, xattr};

impl F2fs {
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.done(self.volume.inode(ino))
    }

    /// Every result passes here, so that what must stop the volume does: see [`crate::stop`].
    fn done<T>(&self, result: crate::Result<T>) -> Result<T> {
        Ok(self.volume.observe(result)?)
    }

    fn attributes(&self, inode: &Inode) -> Attributes {
        // A reservation without data takes no space.
        inode.cache.release_reservation(&InodeMapper::new(&self.volume, inode));
        attributes::get(&self.volume, inode)
    }

    /// Every call that may change the volume holds this: see [`crate::remount`].
    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.volume.access.get()
    }

    /// As [`F2fs::enter`], for what changes nothing while nothing can be written, and goes on while the volume is frozen.
    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.volume.access.pass()
    }

    /// The contents were read; nothing that all readers share is locked unless the time is due.
    fn accessed(&self, inode: &Arc<Inode>) {
        if access_times::is_due(&self.volume, inode) {
            let _open = self.pass();
            access_times::touch(&self.volume, inode);
        }
    }

    fn drop_references(&self, ino: Ino, count: u64) {
        if let Err(error) = self.done(self.volume.forget(ino, count)) {
            tracing::warn!(%ino, %error, "an unlinked inode could not be deleted; the next mount will");
        }
    }
}

impl FileSystem for F2fs {
    fn root(&self) -> Ino {
        crate::ROOT_INO
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let parent = self.inode(parent)?;
        let inode = self.done(namespace::lookup(&self.volume, &parent, name))?;
        Ok(self.attributes(&inode))
    }

    fn forget(&self, ino: Ino, count: u64) {
        let _open = self.pass();
        self.drop_references(ino, count);
    }

    fn create(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewInode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        let _open = self.enter();
        let (volume, parent) = (&self.volume, self.inode(parent)?);
        let create = || namespace::create(volume, &parent, name, &new, permissions, caller);
        let inode = self.done(volume.with_space(create))?;
        Ok(self.attributes(&inode))
    }

    fn tmpfile(&self, parent: Ino, permissions: u32, caller: &Caller) -> Result<Attributes> {
        let _open = self.enter();
        let parent = self.inode(parent)?;
        let tmpfile = || namespace::tmpfile(&self.volume, &parent, permissions, caller);
        let inode = self.done(self.volume.with_space(tmpfile))?;
        Ok(self.attributes(&inode))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let _open = self.enter();
        let inode = self.done(self.volume.acquire(ino))?;
        let linked = self.inode(parent).and_then(|parent| {
            self.done(self.volume.with_space(|| namespace::link(&self.volume, &inode, &parent, name)))
        });
        if let Err(error) = linked {
            self.drop_references(ino, 1);
            return Err(error);
        }
        Ok(self.attributes(&inode))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _open = self.enter();
        let parent = self.inode(parent)?;
        self.done(self.volume.with_space(|| namespace::unlink(&self.volume, &parent, name)))
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _open = self.enter();
        let parent = self.inode(parent)?;
        self.done(self.volume.with_space(|| namespace::rmdir(&self.volume, &parent, name)))
    }

    fn rename(&self, parent: Ino, name: &[u8], new_parent: Ino, new_name: &[u8], mode: RenameMode) -> Result<()> {
        let _open = self.enter();
        let (parent, new_parent) = (self.inode(parent)?, self.inode(new_parent)?);
        let rename = || namespace::rename(&self.volume, &parent, name, &new_parent, new_name, mode);
        self.done(self.volume.with_space(rename))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let target = self.done(symlink::read(&self.volume, &inode))?;
        self.accessed(&inode);
        Ok(target)
    }

    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let inode = self.inode(ino)?;
        {
            let _namespace = inode.namespace.read();
            self.done(readdir::read(&self.volume, &inode, position, emit))?;
        }
        self.accessed(&inode);
        Ok(())
    }

    fn getattr(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.attributes(&*self.inode(ino)?))
    }

    fn setattr(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(setattr::setattr(&self.volume, &inode, set))?;
        Ok(self.attributes(&inode))
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> Result<u64> {
        // To be open changes nothing: the first write will wait.
        if mode.write && !self.is_frozen() {
            self.volume.check_writable()?;
        }
        let inode = self.done(self.volume.acquire(ino))?;
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        inode.cache.errors().open(handle);
        Ok(handle)
    }

    fn release(&self, ino: Ino, handle: u64) {
        let _open = self.pass();
        if let Ok(inode) = self.inode(ino) {
            inode.cache.errors().close(handle);
            inode.cache.release_reservation(&InodeMapper::new(&self.volume, &inode));
        }
        self.drop_references(ino, 1);
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8], flags: IoFlags) -> Result<usize> {
        let inode = self.inode(ino)?;
        let done = self.done(data::read(&self.volume, &inode, offset, buf, flags))?;
        self.accessed(&inode);
        Ok(done)
    }

    fn read_shared(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        flags: IoFlags,
        take: &mut dyn FnMut(&[&[u8]]),
    ) -> Result<bool> {
        let inode = self.inode(ino)?;
        let lent = self.done(data::read_shared(&self.volume, &inode, offset, len, flags, take))?;
        if lent {
            self.accessed(&inode);
        }
        Ok(lent)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
        let _open = self.enter();
        self.done(write::write(&self.volume, &self.inode(ino)?, offset, data, flags))
    }

    fn fsync(&self, ino: Ino, handle: u64, data_only: bool) -> Result<()> {
        let _open = self.pass();
        let inode = self.inode(ino)?;
        let synced = self.done(fsync::fsync(&self.volume, &inode, data_only));
        // This handle hears of every write-back error once, also of those met before this call.
        let missed = inode.cache.errors().check_and_advance(handle);
        synced?;
        missed.map_or(Ok(()), |error| Err(crate::Error::from(error).into()))
    }

    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        let _open = self.enter();
        self.done(preallocate::allocate(&self.volume, &self.inode(ino)?, mode, offset, len))
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.done(data::seek(&self.volume, &self.inode(ino)?, offset, what))
    }

    fn extents(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        _sync: bool,
        emit: &mut dyn FnMut(FileExtent) -> bool,
    ) -> Result<()> {
        self.done(data::extents(&self.volume, &self.inode(ino)?, offset, len, emit))
    }

    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let _open = self.enter();
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        self.done(write::copy_range(&self.volume, &from, from_offset, &to, to_offset, len))
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.done(xattr::get(&self.volume, &*self.inode(ino)?, name))
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.done(xattr::list(&self.volume, &*self.inode(ino)?))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(self.volume.with_space(|| xattr::edit::set(&self.volume, &inode, name, value, mode)))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(xattr::edit::remove(&self.volume, &inode, name))
    }

    fn statfs(&self) -> Result<VolumeStats> {
        Ok(self.volume.statfs())
    }

    fn room(&self, _reserved: bool) -> u64 {
        self.volume.bytes_left()
    }

    fn referenced(&self) -> Vec<Ino> {
        self.volume.inodes.referenced()
    }

    fn sync(&self) -> Result<()> {
        let _open = self.pass();
        self.done(self.volume.sync())
    }

    fn trim(&self, offset: u64, len: u64, minimum: u64) -> Result<u64> {
        let _open = self.enter();
        self.done(self.volume.trim(offset, len, minimum))
    }

    fn label(&self) -> Result<Vec<u8>> {
        Ok(self.volume.label().into_bytes())
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        let _open = self.enter();
        let label = std::str::from_utf8(label).map_err(|_| Error::Invalid("a label of F2FS is UTF-8"))?;
        self.done(self.volume.set_label(label))
    }

    fn report(&self) -> Report {
        self.volume.report()
    }

    fn remount(&self, options: &str) -> Result<()> {
        Ok(remount::remount(&self.volume, options)?)
    }

    fn check_remount(&self, options: &str) -> Result<()> {
        Ok(remount::check_list(&self.volume, options)?)
    }

    fn freeze(&self) -> Result<()> {
        self.done(remount::freeze(&self.volume))
    }

    fn thaw(&self) -> Result<()> {
        self.done(remount::thaw(&self.volume))
    }

    fn is_frozen(&self) -> bool {
        self.volume.access.is_frozen()
    }

    fn shutdown(&self, flush_log: bool) -> Result<()> {
        self.done(self.volume.shutdown(flush_log))
    }

    fn go_down(&self, flags: GoingDown) -> Result<()> {
        match flags {
            GoingDown::FullSync => self.sync().and_then(|()| self.shutdown(true)),
            GoingDown::MetaSync => self.shutdown(true),
            // Linux writes the metadata that it has dirty, and no checkpoint. Here metadata is made for a checkpoint alone.
            GoingDown::NoSync | GoingDown::MetaFlush => self.shutdown(false),
            GoingDown::NeedFsck => {
                let _open = self.enter();
                self.done(self.volume.request_fsck())
            }
        }
    }

    fn abandon(&self, reason: &str) -> Result<()> {
        self.volume.abandon(reason);
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        Ok(self.volume.unmount()?)
    }
}
