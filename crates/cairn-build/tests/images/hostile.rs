//! Archives that nobody should have made: an error names the member, and nothing is left.

use std::path::Path;

use cairn::Format;
use cairn_build::{CompareOptions, Size, build};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use cairn_testkit::tree::TreeSpec;

use crate::members::{Member, archive, file, header};
use crate::support::{built, options, refused, seeded, seeds};

#[track_caller]
fn says(members: &[Member<'_>], words: &[&str]) {
    let place = Place::new();
    let tar = place.path().join("hostile.tar");
    std::fs::write(&tar, archive(members)).unwrap();
    for format in [Format::Ext4, Format::F2fs] {
        let said = refused(format, &place.path().join("image"), &[tar.to_str().unwrap()]);
        for word in words {
            assert!(said.contains(word), "'{word}' is not in: {said}");
        }
    }
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 1, "something was made beside the archive");
}

#[test]
fn names_that_lead_out_of_the_image() {
    says(&[file(b"../evil", b"x")], &["hostile.tar", "../evil", "'..'"]);
    says(&[file(b"a/../../evil", b"x")], &["a/../../evil", "'..'"]);
    says(&[file(b"/etc/evil", b"x")], &["/etc/evil", "absolute"]);
    says(
        &[file(&[b'n'; 100], b""), file(b"d/", b"x"), Member(b"l", b'1', b"../x", 0, b"")],
        &["l: ", "'..'"],
    );
}

#[test]
fn nothing_is_written_through_a_link() {
    let link = |target| Member(b"out", b'2', target, 0, b"");
    says(&[link(b"/etc"), file(b"out/passwd", b"x")], &["out/passwd", "symbolic link"]);
    says(&[link(b"."), Member(b"out/dir", b'5', b"", 0, b"")], &["out/dir", "symbolic link"]);
    says(&[file(b"f", b"x"), file(b"f/below", b"x")], &["f/below", "not a directory"]);
}

#[test]
fn hard_links_to_nowhere_and_to_directories() {
    says(&[Member(b"l", b'1', b"none", 0, b"")], &["l: ", "none", "not there"]);
    says(
        &[Member(b"d", b'5', b"", 0, b""), Member(b"l", b'1', b"d", 0, b"")],
        &["l: ", "directory"],
    );
    says(
        &[Member(b"s", b'2', b"t", 0, b""), file(b"t", b"x"), Member(b"l", b'1', b"s/t", 0, b"")],
        &["l: ", "not there"],
    );
    says(&[Member(b"./", b'0', b"", 0, b""), Member(b".", b'2', b"x", 0, b"")], &["root"]);
    says(&[Member(b"s", b'2', b"", 0, b"")], &["s: ", "symbolic link"]);
}

#[test]
fn sizes_that_are_not_there() {
    says(&[Member(b"huge", b'0', b"", 0o77_777_777_777, b"x")], &["huge", "truncated"]);
    says(&[Member(b"x", b'x', b"", 0o77_777_777_777, b"")], &["record of"]);
    says(&[Member(b"p", b'x', b"", 32, b"32 size=99999999999999999999999\n")], &["size"]);
}

/// An error before the first member names the archive, and no member without a name.
#[test]
fn records_before_the_first_member() {
    let name = [&b"user."[..], &[b'n'; 255]].concat();
    let record = [&b"SCHILY.xattr."[..], &name, b"=v\n"].concat();
    let record = [format!("{} ", record.len() + 4).as_bytes(), &record].concat();
    let member = Member(b"x", b'x', b"", record.len() as u64, &record);
    let words = ["hostile.tar: at its first member: attribute user.nn", "a name of 260 bytes"];
    says(&[Member(b"x", member.1, b"", member.3, member.4), file(b"f", b"x")], &words);
    says(&[file(b"a", b"x"), member, file(b"f", b"x")], &["tar: a: behind this member: attribute"]);
    let place = Place::new();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let cpio = [&b"070701"[..], &[b'f'; 200]].concat();
    for (name, bytes, wanted) in [
        ("short.tar", &archive(&[file(b"f", b"x")])[..300], "short.tar: "),
        ("a.cpio", &cpio, "a.cpio: it begins with a name that is too long"),
    ] {
        std::fs::write(at(name), bytes).unwrap();
        let said = refused(Format::Ext4, &place.path().join("image"), &[&at(name)]);
        assert!(said.contains(wanted) && !said.contains(": :"), "{said}");
    }
}

