//! How much of the volume each area gets, as mkfs.f2fs 1.15 decides it.
//!
//! Pure arithmetic: from the size and three wishes to the counts and addresses of the superblock,
//! the place of the six logs, and the space that users never get.

use super::error::Error;
use super::medium::{Medium, MediumZones};
use super::options::MkfsOptions;
use crate::format::checkpoint::{CHECKSUM_AT, LARGE_CHECKSUM_AT};
use crate::format::log::Log;
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT, SEGMENT_BYTES, SegNo};
use crate::format::{nat, sit};

/// Blocks of a segment.
const BPS: u64 = BLOCKS_PER_SEGMENT as u64;
/// Segments of the two checkpoint packs.
const CKPT_SEGMENTS: u64 = 2;
/// Most segments a volume may have.
const MAX_SEGMENTS: u64 = 8_388_608;
/// Fewest segments of a volume.
const MIN_SEGMENTS: u64 = 9;
/// Bytes for both version bitmaps in the checkpoint block.
const BITMAP_BYTES: u64 = CHECKSUM_AT as u64 + 1 - LARGE_CHECKSUM_AT as u64;
/// The SIT's bitmap moves to blocks of its own when the NAT would get fewer bytes than this in the
/// checkpoint block.
const NAT_BITMAP_MIN: u64 = 64;
/// Per cent of the blocks that can be nodes in a volume with a large NAT bitmap.
const LARGE_NAT_PERCENT: u64 = 20;
/// Main segments below which the overprovision is searched coarsely.
const SMALL_MAIN: u64 = 256;
/// The six logs start in zones of their own, and one more zone is needed for writes.
const ZONES_MIN: u64 = 7;

/// Smallest number of sections kept for cleaning that can be given: one for each log, and two more.
const RESERVED_SECTIONS_MIN: u32 = Log::COUNT as u32 + 2;
/// Overprovision in per cent if the number of reserved sections is given.
const PERCENT_BESIDE_RESERVED: f64 = 3.0;

/// Counts are segments, addresses are blocks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Geometry {
    pub(crate) block_count: u64,
    pub(crate) segs_per_sec: u32,
    pub(crate) secs_per_zone: u32,
    pub(crate) segment_count: u32,
    pub(crate) sit_segments: u32,
    pub(crate) nat_segments: u32,
    pub(crate) ssa_segments: u32,
    pub(crate) main_segments: u32,
    pub(crate) sections: u32,
    pub(crate) segment0: u32,
    pub(crate) main: u32,
    pub(crate) cp_payload: u32,
    /// Where each log starts, by [`Log::index`].
    pub(crate) logs: [SegNo; Log::COUNT],
    pub(crate) reserved_segments: u32,
    pub(crate) overprovision_segments: u32,
    pub user_blocks: u64,
    /// Writable segments of the main area: fewer than all if zones have less capacity than size.
    pub(crate) usable_segments: u32,
    /// Segments on each device.
    pub(crate) device_segments: Vec<u32>,
}

/// Why a size is refused: it is too small, or the options cannot be met at any size.
enum Refusal {
    TooSmall,
    Never(Error),
}

impl Geometry {
    /// Divides one device of this many bytes.
    pub(crate) fn of_bytes(bytes: u64, options: &MkfsOptions) -> Result<Self, Error> {
        Self::new(bytes, options)
    }

    /// Divides one device of this many bytes, or several devices.
    pub(super) fn new(medium: impl Into<Medium>, options: &MkfsOptions) -> Result<Self, Error> {
        let medium = medium.into();
        match divide(&medium, options) {
            Ok(geometry) => Ok(geometry),
            Err(Refusal::Never(error)) => Err(error),
            Err(Refusal::TooSmall) => Err(match (&medium.sizes[..], &medium.zones) {
                ([bytes], None) => too_small(*bytes, options),
                _ => Error::Option(
                    "the devices are too small for F2FS with these options: give \
                    larger ones, or leave out overprovision, sections and zones"
                        .into(),
                ),
            }),
        }
    }

    /// One more than the highest nid.
    pub(super) fn max_nid(&self) -> u64 {
        u64::from(self.nat_segments / 2) * BPS * nat::ENTRIES_PER_BLOCK as u64
    }

    /// Bytes that the volume uses of each device.
    pub(super) fn device_bytes(&self) -> Vec<u64> {
        let mut bytes: Vec<u64> = self
            .device_segments
            .iter()
            .map(|segments| u64::from(*segments) * SEGMENT_BYTES)
            .collect();
        bytes[0] += u64::from(self.segment0) * BLOCK_BYTES;
        bytes
    }
}

