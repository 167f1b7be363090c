//! [`cairn_vfs::FileSystem`] for an F2FS volume: numbers in, numbers out; the work is done below.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_base::Ino;
use cairn_base::ranked_lock::RwLockReadGuard;
use cairn_base::stats::Report;
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::{
    AllocateMode, Attributes, Bytes, Caller, DirEntry, Error, FileExtent, FileSystem, GoingDown,
    IoFlags, NewInode, OpenMode, RenameMode, ReservedFor, Result, Seek, SetAttributes, VolumeStats,
    XattrMode, synchronous,
};

use crate::checkpoint::Announced;
use crate::dir::readdir;
use crate::form::names::Names;
use crate::format::Features;
use crate::inode::read_mapper::ReadMapper;
use crate::inode::{
    Inode, access_times, attributes, data, lifetime, preallocate, setattr, symlink,
};
use crate::volume::F2fs;
use crate::{fsync, namespace, remount, report, sync, trim, unmount, xattr};

impl F2fs {
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.done(self.inodes.inode(ino))
    }

    /// Every result passes here, so that errors which must stop the volume do so: see
    /// [`crate::stop`].
    fn done<T>(&self, result: crate::Result<T>) -> Result<T> {
        Ok(self.mount.observe(result)?)
    }

    fn attributes(&self, inode: &Inode) -> Attributes {
        // A reservation without data takes no space.
        inode.cache.release_reservation(&ReadMapper::new(&self.disk, inode));
        attributes::get(&self.disk, inode)
    }

    /// Every call that may change the volume holds this: see [`crate::remount`].
    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.mount.access.get()
    }

    /// As [`F2fs::enter`], for calls that change names, whose callers often ask for a checkpoint
    /// next.
    fn enter_names(&self) -> (RwLockReadGuard<'_, ()>, Option<Announced<'_>>) {
        let store = self.disk.store.as_ref();
        (self.enter(), store.map(|store| store.checkpoints.announce()))
    }

    /// As [`F2fs::enter`], for calls that change nothing on a read-only volume and continue on a
    /// frozen one.
    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.mount.access.pass()
    }

    /// Updates the access time after a read. No lock that all readers share is taken unless the
    /// time is due.
    fn accessed(&self, inode: &Arc<Inode>) {
        if access_times::is_due(&self.inodes, inode) {
            let _open = self.pass();
            access_times::touch(&self.operations, inode);
        }
    }

    /// Called after names in these directories have changed. Makes the change durable if
    /// `chattr +S` or `+D` asks for it.
    fn names_changed(&self, directories: &[&Arc<Inode>]) -> Result<()> {
        synchronous::names_changed(directories, |directory| {
            self.done(fsync::fsync(&self.operations, directory, false))
        })
    }

    /// Called after an inode has changed. Makes the change durable if `chattr +S` asks for it.
    fn changed(&self, inode: &Arc<Inode>) -> Result<()> {
        synchronous::changed(inode, |inode| self.done(fsync::fsync(&self.operations, inode, false)))
    }

    fn drop_references(&self, ino: Ino, count: u64) {
        if let Err(error) = self.done(lifetime::forget(&self.operations, ino, count)) {
            tracing::warn!(%ino, %error, "an unlinked inode could not be deleted; the next mount \
                deletes it");
        }
    }
}

impl FileSystem for F2fs {
    fn root(&self) -> Ino {
        crate::ROOT_INO
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let parent = self.inode(parent)?;
        let inode = self.done(namespace::lookup(&self.inodes, &parent, name))?;
        Ok(self.attributes(&inode))
    }

    fn ignores_case(&self, directory: Ino) -> bool {
        let features = self.disk.layout.features;
        features.contains(Features::CASEFOLD)
            && self.inodes.inode(directory).is_ok_and(|inode| {
                inode.with_record(|record| Names::of(record, features).ignore_case())
            })
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
        let _open = self.enter_names();
        let (ops, parent) = (&self.operations, self.inode(parent)?);
        let create = || namespace::create(ops, &parent, name, &new, permissions, caller);
        let inode = self.done(ops.with_space(create))?;
        self.names_changed(&[&parent]).inspect_err(|_| self.drop_references(inode.ino(), 1))?;
        Ok(self.attributes(&inode))
    }

