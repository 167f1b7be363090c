//! The oracle as a [`cairn_vfs::FileSystem`]: each call takes the lock and uses the state.

use std::cmp::min;
use std::sync::PoisonError;

use cairn_base::Ino;
use cairn_base::stats::Report;
use cairn_vfs::fallocate::end_of_range;
use cairn_vfs::{
    AllocateMode, Attributes, Caller, DirEntry, Error, FileExtent, FileSystem, InodeFlags, IoFlags,
    NewInode, OpenMode, RenameMode, Result, Seek, SetAttributes, VolumeStats, XattrMode, fiemap,
};

use super::file::{BLOCK, MAX_SIZE};
use super::node::{Content, Node};
use super::{MAX_INODES, Model, ROOT, State};

const LABEL_MAX: usize = 16;
/// Access times older than this are updated even if the file did not change (`relatime`).
const DAY: i64 = 24 * 60 * 60;

impl State {
    /// `relatime`: true if the access time is to be updated.
    fn accessed(&mut self, ino: Ino) -> Result<()> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        let old = now.seconds - node.atime.seconds >= DAY;
        if !node.flags.contains(InodeFlags::NOATIME)
            && (node.atime <= node.mtime || node.atime <= node.ctime || old)
        {
            node.atime = now;
        }
        Ok(())
    }

    fn changed(&mut self, ino: Ino) -> Result<()> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        (node.mtime, node.ctime) = (now, now);
        Ok(())
    }

    fn write(&mut self, ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
        let node = self.node(ino)?;
        node.refuse_immutable()?;
        let file = node.file()?;
        let offset = if flags.contains(IoFlags::APPEND) { file.size() } else { offset };
        if node.flags.contains(InodeFlags::APPEND) && offset < file.size() {
            return Err(Error::NotPermitted);
        }
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= MAX_SIZE {
            return Err(Error::TooLarge);
        }
        let data = &data[..min(data.len() as u64, MAX_SIZE - offset) as usize];
        let missing = file.missing(offset, data.len() as u64);
        self.change_blocks(ino, missing, |file| {
            file.write(offset, data);
            Ok(())
        })?;
        if flags.contains(IoFlags::KILL_PRIVILEGES) {
            self.node_mut(ino)?.kill_privileges();
        }
        if !flags.contains(IoFlags::WRITEBACK) {
            self.changed(ino)?;
        }
        Ok(data.len())
    }

    fn allocate(&mut self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        let node = self.node(ino)?;
        node.refuse_immutable()?;
        let destroys = !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize);
        if destroys {
            node.refuse_fixed()?;
        }
        let file = node.file()?;
        let end = end_of_range(offset, len, MAX_SIZE)?;
        let grow = match mode {
            AllocateMode::Extend | AllocateMode::KeepSize | AllocateMode::ZeroRange { .. } => {
                file.missing(offset, len)
            }
            AllocateMode::PunchHole | AllocateMode::CollapseRange | AllocateMode::InsertRange => 0,
        };
        self.change_blocks(ino, grow, |file| {
            match mode {
                AllocateMode::Extend | AllocateMode::KeepSize => file.allocate(offset, len),
                // Blocks preallocated beyond the size can be punched too.
                AllocateMode::PunchHole => file.punch(offset, len),
                AllocateMode::ZeroRange { .. } => file.zero_range(offset, len),
                AllocateMode::CollapseRange => file.collapse(offset, len)?,
                AllocateMode::InsertRange => file.insert(offset, len)?,
            }
            if matches!(mode, AllocateMode::Extend | AllocateMode::ZeroRange { keep_size: false }) {
                file.grow_to(end);
            }
            Ok(())
        })?;
        self.changed(ino)
    }

    fn copy_range(
        &mut self,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
    ) -> Result<u64> {
        let source = self.node(from)?.file()?;
        self.node(to)?.file()?;
        let len = min(len, source.size().saturating_sub(from_offset));
        let overlaps = from == to
            && from_offset < to_offset.saturating_add(len)
            && to_offset < from_offset + len;
        if overlaps && len > 0 {
            return Err(Error::Invalid("source and destination overlap"));
        }
        let mut buf = vec![0; usize::try_from(min(len, 1 << 20)).expect("at most 1 MiB")];
        let mut done = 0;
        while done < len {
            let piece = min(len - done, buf.len() as u64) as usize;
            self.node(from)?.file()?.read(from_offset + done, &mut buf[..piece]);
            match self.write(to, to_offset + done, &buf[..piece], IoFlags::empty()) {
                Ok(written) => done += written as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl FileSystem for Model {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.running()?.lookup(parent, name)
    }

    fn forget(&self, ino: Ino, count: u64) {
        // Front-ends drop their references also after the unmount.
        if let Ok(mut state) = self.running() {
            state.forget(ino, count);
        }
    }

    fn create(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewInode<'_>,
        permissions: u32,
        caller: &Caller,
    ) -> Result<Attributes> {
        self.running()?.create(parent, name, &new, permissions, caller)
    }

    fn tmpfile(&self, parent: Ino, permissions: u32, caller: &Caller) -> Result<Attributes> {
        self.running()?.tmpfile(parent, permissions, caller)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.running()?.link(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.running()?.unlink(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.running()?.rmdir(parent, name)
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.running()?.rename((parent, name), (new_parent, new_name), mode)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut state = self.running()?;
        state.accessed(ino)?;
        match &state.node(ino)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid("not a symbolic link")),
        }
    }

    fn readdir(
        &self,
        ino: Ino,
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        // Called without the lock: `emit` may call the filesystem.
        let entries = {
            let mut state = self.running()?;
            state.accessed(ino)?;
            state.entries_after(ino, position)?
        };
        entries.into_iter().all(emit);
        Ok(())
    }

    fn getattr(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.running()?.node(ino)?.attributes(ino))
    }

    fn setattr(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.running()?.setattr(ino, set)
    }

    fn open(&self, ino: Ino, mode: OpenMode) -> Result<u64> {
        let mut state = self.running()?;
        let node = state.node(ino)?;
        if mode.write {
            node.refuse_immutable()?;
        }
        state.next_handle += 1;
        Ok(state.next_handle - 1)
    }

    fn release(&self, _ino: Ino, handle: u64) {
        assert_ne!(handle, 0, "release of what was never opened");
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8], _flags: IoFlags) -> Result<usize> {
        let mut state = self.running()?;
        let count = state.node(ino)?.file()?.read(offset, buf);
        state.accessed(ino)?;
        Ok(count)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
        self.running()?.write(ino, offset, data, flags)
    }

    fn fsync(&self, ino: Ino, _handle: u64, _data_only: bool) -> Result<()> {
        self.running()?.node(ino).map(drop)
    }

    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        self.running()?.allocate(ino, mode, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.running()?.node(ino)?.file()?.seek(offset, what)
    }

    fn extents(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        _sync: bool,
        emit: &mut dyn FnMut(FileExtent) -> bool,
    ) -> Result<()> {
        let (runs, last) = {
            let state = self.running()?;
            let file = state.node(ino)?.file()?;
            (file.runs(offset, len), file.runs(0, u64::MAX).last().copied())
        };
        for (first, count, written) in runs {
            let mut flags = if written { 0 } else { fiemap::UNWRITTEN };
            if last
                .is_some_and(|(last_first, last_count, _)| first + count == last_first + last_count)
            {
                flags |= fiemap::LAST;
            }
            if !emit(FileExtent {
                logical: first * BLOCK,
                physical: 0,
                length: count * BLOCK,
                flags,
            }) {
                break;
            }
        }
        Ok(())
    }

    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.running()?.copy_range((from, from_offset), (to, to_offset), len)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.running()?.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.running()?.listxattr(ino)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.running()?.setxattr(ino, name, value, mode)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.running()?.removexattr(ino, name)
    }

    fn statfs(&self) -> Result<VolumeStats> {
        let state = self.running()?;
        let free = state.blocks - state.used;
        Ok(VolumeStats {
            block_size: 4096,
            blocks: state.blocks,
            free_blocks: free,
            available_blocks: free,
            inodes: MAX_INODES,
            free_inodes: MAX_INODES - state.nodes.len() as u64,
            name_max: 255,
            fsid: 0,
            overwrites_take_blocks: false,
        })
    }

    fn sync(&self) -> Result<()> {
        self.running().map(drop)
    }

    fn trim(&self, offset: u64, len: u64, minimum: u64) -> Result<u64> {
        let state = self.running()?;
        let size = state.blocks * BLOCK;
        if offset >= size {
            return Err(Error::Invalid("beyond the end of the volume"));
        }
        let free = min((state.blocks - state.used) * BLOCK, min(len, size - offset));
        Ok(if free < minimum { 0 } else { free })
    }

    fn label(&self) -> Result<Vec<u8>> {
        Ok(self.running()?.label.clone())
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_MAX || label.contains(&0) {
            return Err(Error::Invalid("a label has at most 16 bytes and no NUL"));
        }
        self.running()?.label = label.to_vec();
        Ok(())
    }

    fn report(&self) -> Report {
        let mut report = Report::new();
        report.section("options").set("ro", false);
        report.section("state").set("format", "model").set("mode", "rw");
        report
    }

    /// The only option is the default.
    fn remount(&self, options: &str) -> Result<()> {
        drop(self.running()?);
        match options.split(',').find(|word| !matches!(*word, "" | "rw" | "defaults")) {
            Some(word) => Err(Error::Option(format!("unknown option `{word}`").into())),
            None => Ok(()),
        }
    }

    fn shutdown(&self, _flush_log: bool) -> Result<()> {
        self.running()?.stopped = Some("was shut down");
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stopped = Some("is unmounted");
        // Inodes without names are deleted even if the front-end refers to them, as at a mount of a
        // volume with orphans.
        state.nodes.values_mut().for_each(|node: &mut Node| node.references = 0);
        let orphans: Vec<Ino> =
            state.nodes.iter().filter(|(_, node)| node.links == 0).map(|(ino, _)| *ino).collect();
        orphans.into_iter().for_each(|ino| state.delete_if_dead(ino));
        Ok(())
    }
}
