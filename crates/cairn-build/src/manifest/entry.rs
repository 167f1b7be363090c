//! [`Entry`]: what a line of a manifest asks for, whatever its form.

use std::path::PathBuf;

use cairn_vfs::{FileKind, Timestamp};

use crate::node::Xattr;
use crate::path::MemberPath;

/// One name and what becomes of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Line of the manifest, from 1.
    pub(super) line: usize,
    pub(super) path: MemberPath,
    pub(super) act: Act,
    pub(super) set: Changes,
}

/// What an entry does beside its attributes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It changes what is there.
    Change {
        /// What it must be.
        kind: Option<FileKind>,
        /// Everything below it changes, too.
        below: bool,
        missing: Missing,
    },
    /// It puts something in.
    Put { new: New, there: There },
    /// It is a further name of this file.
    Link(MemberPath),
}

/// What an entry does if nothing has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Error,
    Warn,
    Ignore,
}

/// What an entry does if something has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum There {
    /// It takes its place. A directory must stay one.
    Replace,
    /// The same kind gets the new attributes. Another kind is an error.
    Restate,
    /// It stays, with a warning.
    Keep,
}

/// What is put in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum New {
    Directory,
    /// A file with these bytes.
    Bytes(Vec<u8>),
    /// A file with the contents of one of the host.
    Host(PathBuf),
    Symlink(Vec<u8>),
    CharDevice(u32),
    BlockDevice(u32),
    Fifo,
    Socket,
}

impl New {
    pub(super) fn kind(&self) -> FileKind {
        match self {
            Self::Directory => FileKind::Directory,
            Self::Bytes(_) | Self::Host(_) => FileKind::Regular,
            Self::Symlink(_) => FileKind::Symlink,
            Self::CharDevice(_) => FileKind::CharDevice,
            Self::BlockDevice(_) => FileKind::BlockDevice,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
        }
    }
}

/// An owner by number, or by its name in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Number(u32),
    Name(Box<[u8]>),
}

/// Attributes that are stated; the others stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) permissions: Option<u32>,
    pub(super) uid: Option<Id>,
    pub(super) gid: Option<Id>,
    pub(super) mtime: Option<Timestamp>,
    pub(super) xattrs: Vec<Xattr>,
    /// The file has no other extended attributes.
    pub(super) all_xattrs: bool,
}

impl Changes {
    /// Adds an attribute, in place of one with its name.
    pub(super) fn set_xattr(&mut self, name: &[u8], value: Vec<u8>) {
        self.xattrs.retain(|xattr| &*xattr.name != name);
        self.xattrs.push(Xattr { name: name.into(), value: value.into() });
    }
}
