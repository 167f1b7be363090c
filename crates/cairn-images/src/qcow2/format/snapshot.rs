//! Entries of the table of internal snapshots. Cairn keeps them as they are; it reads them to count
//! what they use.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The fixed part of an entry.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSnapshot {
    l1_table_offset: U64,
    l1_size: U32,
    id_str_size: U16,
    name_size: U16,
    date_sec: U32,
    date_nsec: U32,
    vm_clock_nsec: U64,
    vm_state_size: U32,
    extra_data_size: U32,
}

/// Bytes of the fixed part.
pub(in crate::qcow2) const FIXED: usize = 40;
const _: () = assert!(size_of::<RawSnapshot>() == FIXED);

/// One snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qcow2) struct Snapshot {
    /// Where its L1 table begins.
    pub(in crate::qcow2) l1_offset: u64,
    /// Entries of its L1 table.
    pub(in crate::qcow2) l1_entries: u32,
    /// Bytes of the entry, with what follows the fixed part.
    pub(in crate::qcow2) len: u64,
}

/// The entry that begins with these bytes.
pub(in crate::qcow2) fn decode(bytes: &[u8; FIXED]) -> Snapshot {
    let raw: &RawSnapshot = zerocopy::transmute_ref!(bytes);
    let variable = u64::from(raw.extra_data_size)
        .saturating_add(u64::from(raw.id_str_size.get()))
        .saturating_add(u64::from(raw.name_size.get()));
    Snapshot {
        l1_offset: raw.l1_table_offset.get(),
        l1_entries: raw.l1_size.get(),
        // Three lengths of at most 32 bits.
        len: variable.saturating_add(40).next_multiple_of(8),
    }
}