    fn tmpfile(&self, parent: Ino, permissions: u32, caller: &Caller) -> Result<Attributes> {
        let _open = self.enter();
        let parent = self.inode(parent)?;
        let tmpfile = || namespace::tmpfile(&self.operations, &parent, permissions, caller);
        let inode = self.done(self.operations.with_space(tmpfile))?;
        Ok(self.attributes(&inode))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let _open = self.enter_names();
        let inode = self.done(self.inodes.acquire(ino))?;
        let linked = self.inode(parent).and_then(|parent| {
            self.done(
                self.operations
                    .with_space(|| namespace::link(&self.operations, &inode, &parent, name)),
            )?;
            self.names_changed(&[&parent])
        });
        if let Err(error) = linked {
            self.drop_references(ino, 1);
            return Err(error);
        }
        Ok(self.attributes(&inode))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _open = self.enter_names();
        let parent = self.inode(parent)?;
        self.done(
            self.operations.with_space(|| namespace::unlink(&self.operations, &parent, name)),
        )?;
        self.names_changed(&[&parent])
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _open = self.enter_names();
        let parent = self.inode(parent)?;
        self.done(
            self.operations.with_space(|| namespace::rmdir(&self.operations, &parent, name)),
        )?;
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
        let _open = self.enter_names();
        let (parent, new_parent) = (self.inode(parent)?, self.inode(new_parent)?);
        let rename =
            || namespace::rename(&self.operations, &parent, name, &new_parent, new_name, mode);
        self.done(self.operations.with_space(rename))?;
        self.names_changed(&[&parent, &new_parent])
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let target = self.done(symlink::read(&self.disk, &inode))?;
        self.accessed(&inode);
        Ok(target)
    }

    fn readdir(
        &self,
        ino: Ino,
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let inode = self.inode(ino)?;
        {
            let _namespace = inode.namespace.read();
            self.done(readdir::read(&self.disk, &inode, position, emit))?;
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
        self.done(setattr::setattr(&self.operations, &inode, set))?;
        if !set.sets_times_only() {
            self.changed(&inode)?;
        }
        Ok(self.attributes(&inode))
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> Result<u64> {
        // An open changes nothing, so it does not wait for a thaw. The first write will.
        if mode.write && !self.mount.access.is_waiting() {
            self.mount.check_writable()?;
        }
        let inode = self.done(self.inodes.acquire(ino))?;
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        inode.cache.errors().open(handle);
        Ok(handle)
    }

    fn release(&self, ino: Ino, handle: u64) {
        let _open = self.pass();
        if let Ok(inode) = self.inode(ino) {
            inode.cache.errors().close(handle);
            inode.cache.release_reservation(&ReadMapper::new(&self.disk, &inode));
        }
        self.drop_references(ino, 1);
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8], flags: IoFlags) -> Result<usize> {
        let inode = self.inode(ino)?;
        let done = self.done(data::read(&self.operations, &inode, offset, buf, flags))?;
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
        let lent =
            self.done(data::read_shared(&self.operations, &inode, offset, len, flags, take))?;
        if lent {
            self.accessed(&inode);
        }
        Ok(lent)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
        let _open = self.enter();
        self.done(data::write(&self.operations, &self.inode(ino)?, offset, data.into(), flags))
    }

    fn write_shared(&self, ino: Ino, offset: u64, data: Bytes, flags: IoFlags) -> Result<usize> {
        let _open = self.enter();
        self.done(data::write(&self.operations, &self.inode(ino)?, offset, (&data).into(), flags))
    }

    fn fsync(&self, ino: Ino, handle: u64, data_only: bool) -> Result<()> {
        let _open = self.pass();
        let inode = self.inode(ino)?;
        let synced = self.done(fsync::fsync(&self.operations, &inode, data_only));
        // Reports each write-back error once to this handle, including errors from before this
        // call.
        let missed = inode.cache.errors().check_and_advance(handle);
        synced?;
        missed.map_or(Ok(()), |error| Err(crate::Error::from(error).into()))
    }

    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(preallocate::allocate(&self.operations, &inode, mode, offset, len))?;
        self.changed(&inode)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.done(data::seek(&self.operations, &self.inode(ino)?, offset, what))
    }

