//! Many seeded runs: trees that are built, checked, exported and compared, and volumes that change
//! their size in steps while their files change.

use std::path::Path;

use cairn::{Format, ImageSpec, OpenOptions, SizeWish};
use cairn_build::{Free, Options, build};
use cairn_testkit::deep;
use cairn_testkit::place::Place;
use cairn_testkit::tree::{Snapshot, TreeSpec};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::back::{differences, exported, text};
use crate::support::{FORMATS, built, check, digest, extreme, options, seeded};

/// Sizes between these many bytes.
const SIZES: std::ops::Range<u64> = 8 << 20..160 << 20;

#[test]
fn seeded_trees_are_the_same_after_build_and_export() {
    let mut trees = 0;
    for seed in 0..if deep() { 500 } else { 6 } {
        for (format, seed) in FORMATS.into_iter().zip([2 * seed, 2 * seed + 1]) {
            let place = Place::new();
            let at = |name: &str| place.path().join(name);
            let (image, archive) = (at("image"), at("out.tar"));
            let files = fastrand::Rng::with_seed(seed).usize(0..60);
            let spec = TreeSpec { files, directories: files / 5, ..TreeSpec::small(seed) };
            match seed % 4 {
                0 | 1 => extreme(&at("source"), &spec),
                _ => seeded(&at("source"), &spec),
            }
            let source = format!("{}/source/", place.path().display());
            built(format, &image, &[&source]);
            check(format, &image);
            exported(&image, &archive);
            built(format, &at("again"), &[text(&archive)]);
            let read = |name: &str| std::fs::read(at(name)).unwrap();
            assert!(read("image") == read("again"), "seed {seed}, {format}: the images differ");
            for other in [text(&image), text(&archive)] {
                assert_eq!(differences(&source, other), [], "seed {seed}, {format}: {other}");
            }
            trees += 1;
        }
    }
    println!("{trees} trees");
}

/// Makes and removes files. Returns what the volume holds then.
fn changed(image: &Path, rng: &mut fastrand::Rng) -> Snapshot {
    let volume = cairn::open(&ImageSpec::whole(image), &OpenOptions::default()).unwrap();
    let fs = &**volume.filesystem();
    for _ in 0..rng.usize(0..12) {
        let name = format!("step{}", rng.u32(0..20));
        let _ = fs.unlink(fs.root(), name.as_bytes());
        write(fs, &name, rng);
    }
    fs.unmount().unwrap();
    drop(volume);
    digest(image)
}

/// A file of some size; a volume without room leaves it shorter.
fn write(fs: &dyn FileSystem, name: &str, rng: &mut fastrand::Rng) {
    let made = fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT);
    let Ok(made) = made else { return };
    let bytes = vec![rng.u8(1..); rng.usize(0..600_000)];
    let _ = fs.write(made.ino, rng.u64(0..2) * 4_000_000, &bytes, IoFlags::empty());
    fs.forget(made.ino, 1);
}

fn wish(rng: &mut fastrand::Rng) -> SizeWish {
    match rng.u8(0..8) {
        0 => SizeWish::Least,
        1 => SizeWish::More(rng.u64(1..20) << 20),
        2 => SizeWish::Less(rng.u64(1..20) << 20),
        _ => SizeWish::Bytes(rng.u64(SIZES) / 4096 * 4096),
    }
}

#[test]
fn volumes_change_their_size_in_seeded_steps_and_keep_their_files() {
    let (mut done, mut refused) = (0, 0);
    for seed in 0..if deep() { 40 } else { 2 } {
        for format in FORMATS {
            let place = Place::new();
            let image = place.path().join("image");
            let mut rng = fastrand::Rng::with_seed(seed);
            fresh(format, &image, rng.u64(8..64) << 20, seed);
            for step in 0..if deep() { 13 } else { 4 } {
                let expected = changed(&image, &mut rng);
                let wish = wish(&mut rng);
                let what = format!("seed {seed}, {format}, step {step}: {wish:?}");
                match cairn::resize(&ImageSpec::whole(&image), wish) {
                    Ok(_) => done += 1,
                    Err(error) if error.to_string().contains("give ") => refused += 1,
                    Err(error) => panic!("{what}: {error}"),
                }
                check(format, &image);
                println!("{what}");
                digest(&image).assert_same(&expected);
            }
        }
    }
    println!("{done} changes of the size, {refused} refused");
    assert!(done > refused, "{done} changes, {refused} refused");
}

/// A volume with a tree and some room.
fn fresh(format: Format, image: &Path, free: u64, seed: u64) {
    let source = image.with_file_name("source");
    seeded(&source, &TreeSpec { size_max: 60_000, ..TreeSpec::small(seed) });
    let source = format!("{}/", source.display());
    let free = Free::Bytes(free);
    build(Options { free, ..options(format, image, &[&source]) }).unwrap();
}
