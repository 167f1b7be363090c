//! The bytes of extended attributes: the area behind an inode's fields, and the block that inodes
//! may share.
//!
//! Entries grow up from the start, values down from the end. Invariant of encoded bytes: values do
//! not overlap, entries of a block are sorted, every hash is right. Value offsets count from the
//! first entry in an inode, and from the start of a block. Source: "Extended Attributes" in the
//! kernel's ext4 documentation.

use cairn_base::Ino;
use cairn_base::units::{as_index, as_u64, stored};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::buffer;
use crate::corrupt::Corrupt;

mod hash;
mod places;
mod seal;

pub(crate) use hash::{block_hash, entry_hash, entry_hash_of_inode, entry_hashes, is_of_value};
pub(crate) use places::{WrongPlace, wrong_place};
pub(crate) use seal::{seal_block, verify_block};

/// `h_magic` of blocks and of the inode area.
pub(crate) const MAGIC: u32 = 0xea02_0000;
/// Most inodes that may share one block.
pub(crate) const REFCOUNT_MAX: u32 = 1024;
/// Largest value that can be set (Linux's limit).
pub(crate) const VALUE_MAX: usize = 65_536;
/// Largest value in an inode of its own that is accepted.
const FAR_VALUE_MAX: u32 = 1 << 24;

/// `struct ext4_xattr_ibody_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawInodeHeader {
    /// [`MAGIC`].
    pub h_magic: U32,
}

/// `struct ext4_xattr_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawBlockHeader {
    /// [`MAGIC`].
    pub h_magic: U32,
    /// Inodes that refer to the block.
    pub h_refcount: U32,
    /// 1.
    pub h_blocks: U32,
    /// Hash of all entries; 0 if an entry has none.
    pub h_hash: U32,
    /// crc32c of the volume seed, the block number and the block with this field as 0.
    pub h_checksum: U32,
    /// 0.
    pub h_reserved: [U32; 3],
}

/// `struct ext4_xattr_entry`, without the name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    /// Bytes of the name.
    pub e_name_len: u8,
    /// Prefix of the name.
    pub e_name_index: u8,
    /// Place of the value.
    pub e_value_offs: U16,
    /// Inode that holds the value; 0 if the container does.
    pub e_value_inum: U32,
    /// Bytes of the value.
    pub e_value_size: U32,
    /// Hash of name and value; it may be 0 in an inode.
    pub e_hash: U32,
}

const _: () = assert!(size_of::<RawInodeHeader>() == 4);
const _: () = assert!(size_of::<RawBlockHeader>() == 32);
const _: () = assert!(size_of::<RawEntry>() == 16);

const ENTRY_LEN: usize = size_of::<RawEntry>();
/// Offset of `h_checksum`.
const CHECKSUM_AT: usize = 16;

/// The container of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XattrLocation {
    /// The area behind the inode's fields.
    Inode,
    /// The external block.
    Block,
}

impl XattrLocation {
    /// Bytes before the first entry.
    #[must_use]
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::Inode => size_of::<RawInodeHeader>(),
            Self::Block => size_of::<RawBlockHeader>(),
        }
    }

    /// Start of the offsets `e_value_offs`.
    const fn values_from(self) -> usize {
        match self {
            Self::Inode => size_of::<RawInodeHeader>(),
            Self::Block => 0,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Inode => "the inode",
            Self::Block => "the attribute block",
        }
    }

    /// The error with its place.
    #[must_use]
    pub(crate) const fn corrupt(self, ino: Ino, what: &'static str, value: u64) -> Corrupt {
        Corrupt::Xattr { ino, place: self.name(), what, value }
    }
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// In the same container.
    Here(&'a [u8]),
    /// In its own inode.
    Inode {
        /// The inode.
        ino: Ino,
        /// Bytes.
        size: u32,
        /// `e_hash`: covers the name and the hash in the value's inode.
        hash: u32,
    },
}

/// An attribute, borrowed from its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute<'a> {
    /// Prefix index.
    pub index: u8,
    /// Name without the prefix.
    pub name: &'a [u8],
    /// Value.
    pub value: Value<'a>,
    /// The bytes behind the value up to a multiple of 4, which the hash covers.
    pub padding: &'a [u8],
    /// Offset of the value in the container; 0 for an empty one.
    pub value_at: usize,
    /// `e_hash`.
    pub hash: u32,
}

/// An attribute that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedAttribute {
    /// Prefix index.
    pub index: u8,
    /// Name without the prefix.
    pub name: Vec<u8>,
    /// Value.
    pub value: OwnedValue,
}

/// [`Value`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedValue {
    /// In the same container.
    Here(Vec<u8>),
    /// In its own inode.
    Inode {
        /// The inode.
        ino: Ino,
        /// Bytes.
        size: u32,
        /// `e_hash`.
        hash: u32,
    },
}

