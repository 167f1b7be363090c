//! Inode records.
//!
//! [`Inode`] is decoded and validated; it keeps the raw record, so that encoding an unchanged inode gives the same
//! bytes. Source: "Index Nodes" in the kernel's ext4 documentation.

use bitflags::bitflags;
use cairn_base::checksum::crc32c;
use cairn_base::{Ino, Pba};
use cairn_vfs::types::Timestamp;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::features::{Incompat, RoCompat};
use super::layout::{Creator, Layout};
use super::time;
use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;

bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (not implemented by Linux either).
        const SECRM = 0x1;
        /// Undeletable (likewise).
        const UNRM = 0x2;
        /// Compressed (likewise).
        const COMPR = 0x4;
        /// Write synchronously.
        const SYNC = 0x8;
        /// Cannot be changed.
        const IMMUTABLE = 0x10;
        /// Can only grow.
        const APPEND = 0x20;
        /// dump(8) leaves it out.
        const NODUMP = 0x40;
        /// Access times are not kept.
        const NOATIME = 0x80;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// Hashed directory.
        const INDEX = 0x1000;
        /// Contents go through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Tail is never merged.
        const NOTAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// Its subdirectories are unrelated.
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts filesystem blocks.
        const HUGE_FILE = 0x4_0000;
        /// Maps its blocks by extents.
        const EXTENTS = 0x8_0000;
        /// Protected by fs-verity.
        const VERITY = 0x10_0000;
        /// Holds an attribute's value.
        const EA_INODE = 0x20_0000;
        /// Mapped directly by the host (DAX).
        const DAX = 0x200_0000;
        /// Contents lie in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names match regardless of case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// File type bits of `i_mode`.
pub mod mode {
    /// Mask of the type.
    pub const TYPE: u16 = 0o170_000;
    /// Socket.
    pub const SOCKET: u16 = 0o140_000;
    /// Symbolic link.
    pub const SYMLINK: u16 = 0o120_000;
    /// Regular file.
    pub const REGULAR: u16 = 0o100_000;
    /// Block device.
    pub const BLOCK: u16 = 0o060_000;
    /// Directory.
    pub const DIRECTORY: u16 = 0o040_000;
    /// Character device.
    pub const CHARACTER: u16 = 0o020_000;
    /// Named pipe.
    pub const FIFO: u16 = 0o010_000;
}

/// Most links a file may have, and most a directory may count.
pub const LINK_MAX: u32 = 65_000;
const GOOD_OLD_SIZE: usize = 128;
const RAW_SIZE: usize = 160;

/// The bytes on disk; those from `i_extra_isize` on exist with records above 128 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInode {
    i_mode: U16,
    i_uid: U16,
    i_size_lo: U32,
    i_atime: U32,
    i_ctime: U32,
    i_mtime: U32,
    i_dtime: U32,
    i_gid: U16,
    i_links_count: U16,
    i_blocks_lo: U32,
    i_flags: U32,
    l_i_version: U32,
    i_block: [u8; 60],
    i_generation: U32,
    i_file_acl_lo: U32,
    i_size_high: U32,
    i_obso_faddr: U32,
    l_i_blocks_high: U16,
    l_i_file_acl_high: U16,
    l_i_uid_high: U16,
    l_i_gid_high: U16,
    l_i_checksum_lo: U16,
    l_i_reserved: U16,
    i_extra_isize: U16,
    i_checksum_hi: U16,
    i_ctime_extra: U32,
    i_mtime_extra: U32,
    i_atime_extra: U32,
    i_crtime: U32,
    i_crtime_extra: U32,
    i_version_hi: U32,
    i_projid: U32,
}

const _: () = assert!(size_of::<RawInode>() == RAW_SIZE);
const CHECKSUM_LO_AT: usize = 124;
const CHECKSUM_HI_AT: usize = 130;