fn too_small(bytes: u64, options: &MkfsOptions) -> Error {
    let enough = |segments: &u64| divide(&Medium::from(segments * SEGMENT_BYTES), options).is_ok();
    // The steps grow with the size, so the result suffices and is within some per cent of the
    // smallest size.
    let mut sizes = std::iter::successors(Some(MIN_SEGMENTS), |last| Some(last + 1 + last / 64));
    match sizes.by_ref().take_while(|segments| *segments <= MAX_SEGMENTS).find(enough) {
        Some(segments) => {
            Error::TooSmall { bytes, smallest: smallest(segments, enough) * SEGMENT_BYTES }
        }
        None => Error::Option(
            "no size is possible with these overprovision, sections and zones: leave these out"
                .into(),
        ),
    }
}

/// The smallest size of the last step that suffices.
fn smallest(segments: u64, enough: impl Fn(&u64) -> bool) -> u64 {
    let step = segments / 64 + 2;
    (segments.saturating_sub(step)..segments).find(enough).unwrap_or(segments)
}

fn never(text: &str) -> Refusal {
    Refusal::Never(Error::Option(text.into()))
}

/// Segments per section and sections per zone.
fn shape(medium: &Medium, options: &MkfsOptions) -> Result<(u32, u32), Refusal> {
    let asked = (options.segments_per_section, options.sections_per_zone);
    match (&medium.zones, options.zoned) {
        (None, false) if options.reserved_sections.is_some() => {
            Err(never("a number of reserved sections is for zoned devices"))
        }
        (None, false) => Ok(asked),
        (None, true) => {
            Err(never("no device has zones that must be written in order: leave the zones out"))
        }
        (Some(_), false) => {
            Err(never("a device has zones that must be written in order: ask for zones"))
        }
        (Some(zones), true) => {
            // A section is the unit that is freed.
            let of_zone = (u32::try_from(zones.size / SEGMENT_BYTES).unwrap_or(u32::MAX), 1);
            if asked != (1, 1) && asked != of_zone {
                let why = "on a zoned device a section is a zone: leave out sections and zones";
                return Err(never(why));
            }
            Ok(of_zone)
        }
    }
}

fn divide(medium: &Medium, options: &MkfsOptions) -> Result<Geometry, Refusal> {
    let (segs_per_sec, secs_per_zone) = shape(medium, options)?;
    let zone = u64::from(segs_per_sec) * u64::from(secs_per_zone);
    if zone == 0 || zone > MAX_SEGMENTS {
        return Err(never(
            "segments per section times sections per zone must be 1 to 8388608: give for example \
             one of each",
        ));
    }
    let zone_bytes = zone * SEGMENT_BYTES;
    let mut segment0 = (2 * BLOCK_BYTES).div_ceil(zone_bytes) * zone_bytes;
    let (first, others) = medium.sizes.split_first().expect("a volume lies on a device");
    let after = first.checked_sub(segment0).ok_or(Refusal::TooSmall)?;
    let bytes = first + others.iter().sum::<u64>();
    if options.zoned && !others.is_empty() {
        // The second device's zones begin where the first device ends.
        segment0 += after % zone_bytes;
    }
    let mut device_segments = vec![(first - segment0) / SEGMENT_BYTES];
    device_segments.extend(others.iter().map(|bytes| bytes / SEGMENT_BYTES));
    let segments = device_segments.iter().sum::<u64>() / zone * zone;
    let end = segment0.saturating_add(segments.saturating_mul(SEGMENT_BYTES));
    if segments > MAX_SEGMENTS || end / BLOCK_BYTES > u64::from(u32::MAX) {
        return Err(never("an F2FS volume has less than 16 TiB: give a smaller size"));
    }
    if segments < MIN_SEGMENTS {
        return Err(Refusal::TooSmall);
    }
    let meta = Meta::new(segments, zone, options.large_nat_bitmap)?;
    let main =
        segments.checked_sub(meta.segments).filter(|main| *main > 0).ok_or(Refusal::TooSmall)?;
    let sections = main / u64::from(segs_per_sec);
    let main = sections * u64::from(segs_per_sec);
    let main_start = segment0 + meta.segments * SEGMENT_BYTES;
    let usable = match &medium.zones {
        Some(zones) => usable(zones, medium, main_start, sections)?,
        None => main,
    };
    let per_section = narrow(usable.div_ceil(sections));
    let space = Space::new(main, usable, per_section, segs_per_sec, options)?;
    if let Some(zones) = &medium.zones {
        // If zones end within a segment, fewer blocks are writable than the whole segments have.
        let writable = sections * (zones.capacity / BLOCK_BYTES);
        if writable <= space.overprovision * BPS {
            let text = "the zones are too few: all of their space would be reserved for cleaning";
            return Err(never(&format!(
                "{text}; take more zones, or reserve 8 sections and give the overprovision"
            )));
        }
    }
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
        main: narrow(main_start / BLOCK_BYTES),
        cp_payload: narrow(meta.cp_payload),
        logs: if options.zoned { zoned_logs(main, zone)? } else { logs(main, zone)? },
        reserved_segments: narrow(space.reserved),
        overprovision_segments: narrow(space.overprovision),
        user_blocks: (usable - space.overprovision) * BPS,
        usable_segments: narrow(usable),
        device_segments: device_segments.into_iter().map(narrow).collect(),
    })
}

