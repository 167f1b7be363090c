//! Inode blocks: attributes, extra attributes, and where in the block pointers, inline contents and inline attributes lie.
//!
//! An [`Inode`] holds what stands *before* the pointers, and the nids behind them. Data pointers, inline contents and inline
//! attributes stay in the block; [`Inode::inline_data_range`], [`Inode::inline_xattr_range`] and the pointer functions say
//! where. [`Inode::encode_into`] writes the fields back and leaves all of that alone.
//!
//! The 923 words of `i_addr` are shared: extra attributes take `i_extra_isize` bytes at the start, inline attributes
//! [`Inode::inline_xattr_words`] at the end, pointers (or one reserved word and inline contents) have the rest.

use std::ops::Range;

use bitflags::bitflags;
use cairn_vfs::{FileKind, Timestamp};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::crc32;
use super::features::Features;
use super::layout::Layout;
use super::node::{NodeFooter, POINTERS};
use super::path::TreeShape;
use super::units::{BLOCK_SIZE, BlockAddr, NAME_MAX, Nid};
use crate::corrupt::Corrupt;

/// Words of `i_addr`.
pub const ADDR_WORDS: u32 = 923;
/// nids in an inode: two direct, two indirect, one double indirect.
pub const NIDS: usize = 5;
/// Words kept for inline attributes where the number is not set per inode.
pub const DEFAULT_INLINE_XATTR_WORDS: u32 = 50;
/// Most extra attributes, in bytes: what the kernel gives every inode it makes.
pub const EXTRA_SIZE: u16 = 36;
/// Most words for inline attributes.
const MAX_INLINE_XATTR_WORDS: u32 = 903;
/// Fewest words for inline attributes, where there are any: their header.
const MIN_INLINE_XATTR_WORDS: u32 = 6;
/// Where `i_addr` begins.
const ADDR_AT: usize = 360;
/// Where `i_nid` begins.
const NID_AT: usize = 4052;
/// Where the checksum is.
const CHECKSUM_AT: usize = 368;

bitflags! {
    /// `i_advise`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Advise: u8 {
        /// Will hardly change.
        const COLD = 0x1;
        /// `i_pino` and `i_name` are not to be trusted.
        const LOST_PINO = 0x2;
        /// Encrypted.
        const ENCRYPT = 0x4;
        /// The name in the inode is encrypted.
        const ENC_NAME = 0x8;
        /// Blocks may lie behind the end of file.
        const KEEP_SIZE = 0x10;
        /// Will change often.
        const HOT = 0x20;
        /// Protected by fs-verity.
        const VERITY = 0x40;
        /// Truncated to a size inside a cluster.
        const TRUNC = 0x80;
    }

    /// `i_inline`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InlineFlags: u8 {
        /// Attributes are in the inode.
        const XATTR = 0x1;
        /// Contents are in the inode.
        const DATA = 0x2;
        /// Directory entries are in the inode.
        const DENTRY = 0x4;
        /// Inline contents have a byte that is not zero.
        const DATA_EXIST = 0x8;
        /// Obsolete.
        const DOTS = 0x10;
        /// There are extra attributes.
        const EXTRA_ATTR = 0x20;
        /// Blocks must not move.
        const PIN_FILE = 0x40;
        /// Blocks saved by compression were given back.
        const COMPRESS_RELEASED = 0x80;
    }

    /// `i_flags`. Unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FileFlags: u32 {
        /// Compressed.
        const COMPR = 0x4;
        /// Synchronous updates.
        const SYNC = 0x8;
        /// No change of contents or attributes.
        const IMMUTABLE = 0x10;
        /// Writes only at the end.
        const APPEND = 0x20;
        /// Not dumped.
        const NODUMP = 0x40;
        /// Access times are not kept.
        const NOATIME = 0x80;
        /// Never compress.
        const NOCOMP = 0x400;
        /// Hashed directory: all are.
        const INDEX = 0x1000;
        /// Synchronous directory changes.
        const DIRSYNC = 0x1_0000;
        /// New entries inherit the project id.
        const PROJINHERIT = 0x2000_0000;
        /// Names ignore case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInode {
    i_mode: U16,
    i_advise: u8,
    i_inline: u8,
    i_uid: U32,
    i_gid: U32,
    i_links: U32,
    i_size: U64,
    i_blocks: U64,
    i_atime: U64,
    i_ctime: U64,
    i_mtime: U64,
    i_atime_nsec: U32,
    i_ctime_nsec: U32,
    i_mtime_nsec: U32,
    i_generation: U32,
    i_current_depth: U32,
    i_xattr_nid: U32,
    i_flags: U32,
    i_pino: U32,
    i_namelen: U32,
    i_name: [u8; NAME_MAX],
    i_dir_level: u8,
    i_ext_fofs: U32,
    i_ext_blk_addr: U32,
    i_ext_len: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtra {
    i_extra_isize: U16,
    i_inline_xattr_size: U16,
    i_projid: U32,
    i_inode_checksum: U32,
    i_crtime: U64,
    i_crtime_nsec: U32,
    i_compr_blocks: U64,
    i_compress_algorithm: u8,
    i_log_cluster_size: u8,
    i_compress_flag: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInodeBlock {
    head: RawInode,
    i_addr: [U32; ADDR_WORDS as usize],
    i_nid: [U32; NIDS],
    footer: [u8; 24],
}

const _: () = assert!(size_of::<RawInode>() == ADDR_AT);
const _: () = assert!(size_of::<RawExtra>() == EXTRA_SIZE as usize);
const _: () = assert!(size_of::<RawInodeBlock>() == BLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawInodeBlock, i_nid) == NID_AT);
const _: () = assert!(ADDR_AT + std::mem::offset_of!(RawExtra, i_inode_checksum) == CHECKSUM_AT);

