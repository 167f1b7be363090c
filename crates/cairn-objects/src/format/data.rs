//! Data objects and fences.

use bytes::Bytes;
use cairn_base::memory;
use cairn_base::units::{as_index, as_u64};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Corrupt, ObjectId, Result, SECTOR, VERSION, checksum};

const DATA: [u8; 8] = *b"CairnObj";
const FENCE: [u8; 8] = *b"CairnFnc";
/// Version of the layout of data objects: those of writers with a local log. Their header is longer
/// by [`RECORDED`] bytes.
const LOGGED_VERSION: u32 = 3;
/// Version of the others. Those of version 1 do not say what was in the store before them.
const DATA_VERSION: u32 = 2;
/// An index entry with data.
const KIND_DATA: u32 = 0;
/// An index entry that reads as zeros.
const KIND_HOLE: u32 = 1;
/// Most entries of an index. A volume writes fewer.
pub(crate) const MOST_ENTRIES: u32 = 1 << 20;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    header_checksum: U32,
    log: U64,
    epoch: U32,
    /// So many objects just before this one were not yet in the store when it was made.
    behind: U32,
    sequence: U64,
    nonce: U64,
    entries: U32,
    data_checksum: U32,
    data_length: U64,
}

/// Bytes of a data object's header, at least.
pub(crate) const HEADER: usize = 64;
/// Bytes that follow it in an object of a writer with a local log: the number of its first record
/// that was not yet durable.
const RECORDED: usize = size_of::<U64>();
const _: () = assert!(size_of::<RawHeader>() == HEADER);

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    start: U64,
    count: U32,
    kind: U32,
}

/// Bytes of an index entry.
pub(crate) const ENTRY: usize = 16;
const _: () = assert!(size_of::<RawEntry>() == ENTRY);

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFence {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    log: U64,
    epoch: U64,
    sequence: U64,
    by: U64,
}

/// Bytes of a fence. Every data object is longer.
const FENCE_LENGTH: usize = 48;
const _: () = assert!(size_of::<RawFence>() == FENCE_LENGTH && FENCE_LENGTH < HEADER);

/// Sectors that an object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// First sector.
    pub(crate) start: u64,
    /// Sectors.
    pub(crate) count: u32,
    /// Where the data is in the object, in bytes; none for a hole.
    pub(crate) offset: Option<u64>,
}

impl Entry {
    /// The sector behind the last one.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.count.into())
    }
}

/// What the head of a data object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    /// Of the opening that wrote it.
    pub(crate) nonce: u64,
    /// All objects of the log below this sequence were in the store when this one was made.
    pub(crate) stable: u64,
    /// Records of the writer's local log below this number were durable then. 0: it was not begun.
    pub(crate) recorded: u64,
    /// Ascending, disjoint.
    pub(crate) entries: Vec<Entry>,
    /// Bytes of the whole object.
    pub(crate) length: u64,
    /// Bytes of header and index.
    pub(crate) head: u64,
    data_checksum: u32,
}

/// Who makes a data object, and what is durable before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker {
    /// Of the opening.
    pub(crate) nonce: u64,
    /// All objects of the log below this sequence are in the store.
    pub(crate) stable: u64,
    /// As in [`Index::recorded`].
    pub(crate) recorded: u64,
}

/// What the log has at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A data object.
    Data(Index),
    /// A fence.
    Fence {
        /// The epoch of the opening that wrote it.
        by: u64,
    },
    /// The bytes end before the index does: so many are needed.
    Longer(u64),
}

fn head_length(version: u32, entries: u32) -> u64 {
    let header = if version == LOGGED_VERSION { HEADER + RECORDED } else { HEADER };
    as_u64(header).saturating_add(u64::from(entries).saturating_mul(as_u64(ENTRY)))
}