impl From<&Attribute<'_>> for OwnedAttribute {
    fn from(attribute: &Attribute<'_>) -> Self {
        let value = match attribute.value {
            Value::Here(bytes) => OwnedValue::Here(bytes.to_vec()),
            Value::Inode { ino, size, hash } => OwnedValue::Inode { ino, size, hash },
        };
        Self { index: attribute.index, name: attribute.name.to_vec(), value }
    }
}

impl OwnedAttribute {
    /// The value if it is in the container; otherwise nothing.
    #[must_use]
    pub(crate) fn value_here(&self) -> &[u8] {
        match &self.value {
            OwnedValue::Here(bytes) => bytes,
            OwnedValue::Inode { .. } => &[],
        }
    }

    /// The order of entries in a block.
    fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }
}

/// Bytes of an entry with its name.
#[must_use]
pub(crate) const fn entry_len(name_len: usize) -> usize {
    ENTRY_LEN.strict_add(name_len).strict_add(3) & !3
}

/// Bytes of a value with its padding.
#[must_use]
pub(crate) const fn padded(value_len: usize) -> usize {
    value_len.strict_add(3) & !3
}

/// All attributes of a container. An inode area without the magic has none.
///
/// # Errors
/// An entry or value is outside the container, entries and values overlap, or the header of a block
/// is invalid.
pub(crate) fn decode(
    bytes: &[u8],
    location: XattrLocation,
    ino: Ino,
) -> Result<Vec<Attribute<'_>>, Corrupt> {
    let corrupt = |what, value: usize| location.corrupt(ino, what, as_u64(value));
    let magic = bytes.first_chunk().map_or(0, |magic| u32::from_le_bytes(*magic));
    match location {
        XattrLocation::Inode if magic != MAGIC => return Ok(Vec::new()),
        XattrLocation::Inode => {}
        XattrLocation::Block => check_header(bytes, ino)?,
    }
    let mut attributes = Vec::new();
    let mut at = location.header_len();
    let mut value_bytes = 0_usize;
    loop {
        let rest = bytes.get(at..).unwrap_or(&[]);
        match rest.first_chunk() {
            None if location == XattrLocation::Inode
                && attributes.is_empty()
                && rest.is_empty() =>
            {
                break;
            }
            None => return Err(corrupt("entries run beyond the end", at)),
            Some(&[0, 0, 0, 0]) => break,
            Some(_) => {}
        }
        let (raw, names) =
            RawEntry::ref_from_prefix(rest).map_err(|_| corrupt("entry crosses the end", at))?;
        let name_len = usize::from(raw.e_name_len);
        let name =
            names.get(..name_len).ok_or_else(|| corrupt("name crosses the end", name_len))?;
        let value = decode_value(bytes, raw, location, ino)?;
        if let Value::Here(value) = value {
            value_bytes = value_bytes.saturating_add(padded(value.len()));
        }
        at = at.saturating_add(entry_len(name_len));
        let taken = at.saturating_add(value_bytes);
        if taken.saturating_add(4) > bytes.len() {
            return Err(corrupt("entries and values overlap", taken));
        }
        let value_at = if raw.e_value_size.get() == 0 { 0 } else { value_start(raw, location) };
        let len = if let Value::Here(value) = value { value.len() } else { 0 };
        let to = value_at.saturating_add(padded(len));
        let padding = bytes.get(value_at.saturating_add(len)..to).unwrap_or(&[]);
        let (index, hash) = (raw.e_name_index, raw.e_hash.get());
        attributes.push(Attribute { index, name, value, padding, value_at, hash });
    }
    Ok(attributes)
}

fn decode_value<'a>(
    bytes: &'a [u8],
    raw: &RawEntry,
    location: XattrLocation,
    ino: Ino,
) -> Result<Value<'a>, Corrupt> {
    let size = raw.e_value_size.get();
    if raw.e_value_inum.get() != 0 {
        if size > FAR_VALUE_MAX {
            return Err(location.corrupt(ino, "value in an inode is too large", u64::from(size)));
        }
        return Ok(Value::Inode {
            ino: Ino(u64::from(raw.e_value_inum.get())),
            size,
            hash: raw.e_hash.get(),
        });
    }
    if size == 0 {
        return Ok(Value::Here(&[]));
    }
    let start = value_start(raw, location);
    let value = as_index(size).checked_add(start).and_then(|end| bytes.get(start..end));
    value
        .map(Value::Here)
        .ok_or_else(|| location.corrupt(ino, "value crosses the end", u64::from(size)))
}

fn value_start(raw: &RawEntry, location: XattrLocation) -> usize {
    location.values_from().saturating_add(usize::from(raw.e_value_offs.get()))
}

