//! How much of the volume each area gets, as mkfs.f2fs 1.15 decides it.
//!
//! Pure arithmetic: from the size and three wishes to the counts and addresses of the superblock, the place of the six
//! logs, and the space that users never get.

use super::{Error, MkfsOptions};
use crate::format::checkpoint::{CHECKSUM_AT, LARGE_CHECKSUM_AT};
use crate::format::log::Log;
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT, SegNo};
use crate::format::{nat, sit};

/// Bytes of a segment.
pub(super) const SEGMENT_BYTES: u64 = BLOCK_BYTES * BPS;
const BPS: u64 = BLOCKS_PER_SEGMENT as u64;
/// Segments of the two checkpoint packs.
const CKPT_SEGMENTS: u64 = 2;
/// Most segments a volume may have.
const MAX_SEGMENTS: u64 = 8_388_608;
/// Fewest segments of a volume.
const MIN_SEGMENTS: u64 = 9;
/// Bytes for both version bitmaps in the checkpoint block.
const BITMAP_BYTES: u64 = CHECKSUM_AT as u64 + 1 - LARGE_CHECKSUM_AT as u64;
/// The SIT's bitmap moves to blocks of its own when the NAT would get fewer bytes than this in the checkpoint block.
const NAT_BITMAP_MIN: u64 = 64;
/// Per cent of the blocks that can be nodes in a volume with a large NAT bitmap.
const LARGE_NAT_PERCENT: u64 = 20;
/// Main segments below which the overprovision is searched coarsely.
const SMALL_MAIN: u64 = 256;
/// The six logs start in zones of their own, and one more is needed to write to.
const ZONES_MIN: u64 = 7;

/// Counts are segments, addresses are blocks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Geometry {
    pub block_count: u64,
    pub segs_per_sec: u32,
    pub secs_per_zone: u32,
    pub segment_count: u32,
    pub sit_segments: u32,
    pub nat_segments: u32,
    pub ssa_segments: u32,
    pub main_segments: u32,
    pub sections: u32,
    pub segment0: u32,
    pub main: u32,
    pub cp_payload: u32,
    /// Where each log starts, by [`Log::index`].
    pub logs: [SegNo; Log::COUNT],
    pub reserved_segments: u32,
    pub overprovision_segments: u32,
    pub user_blocks: u64,
}

/// Why a size does not do: it is too small, or the wishes cannot be met at any size.
enum Refusal {
    TooSmall,
    Never(Error),
}

impl Geometry {
    /// Divides a device of `bytes`.
    pub(super) fn new(bytes: u64, options: &MkfsOptions) -> Result<Self, Error> {
        match divide(bytes, options) {
            Ok(geometry) => Ok(geometry),
            Err(Refusal::Never(error)) => Err(error),
            Err(Refusal::TooSmall) => Err(too_small(bytes, options)),
        }
    }
}

fn too_small(bytes: u64, options: &MkfsOptions) -> Error {
    let enough = |segments: &u64| divide(segments * SEGMENT_BYTES, options).is_ok();
    // Steps grow with the size: named is a size that does, within some per cent of the smallest.
    let mut sizes = std::iter::successors(Some(MIN_SEGMENTS), |last| Some(last + 1 + last / 64));
    match sizes.by_ref().take_while(|segments| *segments <= MAX_SEGMENTS).find(enough) {
        Some(segments) => Error::TooSmall { bytes, smallest: smallest(segments, enough) * SEGMENT_BYTES },
        None => Error::Option("no size does for this overprovision, these sections and zones".into()),
    }
}

/// The first size of the last step that does.
fn smallest(segments: u64, enough: impl Fn(&u64) -> bool) -> u64 {
    let step = segments / 64 + 2;
    (segments.saturating_sub(step)..segments).find(enough).unwrap_or(segments)
}

fn divide(bytes: u64, options: &MkfsOptions) -> Result<Geometry, Refusal> {
    let never = |text: &str| Refusal::Never(Error::Option(text.into()));
    let (segs_per_sec, secs_per_zone) = (options.segments_per_section, options.sections_per_zone);
    let zone = u64::from(segs_per_sec) * u64::from(secs_per_zone);
    if zone == 0 || zone > MAX_SEGMENTS {
        return Err(never("segments per section and sections per zone must be 1 or more, and a zone fit the volume"));
    }
    let zone_bytes = zone * SEGMENT_BYTES;
    let segment0 = (2 * BLOCK_BYTES).div_ceil(zone_bytes) * zone_bytes;
    let after = bytes.checked_sub(segment0).ok_or(Refusal::TooSmall)?;
    let segments = after / SEGMENT_BYTES / zone * zone;
    if segments > MAX_SEGMENTS {
        return Err(never("F2FS ends at 16 TiB: give a smaller size"));
    }
    if segments < MIN_SEGMENTS {
        return Err(Refusal::TooSmall);
    }
    let meta = Meta::new(segments, zone, options.large_nat_bitmap)?;
    let main = segments.checked_sub(meta.segments).filter(|main| *main > 0).ok_or(Refusal::TooSmall)?;
    let sections = main / u64::from(segs_per_sec);
    let main = sections * u64::from(segs_per_sec);
    let space = Space::new(main, segs_per_sec, options.overprovision)?;
    Ok(Geometry {
        block_count: bytes / BLOCK_BYTES,
        segs_per_sec,
        secs_per_zone,
        segment_count: narrow(segments),
        sit_segments: narrow(meta.sit),
        nat_segments: narrow(meta.nat),
        ssa_segments: narrow(meta.ssa),
        main_segments: narrow(main),
        sections: narrow(sections),
        segment0: narrow(segment0 / BLOCK_BYTES),
        main: narrow(segment0 / BLOCK_BYTES + meta.segments * BPS),
        cp_payload: narrow(meta.cp_payload),
        logs: logs(main, zone)?,
        reserved_segments: narrow(space.reserved),
        overprovision_segments: narrow(space.overprovision),
        user_blocks: (main - space.overprovision) * BPS,
    })
}