/// The largest extent of a file, a hint: exact, or empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentHint {
    /// First file block.
    pub fofs: u32,
    /// Its address.
    pub blk_addr: BlockAddr,
    /// Blocks; 0 if there is no hint.
    pub len: u32,
}

/// Extra attributes. A field whose end lies beyond `size` is 0 and is not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraAttr {
    /// `i_extra_isize`: bytes in use, 4 to [`EXTRA_SIZE`].
    pub size: u16,
    /// `i_inline_xattr_size`: words for inline attributes, with the feature `flexible_inline_xattr`.
    pub inline_xattr_size: u16,
    /// Project.
    pub projid: u32,
    /// Checksum as stored; [`seal`] writes it.
    pub inode_checksum: u32,
    /// Creation.
    pub crtime: Timestamp,
    /// Blocks saved by compression.
    pub compr_blocks: u64,
    /// 0 lzo, 1 lz4, 2 zstd, 3 lzo-rle.
    pub compress_algorithm: u8,
    /// log2 of the blocks a cluster.
    pub log_cluster_size: u8,
    /// Bit 0: clusters have a checksum; bits 8 to 15: level.
    pub compress_flag: u16,
}

/// A decoded inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Kind.
    pub kind: FileKind,
    /// `0o7777`.
    pub permissions: u16,
    /// Advice.
    pub advise: Advise,
    /// What is inline.
    pub inline: InlineFlags,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks: this one, nodes below it, attribute node, data with reserved slots.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Reuse counter.
    pub generation: u32,
    /// Directories: levels in use. Regular files: `i_gc_failures` in the lower half.
    pub current_depth: u32,
    /// Attribute node, or [`Nid::NONE`].
    pub xattr_nid: Nid,
    /// `chattr` flags.
    pub flags: FileFlags,
    /// Parent directory, for roll-forward.
    pub pino: Nid,
    /// Name in it, for roll-forward; at most 255 bytes.
    pub name: Vec<u8>,
    /// Directories: log2 of the buckets of level 0.
    pub dir_level: u8,
    /// Largest extent.
    pub ext: ExtentHint,
    /// Extra attributes.
    pub extra: Option<ExtraAttr>,
    /// Direct, direct, indirect, indirect, double indirect node.
    pub nids: [Nid; NIDS],
    /// With the feature `flexible_inline_xattr` the inode says itself how many words inline attributes have.
    flexible: bool,
}

fn time(seconds: U64, nanoseconds: U32) -> Timestamp {
    // Values beyond a second can only be damage; they would not survive `timespec`.
    Timestamp { seconds: seconds.get().cast_signed(), nanoseconds: nanoseconds.get().min(999_999_999) }
}

fn view(block: &[u8]) -> &RawInodeBlock {
    RawInodeBlock::ref_from_bytes(block).expect("a whole block")
}

fn view_mut(block: &mut [u8]) -> &mut RawInodeBlock {
    RawInodeBlock::mut_from_bytes(block).expect("a whole block")
}

impl Inode {
    /// A new inode with everything empty, one link, one block; with `extra_size` bytes of extra attributes (0: none).
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

