//! [`cairn_vfs::FileSystem`] for an ext4 volume. It translates inode numbers and passes each call
//! on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::ranked_lock::RwLockReadGuard;
use cairn_base::stats::Report;
use cairn_vfs::{
    AllocateMode, Attributes, Bytes, Caller, DirEntry, Error, FileExtent, FileSystem, IoFlags,
    NewInode, OpenMode, RenameMode, ReservedFor, Result, Seek, SetAttributes, VolumeStats,
    XattrMode, synchronous,
};

use crate::inode::mapper::InodeMapper;
use crate::inode::{Inode, attributes, data, directory, preallocate, setattr, symlink, writeback};
use crate::volume::Ext4;
use crate::{fsync, namespace, remount, report, sync, trim, unmount, xattr_ops};

impl Ext4 {
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.done(self.ops.inode(ino))
    }

    /// Write access, for every call that may change the volume; see [`crate::remount`].
    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.ops.access.get()
    }

    /// As [`Ext4::enter`], for calls that change something only if the volume is writable. They do
    /// not wait for a thaw.
    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.ops.access.pass()
    }

    fn drop_references(&self, ino: Ino, count: u64) {
        if let Err(error) = self.done(self.ops.forget(ino, count)) {
            tracing::warn!(%ino, %error, "an unlinked inode could not be deleted; the next \
                recovery deletes it");
        }
    }

    /// Every result passes here, because some errors stop the volume; see [`crate::stop`].
    fn done<T>(&self, result: crate::Result<T>) -> Result<T> {
        Ok(self.ops.observe(result)?)
    }

    /// Names in these directories have changed: on the disk, where `chattr +S` or `+D` asks for
    /// that.
    fn names_changed(&self, directories: &[&Arc<Inode>]) -> Result<()> {
        synchronous::names_changed(directories, |directory| {
            self.done(fsync::fsync(&self.ops, directory, false))
        })
    }

    /// An inode has changed: on the disk, where `chattr +S` asks for that.
    fn changed(&self, inode: &Arc<Inode>) -> Result<()> {
        synchronous::changed(inode, |inode| self.done(fsync::fsync(&self.ops, inode, false)))
    }

    /// Writes waiting access times if there are many, unless the volume cannot be written now.
    fn store_access_times(&self) {
        if !self.ops.accessed.is_full() || self.ops.access.is_waiting() {
            return;
        }
        let _open = self.enter();
        if !self.ops.is_read_only()
            && let Err(error) = self.done(writeback::write_access_times(&self.ops))
        {
            tracing::debug!(%error, "access times could not be written");
        }
    }

    fn attributes(&self, inode: &Arc<Inode>) -> Attributes {
        // Blocks reserved ahead of a writer do not count as used.
        inode.cache.release_reservation(&InodeMapper::new(&self.ops, inode));
        attributes::get(&self.ops, inode)
    }
}

impl FileSystem for Ext4 {
    fn root(&self) -> Ino {
        crate::ROOT_INO
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let parent = self.inode(parent)?;
        let inode = self.done(namespace::lookup(&self.ops, &parent, name))?;
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
        let parent = self.inode(parent)?;
        let inode = self.done(self.ops.with_space(|| {
            namespace::create(&self.ops, &parent, name, &new, permissions, caller)
        }))?;
        self.names_changed(&[&parent]).inspect_err(|_| self.drop_references(inode.ino, 1))?;
        Ok(self.attributes(&inode))
    }

    fn tmpfile(&self, parent: Ino, permissions: u32, caller: &Caller) -> Result<Attributes> {
        let _open = self.enter();
        let parent = self.inode(parent)?;
        let inode = self.done(
            self.ops.with_space(|| namespace::tmpfile(&self.ops, &parent, permissions, caller)),
        )?;
        Ok(self.attributes(&inode))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let _open = self.enter();
        let inode = self.done(self.ops.acquire(ino))?;
        let linked = self.inode(parent).and_then(|parent| {
            self.done(self.ops.with_space(|| namespace::link(&self.ops, &inode, &parent, name)))?;
            self.names_changed(&[&parent])
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
        self.done(namespace::unlink(&self.ops, &parent, name))?;
        self.names_changed(&[&parent])
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _open = self.enter();
        let parent = self.inode(parent)?;
        self.done(namespace::rmdir(&self.ops, &parent, name))?;
        self.names_changed(&[&parent])
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let _open = self.enter();
        let (parent, new_parent) = (self.inode(parent)?, self.inode(new_parent)?);
        self.done(self.ops.with_space(|| {
            namespace::rename(&self.ops, &parent, name, &new_parent, new_name, mode)
        }))?;
        self.names_changed(&[&parent, &new_parent])
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let target = symlink::read(&self.ops, &inode)
            .inspect(|_| attributes::touch_access(&self.ops, &inode));
        self.store_access_times();
        self.done(target)
    }

    fn readdir(
        &self,
        ino: Ino,
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let inode = self.inode(ino)?;
        let read = directory::read(&self.ops, &inode, position, emit);
        self.store_access_times();
        self.done(read)
    }

    fn getattr(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.attributes(&self.inode(ino)?))
    }

    fn setattr(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(setattr::setattr(&self.ops, &inode, set))?;
        if !set.sets_times_only() {
            self.changed(&inode)?;
        }
        Ok(self.attributes(&inode))
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> Result<u64> {
        let inode = self.inode(ino)?;
        // An open changes nothing, and the first write waits for the thaw.
        if mode.write && !self.ops.access.is_waiting() {
            self.done(self.ops.check_writable())?;
        }
        self.ops.acquire(ino)?;
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        inode.cache.errors().open(handle);
        Ok(handle)
    }

    fn release(&self, ino: Ino, handle: u64) {
        let _open = self.pass();
        if let Ok(inode) = self.inode(ino) {
            inode.cache.errors().close(handle);
            inode.cache.release_reservation(&InodeMapper::new(&self.ops, &inode));
        }
        self.drop_references(ino, 1);
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8], flags: IoFlags) -> Result<usize> {
        let read = {
            let _open = self.pass();
            let inode = self.inode(ino)?;
            self.done(data::read(&self.ops, &inode, offset, buf, flags))
        };
        self.store_access_times();
        read
    }

    fn read_shared(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        flags: IoFlags,
        take: &mut dyn FnMut(&[&[u8]]),
    ) -> Result<bool> {
        let read = {
            let _open = self.pass();
            let inode = self.inode(ino)?;
            self.done(data::read_shared(&self.ops, &inode, offset, len, flags, take))
        };
        self.store_access_times();
        read
    }

    fn write(&self, ino: Ino, offset: u64, bytes: &[u8], flags: IoFlags) -> Result<usize> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(data::write(&self.ops, &inode, offset, bytes.into(), flags))
    }