/// Ends of the fields beyond 128 bytes, as `i_extra_isize` must reach to hold them.
mod ends {
    pub(super) const CHECKSUM_HI: u16 = 4;
    pub(super) const CTIME: u16 = 8;
    pub(super) const MTIME: u16 = 12;
    pub(super) const ATIME: u16 = 16;
    pub(super) const CRTIME: u16 = 24;
    pub(super) const VERSION: u16 = 28;
    pub(super) const PROJID: u16 = 32;
}

/// A decoded inode. Times, sizes and owners are whole; what is not understood is kept as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions (`st_mode`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes. For directories without large_dir 32 bits.
    pub size: u64,
    /// Links as stored: 1 on a directory of a dir_nlink volume means "more than can be counted".
    pub links: u32,
    /// Space in use in units of 512 bytes.
    pub blocks_512: u64,
    /// Flags.
    pub flags: InodeFlags,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation; zero where there is no room for it.
    pub crtime: Timestamp,
    /// Deletion time, or next inode of the orphan list.
    pub dtime: u32,
    /// Reuse counter of the number.
    pub generation: u32,
    /// Block of extended attributes; 0: none.
    pub file_acl: Pba,
    /// `i_block`: extent root, block map, symlink target, device number or inline data.
    pub block: [u8; 60],
    /// Change counter.
    pub version: u64,
    /// Project.
    pub projid: u32,
    /// Bytes of fields beyond the first 128.
    pub extra_isize: u16,
    /// Everything after those fields: attributes in the inode.
    pub extra: Vec<u8>,
    raw: Vec<u8>,
}

impl Inode {
    /// An inode for a freshly allocated record: all zero but generation and the size of the extra fields.
    #[must_use]
    pub fn new(generation: u32, layout: &Layout) -> Self {
        let size = layout.inode_size as usize;
        let extra_isize = if size > GOOD_OLD_SIZE { layout.want_extra_isize } else { 0 };
        let mut inode = Self::from_raw(vec![0; size], layout, extra_isize);
        inode.generation = generation;
        inode
    }

    /// Decodes a record of `layout.inode_size` bytes; verifies its checksum. A record that was never used (all
    /// zeros) decodes too: callers reject `links == 0` where they need a live inode.
    pub fn decode(bytes: &[u8], ino: Ino, layout: &Layout) -> Result<Self, Corrupt> {
        let wrong = |field, value, expected| Corrupt::Inode { ino, field, value, expected };
        if bytes.len() != layout.inode_size as usize {
            return Err(wrong("record length", bytes.len() as u64, "not the inode size"));
        }
        let raw = widen(bytes);
        let room = bytes.len() - GOOD_OLD_SIZE;
        let extra_isize = if room > 0 { raw.i_extra_isize.get() } else { 0 };
        if usize::from(extra_isize) > room || !extra_isize.is_multiple_of(4) {
            return Err(wrong("i_extra_isize", extra_isize.into(), "beyond the record or not a multiple of 4"));
        }
        if bytes.iter().any(|b| *b != 0) {
            verify(bytes, &raw, ino, layout)?;
        }
        let inode = Self::from_raw(bytes.to_vec(), layout, extra_isize);
        if inode.file_acl != Pba(0) && !layout.contains(inode.file_acl, 1) {
            return Err(wrong("i_file_acl", inode.file_acl.get(), "outside the volume"));
        }
        if inode.size > i64::MAX.cast_unsigned() {
            return Err(wrong("i_size", inode.size, "beyond 2^63"));
        }
        Ok(inode)
    }

