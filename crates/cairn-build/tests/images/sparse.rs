//! Sparse images of Android: simg2img and img2simg are the judges, and nothing that is damaged does
//! harm.

use std::path::{Path, PathBuf};

use cairn::Format;
use cairn_build::{Options, PackOptions, Shape, UnpackOptions, build, pack, unpack};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use cairn_testkit::tree::TreeSpec;

use crate::support::{FORMATS, built, options, seeded, seeds};

fn packed(image: &Path, output: &Path, block: u32, crc: bool) {
    let options = PackOptions {
        image: image.to_owned(),
        output: output.to_owned(),
        block,
        crc,
        holes_do_not_matter: false,
        overwrite: true,
    };
    pack(&options).unwrap_or_else(|error| panic!("{error}"));
}

fn unpacked(inputs: &[PathBuf], output: &Path) -> Result<(), String> {
    let options =
        UnpackOptions { inputs: inputs.to_vec(), output: output.to_owned(), overwrite: true };
    unpack(&options).map_err(|error| error.to_string())
}

/// An image with zeros, holes, repeated bytes and others.
fn patchwork(at: &Path, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(1..40) {
        let blocks = rng.usize(1..50);
        match rng.u8(0..4) {
            0 => bytes.resize(bytes.len() + blocks * 4096, 0),
            1 => bytes.resize(bytes.len() + blocks * 4096, rng.u8(..)),
            2 => bytes.extend(b"four".repeat(blocks * 1024)),
            _ => bytes.extend(std::iter::repeat_with(|| rng.u8(..)).take(blocks * 4096)),
        }
    }
    std::fs::write(at, &bytes).unwrap();
    // Zeros become holes where they fill blocks of the host.
    judge::run("fallocate", ["--dig-holes", at.to_str().unwrap()]);
    bytes
}

#[test]
fn other_tools_read_what_is_packed_and_their_files_are_unpacked() {
    for seed in seeds(12) {
        println!("seed {seed}");
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        let image = patchwork(&at("image"), seed);
        for (block, crc) in [(4096, false), (4096, true), (8192, true), (1024, false)] {
            packed(&at("image"), &at("packed"), block, crc);
            let padded = {
                let mut image = image.clone();
                image.resize(image.len().next_multiple_of(block as usize), 0);
                image
            };
            let _ = std::fs::remove_file(at("theirs"));
            judge::run("simg2img", [at("packed"), at("theirs")]);
            assert!(std::fs::read(at("theirs")).unwrap() == padded, "{block}: simg2img");
            unpacked(&[at("packed")], &at("ours")).unwrap();
            assert!(std::fs::read(at("ours")).unwrap() == padded, "{block}: unpack");
        }
        let _ = std::fs::remove_file(at("packed"));
        judge::run("img2simg", [at("image"), at("packed")]);
        unpacked(&[at("packed")], &at("ours")).unwrap();
        assert!(std::fs::read(at("ours")).unwrap() == image, "img2simg");
    }
}

/// Parts of an image, as simg2simg cuts them for fastboot.
#[test]
fn parts_are_put_together() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let image = patchwork(&at("image"), 77);
    packed(&at("image"), &at("packed"), 4096, false);
    judge::run("simg2simg", [at("packed"), at("part"), "300000".into()]);
    let parts: Vec<PathBuf> =
        (0..).map(|part| at(&format!("part.{part}"))).take_while(|part| part.exists()).collect();
    assert!(parts.len() > 1, "{parts:?}");
    unpacked(&parts, &at("ours")).unwrap();
    assert!(std::fs::read(at("ours")).unwrap() == image);
}

#[test]
fn an_image_is_built_as_a_sparse_one() {
    for format in FORMATS {
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        seeded(&at("source"), &TreeSpec::small(3));
        let source = format!("{}/", at("source").display());
        built(format, &at("image"), &[&source]);
        for crc in [false, true] {
            let shape = Shape::AndroidSparse { crc };
            build(Options { shape, ..options(format, &at("sparse"), &[&source]) }).unwrap();
            judge::run("simg2img", [at("sparse"), at("unpacked")]);
            let (ours, raw) = (std::fs::read(at("unpacked")), std::fs::read(at("image")));
            assert!(ours.unwrap() == raw.unwrap(), "{format}");
            let (small, large) =
                (std::fs::metadata(at("sparse")).unwrap().len(), std::fs::metadata(at("image")));
            assert!(small < large.unwrap().len(), "{format}: {small}");
        }
    }
}

