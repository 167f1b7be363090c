//! Map objects.

use bytes::Bytes;
use cairn_base::memory;
use cairn_base::units::{as_index, as_u64};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::data::HEADER;
use super::id::MapId;
use super::{Corrupt, ObjectId, Result, SECTOR, VERSION, checksum};

const MAGIC: [u8; 8] = *b"CairnMap";
/// Sectors of a region: 256 MiB.
pub(crate) const REGION: u64 = (256 << 20) / SECTOR;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    log: U64,
    objects: U32,
    extents: U32,
}

const _: () = assert!(size_of::<RawHeader>() == 32);

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawObject {
    log: U64,
    epoch: U64,
    sequence: U64,
    length: U64,
}

const _: () = assert!(size_of::<RawObject>() == 32);

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawExtent {
    start: U64,
    count: U32,
    object: U32,
    offset: U64,
}

const _: () = assert!(size_of::<RawExtent>() == 24);

/// Sectors that lie in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapExtent {
    /// First sector.
    pub(crate) start: u64,
    /// Sectors.
    pub(crate) count: u32,
    /// Index in the list of objects.
    pub(crate) object: u32,
    /// Byte in the object.
    pub(crate) offset: u64,
}

/// The contents of a map object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapPart {
    /// Data objects with their lengths.
    pub(crate) objects: Vec<(ObjectId, u64)>,
    /// Ascending, disjoint.
    pub(crate) extents: Vec<MapExtent>,
}

/// The bytes of a map object.
pub(crate) fn encode(id: MapId, part: &MapPart) -> Bytes {
    let raw_object = |(object, length): &(ObjectId, u64)| RawObject {
        log: object.log.into(),
        epoch: u64::from(object.epoch).into(),
        sequence: object.sequence.into(),
        length: (*length).into(),
    };
    let raw_extent = |extent: &MapExtent| RawExtent {
        start: extent.start.into(),
        count: extent.count.into(),
        object: extent.object.into(),
        offset: extent.offset.into(),
    };
    let objects: Vec<_> = part.objects.iter().map(raw_object).collect();
    let extents: Vec<_> = part.extents.iter().map(raw_extent).collect();
    let mut header = RawHeader {
        magic: MAGIC,
        version: VERSION.into(),
        checksum: 0.into(),
        log: id.log.into(),
        objects: cairn_base::units::stored::<_, u32>(objects.len()).into(),
        extents: cairn_base::units::stored::<_, u32>(extents.len()).into(),
    };
    let parts = [header.as_bytes(), objects.as_bytes(), extents.as_bytes()];
    let sum = checksum(&parts);
    header.checksum = sum.into();
    [header.as_bytes(), objects.as_bytes(), extents.as_bytes()].concat().into()
}

/// Reads a map object of a volume of so many sectors.
pub(crate) fn decode(id: MapId, bytes: &[u8], sectors: u64) -> Result<MapPart> {
    let bad = |detail: String| Corrupt::new(id, detail);
    let Ok((header, rest)) = RawHeader::read_from_prefix(bytes) else {
        return Err(bad(format!("has {} bytes, fewer than its header", bytes.len())));
    };
    if header.magic != MAGIC {
        return Err(bad("does not begin as a map object".into()));
    }
    Corrupt::version(id, header.version.get(), VERSION)?;
    let zeroed = RawHeader { checksum: 0.into(), ..header };
    Corrupt::checksum(id, header.checksum.get(), checksum(&[zeroed.as_bytes(), rest]))?;
    if header.log.get() != id.log {
        return Err(bad(format!("says that it is of the volume {:016x}", header.log)));
    }
    let (objects, extents) = (header.objects.get(), header.extents.get());
    let at = as_index(objects).saturating_mul(size_of::<RawObject>());
    let split = rest.split_at_checked(at).and_then(|(objects, extents)| {
        let objects = <[RawObject]>::ref_from_bytes(objects).ok()?;
        Some((objects, <[RawExtent]>::ref_from_bytes(extents).ok()?))
    });
    let raw = split.filter(|(_, list)| list.len() == as_index(extents));
    let Some((raw_objects, raw_extents)) = raw else {
        let size = bytes.len();
        return Err(bad(format!("has {size} bytes for {objects} objects, {extents} extents")));
    };
    let refused = |refused: memory::NoMemory| bad(refused.to_string());
    let mut part = MapPart {
        objects: memory::list("a map", raw_objects.len()).map_err(refused)?,
        extents: memory::list("a map", raw_extents.len()).map_err(refused)?,
    };
    for raw in raw_objects {
        let Ok(epoch) = u32::try_from(raw.epoch.get()) else {
            return Err(bad(format!("names the epoch {}, beyond 32 bits", raw.epoch)));
        };
        let object = ObjectId { log: raw.log.get(), epoch, sequence: raw.sequence.get() };
        part.objects.push((object, raw.length.get()));
    }
    let mut next = 0;
    for raw in raw_extents {
        let extent = extent(id, raw, &part.objects, next, sectors)?;
        next = extent.start.saturating_add(extent.count.into());
        part.extents.push(extent);
    }
    Ok(part)
}

/// Validates an extent of a volume of so many sectors, whose predecessor ends at `next`.
fn extent(
    id: MapId,
    raw: &RawExtent,
    objects: &[(ObjectId, u64)],
    next: u64,
    sectors: u64,
) -> Result<MapExtent> {
    let (start, count) = (raw.start.get(), raw.count.get());
    let end = start.checked_add(count.into()).filter(|end| *end <= sectors);
    let same_region = end.is_some_and(|end| end.saturating_sub(1) / REGION == start / REGION);
    if start < next || count == 0 || !same_region {
        let detail = format!("has an extent of {count} sectors at {start} behind {next}");
        return Err(Corrupt::new(id, detail));
    }
    let (object, offset) = (raw.object.get(), raw.offset.get());
    let bytes = u64::from(count).saturating_mul(SECTOR);
    let length = objects.get(as_index(object)).map_or(0, |(_, length)| *length);
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= length);
    if offset < as_u64(HEADER) || !inside {
        let detail = format!(
            "has {bytes} bytes at {offset} of its object {object}, which has {length} bytes"
        );
        return Err(Corrupt::new(id, detail));
    }
    Ok(MapExtent { start, count, object, offset })
}