    /// Decodes without judging; `bytes` has the inode size and `extra_isize` fits it.
    fn from_raw(bytes: Vec<u8>, layout: &Layout, extra_isize: u16) -> Self {
        let raw = widen(&bytes);
        let has = |end: u16| extra_isize >= end;
        let stamp = |low: U32, extra: U32, end| time::decode(low.get(), has(end).then_some(extra.get()));
        let (mode, flags) = (raw.i_mode.get(), InodeFlags::from_bits_retain(raw.i_flags.get()));
        let project = has(ends::PROJID) && layout.features.ro_compat(RoCompat::PROJECT);
        Self {
            mode,
            uid: wide(raw.i_uid, raw.l_i_uid_high),
            gid: wide(raw.i_gid, raw.l_i_gid_high),
            size: size_of_file(&raw, mode, layout),
            links: raw.i_links_count.get().into(),
            blocks_512: blocks_in_use(&raw, flags, layout),
            flags,
            atime: stamp(raw.i_atime, raw.i_atime_extra, ends::ATIME),
            mtime: stamp(raw.i_mtime, raw.i_mtime_extra, ends::MTIME),
            ctime: stamp(raw.i_ctime, raw.i_ctime_extra, ends::CTIME),
            crtime: if has(ends::CRTIME) {
                time::decode(raw.i_crtime.get(), Some(raw.i_crtime_extra.get()))
            } else {
                Timestamp { seconds: 0, nanoseconds: 0 }
            },
            dtime: raw.i_dtime.get(),
            generation: raw.i_generation.get(),
            file_acl: file_acl(&raw, layout),
            block: raw.i_block,
            version: match layout.creator {
                Creator::Hurd => 0,
                _ => {
                    let high = if has(ends::VERSION) { raw.i_version_hi.get() } else { 0 };
                    u64::from(raw.l_i_version.get()) | u64::from(high) << 32
                }
            },
            projid: if project { raw.i_projid.get() } else { 0 },
            extra_isize,
            extra: bytes.get(GOOD_OLD_SIZE + usize::from(extra_isize)..).unwrap_or_default().to_vec(),
            raw: bytes,
        }
    }

    /// This record with the first bytes of another version of it laid over, as a fast commit holds them. The space in use
    /// stays: whoever applies fast commits counts it anew.
    pub fn overlaid(&self, bytes: &[u8], ino: Ino, layout: &Layout) -> Result<Self, Corrupt> {
        let wrong = |field, value, expected| Corrupt::Inode { ino, field, value, expected };
        let mut whole = vec![0; layout.inode_size as usize];
        self.encode(ino, layout, &mut whole);
        let Some(place) = whole.get_mut(..bytes.len()).filter(|place| place.len() >= GOOD_OLD_SIZE) else {
            return Err(wrong("record length", bytes.len() as u64, "beyond the inode size"));
        };
        place.copy_from_slice(bytes);
        let room = whole.len() - GOOD_OLD_SIZE;
        let extra_isize = if room > 0 { widen(&whole).i_extra_isize.get() } else { 0 };
        if usize::from(extra_isize) > room || !extra_isize.is_multiple_of(4) {
            return Err(wrong("i_extra_isize", extra_isize.into(), "beyond the record or not a multiple of 4"));
        }
        let mut inode = Self::from_raw(whole, layout, extra_isize);
        if inode.size > i64::MAX.cast_unsigned() {
            return Err(wrong("i_size", inode.size, "beyond 2^63"));
        }
        if inode.file_acl != self.file_acl {
            return Err(wrong("i_file_acl", inode.file_acl.get(), "changed by a fast commit, which never do that"));
        }
        inode.blocks_512 = self.blocks_512;
        inode.dtime = 0;
        Ok(inode)
    }

    /// More room for fields beyond the first 128 bytes: the new ones are zero, and `extra` is what lies behind them from now on.
    ///
    /// # Panics
    /// If both together are not as long as before.
    pub fn grow_extra(&mut self, extra_isize: u16, extra: Vec<u8>) {
        let (old, new) = (GOOD_OLD_SIZE + usize::from(self.extra_isize), GOOD_OLD_SIZE + usize::from(extra_isize));
        assert_eq!(new + extra.len(), self.raw.len(), "the record has one size");
        self.raw[old..new].fill(0);
        (self.extra_isize, self.extra) = (extra_isize, extra);
    }

