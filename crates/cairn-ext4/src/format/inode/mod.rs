//! Inode records.
//!
//! [`Inode`] is decoded and validated. It keeps the raw record, so that encoding an unchanged inode
//! gives the same bytes. Source: "Index Nodes" in the kernel's ext4 documentation.

use cairn_base::units::{as_index, as_u64, stored};
use cairn_base::{Ino, Pba};
use cairn_vfs::types::Timestamp;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::buffer;
use super::features::{Incompat, RoCompat};
use super::layout::{Creator, Layout};
use super::time;
use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;

mod flags;
mod raw;
mod unchecked;

pub(crate) use flags::{InodeFlags, mode};
use raw::{
    GOOD_OLD_SIZE, RAW_SIZE, RawInode, blocks_in_use, ends, extra_isize_fits, file_acl, halves,
    has_wide_size, narrow, seal, size_of_file, stored_extra_isize, verify, wide, widen,
};
pub(crate) use unchecked::is_record_in_use;

/// Bytes of the fields: the first 128, and `i_extra_isize` more.
fn head_len(extra_isize: u16) -> usize {
    GOOD_OLD_SIZE.saturating_add(usize::from(extra_isize))
}

/// Most links of a file, and most that a directory counts.
pub(crate) const LINK_MAX: u32 = 65_000;
/// A decoded inode. Fields that are not decoded keep their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    /// Type and permissions (`st_mode`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes. Directories without large_dir have 32 bits.
    pub size: u64,
    /// Links as stored. With dir_nlink, 1 on a directory means that they are not counted.
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
    /// Creation; zero if the record has no room for it.
    pub crtime: Timestamp,
    /// Deletion time, or next inode of the orphan list.
    pub dtime: u32,
    /// Generation of the inode number.
    pub generation: u32,
    /// Block of extended attributes; 0 if there is none.
    pub file_acl: Pba,
    /// `i_block`: extent root, block map, symlink target, device number or inline data.
    pub block: [u8; 60],
    /// Change counter.
    pub version: u64,
    /// Project.
    pub projid: u32,
    /// Bytes of fields beyond the first 128.
    pub extra_isize: u16,
    /// The bytes after those fields: extended attributes.
    pub extra: Vec<u8>,
    raw: Vec<u8>,
}

impl Inode {
    /// An inode for a newly allocated record: zero except for the generation and the size of the
    /// extra fields.
    #[must_use]
    pub(crate) fn new(generation: u32, layout: &Layout) -> Self {
        let size = as_index(layout.inode_size);
        let extra_isize = if size > GOOD_OLD_SIZE { layout.want_extra_isize } else { 0 };
        let mut inode = Self::from_raw(vec![0; size], layout, extra_isize);
        inode.generation = generation;
        inode
    }