/// Header and index of an object with this data. Offsets of the entries follow from their order;
/// the second result has them.
pub(crate) fn encode(
    id: ObjectId,
    maker: Maker,
    extents: &[(u64, u32, bool)],
    data: &[Bytes],
) -> (Bytes, Vec<Entry>) {
    let Maker { nonce, stable, recorded } = maker;
    let (version, recorded) = match recorded {
        0 => (DATA_VERSION, Vec::new()),
        recorded => (LOGGED_VERSION, recorded.to_le_bytes().to_vec()),
    };
    let number: u32 = cairn_base::units::stored(extents.len());
    let start = head_length(version, number);
    let mut offset = start;
    let mut index = Vec::with_capacity(extents.len());
    let mut raw = Vec::with_capacity(extents.len());
    for (start, count, hole) in extents.iter().copied() {
        let kind = if hole { KIND_HOLE } else { KIND_DATA };
        raw.push(RawEntry { start: start.into(), count: count.into(), kind: kind.into() });
        index.push(Entry { start, count, offset: (!hole).then_some(offset) });
        if !hole {
            offset = offset.saturating_add(u64::from(count).saturating_mul(SECTOR));
        }
    }
    let sum = data.iter().fold(!0, |sum, part| cairn_base::checksum::crc32c(sum, part));
    let mut header = RawHeader {
        magic: DATA,
        version: version.into(),
        header_checksum: 0.into(),
        log: id.log.into(),
        epoch: id.epoch.into(),
        behind: cairn_base::units::stored::<_, u32>(id.sequence.saturating_sub(stable)).into(),
        sequence: id.sequence.into(),
        nonce: nonce.into(),
        entries: number.into(),
        data_checksum: (!sum).into(),
        data_length: offset.saturating_sub(start).into(),
    };
    header.header_checksum = checksum(&[header.as_bytes(), &recorded, raw.as_bytes()]).into();
    let mut head = header.as_bytes().to_vec();
    head.extend_from_slice(&recorded);
    head.extend_from_slice(raw.as_bytes());
    (head.into(), index)
}

/// The fence at a name, written by the opening of epoch `by`.
pub(crate) fn encode_fence(id: ObjectId, by: u32) -> Bytes {
    let mut raw = RawFence {
        magic: FENCE,
        version: VERSION.into(),
        checksum: 0.into(),
        log: id.log.into(),
        epoch: u64::from(id.epoch).into(),
        sequence: id.sequence.into(),
        by: u64::from(by).into(),
    };
    raw.checksum = checksum(&[raw.as_bytes()]).into();
    Bytes::copy_from_slice(raw.as_bytes())
}

fn same_place(id: ObjectId, log: U64, epoch: u64, sequence: U64) -> Result<()> {
    let (log, sequence) = (log.get(), sequence.get());
    if (log, epoch, sequence) == (id.log, id.epoch.into(), id.sequence) {
        return Ok(());
    }
    let detail = format!("says that it is {epoch:x}-{sequence:x} of the log {log:016x}");
    Err(Corrupt::new(id, detail))
}

/// Reads the first bytes of an object of the log; `length` is that of the whole.
pub(crate) fn decode(id: ObjectId, bytes: &[u8], length: u64) -> Result<Found> {
    if length < as_u64(HEADER) {
        return decode_fence(id, bytes);
    }
    let Ok((header, rest)) = RawHeader::read_from_prefix(bytes) else {
        return Ok(Found::Longer(as_u64(HEADER)));
    };
    if header.magic != DATA {
        return Err(Corrupt::new(id, "does not begin as a data object"));
    }
    let version = header.version.get();
    let known = version_by_checksum(&header, rest).filter(|known| *known != version);
    if let Some(known) = known {
        let detail = format!("has version {version} of the layout, and the checksum of {known}");
        return Err(Corrupt::new(id, detail));
    }
    Corrupt::version(id, version, LOGGED_VERSION)?;
    let number = header.entries.get();
    let head = head_length(version, number);
    if number > MOST_ENTRIES || head.checked_add(header.data_length.get()) != Some(length) {
        let detail = format!(
            "has {length} bytes, and says {number} index entries and {} bytes of data",
            header.data_length
        );
        return Err(Corrupt::new(id, detail));
    }
    let Some((recorded, index)) = parts(version, number, rest) else {
        return Ok(Found::Longer(head));
    };
    let zeroed = RawHeader { header_checksum: 0.into(), ..header };
    let sum = checksum(&[zeroed.as_bytes(), recorded, index]);
    Corrupt::checksum(id, header.header_checksum.get(), sum)?;
    same_place(id, header.log, header.epoch.get().into(), header.sequence)?;
    let stable = match id.sequence.checked_sub(header.behind.get().into()) {
        _ if version < DATA_VERSION => 0,
        Some(stable) => stable,
        None => {
            let detail = format!("says that it follows {} objects", header.behind);
            return Err(Corrupt::new(id, detail));
        }
    };
    let entries = entries(id, index, head, length)?;
    Ok(Found::Data(Index {
        nonce: header.nonce.get(),
        stable,
        recorded: U64::read_from_bytes(recorded).map_or(0, U64::get),
        entries,
        length,
        head,
        data_checksum: header.data_checksum.get(),
    }))
}