/// A device keeps what it has where the sparse image says that it does not matter.
#[test]
fn an_image_is_whole_on_a_device_that_was_not_empty() {
    for format in FORMATS {
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        seeded(&at("source"), &TreeSpec::small(6));
        let source = format!("{}/", at("source").display());
        let sparse = Options {
            shape: Shape::AndroidSparse { crc: false },
            free: cairn_build::Free::Bytes(40 << 20),
            ..options(format, &at("sparse"), &[&source])
        };
        let size = build(sparse).unwrap().size;
        let mut rng = fastrand::Rng::with_seed(3);
        let dirt: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(size as usize).collect();
        std::fs::write(at("dirt"), &dirt).unwrap();
        packed(&at("dirt"), &at("dirt.simg"), 4096, false);
        unpacked(&[at("dirt.simg"), at("sparse")], &at("device")).unwrap();
        let device = std::fs::read(at("device")).unwrap();
        let kept = device.chunks(4096).zip(dirt.chunks(4096)).filter(|(a, b)| a == b).count();
        // Most of the free space.
        let wanted = if format == Format::Ext4 { 9000 } else { 0 };
        assert!(kept >= wanted, "{format}: {kept} blocks are as they were");
        crate::support::check(format, &at("device"));
        built(format, &at("raw"), &[&source]);
        crate::support::digest(&at("device")).assert_same(&crate::support::digest(&at("raw")));
    }
}