/// Everything here is bounded by [`MAX_SEGMENTS`].
fn narrow(value: u64) -> u32 {
    u32::try_from(value).expect("a volume has fewer than 2^32 blocks")
}

/// The areas before the main area.
struct Meta {
    sit: u64,
    nat: u64,
    ssa: u64,
    /// All of them, to the end of a zone.
    segments: u64,
    cp_payload: u64,
}

impl Meta {
    fn new(segments: u64, zone: u64, large_nat: bool) -> Result<Self, Refusal> {
        let sit = 2 * segments.div_ceil(sit::ENTRIES_PER_BLOCK as u64).div_ceil(BPS);
        let sit_bitmap = sit / 2 * BPS / 8;
        let left = segments.checked_sub(CKPT_SEGMENTS + sit).ok_or(Refusal::TooSmall)?;
        // Room for as many nodes as there are blocks, as far as the bitmap allows.
        let wanted = (left * BPS).div_ceil(nat::ENTRIES_PER_BLOCK as u64).div_ceil(BPS);
        let (nat, cp_payload) = if large_nat {
            let nat = (wanted * LARGE_NAT_PERCENT / 100).max(1);
            let over = (sit_bitmap + nat * BPS / 8).saturating_sub(BITMAP_BYTES);
            (nat, over.div_ceil(BLOCK_BYTES))
        } else if sit_bitmap > BITMAP_BYTES - NAT_BITMAP_MIN {
            (wanted.min(BITMAP_BYTES * 8 / BPS), sit_bitmap.div_ceil(BLOCK_BYTES))
        } else {
            (wanted.min((BITMAP_BYTES - sit_bitmap) * 8 / BPS), 0)
        };
        let nat = 2 * nat;
        let left = segments.checked_sub(CKPT_SEGMENTS + sit + nat).ok_or(Refusal::TooSmall)?;
        let ssa = (left + 1).div_ceil(BPS);
        let end = (CKPT_SEGMENTS + sit + nat + ssa).div_ceil(zone) * zone;
        Ok(Self { sit, nat, ssa: end - CKPT_SEGMENTS - sit - nat, segments: end, cp_payload })
    }
}

/// What users never get, in segments.
struct Space {
    reserved: u64,
    overprovision: u64,
}

impl Space {
    fn new(main: u64, segs_per_sec: u32, percent: Option<f64>) -> Result<Self, Refusal> {
        let percent = match percent {
            Some(percent) => percent,
            None => best_percent(main, segs_per_sec).ok_or(Refusal::TooSmall)?,
        };
        let reserved = reserved(percent, segs_per_sec) as u64;
        if main < reserved + Log::COUNT as u64 {
            return Err(Refusal::TooSmall);
        }
        let overprovision = ((main - reserved) as f64 * percent / 100.0) as u64 + reserved;
        if overprovision >= main {
            return Err(Refusal::TooSmall);
        }
        Ok(Self { reserved, overprovision })
    }
}

/// Segments kept so that cleaning always has somewhere to write to.
fn reserved(percent: f64, segs_per_sec: u32) -> f64 {
    (2.0 * (100.0 / percent + 1.0) + 6.0) * f64::from(segs_per_sec)
}

/// The percentage that leaves users most.
fn best_percent(main: u64, segs_per_sec: u32) -> Option<f64> {
    let (start, end, step) = if main < SMALL_MAIN { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let mut best: Option<(f64, f64)> = None;
    // The sum of steps, not a product: rounding decides between neighbours, and it must be that of everybody else.
    let mut percent = start;
    while percent <= end {
        let rest = main as f64 - reserved(percent, segs_per_sec);
        let space = rest - rest * percent / 100.0;
        if space > best.map_or(0.0, |(most, _)| most) {
            best = Some((space, percent));
        }
        percent += step;
    }
    best.map(|(_, percent)| percent)
}

/// Each log in a zone of its own: hot ones at the start, cold data at a quarter, warm data at the half.
fn logs(main: u64, zone: u64) -> Result<[SegNo; Log::COUNT], Refusal> {
    let zones = main / zone;
    if zones < ZONES_MIN {
        return Err(Refusal::TooSmall);
    }
    let cold_data = (zones / 4).saturating_sub(1).max(4);
    let warm_data = (zones / 2 - 1).max(cold_data + 1);
    let mut logs = [SegNo(0); Log::COUNT];
    let places = [
        (Log::HotNode, 0),
        (Log::WarmNode, 1),
        (Log::ColdNode, 2),
        (Log::HotData, 3),
        (Log::ColdData, cold_data),
        (Log::WarmData, warm_data),
    ];
    for (log, at) in places {
        logs[log.index()] = SegNo(narrow(at * zone));
    }
    Ok(logs)
}

#[cfg(test)]
#[path = "geometry_tests.rs"]
mod tests;