    /// Decodes an inode block and checks everything that the features and the block's size bound. The footer and the
    /// checksum are checked by [`NodeFooter::check`] and [`verify`].
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn decode(block: &[u8], ino: Nid, features: Features) -> Result<Self, Corrupt> {
        let raw = view(block);
        let mode = raw.head.i_mode.get();
        let bad = |field, value: u64, expected| Corrupt::Inode { ino, field, value, expected };
        let kind = FileKind::from_mode(mode.into());
        let kind = kind.ok_or_else(|| bad("i_mode", mode.into(), "it is no kind of file"))?;
        let name_len = raw.head.i_namelen.get();
        if name_len as usize > NAME_MAX {
            return Err(bad("i_namelen", name_len.into(), "a name has at most 255 bytes"));
        }
        let inode = Self::from_raw(raw, kind, features);
        inode.check(ino, features)?;
        Ok(inode)
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
            name: head.i_name.iter().copied().take(head.i_namelen.get() as usize).collect(),
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

    fn check(&self, ino: Nid, features: Features) -> Result<(), Corrupt> {
        let check = |field, value: u64, fine: bool, expected| {
            if fine { Ok(()) } else { Err(Corrupt::Inode { ino, field, value, expected }) }
        };
        check("i_blocks", self.blocks, self.blocks > 0, "an inode has at least its own block")?;
        check("i_size", self.size, self.size <= i64::MAX as u64, "it is beyond every limit")?;
        let inline = u64::from(self.inline.bits());
        if let Some(extra) = &self.extra {
            let allowed = features.contains(Features::EXTRA_ATTR);
            check("i_inline", inline, allowed, "there are extra attributes without the feature")?;
            let size = extra.size;
            let fine = (4..=EXTRA_SIZE).contains(&size) && size.is_multiple_of(4);
            check("i_extra_isize", size.into(), fine, "it must be 4 to 36, in whole words")?;
        } else {
            let needed = features.intersects(Features::FLEXIBLE_INLINE_XATTR);
            check("i_inline", inline, !needed, "extra attributes are missing")?;
        }
        let words = self.inline_xattr_words();
        let fewest = if self.inline.contains(InlineFlags::XATTR) { MIN_INLINE_XATTR_WORDS } else { 0 };
        let fine = (fewest..=MAX_INLINE_XATTR_WORDS).contains(&words);
        check("i_inline_xattr_size", words.into(), fine, "it must be 6 to 903")?;
        self.check_inline(ino)?;
        let level = u64::from(self.dir_level);
        let fine = self.kind != FileKind::Directory || level < 64;
        check("i_dir_level", level, fine, "there are at most 63 levels")?;
        self.check_compression(ino)
    }

    fn check_inline(&self, ino: Nid) -> Result<(), Corrupt> {
        let bad = |field, value, expected| Err(Corrupt::Inode { ino, field, value, expected });
        let inline = u64::from(self.inline.bits());
        if self.inline.contains(InlineFlags::DATA) && !matches!(self.kind, FileKind::Regular | FileKind::Symlink) {
            return bad("i_inline", inline, "only files and symbolic links have inline data");
        }
        if self.inline.contains(InlineFlags::DENTRY) && self.kind != FileKind::Directory {
            return bad("i_inline", inline, "only directories have inline entries");
        }
        let has = self.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY);
        if has && self.max_inline_data() == 0 {
            return bad("i_inline", inline, "no room is left for inline contents");
        }
        // The room is the limit; a larger size means that blocks should be there.
        if self.inline.contains(InlineFlags::DATA) && self.size > self.max_inline_data() as u64 {
            return bad("i_size", self.size, "inline data ends earlier");
        }
        Ok(())
    }

    fn check_compression(&self, ino: Nid) -> Result<(), Corrupt> {
        let Some(extra) =
            self.extra.filter(|_| self.flags.contains(FileFlags::COMPR) && self.kind == FileKind::Regular)
        else {
            return Ok(());
        };
        if !extra.has_compression() {
            return Ok(());
        }
        let bad = |field, value, expected| Err(Corrupt::Inode { ino, field, value, expected });
        if !(2..=8).contains(&extra.log_cluster_size) {
            return bad("i_log_cluster_size", extra.log_cluster_size.into(), "it must be 2 to 8");
        }
        if extra.compress_algorithm > 3 {
            return bad("i_compress_algorithm", extra.compress_algorithm.into(), "it must be 0 to 3");
        }
        Ok(())
    }

    /// Writes all fields into the block; pointers, inline contents, inline attributes, the footer and the checksum stay
    /// as they are.
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

