//! `setattr` of the oracle.

use cairn_base::Ino;
use cairn_vfs::{
    Attributes, Error, FileKind, InodeFlags, Result, SetAttributes, SetTime, Timestamp, acl,
};

use super::State;
use super::file::MAX_SIZE;

impl State {
    pub(super) fn setattr(&mut self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let now = self.now();
        self.check_setattr(ino, set)?;
        if let Some(size) = set.size {
            self.truncate(ino, size, now)?;
        }
        if let Some(permissions) = set.permissions {
            self.chmod(ino, permissions, set.kill_privileges)?;
        }
        let node = self.node_mut(ino)?;
        if set.kill_privileges && set.permissions.is_none() {
            node.kill_privileges();
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        let time = |asked: SetTime| match asked {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        node.atime = set.atime.map_or(node.atime, time);
        node.mtime = set.mtime.map_or(node.mtime, time);
        if let Some(flags) = set.flags {
            node.flags = flags & InodeFlags::settable_on(node.kind());
        }
        node.ctime = set.ctime.unwrap_or(now);
        Ok(node.attributes(ino))
    }

    fn check_setattr(&self, ino: Ino, set: &SetAttributes) -> Result<()> {
        let node = self.node(ino)?;
        let touches =
            SetAttributes { flags: None, ctime: None, ..set.clone() } != SetAttributes::default();
        // Writes by a kernel's write-back, not by a caller.
        let beyond_kept = SetAttributes { mtime: None, ctime: None, ..set.clone() };
        if set.ctime.is_some() && beyond_kept == SetAttributes::default() {
            return Ok(());
        }
        if touches {
            node.refuse_immutable()?;
        }
        // The current time may be set on an append-only file; nothing else.
        let only_now = |time: Option<SetTime>| match time {
            None | Some(SetTime::Now) => true,
            Some(SetTime::To(time)) => set.ctime == Some(time),
        };
        let append = node.flags.contains(InodeFlags::APPEND);
        let owner = set.permissions.is_some()
            || set.uid.is_some()
            || set.gid.is_some()
            || set.size.is_some();
        if append && (owner || !only_now(set.atime) || !only_now(set.mtime)) {
            return Err(Error::NotPermitted);
        }
        match set.size {
            Some(_) if node.kind() == FileKind::Directory => Err(Error::IsDirectory),
            Some(_) if node.kind() != FileKind::Regular => {
                Err(Error::Invalid("only regular files have a size to set"))
            }
            Some(size) if size > MAX_SIZE => Err(Error::TooLarge),
            _ => Ok(()),
        }
    }

    fn truncate(&mut self, ino: Ino, size: u64, now: Timestamp) -> Result<()> {
        self.change_blocks(ino, 0, |file| {
            file.set_size(size);
            Ok(())
        })?;
        self.node_mut(ino)?.mtime = now;
        Ok(())
    }

    fn chmod(&mut self, ino: Ino, permissions: u32, kill: bool) -> Result<()> {
        let list = self.stored_acl(ino, acl::ACCESS)?;
        let node = self.node_mut(ino)?;
        if kill {
            node.kill_privileges();
        }
        node.permissions = permissions & 0o7777;
        if let Some(list) = list {
            node.xattrs.insert(acl::ACCESS.to_vec(), list.with_mode(permissions).to_xattr());
        }
        Ok(())
    }
}
