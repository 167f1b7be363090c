//! Inode blocks: attributes, extra attributes, and where in the block pointers, inline contents and
//! inline attributes lie.
//!
//! An [`Inode`] holds the fields before the pointers, and the nids behind them. Data pointers,
//! inline contents and inline attributes stay in the block; `Inode::inline_data_range`,
//! `Inode::inline_xattr_range` and the pointer functions say where. [`Inode::encode_into`] writes
//! the fields back and does not change the rest of the block.

mod body;
mod check;
mod checksum;
mod extra;
mod flags;
mod raw;
#[cfg(test)]
mod tests;
mod words;

use cairn_base::units::as_index;
use cairn_vfs::{FileKind, Name, Timestamp};
use smallvec::SmallVec;
use zerocopy::FromZeros;

use super::features::Features;
use super::units::{BLOCK_SIZE, BlockAddr, NAME_MAX, Nid, stored};
use crate::corrupt::Corrupt;

pub(crate) use body::shows_dots;
pub(crate) use checksum::checksums;
pub use checksum::{seal, verify};
pub(crate) use extra::EXTRA_SIZE;
pub(crate) use extra::ExtraAttr;
pub(crate) use flags::InlineFlags;
pub use flags::{Advise, FileFlags};
pub(crate) use raw::NIDS;
use raw::{RawInode, RawInodeBlock, raw_time, time, view, view_mut};
pub(crate) use words::DEFAULT_INLINE_XATTR_WORDS;

/// The largest extent of a file, a hint: exact, or empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtentHint {
    /// First file block.
    pub(crate) fofs: u32,
    /// Its address.
    pub(crate) blk_addr: BlockAddr,
    /// Blocks; 0 if there is no hint.
    pub(crate) len: u32,
}

/// The name in a record. Records are copied often, and most names are short.
pub type InodeName = SmallVec<[u8; 32]>;

/// A decoded inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Kind.
    pub(crate) kind: FileKind,
    /// `0o7777`.
    pub(crate) permissions: u16,
    /// Advice.
    pub advise: Advise,
    /// What is inline.
    pub(crate) inline: InlineFlags,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Hard links.
    pub(crate) links: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks: this one, nodes below it, attribute node, data with reserved slots.
    pub(crate) blocks: u64,
    /// Last access.
    pub(crate) atime: Timestamp,
    /// Last change of the inode.
    pub(crate) ctime: Timestamp,
    /// Last change of contents.
    pub(crate) mtime: Timestamp,
    /// Reuse counter.
    pub(crate) generation: u32,
    /// Directories: levels in use. Regular files: `i_gc_failures` in the lower half.
    pub(crate) current_depth: u32,
    /// Attribute node, or [`Nid::NONE`].
    pub(crate) xattr_nid: Nid,
    /// `chattr` flags.
    pub flags: FileFlags,
    /// Parent directory, for roll-forward.
    pub pino: Nid,
    /// Name in it, for roll-forward; at most 255 bytes, otherwise not checked: see
    /// `Inode::entry_name`.
    pub name: InodeName,
    /// Directories: log2 of the buckets of level 0.
    pub(crate) dir_level: u8,
    /// Largest extent.
    pub(crate) ext: ExtentHint,
    /// Extra attributes.
    pub extra: Option<ExtraAttr>,
    /// Direct, direct, indirect, indirect, double indirect node.
    pub(crate) nids: [Nid; NIDS],
    /// With the feature `flexible_inline_xattr` the inode says itself how many words inline
    /// attributes have.
    flexible: bool,
}

impl Inode {
    /// A new inode with everything empty, one link, one block; with `extra_size` bytes of extra
    /// attributes (0: none).
    #[must_use]
    pub fn new(kind: FileKind, permissions: u16, features: Features, extra_size: u16) -> Self {
        let zeros = [0; BLOCK_SIZE];
        let mut inode = Self::from_raw(view(&zeros), kind, features);
        inode.permissions = permissions;
        (inode.links, inode.blocks) = (1, 1);
        if extra_size > 0 {
            inode.inline.insert(InlineFlags::EXTRA_ATTR);
            inode.extra = Some(ExtraAttr { size: extra_size, ..ExtraAttr::default() });
        }
        inode
    }

    /// Decodes an inode block and checks everything that the features and the block's size bound.
    /// The footer and the checksum are checked by [`super::NodeFooter::check`] and [`verify`].
    ///
    /// # Errors
    /// The first impossible field.
    pub(crate) fn decode(block: &[u8], ino: Nid, features: Features) -> Result<Self, Corrupt> {
        let raw = view(block);
        let mode = raw.head.i_mode.get();
        let bad = |field, value: u64, expected| Corrupt::Inode { ino, field, value, expected };
        let kind = FileKind::from_mode(mode.into());
        let kind = kind.ok_or_else(|| bad("i_mode", mode.into(), "it is no kind of file"))?;
        let name_len = raw.head.i_namelen.get();
        if as_index(name_len) > NAME_MAX {
            return Err(bad("i_namelen", name_len.into(), "a name has at most 255 bytes"));
        }
        let inode = Self::from_raw(raw, kind, features);
        inode.check(ino, features)?;
        Ok(inode)
    }