/// The version with which the checksum of a head is right, if there is one.
fn version_by_checksum(header: &RawHeader, rest: &[u8]) -> Option<u32> {
    let number = header.entries.get();
    (1..=LOGGED_VERSION).filter(|_| number <= MOST_ENTRIES).find(|version| {
        let RawHeader { header_checksum: stored, .. } = *header;
        let as_known =
            RawHeader { version: (*version).into(), header_checksum: 0.into(), ..*header };
        parts(*version, number, rest).is_some_and(|(recorded, index)| {
            checksum(&[as_known.as_bytes(), recorded, index]) == stored.get()
        })
    })
}

/// What follows the first part of the header, and the index. None if the bytes end before.
fn parts(version: u32, entries: u32, rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let further = if version == LOGGED_VERSION { RECORDED } else { 0 };
    let (recorded, rest) = rest.split_at_checked(further)?;
    let index = rest.get(..as_index(entries).saturating_mul(ENTRY))?;
    Some((recorded, index))
}

fn entries(id: ObjectId, index: &[u8], head: u64, length: u64) -> Result<Vec<Entry>> {
    let refused = |refused: memory::NoMemory| Corrupt::new(id, refused.to_string());
    let raws = <[RawEntry]>::ref_from_bytes(index);
    let raws = raws.map_err(|_| Corrupt::new(id, "has an index of odd length"))?;
    let mut entries = memory::list("an index", raws.len()).map_err(refused)?;
    let (mut next, mut offset) = (0, head);
    for raw in raws {
        let (start, count) = (raw.start.get(), raw.count.get());
        let end = start.checked_add(count.into());
        let (Some(end), true) = (end, start >= next && count > 0) else {
            let detail = format!("has an index entry of {count} sectors at {start} behind {next}");
            return Err(Corrupt::new(id, detail));
        };
        next = end;
        let place = match raw.kind.get() {
            KIND_DATA => Some(offset),
            KIND_HOLE => None,
            kind => {
                let detail = format!("has an index entry of the unknown kind {kind}");
                return Err(Corrupt::new(id, detail));
            }
        };
        entries.push(Entry { start, count, offset: place });
        if place.is_some() {
            offset = offset.saturating_add(u64::from(count).saturating_mul(SECTOR));
        }
    }
    if offset != length {
        let detail = format!("has {length} bytes, and its index ends at {offset}");
        return Err(Corrupt::new(id, detail));
    }
    Ok(entries)
}

fn decode_fence(id: ObjectId, bytes: &[u8]) -> Result<Found> {
    let Ok(raw) = RawFence::read_from_bytes(bytes) else {
        let detail = format!("has {} bytes: neither a data object nor a fence", bytes.len());
        return Err(Corrupt::new(id, detail));
    };
    if raw.magic != FENCE {
        return Err(Corrupt::new(id, "does not begin as a fence"));
    }
    Corrupt::version(id, raw.version.get(), VERSION)?;
    let zeroed = RawFence { checksum: 0.into(), ..raw };
    Corrupt::checksum(id, raw.checksum.get(), checksum(&[zeroed.as_bytes()]))?;
    same_place(id, raw.log, raw.epoch.get(), raw.sequence)?;
    Ok(Found::Fence { by: raw.by.get() })
}

impl Index {
    /// Compares the checksum of the data in a whole object.
    pub(crate) fn verify(&self, id: ObjectId, object: &[u8]) -> Result<()> {
        let head = usize::try_from(self.head).unwrap_or(usize::MAX);
        let data = object.get(head..).unwrap_or_default();
        Corrupt::checksum(id, self.data_checksum, checksum(&[data]))
    }
}
