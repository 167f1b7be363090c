//! Zoned volumes, and volumes on several devices: the numbers of mkfs.f2fs, and what is refused.

use super::super::medium::MediumZones;
use super::*;

const MIB: u64 = 1 << 20;

/// A conventional device and one with zones of 8 MiB.
fn medium(conventional: u64, zones: u64, capacity: u64) -> Medium {
    let size = 8 * MIB;
    Medium {
        sizes: vec![conventional * MIB, zones * size],
        zones: Some(MediumZones { size, capacity: capacity * MIB, conventional: 0, device: 1 }),
    }
}

fn zoned(overprovision: Option<f64>, reserved_sections: Option<u32>) -> MkfsOptions {
    MkfsOptions { zoned: true, overprovision, reserved_sections, ..MkfsOptions::default() }
}

/// The volume on which the proposal for data-first victims was measured: `-m -Z 8 -o 3.89` on 228
/// MiB and 4,068 zones.
#[test]
fn metadata_fills_the_conventional_device_exactly() {
    let found = Geometry::new(medium(228, 4068, 8), &zoned(Some(3.89), Some(8))).unwrap();
    assert_eq!(u64::from(found.segment0) * BLOCK_BYTES, 12 * MIB);
    assert_eq!((found.sit_segments, found.nat_segments, found.ssa_segments), (2, 72, 32));
    assert_eq!(u64::from(found.main) * BLOCK_BYTES, 228 * MIB);
    assert_eq!((found.sections, found.main_segments, found.segs_per_sec), (4068, 16_272, 4));
    assert_eq!((found.reserved_segments, found.overprovision_segments), (32, 663));
    assert_eq!(found.user_blocks, 15_609 * 512);
    assert_eq!(found.device_segments, [108, 16_272]);
}

/// What mkfs.f2fs 1.15 makes of 60 MiB and null_blk's 128 zones of 8 MiB; overprovision, capacity →
/// reserved, overprovision, usable segments.
#[test]
fn the_numbers_are_those_of_mkfs_f2fs() {
    let cases =
        [(None, 8, 112, 153, 524), (Some(3.89), 8, 237, 248, 524), (None, 5, 112, 140, 396)];
    for (percent, capacity, reserved, overprovision, usable) in cases {
        let found = Geometry::new(medium(60, 128, capacity), &zoned(percent, None)).unwrap();
        assert_eq!((found.block_count, found.segment_count, found.sections), (277_504, 536, 131));
        assert_eq!((found.sit_segments, found.nat_segments, found.ssa_segments), (2, 4, 4));
        assert_eq!((found.segment0, found.main, found.main_segments), (3072, 9216, 524));
        assert_eq!(
            (found.reserved_segments, found.overprovision_segments),
            (reserved, overprovision),
            "{percent:?}"
        );
        assert_eq!(
            (found.usable_segments, found.user_blocks),
            (usable, u64::from(usable - overprovision) * 512)
        );
        let order = [
            Log::HotNode,
            Log::WarmNode,
            Log::ColdNode,
            Log::HotData,
            Log::WarmData,
            Log::ColdData,
        ];
        assert_eq!(order.map(|log| found.logs[log.index()].get()), [0, 4, 8, 12, 16, 20]);
        assert_eq!(found.device_segments, [24, 512]);
    }
}

#[test]
fn a_single_device_has_its_conventional_zones_first() {
    let of = |conventional: u64| Medium {
        sizes: vec![1024 * MIB],
        zones: Some(MediumZones {
            size: 8 * MIB,
            capacity: 8 * MIB,
            conventional: conventional * MIB,
            device: 0,
        }),
    };
    let found = Geometry::new(of(80), &zoned(None, None)).unwrap();
    assert_eq!(
        (found.segment0, found.main, found.sections, found.segment_count),
        (2048, 8192, 124, 508)
    );
    // mkfs.f2fs 1.15 takes what is before segment 0 for a part of the main area here, and promises
    // more than there is.
    assert_eq!((found.usable_segments, found.reserved_segments), (496, 112));
    assert!(Geometry::new(of(32), &zoned(None, None)).is_ok());
    let error = Geometry::new(of(24), &zoned(None, None)).unwrap_err().to_string();
    assert!(error.contains("conventional"), "{error}");
}

#[test]
fn reserved_sections_have_a_ratio_of_their_own() {
    let found = Geometry::new(medium(228, 4068, 8), &zoned(None, Some(20))).unwrap();
    assert_eq!(
        (found.reserved_segments, found.overprovision_segments),
        (80, 80 + (16_192 * 3 / 100))
    );
    let few = Geometry::new(medium(228, 4068, 8), &zoned(None, Some(7))).unwrap_err().to_string();
    assert!(few.contains('8'), "{few}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let good = medium(60, 128, 8);
    let plain = MkfsOptions::default();
    let refused = |medium: Medium, options: &MkfsOptions, word: &str| {
        let error = Geometry::new(medium, options).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(good.clone(), &plain, "ask for zones");
    refused(Medium::from(1024 * MIB), &zoned(None, None), "leave the zones out");
    refused(
        Medium::from(1024 * MIB),
        &MkfsOptions { reserved_sections: Some(8), ..plain.clone() },
        "reserved sections",
    );
    refused(
        good.clone(),
        &MkfsOptions { segments_per_section: 2, ..zoned(None, None) },
        "a section is a zone",
    );
    refused(medium(28, 128, 8), &zoned(None, None), "conventional");
    refused(medium(60, 6, 8), &zoned(None, None), "too small");
    refused(medium(60, 32, 3), &zoned(None, None), "reserved for cleaning");
    // Two devices without zones.
    let two = Medium { sizes: vec![101 * MIB + 5, 303 * MIB + 7], zones: None };
    let found = Geometry::new(two, &plain).unwrap();
    assert_eq!((found.segment_count, found.device_segments.clone()), (49 + 151, vec![49, 151]));
}
