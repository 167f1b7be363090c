//! Linear directory blocks: a chain of entries of variable length, with a checksum tail under
//! metadata_csum.
//!
//! Invariant: the `rec_len`s of a block add up to the block without its tail, so every byte belongs
//! to one entry. An entry with inode 0 is free space. A [`Defect`] becomes a [`Corrupt::Directory`]
//! when the caller adds the place. Source: "Linear (Classic) Directories" in the kernel's ext4
//! documentation.

use std::ops::Range;

use cairn_base::units::{as_index, as_u64, stored};
use cairn_base::{FileBlock, Ino};
use cairn_vfs::FileKind;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::buffer;
use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;

mod leaf;

pub(crate) use leaf::{pack_leaf, proves_entries, seal_leaf, verify_leaf};

/// Longest name, in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Bytes of the checksum tail.
pub(crate) const TAIL_LEN: usize = size_of::<RawDirEntryTail>();
/// Bytes of the smallest entry, with a one-byte name.
pub(crate) const MIN_REC_LEN: usize = 12;
/// Offset of `..` in the first block.
pub(crate) const DOTDOT_AT: usize = 12;

const HEADER_LEN: usize = size_of::<RawDirEntry>();
const TAIL_FILE_TYPE: u8 = 0xde;

/// `struct ext4_dir_entry_2`, without the name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawDirEntry {
    /// Inode number; 0 marks free space.
    pub inode: U32,
    /// Distance to the next entry; see [`decode_rec_len`].
    pub rec_len: U16,
    /// Bytes of the name.
    pub name_len: u8,
    /// Kind code with the filetype feature; otherwise the upper byte of the name length, which is
    /// always 0.
    pub file_type: u8,
}

const _: () = assert!(size_of::<RawDirEntry>() == 8);

/// `struct ext4_dir_entry_tail`. Without metadata_csum it is read as a free entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawDirEntryTail {
    /// 0, as an entry's inode.
    pub det_reserved_zero1: U32,
    /// 12.
    pub det_rec_len: U16,
    /// 0, as an entry's name length.
    pub det_reserved_zero2: u8,
    /// 0xDE.
    pub det_reserved_ft: u8,
    /// crc32c of the inode seed and the block before the tail.
    pub det_checksum: U32,
}

const _: () = assert!(size_of::<RawDirEntryTail>() == 12);

/// A defect of a block, without the block's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Defect {
    /// Byte offset in the block.
    pub offset: usize,
    /// Description of the defect.
    pub what: &'static str,
    /// The invalid value.
    pub value: u64,
}

impl Defect {
    /// The error with its place.
    #[must_use]
    pub(crate) fn at(self, ino: Ino, block: FileBlock) -> Corrupt {
        let offset = u32::try_from(self.offset).unwrap_or(u32::MAX);
        Corrupt::Directory { ino, block, offset, what: self.what, value: self.value }
    }
}

/// The properties of volume and directory that the format of its blocks depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirFormat {
    /// Bytes of a block: 1,024 to 65,536.
    pub block_size: usize,
    /// Entries contain the kind of their inode.
    pub filetype: bool,
    /// Seed of the directory's checksums.
    pub seed: InodeSeed,
    /// Largest valid inode number.
    pub inodes_count: u32,
}

impl DirFormat {
    /// The bytes of a leaf block that contain entries.
    #[must_use]
    pub(crate) const fn leaf_len(&self) -> usize {
        if self.seed.0.is_some() {
            self.block_size.saturating_sub(TAIL_LEN)
        } else {
            self.block_size
        }
    }

    /// The kind code to store.
    #[must_use]
    pub(crate) const fn file_type(&self, kind: FileKind) -> u8 {
        if self.filetype { kind.entry_code() } else { 0 }
    }
}

/// Decodes a stored `rec_len`: 64 KiB is stored as 65,535 or as 0.
#[must_use]
pub(crate) fn decode_rec_len(stored: u16, block_size: usize) -> usize {
    match stored {
        0 | u16::MAX if block_size == 65_536 => block_size,
        len => usize::from(len),
    }
}

/// Encodes a `rec_len`, which is at most a block.
///
/// # Panics
/// If the length is not a multiple of 4 or is too large. It never comes from the disk.
#[must_use]
pub(crate) fn encode_rec_len(len: usize) -> u16 {
    assert!(len <= 65_536 && len.is_multiple_of(4), "rec_len {len}");
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// Bytes of an entry with a name of this length.
#[must_use]
pub(crate) const fn entry_len(name_len: usize) -> usize {
    HEADER_LEN.strict_add(name_len).strict_add(3) & !3
}

/// One valid entry of a block; free if `ino` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Byte offset in the block.
    pub offset: usize,
    /// Bytes to the next entry.
    pub rec_len: usize,
    /// Inode, 0 for free space.
    pub ino: u32,
    /// Kind code as stored.
    pub file_type: u8,
    /// Name; undefined in free space.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// The kind, if the entry contains it.
    #[must_use]
    pub(crate) const fn kind(&self, format: &DirFormat) -> Option<FileKind> {
        if format.filetype { FileKind::of_entry_code(self.file_type) } else { None }
    }

    /// Bytes that the entry needs. The rest of `rec_len` is free.
    #[must_use]
    pub(crate) const fn used(&self) -> usize {
        if self.ino == 0 { 0 } else { entry_len(self.name.len()) }
    }
}

