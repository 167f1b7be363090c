//! Damage to zones: their write pointers contradict the volume.
//!
//! The pointers are in the table of the image (`cairn_block::zoned::open_image`). The contents of
//! the zones do not change.

use std::sync::Arc;

use cairn_base::checksum::crc32c;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::{ZoneLayout, create_image};
use cairn_f2fs::F2fs;
use cairn_f2fs::format::Log;

const BLOCK: usize = 4096;
/// In the table: the zone is full.
const FINISHED: u64 = 1 << 63;
/// In the table: the zone has failed, and is readable or not.
const FAILED: [u64; 2] = [1 << 62, 1 << 61];

/// Zones behind the volume: as many as can be active.
pub const SPARE: u32 = 6;

/// One number a zone.
pub fn read(image: &MemoryDevice, layout: &ZoneLayout) -> Vec<u64> {
    let table = image.read_at(layout.size(), BLOCK).unwrap();
    let words = table.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    words.skip(1).take(layout.zones as usize).collect()
}

pub fn write(image: &MemoryDevice, layout: &ZoneLayout, pointers: &[u64]) {
    let mut table: Vec<u8> =
        std::iter::once(&0).chain(pointers).flat_map(|word| word.to_le_bytes()).collect();
    table.resize(BLOCK, 0);
    let sum = crc32c(!0, &table[8..]);
    table[..4].copy_from_slice(&sum.to_le_bytes());
    image.write_at(layout.size(), table).unwrap();
}

/// Copies the zones of an image to an image with more zones.
pub fn widened(image: &MemoryDevice, layout: &ZoneLayout) -> MemoryDevice {
    let small = ZoneLayout { zones: layout.zones - SPARE, ..*layout };
    let wide = Arc::new(MemoryDevice::new(layout.image_size()));
    create_image(wide.clone(), *layout).unwrap();
    let zone = usize::try_from(layout.zone_size).unwrap();
    for start in (0..small.size()).step_by(zone) {
        wide.write_at(start, image.read_at(start, zone).unwrap().to_vec()).unwrap();
    }
    let mut pointers = read(image, &small);
    pointers.resize(layout.zones as usize, 0);
    write(&wide, layout, &pointers);
    wide.fork()
}

/// Each active zone of the volume has a log. Zones that a log has left do not count against the
/// device's limit.
#[track_caller]
pub fn assert_no_zone_is_left(fs: &F2fs) {
    let disk = fs.disk();
    let (Some(zoned), Some(store)) = (disk.device.as_zoned(), &disk.store) else { return };
    let section = u64::from(disk.layout.segs_per_sec) << 21;
    let end = (u64::from(disk.layout.main) + disk.layout.main_blocks()) << 12;
    for zone in zoned
        .report(0, usize::MAX)
        .unwrap()
        .iter()
        .filter(|zone| zone.is_active() && zone.start < end)
    {
        let here = |log| {
            (zone.start..zone.start + section).contains(&store.segments.next_address(log).bytes())
        };
        assert!(Log::ALL.into_iter().any(here), "{zone:?}");
    }
}

/// Moves write pointers forward, back, to the zone's start and to its end; writes to empty zones;
/// lets zones fail.
pub fn wound(image: &MemoryDevice, layout: &ZoneLayout, random: &mut fastrand::Rng) {
    let mut pointers = read(image, layout);
    let zones = layout.conventional as usize..pointers.len() - SPARE as usize;
    match random.u8(..16) {
        // Zones behind the volume are written, as by other users of the device.
        0 => pointers[zones.end..]
            .iter_mut()
            .take(random.usize(1..=SPARE as usize))
            .for_each(|pointer| *pointer = 4096),
        1..3 => {
            let from = random.usize(zones);
            let begun = pointers[from..]
                .iter_mut()
                .take(random.usize(1..9))
                .filter(|pointer| **pointer == 0);
            begun.for_each(|pointer| *pointer = random.u64(1..5) << 12);
        }
        3..13 => {
            // Written zones are damaged more often.
            let written = random.u8(..4) > 0;
            if let Some(zone) = random
                .choice(zones.filter(|zone| !written || pointers[*zone] > 0).collect::<Vec<_>>())
            {
                pointers[zone] = moved(pointers[zone], layout, random);
            }
        }
        13..15 => pointers.swap(random.usize(zones.clone()), random.usize(zones)),
        _ => {
            for zone in zones {
                pointers[zone] = if random.u8(..4) == 0 {
                    moved(pointers[zone], layout, random)
                } else {
                    pointers[zone]
                };
            }
        }
    }
    write(image, layout, &pointers);
    if random.u8(..30) == 0 {
        // The record of the zones becomes unreadable.
        image.write_at(layout.size() + random.u64(..400), vec![random.u8(..)]).unwrap();
    }
}

fn moved(pointer: u64, layout: &ZoneLayout, random: &mut fastrand::Rng) -> u64 {
    let few = random.u64(1..9) << 12;
    let written = pointer & !(FINISHED | FAILED[0] | FAILED[1]);
    match random.u8(..50) {
        0..7 => 0,
        7..14 => layout.capacity,
        14..21 => pointer | FINISHED,
        21..28 => random.u64(1..layout.capacity >> 12) << 12,
        28..35 => written.saturating_sub(few),
        35..42 => layout.capacity - few,
        42..49 => (written + few).min(layout.capacity),
        _ => pointer | FAILED[random.usize(..2)],
    }
}