    /// Writes the record, which has `layout.inode_size` bytes, and its checksum.
    ///
    /// # Panics
    /// If `out` is shorter than a record, or a value does not fit the format (callers check sizes first).
    pub fn encode(&self, ino: Ino, layout: &Layout, out: &mut [u8]) {
        let out = &mut out[..layout.inode_size as usize];
        let mut raw = widen(&self.raw);
        raw.i_mode = U16::new(self.mode);
        (raw.i_uid, raw.l_i_uid_high) = narrow(self.uid);
        (raw.i_gid, raw.l_i_gid_high) = narrow(self.gid);
        raw.i_links_count = U16::new(u16::try_from(self.links).expect("links are at most 65000"));
        raw.i_dtime = U32::new(self.dtime);
        raw.i_generation = U32::new(self.generation);
        raw.i_block = self.block;
        let (low, high) = halves(self.version);
        if layout.creator != Creator::Hurd {
            raw.l_i_version = low;
            if self.extra_isize >= ends::VERSION {
                raw.i_version_hi = high;
            }
        }
        if self.extra_isize >= ends::PROJID && layout.features.ro_compat(RoCompat::PROJECT) {
            raw.i_projid = U32::new(self.projid);
        }
        if out.len() > GOOD_OLD_SIZE {
            raw.i_extra_isize = U16::new(self.extra_isize);
        }
        self.encode_sizes(&mut raw, layout);
        self.encode_times(&mut raw);
        let head = (GOOD_OLD_SIZE + usize::from(self.extra_isize)).min(out.len());
        out.copy_from_slice(&self.raw[..out.len()]);
        let known = RAW_SIZE.min(head.max(GOOD_OLD_SIZE));
        out[..known].copy_from_slice(&raw.as_bytes()[..known]);
        let tail = &mut out[head..];
        assert_eq!(tail.len(), self.extra.len(), "the attribute area of inode {ino} has one size");
        tail.copy_from_slice(&self.extra);
        seal(out, ino, layout);
    }

    fn encode_sizes(&self, raw: &mut RawInode, layout: &Layout) {
        let (low, high) = halves(self.size);
        raw.i_size_lo = low;
        if has_wide_size(self.mode, layout) {
            raw.i_size_high = high;
        }
        let mut flags = self.flags;
        let blocks = self.stored_blocks(&mut flags, layout);
        let (low, high) = halves(blocks);
        raw.i_blocks_lo = low;
        if layout.features.ro_compat(RoCompat::HUGE_FILE) && layout.creator != Creator::Hurd {
            raw.l_i_blocks_high = U16::new(u16::try_from(high.get()).expect("blocks of a file fit 48 bits"));
        }
        raw.i_flags = U32::new(flags.bits());
        let (low, high) = halves(self.file_acl.get());
        raw.i_file_acl_lo = low;
        if layout.features.incompat(Incompat::BITS_64) {
            raw.l_i_file_acl_high = U16::new(u16::try_from(high.get()).expect("block numbers fit 48 bits"));
        }
    }

    /// The count in the unit the record uses; goes over to whole blocks (and sets the flag) beyond 48 bits.
    fn stored_blocks(&self, flags: &mut InodeFlags, layout: &Layout) -> u64 {
        let shift = layout.block_bits - 9;
        let in_blocks = flags.contains(InodeFlags::HUGE_FILE) && self.blocks_512.trailing_zeros() >= shift;
        if !layout.features.ro_compat(RoCompat::HUGE_FILE) {
            return self.blocks_512;
        }
        if self.blocks_512 >> 48 == 0 && !in_blocks {
            flags.remove(InodeFlags::HUGE_FILE);
            return self.blocks_512;
        }
        flags.insert(InodeFlags::HUGE_FILE);
        self.blocks_512 >> shift
    }

    /// Access, modification and change time as they are stored, and so as they will be read again.
    #[must_use]
    pub fn stored_times(&self) -> [Timestamp; 3] {
        let times = [(self.atime, ends::ATIME), (self.mtime, ends::MTIME), (self.ctime, ends::CTIME)];
        times.map(|(time, end)| time::storable(time, self.extra_isize >= end))
    }