/// The entries of a region, each checked. After an invalid entry the iterator continues if its
/// `rec_len` is possible.
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
    format: &'a DirFormat,
}

/// The entries of a leaf block.
#[must_use]
pub(crate) fn entries<'a>(block: &'a [u8], format: &'a DirFormat) -> Entries<'a> {
    entries_in(block, 0..format.leaf_len(), format)
}

/// The entries of the region `region` of `bytes`.
#[must_use]
pub(crate) fn entries_in<'a>(
    bytes: &'a [u8],
    region: Range<usize>,
    format: &'a DirFormat,
) -> Entries<'a> {
    Entries { bytes, at: region.start, end: region.end, format }
}

impl<'a> Entries<'a> {
    fn decode(&mut self) -> Result<Entry<'a>, Defect> {
        let offset = std::mem::replace(&mut self.at, self.end);
        let defect = |what, value: usize| Defect { offset, what, value: as_u64(value) };
        let rest = self
            .bytes
            .get(offset..self.end)
            .ok_or_else(|| defect("block is too short", self.bytes.len()))?;
        let (raw, names) = RawDirEntry::ref_from_prefix(rest)
            .map_err(|_| defect("no room for an entry", rest.len()))?;
        let rec_len = decode_rec_len(raw.rec_len.get(), self.format.block_size);
        let name_len = usize::from(raw.name_len);
        if rec_len < MIN_REC_LEN || !rec_len.is_multiple_of(4) {
            return Err(defect("impossible rec_len", rec_len));
        }
        if rec_len > rest.len() {
            return Err(defect("rec_len crosses the end of the block", rec_len));
        }
        let left = rest.len().saturating_sub(rec_len);
        if left != 0 && left < MIN_REC_LEN {
            return Err(defect("entry ends too close to the end of the block", rec_len));
        }
        self.at = offset.saturating_add(rec_len);
        if rec_len < entry_len(name_len) {
            return Err(defect("name_len exceeds the entry", name_len));
        }
        let ino = raw.inode.get();
        if ino > self.format.inodes_count {
            return Err(defect("inode number is beyond the last", as_index(ino)));
        }
        let name =
            names.get(..name_len).ok_or_else(|| defect("name_len exceeds the block", name_len))?;
        if ino != 0 && name.is_empty() {
            return Err(defect("entry without a name", 0));
        }
        Ok(Entry { offset, rec_len, ino, file_type: raw.file_type, name })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Defect>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        Some(self.decode())
    }
}

/// The entry with this name.
///
/// # Errors
/// The first defect, if the name was not found.
pub(crate) fn find<'a>(entries: Entries<'a>, name: &[u8]) -> Result<Option<Entry<'a>>, Defect> {
    let mut first = None;
    for entry in entries {
        match entry {
            Ok(entry) if entry.ino != 0 && entry.name == name => return Ok(Some(entry)),
            Ok(_) => {}
            Err(defect) => first = first.or(Some(defect)),
        }
    }
    first.map_or(Ok(None), Err)
}

/// The place of a new name in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The name exists.
    Taken,
    /// The name fits at this offset; see [`insert_at`].
    At(usize),
    /// The block has no space for the name.
    Full,
}

/// Looks for the name, and for the first gap that is large enough.
///
/// # Errors
/// The first defect of the block.
pub(crate) fn room(entries: Entries<'_>, name: &[u8]) -> Result<Room, Defect> {
    let need = entry_len(name.len());
    let mut room = Room::Full;
    for entry in entries {
        let entry = entry?;
        if entry.ino != 0 && entry.name == name {
            return Ok(Room::Taken);
        }
        if room == Room::Full && entry.rec_len.saturating_sub(entry.used()) >= need {
            room = Room::At(entry.offset);
        }
    }
    Ok(room)
}

/// Inserts an entry into the gap of the entry at `offset`, which [`room`] has found. Returns the
/// offset of the new entry.
///
/// # Panics
/// If there is no such gap.
pub(crate) fn insert_at(
    bytes: &mut [u8],
    offset: usize,
    format: &DirFormat,
    ino: u32,
    file_type: u8,
    name: &[u8],
) -> usize {
    let raw: &mut RawDirEntry = buffer::structure(bytes, offset);
    let rec_len = decode_rec_len(raw.rec_len.get(), format.block_size);
    let used = if raw.inode.get() == 0 { 0 } else { entry_len(usize::from(raw.name_len)) };
    if used > 0 {
        raw.rec_len = U16::new(encode_rec_len(used));
    }
    let place = offset.strict_add(used);
    put(bytes, place, rec_len.strict_sub(used), ino, file_type, name);
    place
}