/// A header and chunks: type, blocks, bytes in all, and what follows.
fn made(blocks: u32, chunks: &[(u16, u32, u32, &[u8])]) -> Vec<u8> {
    let mut bytes = 0xed26_ff3a_u32.to_le_bytes().to_vec();
    for half in [1_u16, 0, 28, 12] {
        bytes.extend(half.to_le_bytes());
    }
    for word in [4096, blocks, chunks.len() as u32, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for (kind, blocks, total, payload) in chunks {
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(blocks.to_le_bytes());
        bytes.extend(total.to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_left() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    const RAW: u16 = 0xcac1;
    const FILL: u16 = 0xcac2;
    const CRC: u16 = 0xcac4;
    let block = [7; 4096];
    for (bytes, why) in [
        (b"no image".to_vec(), "no sparse image"),
        (made(1, &[])[..27].to_vec(), "truncated"),
        (made(1, &[(RAW, 1, 4108, &block[..4095])]), "truncated"),
        (made(1, &[(RAW, 2, 8204, &block)]), "chunk 0: it ends at byte 8192"),
        (made(2, &[(RAW, 1, 4108, &block)]), "its chunks have 4096 bytes, its header says 8192"),
        (made(1, &[(RAW, 1, 4107, &block)]), "chunk 0: it has 4107 bytes"),
        (made(1, &[(0xcac9, 1, 12, b"")]), "unknown type 0xcac9"),
        (made(1, &[(FILL, 1, 16, &[1; 4]), (CRC, 0, 16, &[0; 4])]), "chunk 1: the checksum"),
        // 16 TiB in a few bytes.
        (made(u32::MAX, &[(FILL, u32::MAX, 16, b"bomb")]), "make room"),
    ] {
        std::fs::write(at("packed"), &bytes).unwrap();
        let said = unpacked(&[at("packed")], &at("ours")).unwrap_err();
        assert!(said.contains(why) && said.contains("packed"), "{why}: {said}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "{why}");
    }
    // As many zeros take no room.
    std::fs::write(at("packed"), made(1 << 28, &[(FILL, 1 << 28, 16, &[0; 4])])).unwrap();
    unpacked(&[at("packed")], &at("ours")).unwrap();
    assert_eq!(std::fs::metadata(at("ours")).unwrap().len(), 1 << 40);
}

/// Whatever the bytes are: an image of the stated size, or an error.
#[test]
fn damaged_images_never_panic() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let source = at("image");
    let image = patchwork(&source, 5);
    std::fs::write(&source, &image[..image.len().min(40 * 4096)]).unwrap();
    packed(&source, &at("packed"), 4096, true);
    let whole = std::fs::read(at("packed")).unwrap();
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in seeds(300) {
        let mut bytes = whole.clone();
        for _ in 0..rng.usize(1..4) {
            // Most of it is contents: the headers are at the beginning.
            let end = if rng.bool() { 200.min(bytes.len()) } else { bytes.len() };
            let place = rng.usize(0..end);
            bytes[place] = rng.u8(..);
        }
        bytes.truncate(if rng.u8(0..4) == 0 { rng.usize(0..bytes.len()) } else { bytes.len() });
        std::fs::write(at("packed"), &bytes).unwrap();
        if unpacked(&[at("packed")], &at("ours")).is_ok() {
            let size = std::fs::metadata(at("ours")).unwrap().len();
            assert_eq!(size % 4096, 0);
            std::fs::remove_file(at("ours")).unwrap();
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
    }
}

#[test]
fn blocks_of_zeros_become_holes() {
    for format in FORMATS {
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("source")).unwrap();
        let mut bytes = vec![0; 1 << 20];
        bytes[500_000] = 1;
        std::fs::write(at("source/file"), &bytes).unwrap();
        std::fs::write(at("source/zeros"), vec![0; 1 << 20]).unwrap();
        judge::run(
            "tar",
            ["-cf", at("t.tar").to_str().unwrap(), "-C", at("source").to_str().unwrap(), "."],
        );
        judge::run("gzip", ["-k", at("t.tar").to_str().unwrap()]);
        let directory = format!("{}/", at("source").display());
        let image = at("image");
        for source in [&directory, at("t.tar").to_str().unwrap(), at("t.tar.gz").to_str().unwrap()]
        {
            let dug = Options { dig_holes: true, ..options(format, &image, &[source]) };
            build(dug).unwrap();
            crate::support::check(format, &image);
            let volume =
                cairn::open(&cairn::ImageSpec::whole(&image), &cairn::OpenOptions::read_only());
            let volume = volume.unwrap();
            let fs = volume.filesystem();
            for (name, sectors) in [("file", 8), ("zeros", 0)] {
                let of = cairn_vfs::walk::lookup(&**fs, fs.root(), name.as_bytes()).unwrap();
                assert_eq!(of.size, 1 << 20);
                // F2FS counts the inode's own block.
                let own = if format == Format::F2fs { 8 } else { 0 };
                assert!(
                    (sectors..=sectors + own).contains(&of.sectors),
                    "{format}: {name}: {of:?}"
                );
            }
            let file = cairn_vfs::walk::lookup(&**fs, fs.root(), b"file").unwrap();
            let mut read = vec![9; 1 << 20];
            let mut at = 0;
            while at < read.len() {
                let flags = cairn_vfs::IoFlags::empty();
                at += fs.read(file.ino, at as u64, &mut read[at..], flags).unwrap();
            }
            assert!(read == bytes, "{format}");
            fs.unmount().unwrap();
        }
    }
}

#[test]
fn a_source_is_not_replaced() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let bytes = patchwork(&at("image"), 5);
    std::os::unix::fs::symlink("image", at("link")).unwrap();
    packed(&at("image"), &at("packed"), 4096, false);
    let sparse = std::fs::read(at("packed")).unwrap();
    let options = PackOptions {
        image: at("image"),
        output: at("link"),
        block: 4096,
        crc: false,
        holes_do_not_matter: false,
        overwrite: true,
    };
    let said = pack(&options).unwrap_err().to_string();
    assert!(said.contains("give another name"), "{said}");
    let said = unpacked(&[at("packed")], &at("packed")).unwrap_err();
    assert!(said.contains("give another name"), "{said}");
    assert!(std::fs::read(at("image")).unwrap() == bytes, "the image was replaced");
    assert!(std::fs::read(at("packed")).unwrap() == sparse, "the sparse image was replaced");
}