    /// A time is rewritten only if it changed: stored forms that we would normalise stay as they are.
    fn encode_times(&self, raw: &mut RawInode) {
        let has = |end: u16| self.extra_isize >= end;
        let put = |low: &mut U32, extra: &mut U32, value: Timestamp, wide: bool| {
            if time::decode(low.get(), wide.then_some(extra.get())) != value {
                let (seconds, more) = time::encode(value, wide);
                *low = U32::new(seconds);
                if wide {
                    *extra = U32::new(more);
                }
            }
        };
        put(&mut raw.i_atime, &mut raw.i_atime_extra, self.atime, has(ends::ATIME));
        put(&mut raw.i_mtime, &mut raw.i_mtime_extra, self.mtime, has(ends::MTIME));
        put(&mut raw.i_ctime, &mut raw.i_ctime_extra, self.ctime, has(ends::CTIME));
        if has(ends::CRTIME) {
            put(&mut raw.i_crtime, &mut raw.i_crtime_extra, self.crtime, true);
        }
    }

    /// Seed of the checksums of everything that belongs to this inode.
    #[must_use]
    pub fn seed(&self, ino: Ino, layout: &Layout) -> InodeSeed {
        layout.checksum.for_inode(ino, self.generation)
    }

    /// Type bits of the mode.
    #[must_use]
    pub const fn file_type(&self) -> u16 {
        self.mode & mode::TYPE
    }

    /// The `chattr` flags that other layers know.
    #[must_use]
    pub const fn shown_flags(&self) -> cairn_vfs::InodeFlags {
        cairn_vfs::InodeFlags::from_bits_truncate(self.flags.bits())
    }

