//! Extended attributes, ioctls and the volume as a whole.

use cairn_vfs::{Error, XattrMode};
use fuser::InitFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::Operations;
use crate::counters::Operation;
use crate::credentials::Credentials;
use crate::ioctl::Ioctl;
use crate::wire::abi::{
    GetxattrIn, GetxattrOut, IoctlIn, IoctlOut, SETXATTR_ACL_KILL_SGID, SetxattrIn, SetxattrMore,
    StatfsOut,
};
use crate::wire::{Reply, Request};

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
/// Prefix of attributes whose names only administrators may see.
const TRUSTED: &[u8] = b"trusted.";
/// Prefix of access control lists.
const ACCESS_LISTS: &[u8] = b"system.posix_acl_";

/// Sends a value, or its size if the request asks for it.
fn send_value(reply: Reply, room: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        // An attribute's value or list of names is far below 4 GiB.
        Ok(value) if room == 0 => {
            reply.send(&Ok(GetxattrOut { size: value.len() as u32, padding: 0 }))
        }
        Ok(value) if value.len() > room as usize => reply.error(Errno::RANGE),
        Ok(value) => reply.send_bytes(Ok(&value)),
        Err(error) => reply.error(error),
    }
}

impl Operations {
    pub(super) fn getxattr(&self, request: &mut Request<'_>, reply: Reply) {
        let ino = self.core.ino(request.header.nodeid);
        let asked = request.take::<GetxattrIn>().and_then(|asked| Ok((asked, request.name()?)));
        match asked {
            Ok((asked, name)) => {
                send_value(
                    reply,
                    asked.size,
                    self.core.run(Operation::GetXattr, |fs| fs.getxattr(ino, name)),
                );
            }
            Err(error) => reply.error(error),
        }
    }

    pub(super) fn listxattr(&self, request: &mut Request<'_>, reply: Reply) {
        let ino = self.core.ino(request.header.nodeid);
        let asked: GetxattrIn = match request.take() {
            Ok(asked) => asked,
            Err(error) => return reply.error(error),
        };
        let sender = Credentials::of(request);
        let names = self.core.run(Operation::ListXattr, |fs| {
            let mut names = fs.listxattr(ino)?;
            // The kernel itself refuses their values to other users.
            if names.iter().any(|name| name.starts_with(TRUSTED)) && !sender.is_administrator() {
                names.retain(|name| !name.starts_with(TRUSTED));
            }
            Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
        });
        send_value(reply, asked.size, names);
    }

    pub(super) fn setxattr(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let asked: SetxattrIn = request.take()?;
        let extended = self.core.agreed(InitFlags::FUSE_SETXATTR_EXT);
        let more = if extended { request.take()? } else { SetxattrMore::default() };
        let name = request.name()?;
        let value = request.bytes(asked.size)?;
        let (ino, sender) = (self.core.ino(request.header.nodeid), Credentials::of(request));
        // Without FUSE_POSIX_ACL the kernel takes a list for any attribute: it neither says who may
        // not keep set-group-id, nor expects that the list changes the mode.
        let is_unknown_list =
            name.starts_with(ACCESS_LISTS) && !self.core.agreed(InitFlags::FUSE_POSIX_ACL);
        let done = self.core.run_taking_space(Operation::SetXattr, &sender, |fs| {
            let is_stranger = more.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0
                || is_unknown_list && !sender.is_member(fs.getattr(ino)?.gid);
            let mode = match asked.flags {
                0 if is_stranger => XattrMode::SetByStranger,
                0 => XattrMode::Set,
                XATTR_CREATE => XattrMode::Create,
                XATTR_REPLACE => XattrMode::Replace,
                _ => return Err(Error::Invalid("setxattr flags")),
            };
            fs.setxattr(ino, name, value, mode)
        });
        if is_unknown_list {
            self.core.kernel.attributes_changed(request.header.nodeid);
        }
        done
    }

    pub(super) fn removexattr(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let (ino, name) = (self.core.ino(request.header.nodeid), request.name()?);
        self.core.run(Operation::RemoveXattr, |fs| fs.removexattr(ino, name))
    }

    pub(super) fn statfs(&self) -> Result<StatfsOut, Errno> {
        let stats = self.core.run(Operation::StatFs, |fs| fs.statfs())?;
        Ok(StatfsOut {
            blocks: stats.blocks,
            bfree: stats.free_blocks,
            bavail: stats.available_blocks,
            files: stats.inodes,
            ffree: stats.free_inodes,
            bsize: stats.block_size,
            namelen: stats.name_max,
            frsize: stats.block_size,
            ..StatfsOut::default()
        })
    }

    pub(super) fn syncfs(&self) -> Result<(), Errno> {
        self.core.run(Operation::SyncFs, |fs| fs.sync())
    }

    pub(super) fn ioctl(&self, request: &mut Request<'_>, reply: Reply) {
        let asked =
            request.take::<IoctlIn>().and_then(|asked| Ok((asked, request.bytes(asked.in_size)?)));
        let (asked, input) = match asked {
            Ok(asked) => asked,
            Err(error) => return reply.error(error),
        };
        let ioctl = Ioctl {
            ino: self.core.ino(request.header.nodeid),
            caller: Credentials::of(request),
            command: asked.cmd,
            argument: asked.arg,
            input: input.to_vec(),
            output_size: asked.out_size as usize,
        };
        if !ioctl.is_known() {
            return reply.error(Errno::NOTTY);
        }
        let node = request.header.nodeid;
        if ioctl.sets_flags() {
            // Data that was written before the file became protected is collected first, because it
            // would be refused afterwards.
            self.core.kernel.collect_mapped_pages(node);
        }
        if ioctl.ends_with_everything() {
            let all = self.core.fs().referenced();
            all.into_iter()
                .for_each(|ino| self.core.kernel.collect_mapped_pages(self.core.node(ino)));
        }
        let done = self.core.run(Operation::Ioctl, |fs| ioctl.run(fs));
        self.core.notice_stop();
        if ioctl.sets_flags() {
            // The new flags decide whether the kernel asks before it writes ([`crate::guard`]), and
            // the change time is new.
            self.core.kernel.attributes_changed(node);
        }
        match done {
            Ok(output) => reply.data(&[IoctlOut::default().as_bytes(), &output]),
            Err(error) => reply.error(error),
        }
    }
}