/// Segments of the main area that can be written; the metadata must end before the first sequential
/// zone.
fn usable(
    zones: &MediumZones,
    medium: &Medium,
    main_start: u64,
    sections: u64,
) -> Result<u64, Refusal> {
    let sequential = medium.sizes[..zones.device].iter().sum::<u64>() + zones.conventional;
    if main_start > sequential {
        let text = format!(
            "the metadata needs {main_start} bytes that can be written anywhere; there are \
             {sequential}"
        );
        return Err(Refusal::Never(Error::Option(format!(
            "{text}: give a larger conventional device first"
        ))));
    }
    let before = ((sequential - main_start) / zones.size).min(sections);
    let whole = zones.size / SEGMENT_BYTES;
    Ok(before * whole + (sections - before) * zones.capacity.div_ceil(SEGMENT_BYTES))
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
    /// Segments of all areas, up to the end of a zone.
    segments: u64,
    cp_payload: u64,
}

impl Meta {
    fn new(segments: u64, zone: u64, large_nat: bool) -> Result<Self, Refusal> {
        let sit = 2 * segments.div_ceil(sit::ENTRIES_PER_BLOCK as u64).div_ceil(BPS);
        let sit_bitmap = sit / 2 * BPS / 8;
        let left = segments.checked_sub(CKPT_SEGMENTS + sit).ok_or(Refusal::TooSmall)?;
        // Room for one node for each block, as far as the bitmap allows.
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

/// Segments that users never get.
struct Space {
    reserved: u64,
    overprovision: u64,
}

impl Space {
    /// `usable` of the `main` segments can be written, about `per_section` of each section.
    fn new(
        main: u64,
        usable: u64,
        per_section: u32,
        segs_per_sec: u32,
        options: &MkfsOptions,
    ) -> Result<Self, Refusal> {
        let given = options.overprovision;
        let (percent, reserved) = match options.reserved_sections {
            Some(sections) if sections < RESERVED_SECTIONS_MIN => {
                return Err(Refusal::Never(Error::Option(format!(
                    "{sections} reserved sections are too few: {RESERVED_SECTIONS_MIN} at least, \
                     one for each log and two more"
                ))));
            }
            Some(sections) => (
                given.unwrap_or(PERCENT_BESIDE_RESERVED),
                u64::from(sections) * u64::from(segs_per_sec),
            ),
            None => {
                let percent =
                    given.or_else(|| best_percent(usable, per_section)).ok_or(Refusal::TooSmall)?;
                (percent, reserved(percent, per_section) as u64)
            }
        };
        if main < reserved + Log::COUNT as u64 || usable < reserved {
            return Err(Refusal::TooSmall);
        }
        let overprovision = ((usable - reserved) as f64 * percent / 100.0) as u64 + reserved;
        if overprovision >= usable {
            return Err(Refusal::TooSmall);
        }
        Ok(Self { reserved, overprovision })
    }
}

/// Segments kept for cleaning, and segments that users never get, of a main area without zones.
/// `None` if it is too small.
pub(crate) fn spare_segments(main: u32, segs_per_sec: u32) -> Option<(u32, u32)> {
    let segments = main.into();
    let options = MkfsOptions::default();
    let space = Space::new(segments, segments, segs_per_sec, segs_per_sec, &options).ok()?;
    let zones = main / segs_per_sec;
    (u64::from(zones) >= ZONES_MIN).then(|| (narrow(space.reserved), narrow(space.overprovision)))
}

/// Segments kept so that cleaning can always write.
fn reserved(percent: f64, segs_per_sec: u32) -> f64 {
    (2.0 * (100.0 / percent + 1.0) + 6.0) * f64::from(segs_per_sec)
}

/// The percentage that leaves the most space to users.
fn best_percent(main: u64, segs_per_sec: u32) -> Option<f64> {
    let (start, end, step) = if main < SMALL_MAIN { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let mut best: Option<(f64, f64)> = None;
    // A sum of steps, not a product: rounding decides between neighbouring percentages, and must be
    // the same as in mkfs.f2fs.
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

/// Places each log in a zone of its own: hot logs at the start, cold data at a quarter, warm data
/// at the half.
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

/// Places the logs of a zoned device one after the other, because no zone is faster than another.
fn zoned_logs(main: u64, zone: u64) -> Result<[SegNo; Log::COUNT], Refusal> {
    if main / zone < ZONES_MIN {
        return Err(Refusal::TooSmall);
    }
    let order =
        [Log::HotNode, Log::WarmNode, Log::ColdNode, Log::HotData, Log::WarmData, Log::ColdData];
    let mut logs = [SegNo(0); Log::COUNT];
    for (at, log) in (0..).zip(order) {
        logs[log.index()] = SegNo(narrow(at * zone));
    }
    Ok(logs)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod zoned_tests;
