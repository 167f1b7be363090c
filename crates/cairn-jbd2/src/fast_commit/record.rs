//! The records of the fast-commit area.
//!
//! | tag | value |
//! |---|---|
//! | 1 ADD_RANGE | inode, extent (12 bytes as in an extent tree) |
//! | 2 DEL_RANGE | inode, first block, length |
//! | 3 CREAT, 4 LINK, 5 UNLINK | directory, inode, name |
//! | 6 INODE | inode, start of its record |
//! | 7 PAD | fills a block |
//! | 8 TAIL | transaction, crc32c of everything since the last TAIL up to here |
//! | 9 HEAD | features, transaction |

use cairn_base::{FileBlock, Ino, Pba, Tid};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::{Name, Operation};

/// `ext4_fc_tl`.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTagLength {
    fc_tag: U16,
    fc_len: U16,
}

/// Bytes before a value.
pub const HEADER: usize = size_of::<RawTagLength>();
const _: () = assert!(HEADER == 4);

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

/// Three or two words: `ext4_fc_del_range`, `ext4_fc_dentry_info`, `ext4_fc_tail`, `ext4_fc_head`.
type RawWords<const N: usize> = [U32; N];

mod tag {
    pub const ADD_RANGE: u16 = 1;
    pub const DEL_RANGE: u16 = 2;
    pub const CREAT: u16 = 3;
    pub const LINK: u16 = 4;
    pub const UNLINK: u16 = 5;
    pub const INODE: u16 = 6;
    pub const PAD: u16 = 7;
    pub const TAIL: u16 = 8;
    pub const HEAD: u16 = 9;
}

/// Longest written extent; beyond, the length says "unwritten" too.
const MAX_WRITTEN: u16 = 1 << 15;
/// Bytes every inode record has.
const GOOD_OLD_INODE: usize = 128;
/// Bytes of a longest name.
const NAME_MAX: usize = 255;

/// One record.
pub enum Kind {
    /// Start of the first fast commit of a transaction.
    Head { features: u32, tid: Tid },
    /// A change.
    Change(Operation),
    /// Filler.
    Pad,
    /// End of a fast commit; `covered` bytes of it go into the sum.
    Tail { tid: Tid, sum: u32, covered: usize },
}

/// The record at the start of `bytes`, and its length. `None`: not a record.
pub fn decode(bytes: &[u8]) -> Option<(Kind, usize)> {
    let (header, rest) = RawTagLength::read_from_prefix(bytes).ok()?;
    let len = usize::from(header.fc_len.get());
    // A TAIL's length may count its own header once too often: it always reaches to the end of the block.
    let is_tail = header.fc_tag.get() == tag::TAIL;
    let value = rest.get(..if is_tail { len.min(rest.len()) } else { len })?;
    Some((kind(header.fc_tag.get(), value)?, HEADER + value.len()))
}

fn kind(tag: u16, value: &[u8]) -> Option<Kind> {
    Some(match tag {
        tag::ADD_RANGE => Kind::Change(add_range(value)?),
        tag::DEL_RANGE => {
            let ([ino, start, len], rest) = RawWords::<3>::read_from_prefix(value).ok()?;
            let start = FileBlock(u64::from(start.get()));
            let delete = Operation::DeleteRange { ino: inode(ino), start, len: len.get() };
            Kind::Change(rest.is_empty().then_some(delete)?)
        }
        tag::CREAT => Kind::Change(Operation::Create(name(value)?)),
        tag::LINK => Kind::Change(Operation::Link(name(value)?)),
        tag::UNLINK => Kind::Change(Operation::Unlink(name(value)?)),
        tag::INODE => {
            let ([ino], raw) = RawWords::<1>::read_from_prefix(value).ok()?;
            let whole = raw.len() >= GOOD_OLD_INODE;
            Kind::Change(whole.then(|| Operation::Inode { ino: inode(ino), raw: raw.to_vec() })?)
        }
        tag::PAD => Kind::Pad,
        tag::TAIL => {
            let ([tid, sum], _) = RawWords::<2>::read_from_prefix(value).ok()?;
            Kind::Tail { tid: Tid(tid.get()), sum: sum.get(), covered: HEADER + size_of::<U32>() }
        }
        tag::HEAD => {
            let ([features, tid], _) = RawWords::<2>::read_from_prefix(value).ok()?;
            Kind::Head { features: features.get(), tid: Tid(tid.get()) }
        }
        _ => return None,
    })
}

fn add_range(value: &[u8]) -> Option<Operation> {
    let raw = RawAddRange::read_from_bytes(value).ok()?;
    let stored = raw.ee_len.get();
    let unwritten = stored > MAX_WRITTEN;
    let len = if unwritten { stored - MAX_WRITTEN } else { stored };
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