    fn to_raw(&self) -> RawInode {
        let mut raw = RawInode::new_zeroed();
        raw.i_mode = (self.kind.mode_bits() as u16 | self.permissions & 0o7777).into();
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
        raw.i_namelen = (self.name.len() as u32).into();
        raw.i_name[..self.name.len()].copy_from_slice(&self.name);
        raw.i_dir_level = self.dir_level;
        raw.i_ext_fofs = self.ext.fofs.into();
        raw.i_ext_blk_addr = self.ext.blk_addr.get().into();
        raw.i_ext_len = self.ext.len.into();
        raw
    }

    // --- the words of i_addr ---

    /// Index of the first data pointer in `i_addr`.
    #[must_use]
    pub fn address_base(&self) -> u32 {
        self.extra.map_or(0, |extra| u32::from(extra.size) / 4)
    }

    /// Words at the end of `i_addr` that are kept for inline attributes.
    #[must_use]
    pub fn inline_xattr_words(&self) -> u32 {
        if self.flexible {
            self.extra.map_or(0, |extra| extra.inline_xattr_size.into())
        } else if self.inline.intersects(InlineFlags::XATTR | InlineFlags::DENTRY) {
            DEFAULT_INLINE_XATTR_WORDS
        } else {
            0
        }
    }

    /// Words between extra attributes and inline attributes.
    fn free_words(&self) -> u32 {
        ADDR_WORDS.saturating_sub(self.address_base()).saturating_sub(self.inline_xattr_words())
    }

    /// Data pointers that the inode has: whole clusters where it is compressed.
    #[must_use]
    pub fn address_slots(&self) -> u32 {
        let words = self.free_words();
        words - words % self.cluster_blocks().unwrap_or(1)
    }

    /// Shape of the node tree.
    #[must_use]
    pub fn shape(&self) -> TreeShape {
        let node = POINTERS as u32;
        let node_slots = node - node % self.cluster_blocks().unwrap_or(1);
        TreeShape { inode_slots: self.address_slots(), node_slots }
    }

    /// Blocks a cluster (4 to 256) of a compressed file.
    #[must_use]
    pub fn cluster_blocks(&self) -> Option<u32> {
        let extra = self.extra.filter(ExtraAttr::has_compression)?;
        let compressed = self.kind == FileKind::Regular && self.flags.contains(FileFlags::COMPR);
        (compressed && (2..=8).contains(&extra.log_cluster_size)).then(|| 1 << extra.log_cluster_size)
    }

    /// A data pointer of the inode.
    ///
    /// # Panics
    /// `slot` is not below [`Inode::address_slots`].
    #[must_use]
    pub fn data_pointer(&self, block: &[u8], slot: u32) -> BlockAddr {
        assert!(slot < self.address_slots(), "data pointer {slot} of an inode");
        BlockAddr(view(block).i_addr[(self.address_base() + slot) as usize].get())
    }

    /// The byte in the block where a data pointer stands.
    #[must_use]
    pub fn data_pointer_at(&self, slot: u32) -> usize {
        ADDR_AT + 4 * (self.address_base() + slot) as usize
    }

    /// Sets a data pointer of the inode.
    ///
    /// # Panics
    /// As [`Inode::data_pointer`].
    pub fn set_data_pointer(&self, block: &mut [u8], slot: u32, addr: BlockAddr) {
        assert!(slot < self.address_slots(), "data pointer {slot} of an inode");
        view_mut(block).i_addr[(self.address_base() + slot) as usize] = addr.get().into();
    }

    /// Where inline contents (data or entries) lie in the block. The word before it is reserved and 0.
    #[must_use]
    pub fn inline_data_range(&self) -> Range<usize> {
        let start = ADDR_AT + 4 * (self.address_base() as usize + 1);
        start..start + self.max_inline_data()
    }

    /// Bytes that inline contents can have.
    #[must_use]
    pub fn max_inline_data(&self) -> usize {
        4 * self.free_words().saturating_sub(1) as usize
    }

    /// Where inline attributes lie in the block; empty without [`InlineFlags::XATTR`].
    #[must_use]
    pub fn inline_xattr_range(&self) -> Range<usize> {
        let words = if self.inline.contains(InlineFlags::XATTR) { self.inline_xattr_words() } else { 0 };
        NID_AT - 4 * words as usize..NID_AT
    }

    /// Device number of a device node, in Linux's `new_encode_dev` encoding.
    #[must_use]
    pub fn device(&self, block: &[u8]) -> u32 {
        let words = &view(block).i_addr;
        let word = |index: u32| words.get((self.address_base() + index) as usize).map_or(0, |word| word.get());
        // The old encoding (major and minor below 256) equals the new one.
        match word(0) {
            0 => word(1),
            old => old & 0xffff,
        }
    }