    /// Decodes a record of `layout.inode_size` bytes. An unused record (all zeros) is valid:
    /// callers that need an inode in use check `links`.
    ///
    /// # Errors
    /// The checksum is wrong or a field is invalid.
    pub(crate) fn decode(bytes: &[u8], ino: Ino, layout: &Layout) -> Result<Self, Corrupt> {
        let wrong = |field, value, problem| Corrupt::Inode { ino, field, value, problem };
        if bytes.len() != as_index(layout.inode_size) {
            return Err(wrong("record length", as_u64(bytes.len()), "not the inode size"));
        }
        let raw = widen(bytes);
        let extra_isize = stored_extra_isize(bytes);
        if !extra_isize_fits(extra_isize, bytes) {
            return Err(wrong(
                "i_extra_isize",
                extra_isize.into(),
                "beyond the record or not a multiple of 4",
            ));
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

    /// Decodes without validation. `bytes` has the inode size, and `extra_isize` fits it.
    fn from_raw(bytes: Vec<u8>, layout: &Layout, extra_isize: u16) -> Self {
        let raw = widen(&bytes);
        let has = |end: u16| extra_isize >= end;
        let stamp =
            |low: U32, extra: U32, end| time::decode(low.get(), has(end).then_some(extra.get()));
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
            extra: bytes.get(head_len(extra_isize)..).unwrap_or_default().to_vec(),
            raw: bytes,
        }
    }

    /// This record, with its first bytes replaced by those of a fast commit. The space in use
    /// stays; the replay counts it again.
    ///
    /// # Errors
    /// The bytes are too long or a field is invalid.
    pub(crate) fn overlaid(
        &self,
        bytes: &[u8],
        ino: Ino,
        layout: &Layout,
    ) -> Result<Self, Corrupt> {
        let wrong = |field, value, problem| Corrupt::Inode { ino, field, value, problem };
        let mut whole = vec![0; as_index(layout.inode_size)];
        self.encode(ino, layout, &mut whole);
        let Some(place) = whole.get_mut(..bytes.len()).filter(|place| place.len() >= GOOD_OLD_SIZE)
        else {
            return Err(wrong("record length", as_u64(bytes.len()), "beyond the inode size"));
        };
        place.copy_from_slice(bytes);
        let room = whole.len().saturating_sub(GOOD_OLD_SIZE);
        let extra_isize = if room > 0 { widen(&whole).i_extra_isize.get() } else { 0 };
        if usize::from(extra_isize) > room || !extra_isize.is_multiple_of(4) {
            return Err(wrong(
                "i_extra_isize",
                extra_isize.into(),
                "beyond the record or not a multiple of 4",
            ));
        }
        let mut inode = Self::from_raw(whole, layout, extra_isize);
        if inode.size > i64::MAX.cast_unsigned() {
            return Err(wrong("i_size", inode.size, "beyond 2^63"));
        }
        if inode.file_acl != self.file_acl {
            return Err(wrong("i_file_acl", inode.file_acl.get(), "changed by a fast commit"));
        }
        inode.blocks_512 = self.blocks_512;
        inode.dtime = 0;
        Ok(inode)
    }

    /// Enlarges the fields beyond the first 128 bytes. New fields are zero, and `extra` becomes the
    /// bytes behind them.
    ///
    /// # Panics
    /// If the total length changes.
    pub(crate) fn grow_extra(&mut self, extra_isize: u16, extra: Vec<u8>) {
        let (old, new) = (head_len(self.extra_isize), head_len(extra_isize));
        assert_eq!(new.strict_add(extra.len()), self.raw.len(), "the record has one size");
        buffer::part(&mut self.raw, old, new.strict_sub(old)).fill(0);
        (self.extra_isize, self.extra) = (extra_isize, extra);
    }

    /// Encodes the record of `layout.inode_size` bytes with its checksum.
    ///
    /// # Panics
    /// If `out` is shorter than a record, or a value does not fit the format; callers check sizes
    /// before.
    pub(crate) fn encode(&self, ino: Ino, layout: &Layout, out: &mut [u8]) {
        let out = buffer::part(out, 0, as_index(layout.inode_size));
        let mut raw = widen(&self.raw);
        raw.i_mode = U16::new(self.mode);
        (raw.i_uid, raw.l_i_uid_high) = narrow(self.uid);
        (raw.i_gid, raw.l_i_gid_high) = narrow(self.gid);
        raw.i_links_count = U16::new(stored(self.links));
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
        let head = head_len(self.extra_isize).min(out.len());
        let (old, _) = self.raw.split_at(out.len());
        out.copy_from_slice(old);
        let known = RAW_SIZE.min(head.max(GOOD_OLD_SIZE));
        let (fields, _) = raw.as_bytes().split_at(known);
        buffer::put(out, 0, fields);
        let (_, tail) = out.split_at_mut(head);
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
            raw.l_i_blocks_high = U16::new(stored(high.get()));
        }
        raw.i_flags = U32::new(flags.bits());
        let (low, high) = halves(self.file_acl.get());
        raw.i_file_acl_lo = low;
        if layout.features.incompat(Incompat::BITS_64) {
            raw.l_i_file_acl_high = U16::new(stored(high.get()));
        }
    }