/// Writes one entry. Its place and length do not come from the disk.
fn put(bytes: &mut [u8], offset: usize, rec_len: usize, ino: u32, file_type: u8, name: &[u8]) {
    assert!(
        name.len() <= NAME_MAX && rec_len >= entry_len(name.len()),
        "entry of {rec_len} bytes for {name:?}"
    );
    let name_len = stored(name.len());
    let header = RawDirEntry {
        inode: U32::new(ino),
        rec_len: U16::new(encode_rec_len(rec_len)),
        name_len,
        file_type,
    };
    let entry = buffer::part(bytes, offset, entry_len(name.len()).max(HEADER_LEN));
    entry.fill(0);
    buffer::put(entry, 0, header.as_bytes());
    buffer::put(entry, HEADER_LEN, name);
}

/// Turns the entry at `offset` into free space. It becomes a part of the entry before it in the
/// same region.
///
/// # Errors
/// An entry of the region is invalid, or none begins at `offset`.
pub(crate) fn remove_at(
    bytes: &mut [u8],
    region: Range<usize>,
    format: &DirFormat,
    offset: usize,
) -> Result<(), Defect> {
    let mut before: Option<(usize, usize)> = None;
    let mut found = None;
    for entry in entries_in(bytes, region, format) {
        let entry = entry?;
        if entry.offset == offset {
            found = Some(entry.rec_len);
            break;
        }
        before = Some((entry.offset, entry.rec_len));
    }
    let rec_len = found.ok_or(Defect { offset, what: "no entry starts here", value: 0 })?;
    match before {
        Some((at, len)) => {
            buffer::part(bytes, offset, rec_len).fill(0);
            let rec_len = U16::new(encode_rec_len(len.strict_add(rec_len)));
            buffer::structure::<RawDirEntry>(bytes, at).rec_len = rec_len;
        }
        // The length stays: the region is then one free entry.
        None => {
            buffer::part(bytes, offset, 4).fill(0);
            buffer::part(bytes, offset.strict_add(6), rec_len.strict_sub(6)).fill(0);
        }
    }
    Ok(())
}

/// Changes the inode of the entry at `offset`, which comes from a search of the same bytes.
///
/// # Panics
/// If `offset` is not inside the block.
pub(crate) fn retarget_at(bytes: &mut [u8], offset: usize, ino: u32, file_type: u8) {
    let raw: &mut RawDirEntry = buffer::structure(bytes, offset);
    raw.inode = U32::new(ino);
    raw.file_type = file_type;
}

/// Fills `region` with these entries without gaps. The last entry gets the rest.
///
/// # Panics
/// If they do not fit.
pub(crate) fn pack<'n>(
    bytes: &mut [u8],
    region: Range<usize>,
    entries: impl IntoIterator<Item = (u32, u8, &'n [u8])>,
) {
    buffer::part(bytes, region.start, region.len()).fill(0);
    let (mut at, mut last) = (region.start, None::<(usize, u32, u8, &[u8])>);
    for (ino, file_type, name) in entries {
        if let Some((offset, ino, file_type, name)) = last.replace((at, ino, file_type, name)) {
            put(bytes, offset, entry_len(name.len()), ino, file_type, name);
        }
        at = at.strict_add(entry_len(name.len()));
    }
    let (offset, ino, file_type, name) = last.unwrap_or((region.start, 0, 0, b""));
    put(bytes, offset, region.end.strict_sub(offset), ino, file_type, name);
}

/// The first two entries of every directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dots {
    /// The directory itself.
    pub this: u32,
    /// Its parent.
    pub parent: u32,
}

/// Reads `.` and `..` of the first block, for linear blocks and index roots.
///
/// # Errors
/// An entry is invalid or has another name, or `..` is at a wrong offset.
pub(crate) fn dots(block: &[u8], format: &DirFormat) -> Result<Dots, Defect> {
    let mut entries = entries_in(block, 0..block.len(), format);
    let mut expect = |name: &'static [u8], what| match entries.next() {
        Some(Ok(entry)) if entry.name == name && entry.ino != 0 => Ok(entry),
        Some(Err(defect)) => Err(defect),
        Some(Ok(entry)) => Err(Defect { offset: entry.offset, what, value: u64::from(entry.ino) }),
        None => Err(Defect { offset: 0, what, value: 0 }),
    };
    let this = expect(b".", "first entry is not `.`")?;
    let parent = expect(b"..", "second entry is not `..`")?;
    if parent.offset != DOTDOT_AT {
        return Err(Defect {
            offset: parent.offset,
            what: "`..` is not at offset 12",
            value: as_u64(parent.offset),
        });
    }
    Ok(Dots { this: this.ino, parent: parent.ino })
}

#[cfg(test)]
mod tests;
