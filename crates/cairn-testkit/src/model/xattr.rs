//! Extended attributes and access control lists of the oracle.

use cairn_base::Ino;
use cairn_vfs::{Acl, Error, FileKind, Result, XattrMode, acl};

use super::State;

/// `XATTR_SIZE_MAX`.
const MAX_VALUE: usize = 64 * 1024;
const NAME_MAX: usize = 255;

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::Range);
    }
    if name == acl::ACCESS || name == acl::DEFAULT {
        return Ok(());
    }
    for prefix in [&b"user."[..], b"trusted.", b"security."] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return if rest.is_empty() {
                Err(Error::Invalid("empty attribute name"))
            } else {
                Ok(())
            };
        }
    }
    Err(Error::Unsupported("extended attributes of this namespace"))
}

/// Only files and directories have user attributes.
fn refuse_kind(kind: FileKind, name: &[u8]) -> Result<()> {
    if name.starts_with(b"user.") && !matches!(kind, FileKind::Regular | FileKind::Directory) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

impl State {
    pub(super) fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        self.node(ino)?.xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    pub(super) fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.node(ino)?.xattrs.keys().cloned().collect())
    }

    pub(super) fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        check_name(name)?;
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.refuse_fixed()?;
        let kind = node.kind();
        refuse_kind(kind, name)?;
        if value.len() > MAX_VALUE {
            return Err(Error::TooBig);
        }
        let is_acl = name == acl::ACCESS || name == acl::DEFAULT;
        match (mode, node.xattrs.contains_key(name)) {
            // Access control lists ignore XATTR_CREATE and XATTR_REPLACE, as in Linux.
            _ if is_acl => {}
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoAttribute),
            _ => {}
        }
        if is_acl {
            self.set_acl(ino, name, value, mode)?;
        } else {
            node.xattrs.insert(name.to_vec(), value.to_vec());
        }
        self.node_mut(ino)?.ctime = now;
        Ok(())
    }

    fn set_acl(&mut self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let list =
            Acl::from_xattr(value).map_err(|_| Error::Invalid("malformed access control list"))?;
        let node = self.node_mut(ino)?;
        let kind = node.kind();
        if kind == FileKind::Symlink {
            return Err(Error::Unsupported("access control lists of symbolic links"));
        }
        if name == acl::DEFAULT && kind != FileKind::Directory {
            return if list.is_some() { Err(Error::AccessDenied) } else { Ok(()) };
        }
        let mut stored = list;
        if name == acl::ACCESS
            && let Some(list) = &stored
        {
            let (permissions, complete) = list.equivalent_mode();
            node.permissions = node.permissions & !0o777 | permissions;
            if mode == XattrMode::SetByStranger {
                node.permissions &= !0o2000;
            }
            if complete {
                stored = None;
            }
        }
        match stored {
            Some(list) => drop(node.xattrs.insert(name.to_vec(), list.to_xattr())),
            None => drop(node.xattrs.remove(name)),
        }
        Ok(())
    }

    pub(super) fn removexattr(&mut self, ino: Ino, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.refuse_fixed()?;
        refuse_kind(node.kind(), name)?;
        let is_acl = name == acl::ACCESS || name == acl::DEFAULT;
        if node.xattrs.remove(name).is_none() && !is_acl {
            return Err(Error::NoAttribute);
        }
        node.ctime = now;
        Ok(())
    }

    /// A list that is stored, for inheritance and `chmod`.
    pub(super) fn stored_acl(&self, ino: Ino, name: &[u8]) -> Result<Option<Acl>> {
        let stored = self.node(ino)?.xattrs.get(name);
        Ok(stored.map(|value| {
            Acl::from_xattr(value).expect("was valid when set").expect("is not empty")
        }))
    }
}