/// A link that the system does not follow is not followed by another way.
#[test]
fn an_output_that_cannot_be_reached_is_not_replaced() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    std::os::unix::fs::symlink("loop", at("loop")).unwrap();
    let error = build(options(Format::Ext4, &at("loop"), &[])).unwrap_err().to_string();
    assert!(error.contains("loop: ") && at("loop").is_symlink(), "{error}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}

/// Some tools write layers without an end mark, and tar takes such archives. One that ends anywhere
/// else is cut off.
#[test]
fn an_end_mark_may_be_missing() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let members = [file(b"a", b"x"), file(b"b", &[7; 700])];
    let bytes = archive(&members);
    let bytes = &bytes[..bytes.len() - 1024];
    std::fs::write(at("whole.tar"), bytes).unwrap();
    judge::run("tar", ["-tf", &at("whole.tar")]);
    let image = place.path().join("image");
    built(Format::Ext4, &image, &[&at("whole.tar")]);
    let seen = crate::support::digest(&image);
    assert!(seen.get(b"a").is_some() && seen.get(b"b").is_some());
    std::fs::remove_file(&image).unwrap();
    let announced = [bytes, &header(&Member(b"x", b'x', b"", 0, b""))].concat();
    for (bytes, words) in [
        (&bytes[..bytes.len() - 512], "b: ends too early"),
        (&bytes[..bytes.len() - 1], "b: ends too early"),
        (&bytes[..1024 + 200], "a: is the last whole member"),
        (&announced, "b: is the last whole member"),
        (&bytes[..512], "a: ends too early"),
        (&bytes[..300], "ends in its first header"),
        (&[], "it is empty: give a directory"),
    ] {
        std::fs::write(at("cut.tar"), bytes).unwrap();
        let _ = std::fs::remove_file(at("cut.tar.zst"));
        judge::run("zstd", ["-q", &at("cut.tar")]);
        for name in ["cut.tar", "cut.tar.zst"] {
            let said = refused(Format::Ext4, &image, &[&at(name)]);
            assert!(said.contains(words), "{name} of {} bytes: {said}", bytes.len());
            is_prose(&said);
            assert!(!said.contains("cairn build") && !said.contains("cairn mkfs"), "{said}");
        }
    }
}

/// A window bounds the memory of a decoder.
#[test]
fn a_large_window_of_zstd_is_refused_by_name() {
    let place = Place::new();
    let (image, path) = (place.path().join("image"), place.path().join("window.tar.zst"));
    // The magic number, a frame without checksum, its window of 2^(10 + high five bits) bytes, and
    // an empty last block.
    let frame = |window: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, window << 3, 1, 0, 0];
    std::fs::write(&path, frame(18)).unwrap();
    let said = refused(Format::Ext4, &image, &[path.to_str().unwrap()]);
    assert!(said.contains("window.tar.zst: ") && said.contains("zstd -dc --long=31"), "{said}");
    is_prose(&said);
    // A smaller one is taken; what is in it is no archive.
    std::fs::write(&path, frame(17)).unwrap();
    let said = refused(Format::Ext4, &image, &[path.to_str().unwrap()]);
    assert!(!said.contains("--long"), "{said}");
}

/// Names need not be UTF-8.
#[test]
fn names_of_8_bits_are_kept() {
    let place = Place::new();
    let tar = place.path().join("bits.tar");
    std::fs::write(&tar, archive(&[file(b"\xff\xfe\x80", b"x"), file(b"caf\xe9", b"y")])).unwrap();
    let image = place.path().join("image");
    build(options(Format::Ext4, &image, &[tar.to_str().unwrap()])).unwrap();
    judge::assert_clean(&image);
    let seen = crate::support::digest(&image);
    assert!(seen.get(b"\xff\xfe\x80").is_some() && seen.get(b"caf\xe9").is_some());
}

#[test]
fn a_bomb_ends_at_the_size_that_was_asked_for() {
    let place = Place::new();
    let bomb = place.path().join("bomb.tar.zst");
    let source = place.path().join("zeros");
    std::fs::create_dir(&source).unwrap();
    std::fs::File::create(source.join("zeros")).unwrap().set_len(2 << 30).unwrap();
    let words = ["--zstd", "-cf", bomb.to_str().unwrap(), "-C", source.to_str().unwrap(), "zeros"];
    judge::run("tar", words);
    let image = place.path().join("image");
    let error = build(cairn_build::Options {
        size: Size::Exact(64 << 20),
        ..options(Format::Ext4, &image, &[bomb.to_str().unwrap()])
    });
    let said = error.expect_err("it cannot fit").to_string();
    assert!(said.contains("zeros") && said.contains("67108864"), "{said}");
    assert!(!image.exists());
}