    fn extents(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        _sync: bool,
        emit: &mut dyn FnMut(FileExtent) -> bool,
    ) -> Result<()> {
        self.done(data::extents(&self.operations, &self.inode(ino)?, offset, len, emit))
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
            self.done(data::copy_range(&self.operations, &from, from_offset, &to, to_offset, len))?;
        self.changed(&to)?;
        Ok(copied)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.done(xattr::get(&self.disk, &*self.inode(ino)?, name))
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.done(xattr::list(&self.disk, &*self.inode(ino)?))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(
            self.operations
                .with_space(|| xattr::edit::set(&self.operations, &inode, name, value, mode)),
        )?;
        self.changed(&inode)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _open = self.enter();
        let inode = self.inode(ino)?;
        self.done(xattr::edit::remove(&self.operations, &inode, name))?;
        self.changed(&inode)
    }

    fn statfs(&self) -> Result<VolumeStats> {
        Ok(report::statfs(&self.inodes))
    }

    fn room(&self, reserved: bool) -> u64 {
        report::bytes_left(&self.inodes, reserved)
    }

    fn reserved_for(&self) -> Option<ReservedFor> {
        let options = self.mount.options();
        (options.reserve_root > 0).then_some(options.reserved_for)
    }

    fn referenced(&self) -> Vec<Ino> {
        self.inodes.table.referenced()
    }

    fn sync(&self) -> Result<()> {
        let _open = self.pass();
        self.done(sync::sync(&self.operations))
    }

    fn trim(&self, offset: u64, len: u64, minimum: u64) -> Result<u64> {
        let _open = self.enter();
        self.done(trim::trim(&self.mount, offset, len, minimum))
    }

    fn label(&self) -> Result<Vec<u8>> {
        Ok(self.disk.label().into_bytes())
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        let _open = self.enter();
        let label =
            std::str::from_utf8(label).map_err(|_| Error::Invalid("a label of F2FS is UTF-8"))?;
        self.done(self.mount.check_writable().and_then(|()| self.disk.set_label(label)))
    }

    fn report(&self) -> Report {
        report::report(&self.operations)
    }

    fn remount(&self, options: &str) -> Result<()> {
        Ok(remount::remount(&self.operations, options)?)
    }

    fn check_remount(&self, options: &str) -> Result<()> {
        Ok(remount::check_list(&self.operations, options)?)
    }

    fn freeze(&self) -> Result<()> {
        self.done(remount::freeze(&self.operations))
    }

    fn thaw(&self) -> Result<()> {
        self.done(remount::thaw(&self.operations))
    }

    fn is_frozen(&self) -> bool {
        self.mount.access.is_frozen()
    }

    fn check_stopped(&self) -> Result<()> {
        let store = self.disk.store.as_ref();
        Ok(store.map_or(Ok(()), |store| store.operation_lock.check())?)
    }

    fn shutdown(&self, flush_log: bool) -> Result<()> {
        self.done(unmount::shutdown(&self.operations, flush_log))
    }

    fn go_down(&self, flags: GoingDown) -> Result<()> {
        match flags {
            GoingDown::FullSync => self.sync().and_then(|()| self.shutdown(true)),
            GoingDown::MetaSync => self.shutdown(true),
            // Linux writes its dirty metadata without a checkpoint. Here metadata blocks are made
            // only for a checkpoint.
            GoingDown::NoSync | GoingDown::MetaFlush => self.shutdown(false),
            GoingDown::NeedFsck => {
                let _open = self.enter();
                self.done(unmount::request_fsck(&self.mount))
            }
        }
    }

    fn abandon(&self, reason: &str) -> Result<()> {
        self.mount.abandon(reason);
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        Ok(unmount::unmount(self)?)
    }
}
