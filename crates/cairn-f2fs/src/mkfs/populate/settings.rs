//! [`Settings`]: what the form of nodes depends on. It follows from the options alone, not from
//! the size of the volume.

use cairn_vfs::FileKind;

use crate::format::inode::{Advise, DEFAULT_INLINE_XATTR_WORDS, EXTRA_SIZE, InlineFlags};
use crate::format::path::TreeShape;
use crate::format::{Features, Inode, Log, Superblock};

/// The form of nodes.
pub(super) struct Settings {
    features: Features,
    /// With the lists of extensions.
    superblock: Superblock,
    /// Data pointers of inodes and direct nodes.
    pub(super) shape: TreeShape,
    /// Bytes of an inode for contents.
    pub(super) inline: usize,
    /// Bytes of an inode for attributes.
    pub(super) inline_xattrs: usize,
}

impl Settings {
    /// The form of nodes on a volume with this superblock.
    pub(super) fn new(superblock: Superblock) -> Self {
        let features = superblock.features;
        let record = record(features, FileKind::Regular, 0);
        Self {
            features,
            superblock,
            shape: record.shape(),
            inline: record.max_inline_data(),
            inline_xattrs: record.inline_xattr_range().len(),
        }
    }

    /// A new inode as Linux makes it: with room for inline attributes, and for all extra attributes
    /// if the volume has some.
    pub(super) fn record(&self, kind: FileKind, permissions: u16) -> Inode {
        record(self.features, kind, permissions)
    }

    /// How often a file of this name will change.
    pub(super) fn advise(&self, name: &[u8]) -> Advise {
        self.superblock.advise_for(name)
    }

    /// The log for the data of a node with this name.
    pub(super) fn data_log(&self, kind: FileKind, name: &[u8]) -> Log {
        let advise = match kind {
            FileKind::Directory => return Log::HotData,
            FileKind::Regular => self.advise(name),
            _ => Advise::empty(),
        };
        if advise.contains(Advise::HOT) {
            Log::HotData
        } else if advise.contains(Advise::COLD) {
            Log::ColdData
        } else {
            Log::WarmData
        }
    }
}

fn record(features: Features, kind: FileKind, permissions: u16) -> Inode {
    let extra_size = if features.contains(Features::EXTRA_ATTR) { EXTRA_SIZE } else { 0 };
    let mut record = Inode::new(kind, permissions, features, extra_size);
    record.inline.insert(InlineFlags::XATTR);
    if features.contains(Features::FLEXIBLE_INLINE_XATTR)
        && let Some(extra) = &mut record.extra
    {
        extra.inline_xattr_size = DEFAULT_INLINE_XATTR_WORDS as u16;
    }
    record
}
