//! Replays the creation and removal of names.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_jbd2::fast_commit::Name;
use cairn_vfs::namespace::check_name as check_name_of;
use cairn_vfs::{Error as VfsError, FileKind, Name as CheckedName};

use super::{Replay, misfit};
use crate::error::Result;
use crate::inode::{Inode, delete, directory};
use crate::namespace;

impl Replay<'_> {
    fn directory(&self, ino: Ino) -> Result<Arc<Inode>> {
        let parent = self.expect(ino)?;
        if parent.kind != FileKind::Directory {
            return Err(misfit(ino, ino.get(), "names something that is not a directory as one"));
        }
        Ok(parent)
    }

    /// Adds a name. False if it exists with this inode.
    fn add_name(&self, name: &Name, inode: &Arc<Inode>) -> Result<bool> {
        let ops = self.ops;
        let checked = check_name(name)?;
        let parent = self.directory(name.parent)?;
        if let Some((there, _)) = directory::lookup(ops, &parent, &checked)? {
            let same = there == inode.ino;
            return if same {
                Ok(false)
            } else {
                Err(misfit(inode.ino, there.get(), "takes a name that is in use"))
            };
        }
        let handle = ops.begin(ops.credits.create)?;
        directory::add(ops, &handle, &parent, checked, inode.ino, inode.kind)?;
        namespace::touch_parent(
            ops,
            &handle,
            &parent,
            i32::from(inode.kind == FileKind::Directory),
        )?;
        Ok(true)
    }

    fn set_links(&self, inode: &Inode, change: impl FnOnce(u32) -> u32) -> Result<u32> {
        let handle = self.ops.begin(self.ops.credits.attributes)?;
        let mut state = inode.state.write();
        state.record.links = change(state.record.links);
        inode.write_inode(self.ops, &handle, &mut state)?;
        Ok(state.record.links)
    }

    /// Adds the first name of a new inode. A directory has no blocks yet.
    pub(super) fn create(&mut self, name: &Name) -> Result<()> {
        let inode = self.expect(name.ino)?;
        if inode.kind != FileKind::Directory {
            self.add_name(name, &inode)?;
            return self.set_links(&inode, |_| 1).map(drop);
        }
        if inode.size() == 0 {
            let handle = self.ops.begin(self.ops.credits.create)?;
            directory::init(self.ops, &handle, &inode, name.parent)?;
        }
        self.add_name(name, &inode).map(drop)
    }

    /// Adds a further name.
    pub(super) fn link(&mut self, name: &Name) -> Result<()> {
        let inode = self.expect(name.ino)?;
        if inode.kind == FileKind::Directory {
            return Err(misfit(name.ino, name.parent.get(), "links a directory"));
        }
        if self.add_name(name, &inode)? {
            self.set_links(&inode, |links| links.saturating_add(1).min(u32::from(u16::MAX)))?;
            let handle = self.ops.begin(self.ops.credits.orphan)?;
            let mut state = inode.state.write();
            // The inode had no name and was open at the end of the log.
            if self.ops.orphans.remove(self.ops, &handle, inode.ino)? {
                state.record.dtime = 0;
            }
            inode.write_inode(self.ops, &handle, &mut state)?;
        }
        Ok(())
    }

    /// Removes a name, and with the last one the inode.
    pub(super) fn unlink(&mut self, name: &Name) -> Result<()> {
        let ops = self.ops;
        let checked = check_name(name)?;
        let parent = self.directory(name.parent)?;
        match directory::lookup(ops, &parent, &checked)? {
            Some((ino, _)) if ino == name.ino => {}
            // The name was removed already, or has another inode now.
            _ => return Ok(()),
        }
        let inode = self.expect(name.ino)?;
        let is_directory = inode.kind == FileKind::Directory;
        if is_directory && !directory::is_empty(ops, &inode)? {
            return Err(misfit(
                name.ino,
                name.parent.get(),
                "removes a directory that is not empty",
            ));
        }
        {
            let handle = ops.begin(ops.credits.unlink)?;
            directory::remove(ops, &handle, &parent, &checked)?;
            namespace::touch_parent(ops, &handle, &parent, if is_directory { -1 } else { 0 })?;
        }
        let left =
            self.set_links(&inode, |links| if is_directory { 0 } else { links.saturating_sub(1) })?;
        if left == 0 {
            delete::delete_inode(ops, &inode)?;
        }
        Ok(())
    }
}

fn check_name(name: &Name) -> Result<CheckedName<'_>> {
    Ok(check_name_of(&name.name, VfsError::Invalid("a fast commit makes or removes `.` or `..`"))?)
}