    /// Is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        self.file_type() == mode::DIRECTORY
    }

    /// Is a regular file.
    #[must_use]
    pub const fn is_regular(&self) -> bool {
        self.file_type() == mode::REGULAR
    }

    /// Is a symbolic link.
    #[must_use]
    pub const fn is_symlink(&self) -> bool {
        self.file_type() == mode::SYMLINK
    }

    /// True if one more link can be counted (or need not be: dir_nlink on a directory).
    #[must_use]
    pub fn may_link(&self, layout: &Layout) -> bool {
        let uncounted = self.is_directory() && layout.features.ro_compat(RoCompat::DIR_NLINK);
        uncounted || self.links < LINK_MAX
    }

    /// Counts one more link. Call [`Inode::may_link`] first.
    pub fn add_link(&mut self) {
        if self.is_directory() && (self.links == 1 || self.links >= LINK_MAX - 1) {
            // Too many subdirectories to count: 1 is what Linux and its tools take for "unknown".
            self.links = 1;
        } else {
            assert!(self.links < LINK_MAX, "links are checked before they are made");
            self.links += 1;
        }
    }

    /// Counts one link less; a directory's unknown count stays unknown.
    pub fn drop_link(&mut self) {
        if !(self.is_directory() && self.links == 1) {
            self.links = self.links.saturating_sub(1);
        }
    }

    /// Device number (major, minor) of a device node: the first word holds the old 8:8 form, the second the 12:20 form.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        let [a, b, c, d, e, f, g, h, ..] = self.block;
        let (old, new) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if old != 0 { (old >> 8 & 0xff, old & 0xff) } else { (new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00) }
    }

    /// Stores a device number in the form that Linux chooses.
    pub fn set_device(&mut self, major: u32, minor: u32) {
        self.block = [0; 60];
        let (at, value) = if major < 256 && minor < 256 {
            (0, major << 8 | minor)
        } else {
            (4, minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12)
        };
        self.block[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

fn widen(bytes: &[u8]) -> RawInode {
    let mut raw = RawInode::new_zeroed();
    for (to, from) in raw.as_mut_bytes().iter_mut().zip(bytes) {
        *to = *from;
    }
    raw
}

fn wide(low: U16, high: U16) -> u32 {
    u32::from(low.get()) | u32::from(high.get()) << 16
}

fn narrow(value: u32) -> (U16, U16) {
    let [a, b, c, d] = value.to_le_bytes();
    (U16::from_bytes([a, b]), U16::from_bytes([c, d]))
}

fn halves(value: u64) -> (U32, U32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (U32::from_bytes([a, b, c, d]), U32::from_bytes([e, f, g, h]))
}

/// The upper half of the size was once a directory's ACL block.
fn has_wide_size(mode: u16, layout: &Layout) -> bool {
    mode & mode::TYPE == mode::REGULAR || layout.features.incompat(Incompat::LARGE_DIR)
}

fn size_of_file(raw: &RawInode, mode: u16, layout: &Layout) -> u64 {
    let high = if has_wide_size(mode, layout) { raw.i_size_high.get() } else { 0 };
    u64::from(raw.i_size_lo.get()) | u64::from(high) << 32
}

fn blocks_in_use(raw: &RawInode, flags: InodeFlags, layout: &Layout) -> u64 {
    let low = u64::from(raw.i_blocks_lo.get());
    // The Hurd has the size of fragments there.
    if !layout.features.ro_compat(RoCompat::HUGE_FILE) || layout.creator == Creator::Hurd {
        return low;
    }
    let blocks = low | u64::from(raw.l_i_blocks_high.get()) << 32;
    if flags.contains(InodeFlags::HUGE_FILE) { blocks << (layout.block_bits - 9) } else { blocks }
}

fn file_acl(raw: &RawInode, layout: &Layout) -> Pba {
    let high = if layout.features.incompat(Incompat::BITS_64) { raw.l_i_file_acl_high.get() } else { 0 };
    Pba(u64::from(raw.i_file_acl_lo.get()) | u64::from(high) << 32)
}

/// Checksum of a record, its own two fields taken as zero.
fn checksum(bytes: &[u8], seed: u32, wide: bool) -> u32 {
    let part = |from: usize, to: usize| bytes.get(from..to.min(bytes.len())).unwrap_or_default();
    let mut sum = crc32c(seed, part(0, CHECKSUM_LO_AT));
    sum = crc32c(sum, &[0, 0]);
    if !wide {
        return crc32c(sum, part(CHECKSUM_LO_AT + 2, bytes.len()));
    }
    sum = crc32c(sum, part(CHECKSUM_LO_AT + 2, CHECKSUM_HI_AT));
    sum = crc32c(sum, &[0, 0]);
    crc32c(sum, part(CHECKSUM_HI_AT + 2, bytes.len()))
}

fn has_wide_checksum(raw: &RawInode, bytes: &[u8]) -> bool {
    bytes.len() > GOOD_OLD_SIZE && raw.i_extra_isize.get() >= ends::CHECKSUM_HI
}

/// Only Linux has the checksum in an inode.
fn record_seed(raw: &RawInode, ino: Ino, layout: &Layout) -> InodeSeed {
    match layout.creator {
        Creator::Linux => layout.checksum.for_inode(ino, raw.i_generation.get()),
        _ => InodeSeed(None),
    }
}

fn verify(bytes: &[u8], raw: &RawInode, ino: Ino, layout: &Layout) -> Result<(), Corrupt> {
    let InodeSeed(Some(seed)) = record_seed(raw, ino, layout) else { return Ok(()) };
    let is_wide = has_wide_checksum(raw, bytes);
    let mut computed = checksum(bytes, seed, is_wide);
    let mut stored = raw.l_i_checksum_lo.get().into();
    if is_wide {
        stored = wide(raw.l_i_checksum_lo, raw.i_checksum_hi);
    } else {
        computed &= 0xffff;
    }
    if stored == computed {
        Ok(())
    } else {
        Err(Corrupt::Checksum { what: "inode", place: ino.get(), stored, computed })
    }
}

fn seal(out: &mut [u8], ino: Ino, layout: &Layout) {
    let raw = widen(out);
    let InodeSeed(Some(seed)) = record_seed(&raw, ino, layout) else { return };
    let is_wide = has_wide_checksum(&raw, out);
    let [a, b, c, d] = checksum(out, seed, is_wide).to_le_bytes();
    out[CHECKSUM_LO_AT..CHECKSUM_LO_AT + 2].copy_from_slice(&[a, b]);
    if is_wide {
        out[CHECKSUM_HI_AT..CHECKSUM_HI_AT + 2].copy_from_slice(&[c, d]);
    }
}

#[cfg(test)]
#[path = "inode_tests.rs"]
mod tests;