    /// Sets the device number, in the old encoding where it fits, as Linux does.
    pub fn set_device(&self, block: &mut [u8], device: u32) {
        let base = self.address_base() as usize;
        let (old, new) = if device <= 0xffff { (device, 0) } else { (0, device) };
        let words = &mut view_mut(block).i_addr;
        (words[base], words[base + 1]) = (old.into(), new.into());
    }
}

impl ExtraAttr {
    fn read(words: &[U32; ADDR_WORDS as usize]) -> Self {
        let (raw, _) = RawExtra::ref_from_prefix(words.as_bytes()).expect("36 bytes are fewer than 3692");
        let size = raw.i_extra_isize.get();
        let within = |end: u16| end <= size;
        let crtime = if within(24) { time(raw.i_crtime, raw.i_crtime_nsec) } else { Timestamp::default() };
        let compression = within(EXTRA_SIZE);
        Self {
            size,
            inline_xattr_size: raw.i_inline_xattr_size.get(),
            projid: if within(8) { raw.i_projid.get() } else { 0 },
            inode_checksum: if within(12) { raw.i_inode_checksum.get() } else { 0 },
            crtime,
            compr_blocks: if compression { raw.i_compr_blocks.get() } else { 0 },
            compress_algorithm: if compression { raw.i_compress_algorithm } else { 0 },
            log_cluster_size: if compression { raw.i_log_cluster_size } else { 0 },
            compress_flag: if compression { raw.i_compress_flag.get() } else { 0 },
        }
    }

    fn write(&self, words: &mut [U32; ADDR_WORDS as usize]) {
        let mut raw = RawExtra::new_zeroed();
        raw.i_extra_isize = self.size.into();
        raw.i_inline_xattr_size = self.inline_xattr_size.into();
        raw.i_projid = self.projid.into();
        raw.i_inode_checksum = self.inode_checksum.into();
        (raw.i_crtime, raw.i_crtime_nsec) = raw_time(self.crtime);
        raw.i_compr_blocks = self.compr_blocks.into();
        raw.i_compress_algorithm = self.compress_algorithm;
        raw.i_log_cluster_size = self.log_cluster_size;
        raw.i_compress_flag = self.compress_flag.into();
        let size = usize::from(self.size.min(EXTRA_SIZE));
        words.as_mut_bytes()[..size].copy_from_slice(&raw.as_bytes()[..size]);
    }

    /// Is there room for the creation time?
    #[must_use]
    pub const fn has_crtime(&self) -> bool {
        self.size >= 24
    }

    /// Is there room for a checksum?
    #[must_use]
    pub const fn has_checksum(&self) -> bool {
        self.size >= 12
    }

    /// Is there room for the fields of compression?
    #[must_use]
    pub const fn has_compression(&self) -> bool {
        self.size >= EXTRA_SIZE
    }
}

fn raw_time(time: Timestamp) -> (U64, U32) {
    (time.seconds.cast_unsigned().into(), time.nanoseconds.into())
}

/// The checksum over an inode block, if the features and the inode have one.
fn checksum(block: &[u8], layout: &Layout) -> Option<u32> {
    let raw = view(block);
    let has_extra = InlineFlags::from_bits_retain(raw.head.i_inline).contains(InlineFlags::EXTRA_ATTR);
    if !layout.features.contains(Features::INODE_CHECKSUM) || !has_extra || !ExtraAttr::read(&raw.i_addr).has_checksum()
    {
        return None;
    }
    let ino = NodeFooter::read(block).ino.get().to_le_bytes();
    let seed = crc32(crc32(crc32(!0, &layout.uuid), &ino), raw.head.i_generation.as_bytes());
    let (before, after) = block.split_at(CHECKSUM_AT);
    Some(crc32(crc32(crc32(seed, before), &[0; 4]), after.get(4..).unwrap_or_default()))
}

/// Verifies an inode block's checksum, where it has one. Holds only for blocks as they were [`seal`]ed.
///
/// # Errors
/// It does not match.
pub fn verify(block: &[u8], ino: Nid, layout: &Layout) -> Result<(), Corrupt> {
    let Some(computed) = checksum(block, layout) else { return Ok(()) };
    let stored = ExtraAttr::read(&view(block).i_addr).inode_checksum;
    if stored == computed {
        return Ok(());
    }
    Err(Corrupt::Checksum { what: "inode", place: ino.get().into(), stored, computed })
}

/// Writes the checksum, where the inode has one: the last step before the block goes to the device, as it covers the
/// footer.
pub fn seal(block: &mut [u8], layout: &Layout) {
    if let Some(sum) = checksum(block, layout) {
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

#[cfg(test)]
#[path = "inode_tests.rs"]
mod tests;
