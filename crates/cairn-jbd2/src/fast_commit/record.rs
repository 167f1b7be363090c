//! The records of the fast-commit area.
//!
//! A record is a tag, the length of its value, and the value. All integers are little-endian.
//!
//! | tag | value |
//! |---|---|
//! | 1 ADD_RANGE | inode, extent (12 bytes as in an extent tree) |
//! | 2 DEL_RANGE | inode, first block, length |
//! | 3 CREAT, 4 LINK, 5 UNLINK | directory, inode, name |
//! | 6 INODE | inode, first bytes of its record |
//! | 7 PAD | padding up to the end of a block |
//! | 8 TAIL | transaction, crc32c of the bytes since the last TAIL |
//! | 9 HEAD | features, transaction |

use cairn_base::{FileBlock, Ino, Pba, Tid};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::operation::{Name, Operation};

/// `ext4_fc_tl`.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTagLength {
    fc_tag: U16,
    fc_len: U16,
}

/// Bytes before a value.
pub(super) const HEADER: usize = size_of::<RawTagLength>();
const _: () = assert!(HEADER == 4);
/// Bytes of a TAIL that its checksum covers: all before the checksum.
const TAIL_COVERED: usize = HEADER + size_of::<U32>();

/// `ext4_fc_add_range`, with its extent.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAddRange {
    fc_ino: U32,
    ee_block: U32,
    ee_len: U16,
    ee_start_hi: U16,
    ee_start_lo: U32,
}
const _: () = assert!(size_of::<RawAddRange>() == 16);

/// `ext4_fc_del_range`, `ext4_fc_dentry_info`, `ext4_fc_tail` or `ext4_fc_head`: `N` integers.
type RawWords<const N: usize> = [U32; N];

mod tag {
    pub(super) const ADD_RANGE: u16 = 1;
    pub(super) const DEL_RANGE: u16 = 2;
    pub(super) const CREAT: u16 = 3;
    pub(super) const LINK: u16 = 4;
    pub(super) const UNLINK: u16 = 5;
    pub(super) const INODE: u16 = 6;
    pub(super) const PAD: u16 = 7;
    pub(super) const TAIL: u16 = 8;
    pub(super) const HEAD: u16 = 9;
}

/// Most blocks of a written extent. A larger `ee_len` is that of an unwritten extent plus this.
const MAX_WRITTEN: u16 = 1 << 15;
/// Bytes that every inode record has (`EXT4_GOOD_OLD_INODE_SIZE`).
const GOOD_OLD_INODE: usize = 128;
/// Most bytes of a name.
const NAME_MAX: usize = 255;

/// One record.
pub(super) enum Record {
    /// Start of the first fast commit of a transaction.
    Head { features: u32, tid: Tid },
    /// A change.
    Change(Operation),
    /// Padding.
    Pad,
    /// End of a fast commit. The checksum covers the record's first `covered` bytes.
    Tail { tid: Tid, sum: u32, covered: usize },
}

/// The record at the start of `bytes`, and its length. `None` if there is no valid record.
pub(super) fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
    let (header, rest) = RawTagLength::read_from_prefix(bytes).ok()?;
    let len = usize::from(header.fc_len.get());
    // Linux may count the header of a TAIL twice in its length. A TAIL reaches to the block's end.
    let is_tail = header.fc_tag.get() == tag::TAIL;
    let value = rest.get(..if is_tail { len.min(rest.len()) } else { len })?;
    let record = record(header.fc_tag.get(), value)?;
    Some((record, HEADER.checked_add(value.len())?))
}

fn record(tag: u16, value: &[u8]) -> Option<Record> {
    Some(match tag {
        tag::ADD_RANGE => Record::Change(add_range(value)?),
        tag::DEL_RANGE => {
            let ([ino, start, len], rest) = RawWords::<3>::read_from_prefix(value).ok()?;
            let start = FileBlock(u64::from(start.get()));
            let delete = Operation::DeleteRange { ino: inode(ino), start, len: len.get() };
            Record::Change(rest.is_empty().then_some(delete)?)
        }
        tag::CREAT => Record::Change(Operation::Create(name(value)?)),
        tag::LINK => Record::Change(Operation::Link(name(value)?)),
        tag::UNLINK => Record::Change(Operation::Unlink(name(value)?)),
        tag::INODE => {
            let ([ino], raw) = RawWords::<1>::read_from_prefix(value).ok()?;
            let whole = raw.len() >= GOOD_OLD_INODE;
            Record::Change(whole.then(|| Operation::Inode { ino: inode(ino), raw: raw.to_vec() })?)
        }
        tag::PAD => Record::Pad,
        tag::TAIL => {
            let ([tid, sum], _) = RawWords::<2>::read_from_prefix(value).ok()?;
            Record::Tail { tid: Tid(tid.get()), sum: sum.get(), covered: TAIL_COVERED }
        }
        tag::HEAD => {
            let ([features, tid], _) = RawWords::<2>::read_from_prefix(value).ok()?;
            Record::Head { features: features.get(), tid: Tid(tid.get()) }
        }
        _ => return None,
    })
}

fn add_range(value: &[u8]) -> Option<Operation> {
    let raw = RawAddRange::read_from_bytes(value).ok()?;
    let stored = raw.ee_len.get();
    let unwritten = stored > MAX_WRITTEN;
    let len = if unwritten { stored.checked_sub(MAX_WRITTEN)? } else { stored };
    Some(Operation::AddRange {
        ino: inode(raw.fc_ino),
        start: FileBlock(u64::from(raw.ee_block.get())),
        pba: Pba(u64::from(raw.ee_start_hi.get()) << 32 | u64::from(raw.ee_start_lo.get())),
        len: u32::from(len),
        unwritten,
    })
}

fn name(value: &[u8]) -> Option<Name> {
    let ([parent, ino], name) = RawWords::<2>::read_from_prefix(value).ok()?;
    let fits = (1..=NAME_MAX).contains(&name.len());
    fits.then(|| Name { parent: inode(parent), ino: inode(ino), name: name.to_vec() })
}

fn inode(number: U32) -> Ino {
    Ino(u64::from(number.get()))
}
