//! Every number of superblock and checkpoint against those of mkfs.f2fs, for many sizes and shapes.

use cairn_testkit::judge::{assert_f2fs_clean, fsck_f2fs, try_mkfs_f2fs};

use super::super::tests::{Opened, fields, made};
use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Both make the volume, with equal numbers, or both refuse.
#[track_caller]
fn compare(size: u64, options: &MkfsOptions) {
    let mut args = Vec::new();
    if options.segments_per_section != 1 {
        args.push(format!("-s{}", options.segments_per_section));
    }
    if options.sections_per_zone != 1 {
        args.push(format!("-z{}", options.sections_per_zone));
    }
    if let Some(percent) = options.overprovision {
        args.push(format!("-o{percent}"));
    }
    if options.large_nat_bitmap {
        args.push("-i".into());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let theirs = tempfile::NamedTempFile::new().unwrap();
    let verdict = try_mkfs_f2fs(theirs.path(), size, &args);
    match made(size, options) {
        Ok(ours) => {
            assert!(
                verdict.is_clean(),
                "{size} {args:?}: we make what mkfs.f2fs refuses: {}",
                verdict.output
            );
            let pairs = fields(&Opened::new(ours.path()))
                .into_iter()
                .zip(fields(&Opened::new(theirs.path())));
            let different: Vec<_> = pairs.filter(|(ours, theirs)| ours != theirs).collect();
            if !different.is_empty() {
                // Segments behind the last whole zone: mkfs.f2fs counts them, and its own fsck
                // objects.
                let objects = !fsck_f2fs(theirs.path()).is_clean();
                assert!(objects, "{size} {args:?}: {different:?}");
                assert_f2fs_clean(ours.path());
            }
        }
        Err(error) => assert!(!verdict.is_clean(), "{size} {args:?}: {error}"),
    }
}

#[test]
fn sizes() {
    let mut sizes: Vec<u64> = (20..80).map(|mib| mib * MIB + 12_288 + 1000).collect();
    sizes.extend([100, 128, 200, 255, 256, 300, 500, 512, 513, 700, 1000].map(|mib| mib * MIB));
    sizes.extend([1, 2, 3, 4, 7, 10, 16, 33, 64, 100, 128, 256].map(|gib| gib * GIB));
    for size in sizes {
        compare(size, &MkfsOptions::default());
    }
}

#[test]
fn sections_and_zones() {
    for (segments_per_section, sections_per_zone) in
        [(2, 1), (1, 2), (2, 2), (3, 1), (4, 8), (8, 1), (1, 7), (16, 4), (32, 1), (512, 1)]
    {
        for size in [64 * MIB, 200 * MIB, 512 * MIB, 1000 * MIB, 4 * GIB, 31 * GIB, 256 * GIB] {
            compare(
                size,
                &MkfsOptions { segments_per_section, sections_per_zone, ..MkfsOptions::default() },
            );
        }
    }
}

#[test]
fn overprovision_and_large_nat() {
    for percent in [0.5, 1.0, 3.89, 5.0, 20.0, 60.0] {
        for size in [64 * MIB, 512 * MIB, 10 * GIB] {
            compare(size, &MkfsOptions { overprovision: Some(percent), ..MkfsOptions::default() });
        }
    }
    for size in [64 * MIB, GIB, 100 * GIB, 256 * GIB, 900 * GIB, 2048 * GIB] {
        compare(size, &MkfsOptions { large_nat_bitmap: true, ..MkfsOptions::default() });
        compare(size, &MkfsOptions::default());
    }
}

#[test]
fn the_smallest_size_is_named_and_does() {
    for (segments_per_section, overprovision) in [(1, None), (4, None), (32, None), (1, Some(2.0))]
    {
        let options = MkfsOptions { segments_per_section, overprovision, ..MkfsOptions::default() };
        let Err(Error::TooSmall { bytes: MIB, smallest }) = Geometry::new(MIB, &options) else {
            panic!("1 MiB is too small");
        };
        assert!(Geometry::new(smallest, &options).is_ok(), "{smallest}");
        assert!(Geometry::new(smallest - SEGMENT_BYTES, &options).is_err(), "{smallest}");
    }
    let never = MkfsOptions { overprovision: Some(0.000_001), ..MkfsOptions::default() };
    assert!(Geometry::new(GIB, &never).is_err());
}

/// The address of the block behind the last one must be a number of a block, too.
#[test]
fn a_volume_ends_before_16_tib() {
    let divided = |size: u64| divide(&Medium::from(size), &MkfsOptions::default());
    assert!(divided((16 << 40) - GIB).is_ok());
    assert!(divided(16 << 40).is_err() && divided((16 << 40) + SEGMENT_BYTES).is_err());
}