    /// The name that roll-forward gives it.
    ///
    /// # Errors
    /// No directory can hold it.
    pub(crate) fn entry_name(&self, ino: Nid) -> Result<Name<'_>, Corrupt> {
        let name = Name::check(&self.name).map_err(|bad| (bad.value(), bad.what()));
        let name = name.and_then(|name| {
            if name.is_dots() { Err((0, "the name is `.` or `..`")) } else { Ok(name) }
        });
        name.map_err(|(value, expected)| Corrupt::Inode { ino, field: "i_name", value, expected })
    }

    fn from_raw(raw: &RawInodeBlock, kind: FileKind, features: Features) -> Self {
        let head = &raw.head;
        let inline = InlineFlags::from_bits_retain(head.i_inline);
        let extra = inline.contains(InlineFlags::EXTRA_ATTR).then(|| ExtraAttr::read(&raw.i_addr));
        Self {
            kind,
            permissions: head.i_mode.get() & 0o7777,
            advise: Advise::from_bits_retain(head.i_advise),
            inline,
            uid: head.i_uid.get(),
            gid: head.i_gid.get(),
            links: head.i_links.get(),
            size: head.i_size.get(),
            blocks: head.i_blocks.get(),
            atime: time(head.i_atime, head.i_atime_nsec),
            ctime: time(head.i_ctime, head.i_ctime_nsec),
            mtime: time(head.i_mtime, head.i_mtime_nsec),
            generation: head.i_generation.get(),
            current_depth: head.i_current_depth.get(),
            xattr_nid: Nid(head.i_xattr_nid.get()),
            flags: FileFlags::from_bits_retain(head.i_flags.get()),
            pino: Nid(head.i_pino.get()),
            name: head.i_name.iter().copied().take(as_index(head.i_namelen.get())).collect(),
            dir_level: head.i_dir_level,
            ext: ExtentHint {
                fofs: head.i_ext_fofs.get(),
                blk_addr: BlockAddr(head.i_ext_blk_addr.get()),
                len: head.i_ext_len.get(),
            },
            extra,
            nids: raw.i_nid.map(|nid| Nid(nid.get())),
            flexible: features.contains(Features::FLEXIBLE_INLINE_XATTR),
        }
    }

    /// Writes all fields into the block; pointers, inline contents, inline attributes, the footer
    /// and the checksum stay as they are.
    ///
    /// # Panics
    /// The name is longer than 255 bytes.
    pub fn encode_into(&self, block: &mut [u8]) {
        assert!(self.name.len() <= NAME_MAX, "name of {} bytes", self.name.len());
        let raw = view_mut(block);
        raw.head = self.to_raw();
        raw.i_nid = self.nids.map(|nid| nid.get().into());
        if let Some(extra) = &self.extra {
            extra.write(&mut raw.i_addr);
        }
    }

    /// Writes the inline flags alone into the block, together with pointers or contents that have
    /// taken the place of the others. Until the other fields are written, too, who has only the
    /// block knows which of them it holds.
    pub(crate) fn encode_inline(&self, block: &mut [u8]) {
        view_mut(block).head.i_inline = self.inline.bits();
    }

    fn to_raw(&self) -> RawInode {
        let mut raw = RawInode::new_zeroed();
        raw.i_mode = (stored::<_, u16>(self.kind.mode_bits()) | self.permissions & 0o7777).into();
        raw.i_advise = self.advise.bits();
        raw.i_inline = self.inline.bits();
        raw.i_uid = self.uid.into();
        raw.i_gid = self.gid.into();
        raw.i_links = self.links.into();
        raw.i_size = self.size.into();
        raw.i_blocks = self.blocks.into();
        (raw.i_atime, raw.i_atime_nsec) = raw_time(self.atime);
        (raw.i_ctime, raw.i_ctime_nsec) = raw_time(self.ctime);
        (raw.i_mtime, raw.i_mtime_nsec) = raw_time(self.mtime);
        raw.i_generation = self.generation.into();
        raw.i_current_depth = self.current_depth.into();
        raw.i_xattr_nid = self.xattr_nid.get().into();
        raw.i_flags = self.flags.bits().into();
        raw.i_pino = self.pino.get().into();
        raw.i_namelen = stored::<_, u32>(self.name.len()).into();
        raw.i_name.iter_mut().zip(&self.name).for_each(|(to, byte)| *to = *byte);
        raw.i_dir_level = self.dir_level;
        raw.i_ext_fofs = self.ext.fofs.into();
        raw.i_ext_blk_addr = self.ext.blk_addr.get().into();
        raw.i_ext_len = self.ext.len.into();
        raw
    }
}