    fn write_shared(&self, ino: Ino, offset: u64, data: Bytes, flags: IoFlags) -> Result<usize> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(data::write(&self.ops, &inode, offset, (&data).into(), flags))
    }

    fn fsync(&self, ino: Ino, handle: u64, data_only: bool) -> Result<()> {
        let _open = self.pass();
        let inode = self.inode(ino)?;
        let synced = self.done(fsync::fsync(&self.ops, &inode, data_only));
        // The handle gets every write-back error once, including those from before this call.
        let missed = inode.cache.errors().check_and_advance(handle);
        synced?;
        missed.map_or(Ok(()), |error| Err(crate::Error::from(error).into()))
    }

    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(preallocate::allocate(&self.ops, &inode, mode, offset, len))?;
        self.changed(&inode)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let _open = self.pass();
        let inode = self.inode(ino)?;
        self.done(data::seek(&self.ops, &inode, offset, what))
    }

    fn extents(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        sync: bool,
        emit: &mut dyn FnMut(FileExtent) -> bool,
    ) -> Result<()> {
        let _open = self.pass();
        let inode = self.inode(ino)?;
        self.done(data::extents(&self.ops, &inode, offset, len, sync, emit))
    }

    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _open = self.enter();
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        let copied =
            self.done(data::copy_range(&self.ops, &from, from_offset, &to, to_offset, len))?;
        self.changed(&to)?;
        Ok(copied)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        self.done(xattr_ops::get(&self.ops, &inode, name))
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(ino)?;
        self.done(xattr_ops::list(&self.ops, &inode))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(self.ops.with_space(|| xattr_ops::set(&self.ops, &inode, name, value, mode)))?;
        self.changed(&inode)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(xattr_ops::remove(&self.ops, &inode, name))?;
        self.changed(&inode)
    }

    fn statfs(&self) -> Result<VolumeStats> {
        Ok(report::statfs(&self.ops))
    }

    fn room(&self, reserved: bool) -> u64 {
        report::room(&self.ops, reserved)
    }

    fn reserved_for(&self) -> Option<ReservedFor> {
        let (layout, options) = (&self.ops.layout, self.ops.options.get());
        (layout.root_reserved_blocks > 0).then(|| ReservedFor {
            uid: options.reserved_uid.unwrap_or(layout.reserved_for.uid),
            gid: options.reserved_gid.unwrap_or(layout.reserved_for.gid),
        })
    }

    fn referenced(&self) -> Vec<Ino> {
        self.ops.table.referenced()
    }

    fn sync(&self) -> Result<()> {
        let _open = self.pass();
        Ok(sync::sync(&self.ops)?)
    }

    fn trim(&self, offset: u64, len: u64, minimum: u64) -> Result<u64> {
        let _open = self.enter();
        self.done(trim::trim(&self.ops, &self.ops.space, offset, len, minimum))
    }

    fn label(&self) -> Result<Vec<u8>> {
        self.done(self.ops.superblock.label(&self.ops.buffers))
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        let _open = self.enter();
        if label.len() > crate::superblock::LABEL_MAX || label.contains(&0) {
            return Err(Error::Invalid("a label has at most 16 bytes and no NUL"));
        }
        self.done(self.ops.set_label(label))
    }

    fn time_granularity(&self) -> Duration {
        // Inodes of 128 bytes have no room for nanoseconds.
        if self.ops.layout.inode_size > 128 {
            Duration::from_nanos(1)
        } else {
            Duration::from_secs(1)
        }
    }

    fn report(&self) -> Report {
        report::report(&self.ops)
    }

    fn remount(&self, options: &str) -> Result<()> {
        Ok(remount::remount(self, options)?)
    }

    fn check_remount(&self, options: &str) -> Result<()> {
        Ok(remount::check_list(&self.ops, options)?)
    }

    fn freeze(&self) -> Result<()> {
        self.done(remount::freeze(self))
    }

    fn thaw(&self) -> Result<()> {
        self.done(remount::thaw(self))
    }

    fn is_frozen(&self) -> bool {
        self.ops.access.is_frozen()
    }

    fn check_stopped(&self) -> Result<()> {
        Ok(self.ops.check_stopped()?)
    }

    fn shutdown(&self, flush_log: bool) -> Result<()> {
        self.done(self.ops.shutdown(flush_log))
    }

    fn abandon(&self, reason: &str) -> Result<()> {
        self.ops.abandon(reason);
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        self.done(unmount::unmount(self))
    }
}
