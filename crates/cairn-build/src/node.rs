//! What an image is made of: inodes with their attributes, and where file contents are.

use std::ops::Range;

use cairn_base::Ino;
use cairn_vfs::{Acl, FileKind, Timestamp, acl};

/// A node of a [`crate::Tree`]. The root is 0; ids are dense and a directory has a smaller id than
/// its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The attribute with the label of SELinux.
pub(crate) const SELINUX: &[u8] = b"security.selinux";

/// An extended attribute with its whole name (`user.origin`, `security.capability`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// Name with its prefix.
    pub name: Box<[u8]>,
    /// Value as getxattr(2) gives it.
    pub value: Box<[u8]>,
}

/// The attributes of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Permission bits with set-user-id, set-group-id and sticky (`0o7777`).
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Extended attributes, sorted by name.
    pub xattrs: Vec<Xattr>,
}

/// The directory that mkfs makes at the top of a volume.
pub(crate) const LOST_AND_FOUND: &[u8] = b"lost+found";

impl Metadata {
    /// True for those of `lost+found` as mkfs makes it.
    pub(crate) fn is_of_mkfs(&self) -> bool {
        (self.permissions, self.uid, self.gid) == (0o700, 0, 0) && self.xattrs.is_empty()
    }

    /// Attributes without extended ones. Access and change time are the modification time: those of
    /// the host would make two builds of one tree differ.
    #[must_use]
    pub fn new(permissions: u32, (uid, gid): (u32, u32), mtime: Timestamp) -> Self {
        let permissions = permissions & 0o7777;
        Self { permissions, uid, gid, mtime, atime: mtime, ctime: mtime, xattrs: Vec::new() }
    }

    /// Sorts the attributes, and takes the permission bits from the access list, if there is one:
    /// archives of libarchive have the owning group's bits in the mode, where Linux has the mask.
    /// A list that says no more than the bits is left out, because no volume stores it.
    ///
    /// # Errors
    /// An access list is malformed.
    pub(crate) fn settle(&mut self) -> Result<(), acl::AclError> {
        self.xattrs.sort();
        self.xattrs.dedup_by(|later, first| later.name == first.name);
        let mut without = Vec::new();
        for (at, xattr) in self.xattrs.iter().enumerate() {
            let is_access = &*xattr.name == acl::ACCESS;
            if !is_access && &*xattr.name != acl::DEFAULT {
                continue;
            }
            let list = Acl::from_xattr(&xattr.value)?;
            let bits = list.as_ref().filter(|_| is_access).map(Acl::equivalent_mode);
            if let Some((bits, _)) = bits {
                self.permissions = (self.permissions & !0o777) | (bits & 0o777);
            }
            if list.is_none() || bits.is_some_and(|(_, complete)| complete) {
                without.push(at);
            }
        }
        without.into_iter().rev().for_each(|at| drop(self.xattrs.remove(at)));
        Ok(())
    }
}

/// Where the bytes of a regular file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// There are none.
    Empty,
    /// In a file of the host.
    Host(Box<[u8]>),
    /// In a store: the offset in it of each data range.
    Stored { store: u32, at: Box<[u64]> },
    /// In an inode of an opened volume.
    Volume { volume: u32, ino: Ino },
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegularFile {
    /// Bytes.
    pub size: u64,
    /// Ranges that hold data; the rest are holes. Sorted and apart.
    pub data: Vec<Range<u64>>,
    pub(crate) contents: Contents,
}

impl RegularFile {
    pub(crate) const EMPTY: Self = Self { size: 0, data: Vec::new(), contents: Contents::Empty };

    /// A file whose data ranges stand one behind the other in a store, from `at` on.
    pub(crate) fn stored(size: u64, data: Vec<Range<u64>>, store: u32, at: u64) -> Self {
        let mut next = at;
        let place = |range: &Range<u64>| {
            let here = next;
            next = next.saturating_add(range.end.saturating_sub(range.start));
            here
        };
        let at = data.iter().map(place).collect();
        Self { size, data, contents: Contents::Stored { store, at } }
    }

    /// The store, offset and length of a file that is stored in one piece.
    pub(crate) fn place(&self) -> Option<(u32, u64, u64)> {
        match (&self.contents, self.data.as_slice()) {
            (Contents::Stored { store, at }, [data])
                if data.start == 0 && data.end == self.size =>
            {
                Some((*store, *at.first()?, self.size))
            }
            _ => None,
        }
    }

    /// Makes holes of all but `data`, which are parts of the data ranges.
    pub(crate) fn keep_only(&mut self, data: Vec<Range<u64>>) {
        if let Contents::Stored { at, .. } = &mut self.contents {
            let place = |range: &Range<u64>| {
                let index = self.data.partition_point(|old| old.end <= range.start);
                let skipped = range.start.checked_sub(self.data.get(index)?.start)?;
                at.get(index)?.checked_add(skipped)
            };
            *at = data.iter().filter_map(place).collect();
        }
        self.data = data;
    }

    /// Bytes in the data ranges.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data.iter().map(|range| range.end.saturating_sub(range.start)).sum()
    }
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory. Its entries are sorted by name.
    Directory(Vec<(Box<[u8]>, NodeId)>),
    /// A regular file.
    Regular(RegularFile),
    /// A symbolic link to this target.
    Symlink(Box<[u8]>),
    /// A character device, in Linux's 32-bit `dev_t` encoding.
    CharDevice(u32),
    /// A block device.
    BlockDevice(u32),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind {
    /// The kind without its contents.
    #[must_use]
    pub fn file_kind(&self) -> FileKind {
        match self {
            Self::Directory(_) => FileKind::Directory,
            Self::Regular(_) => FileKind::Regular,
            Self::Symlink(_) => FileKind::Symlink,
            Self::CharDevice(_) => FileKind::CharDevice,
            Self::BlockDevice(_) => FileKind::BlockDevice,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
        }
    }
}

/// One inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Attributes.
    pub metadata: Metadata,
    /// What it is.
    pub kind: Kind,
    /// Names of the node; 1 for a directory.
    pub links: u32,
}

/// A device that Linux can encode.
///
/// # Errors
/// It cannot, in words.
pub(crate) fn device(major: u32, minor: u32) -> Result<u32, String> {
    cairn_vfs::encode_device(major, minor).ok_or_else(|| {
        format!("device {major}:{minor} is not possible: the greatest is 4095:1048575")
    })
}
