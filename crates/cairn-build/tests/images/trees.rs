//! Directories of the host as sources: contents, sizes, equal bytes.

use std::path::Path;

use cairn::Format;
use cairn_build::{Error, Free, Size, build};
use cairn_testkit::judge::KernelMount;
use cairn_testkit::place::Place;
use cairn_testkit::tree::{SnapshotOptions, TreeSpec, digest_path};

use crate::support::{FORMATS, TIME, built, check, comparable, digest, options, seeded, seeds};

fn contents_of(source: &Path) -> String {
    format!("{}/", source.display())
}

/// A tree of each shape from a seed: from nothing to some hundred files.
fn spec(seed: u64) -> TreeSpec {
    let mut rng = fastrand::Rng::with_seed(seed);
    let files = match seed % 4 {
        0 => rng.usize(0..3),
        1 => rng.usize(3..40),
        _ => rng.usize(40..400),
    };
    let size_max = [100, 10_000, 300_000, 3_000_000][rng.usize(0..4)];
    TreeSpec { directories: files / 6, files, size_max, ..TreeSpec::small(seed) }
}

#[test]
fn seeded_trees_arrive_whole_in_both_formats_in_one_pass() {
    for seed in seeds(24) {
        let place = Place::new();
        let source = place.path().join("source");
        seeded(&source, &spec(seed));
        let expected = comparable(digest_path(&source, SnapshotOptions::default()).unwrap());
        for format in FORMATS {
            let image = place.path().join("image");
            let built = built(format, &image, &[&contents_of(&source)]);
            assert_eq!(built.passes, 1, "seed {seed}, {format}: the size was too small");
            assert_eq!(std::fs::metadata(&image).unwrap().len(), built.size);
            check(format, &image);
            println!("seed {seed}, {format}");
            comparable(digest(&image)).assert_same(&expected);
        }
    }
}

#[test]
fn the_kernel_sees_the_tree_that_was_built() {
    for seed in seeds(2) {
        let place = Place::new();
        let source = place.path().join("source");
        seeded(&source, &TreeSpec::small(seed));
        let image = place.path().join("image");
        built(Format::Ext4, &image, &[&contents_of(&source)]);
        let kernel = KernelMount::new(&image, "ro");
        let seen = digest_path(kernel.path(), SnapshotOptions::default()).unwrap();
        kernel.unmount();
        let expected = digest_path(&source, SnapshotOptions::default()).unwrap();
        comparable(seen).assert_same(&comparable(expected));
    }
}

#[test]
fn equal_trees_give_equal_bytes() {
    for format in FORMATS {
        let place = Place::new();
        let images = ["first", "second"].map(|name| {
            let source = place.path().join(name);
            // Many names in one directory: their order on the host differs.
            seeded(&source, &TreeSpec { directories: 3, files: 150, ..TreeSpec::small(7) });
            let image = place.path().join(format!("{name}.img"));
            let mut options = options(format, &image, &[&contents_of(&source)]);
            options.rules.latest = Some(cairn_vfs::Timestamp { seconds: TIME, nanoseconds: 0 });
            build(options).unwrap();
            std::fs::read(image).unwrap()
        });
        assert!(images[0] == images[1], "{format}: the bytes differ");
    }
}

#[test]
fn the_smallest_size_is_close_below_the_computed_one() {
    for format in FORMATS {
        let place = Place::new();
        let source = place.path().join("source");
        seeded(&source, &TreeSpec { directories: 30, files: 600, ..TreeSpec::small(3) });
        let image = place.path().join("image");
        let auto = built(format, &image, &[&contents_of(&source)]);
        let min = build(cairn_build::Options {
            size: Size::Min,
            ..options(format, &image, &[&contents_of(&source)])
        });
        let min = min.unwrap();
        check(format, &image);
        println!("{format}: computed {} bytes, smallest {} bytes", auto.size, min.size);
        assert!(min.size <= auto.size && min.size * 108 / 100 >= auto.size.min(min.size * 2));
        assert!(auto.size <= min.size + min.size / 12, "{} and {}", auto.size, min.size);
    }
}

#[test]
fn free_space_is_there_and_a_size_that_is_too_small_is_an_error() {
    for format in FORMATS {
        let place = Place::new();
        let source = place.path().join("source");
        seeded(&source, &TreeSpec::small(5));
        let image = place.path().join("image");
        for free in [Free::Bytes(32 << 20), Free::Percent(40.0)] {
            let source = contents_of(&source);
            let options = cairn_build::Options { free, ..options(format, &image, &[&source]) };
            let built = build(options).unwrap();
            let volume =
                cairn::open(&cairn::ImageSpec::whole(&image), &cairn::OpenOptions::read_only())
                    .unwrap();
            let stats = volume.filesystem().statfs().unwrap();
            let bytes = stats.available_blocks * u64::from(stats.block_size);
            let asked = match free {
                Free::Bytes(bytes) => bytes,
                Free::Percent(percent) => (built.size as f64 * percent / 100.0) as u64,
            };
            assert!(bytes >= asked, "{format}: {bytes} of {asked} bytes are free");
            assert!(stats.free_inodes >= asked / 16_384, "{format}: {stats:?}");
        }
        std::fs::remove_file(&image).unwrap();
        let large = place.path().join("large");
        std::fs::create_dir(&large).unwrap();
        std::fs::write(large.join("file"), vec![1; 90 << 20]).unwrap();
        let error = build(cairn_build::Options {
            size: Size::Exact(64 << 20),
            ..options(format, &image, &[&contents_of(&large)])
        });
        assert!(matches!(error, Err(Error::TooSmall { .. })), "{error:?}");
        assert!(!image.exists());
    }
}