    /// The count in the unit of the record. It sets the flag and changes to whole blocks if the
    /// count exceeds 48 bits.
    fn stored_blocks(&self, flags: &mut InodeFlags, layout: &Layout) -> u64 {
        let shift = layout.block_bits.saturating_sub(9);
        let in_blocks =
            flags.contains(InodeFlags::HUGE_FILE) && self.blocks_512.trailing_zeros() >= shift;
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

    /// Access, modification and change time as they are stored.
    #[must_use]
    pub(crate) fn stored_times(&self) -> [Timestamp; 3] {
        let times =
            [(self.atime, ends::ATIME), (self.mtime, ends::MTIME), (self.ctime, ends::CTIME)];
        times.map(|(time, end)| time::storable(time, self.extra_isize >= end))
    }

    /// Encodes only times that have changed, so that unusual stored forms stay as they are.
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

    /// Seed of the checksums of all that belongs to this inode.
    #[must_use]
    pub(crate) fn seed(&self, ino: Ino, layout: &Layout) -> InodeSeed {
        layout.checksum.for_inode(ino, self.generation)
    }

    /// Type bits of the mode.
    #[must_use]
    pub(crate) const fn file_type(&self) -> u16 {
        self.mode & mode::TYPE
    }

    /// The `chattr` flags that [`cairn_vfs`] knows.
    #[must_use]
    pub(crate) const fn shown_flags(&self) -> cairn_vfs::InodeFlags {
        cairn_vfs::InodeFlags::from_bits_truncate(self.flags.bits())
    }

    /// True for a directory.
    #[must_use]
    pub(crate) const fn is_directory(&self) -> bool {
        self.file_type() == mode::DIRECTORY
    }

    /// True for a regular file.
    #[must_use]
    pub(crate) const fn is_regular(&self) -> bool {
        self.file_type() == mode::REGULAR
    }

    /// True for a symbolic link.
    #[must_use]
    pub(crate) const fn is_symlink(&self) -> bool {
        self.file_type() == mode::SYMLINK
    }

    /// True if the inode can have one more link. With dir_nlink a directory always can.
    #[must_use]
    pub(crate) fn may_link(&self, layout: &Layout) -> bool {
        let uncounted = self.is_directory() && layout.features.ro_compat(RoCompat::DIR_NLINK);
        uncounted || self.links < LINK_MAX
    }

    /// Counts one more link. Call [`Inode::may_link`] before.
    pub(crate) fn add_link(&mut self) {
        if self.is_directory() && (self.links == 1 || self.links >= LINK_MAX - 1) {
            // There are too many subdirectories to count. Linux and its tools read 1 as "unknown".
            self.links = 1;
        } else {
            assert!(self.links < LINK_MAX, "links are checked before they are made");
            self.links = self.links.saturating_add(1);
        }
    }

    /// Counts one link less. An unknown count stays unknown.
    pub(crate) fn drop_link(&mut self) {
        if !(self.is_directory() && self.links == 1) {
            self.links = self.links.saturating_sub(1);
        }
    }

    /// Device number (major, minor) of a device node. The first word has the old 8:8 form, the
    /// second the 12:20 form.
    #[must_use]
    pub(crate) fn device(&self) -> (u32, u32) {
        let [a, b, c, d, e, f, g, h, ..] = self.block;
        let (old, new) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if old != 0 {
            (old >> 8 & 0xff, old & 0xff)
        } else {
            (new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00)
        }
    }

    /// Stores a device number in the form that Linux uses for it.
    pub(crate) fn set_device(&mut self, major: u32, minor: u32) {
        self.block = [0; 60];
        let (at, value) = if major < 256 && minor < 256 {
            (0, major << 8 | minor)
        } else {
            (4, minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12)
        };
        buffer::put(&mut self.block, at, &value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