/// A message has the words of no decoder's types.
#[track_caller]
fn is_prose(message: &str) {
    assert!(!message.contains(['{', '}']) && !message.contains("Error("), "{message}");
    assert!(!message.ends_with(": "), "{message}");
}

/// The first header tells what an archive is. If it is damaged, the other formats are not the
/// answer.
#[test]
fn a_damaged_first_header_is_named() {
    let place = Place::new();
    let tar = place.path().join("damaged.tar");
    let bytes = archive(&[file(b"first", b"one"), file(b"second", b"two")]);
    let whole = header(&file(b"first", b"one"));
    let stored = std::str::from_utf8(&whole[148..154]).unwrap();
    let stored = i64::from_str_radix(stored, 8).unwrap();
    for (at, byte, why) in [
        (0, b'F', format!("checksum is {}, not {stored}", stored - 32)),
        (150, b'x', "the checksum is not a number".to_owned()),
    ] {
        let mut damaged = bytes.clone();
        damaged[at] = byte;
        std::fs::write(&tar, damaged).unwrap();
        let said = refused(Format::Ext4, &place.path().join("image"), &[tar.to_str().unwrap()]);
        let what = "not a tar archive: the header of the first member is damaged: ";
        assert!(said.contains(what) && said.contains(&why), "{said}");
        assert!(!said.contains("cairn build") && !said.contains("image"), "{said}");
    }
}

/// Every truncation is an error. A damaged bit is an error, or changes nothing; in an archive
/// without checksums of its contents it may change what is built.
#[test]
fn truncated_and_damaged_archives() {
    let place = Place::new();
    let source = place.path().join("source");
    seeded(&source, &TreeSpec { directories: 3, files: 12, size_max: 3000, ..TreeSpec::small(1) });
    let run = |words: &[&str]| judge::run("tar", words);
    for name in ["a.tar", "a.tar.gz", "a.tar.xz", "a.tar.zst"] {
        let whole = place.path().join(name);
        let (out, from) = (whole.to_str().unwrap(), source.to_str().unwrap());
        run(&["-caSf", out, "--format=pax", "--xattrs", "--xattrs-include=*", "-C", from, "."]);
        let bytes = std::fs::read(&whole).unwrap();
        let damaged = place.path().join("damaged");
        let try_it = |bytes: &[u8]| {
            std::fs::write(&damaged, bytes).unwrap();
            let image = place.path().join("image");
            let limits = cairn_build::Limits { bytes: 64 << 20, nodes: 100_000 };
            let source = cairn_build::Source { name: damaged.clone().into(), platform: None };
            let tree = cairn_build::assemble(
                &[source],
                cairn_build::Rules::default(),
                limits,
                Path::new(place.path()).to_owned(),
            );
            assert!(!image.exists());
            tree
        };
        let undamaged = try_it(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in seeds(40) {
            // The end mark of a plain archive fills a record of 10 KiB.
            let contents = if name == "a.tar" { bytes.len() - 10_240 } else { bytes.len() - 1 };
            let len = rng.usize(0..contents);
            // Behind a member the end mark alone is missing.
            if name == "a.tar" && len.is_multiple_of(512) {
                continue;
            }
            let Err(error) = try_it(&bytes[..len]) else {
                panic!("{name} of {len} bytes was taken");
            };
            is_prose(&error.to_string());
        }
        for _ in seeds(200) {
            let mut damaged = bytes.clone();
            let bit = rng.usize(0..bytes.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
            let tree = match try_it(&damaged) {
                Ok(tree) => tree,
                Err(error) => {
                    is_prose(&error.to_string());
                    continue;
                }
            };
            // Checksums cover what a compressed archive holds. Bits without a meaning may change.
            if name != "a.tar" {
                let same = cairn_build::compare(
                    &undamaged,
                    &tree,
                    CompareOptions { times: true, quick: false },
                    &mut |_| {},
                )
                .unwrap();
                assert_eq!(same, 0, "{name}: bit {bit} changed the tree");
            }
        }
    }
}

/// An image begins with zeros, as the end mark of an archive. `build` made an empty volume of it.
#[test]
fn a_compressed_image_is_no_empty_archive() {
    for format in [Format::Ext4, Format::F2fs] {
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("tree")).unwrap();
        std::fs::write(at("tree/file"), "contents").unwrap();
        let tree = format!("{}/", at("tree").display());
        built(format, &at("image"), &[&tree]);
        judge::run("gzip", ["-k".as_ref(), at("image").as_os_str()]);
        let said = refused(format, &at("new"), &[at("image.gz").to_str().unwrap()]);
        assert!(said.contains("give an image of a filesystem as a file"), "{said}");
        assert!(!at("new").exists());
    }
}