fn check_header(block: &[u8], ino: Ino) -> Result<(), Corrupt> {
    let corrupt = |what, value: u32| XattrLocation::Block.corrupt(ino, what, u64::from(value));
    let header = header(block).ok_or_else(|| corrupt("block is too short", 0))?;
    if header.h_magic.get() != MAGIC {
        return Err(corrupt("wrong magic", header.h_magic.get()));
    }
    if header.h_blocks.get() != 1 {
        return Err(corrupt("h_blocks is not 1", header.h_blocks.get()));
    }
    if header.h_refcount.get() == 0 || header.h_refcount.get() > REFCOUNT_MAX {
        return Err(corrupt("impossible reference count", header.h_refcount.get()));
    }
    Ok(())
}

pub(crate) fn header(block: &[u8]) -> Option<&RawBlockHeader> {
    RawBlockHeader::ref_from_prefix(block).ok().map(|(header, _)| header)
}

/// Number of inodes that share a block with a valid header.
#[must_use]
pub(crate) fn refcount(block: &[u8]) -> u32 {
    header(block).map_or(0, |header| header.h_refcount.get())
}

/// True if the attributes fit a container of `capacity` bytes.
#[must_use]
pub(crate) fn fits(
    capacity: usize,
    location: XattrLocation,
    attributes: &[OwnedAttribute],
) -> bool {
    encoded_len(location, attributes) <= capacity
}

/// Bytes of the attributes, with header and end mark.
#[must_use]
pub(crate) fn encoded_len(location: XattrLocation, attributes: &[OwnedAttribute]) -> usize {
    let each =
        |a: &OwnedAttribute| entry_len(a.name.len()).strict_add(padded(a.value_here().len()));
    attributes.iter().map(each).fold(location.header_len().strict_add(4), usize::strict_add)
}

/// Encodes the inode area. Without attributes it is zero.
///
/// # Panics
/// If they do not fit.
pub(crate) fn encode_inode(area: &mut [u8], attributes: &[OwnedAttribute]) {
    area.fill(0);
    if attributes.is_empty() {
        return;
    }
    buffer::put(area, 0, &MAGIC.to_le_bytes());
    // As in Linux, entries in an inode have the hash 0 unless their value has its own inode.
    write_entries(area, XattrLocation::Inode, attributes, |attribute| match attribute.value {
        OwnedValue::Here(_) => 0,
        OwnedValue::Inode { hash, .. } => hash,
    });
}

/// Encodes a block of one inode, sorted and with hashes. [`seal_block`] writes the checksum.
///
/// # Panics
/// If they do not fit.
pub(crate) fn encode_block(block: &mut [u8], attributes: &mut [OwnedAttribute]) {
    attributes.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    block.fill(0);
    let header = RawBlockHeader {
        h_magic: U32::new(MAGIC),
        h_refcount: U32::new(1),
        h_blocks: U32::new(1),
        h_hash: U32::new(block_hash(attributes.iter().map(hash_of))),
        h_checksum: U32::ZERO,
        h_reserved: [U32::ZERO; 3],
    };
    buffer::put(block, 0, header.as_bytes());
    write_entries(block, XattrLocation::Block, attributes, hash_of);
}

fn hash_of(attribute: &OwnedAttribute) -> u32 {
    match &attribute.value {
        OwnedValue::Here(value) => entry_hash(&attribute.name, value),
        OwnedValue::Inode { hash, .. } => *hash,
    }
}

fn write_entries(
    bytes: &mut [u8],
    location: XattrLocation,
    attributes: &[OwnedAttribute],
    hash: impl Fn(&OwnedAttribute) -> u32,
) {
    assert!(fits(bytes.len(), location, attributes), "attributes do not fit {} bytes", bytes.len());
    let mut at = location.header_len();
    let mut values_at = bytes.len() & !3;
    for attribute in attributes {
        let value = attribute.value_here();
        values_at = values_at.strict_sub(padded(value.len()));
        buffer::put(bytes, values_at, value);
        let (inum, size) = match attribute.value {
            OwnedValue::Here(_) => (0, stored(value.len())),
            OwnedValue::Inode { ino, size, .. } => (stored(ino.get()), size),
        };
        let offset =
            if value.is_empty() { 0 } else { values_at.strict_sub(location.values_from()) };
        let raw = RawEntry {
            e_name_len: stored(attribute.name.len()),
            e_name_index: attribute.index,
            e_value_offs: U16::new(stored(offset)),
            e_value_inum: U32::new(inum),
            e_value_size: U32::new(size),
            e_hash: U32::new(hash(attribute)),
        };
        buffer::put(bytes, at, raw.as_bytes());
        buffer::put(bytes, at.strict_add(ENTRY_LEN), &attribute.name);
        at = at.strict_add(entry_len(attribute.name.len()));
    }
}

/// Sets the number of inodes that share the block. The caller then calls [`seal_block`].
///
/// # Panics
/// If the block is shorter than a header.
pub(crate) fn set_refcount(block: &mut [u8], count: u32) {
    buffer::structure::<RawBlockHeader>(block, 0).h_refcount = U32::new(count);
}

#[cfg(test)]
mod tests;
