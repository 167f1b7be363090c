//! Disks compressed with zstd, made by the programs `zstd` and `pzstd`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_images::zst::{self, Error};
use cairn_images::{Kind, recognise};
use cairn_testkit::deep;

/// Runs a program with this standard input, and gives its output.
fn filter(program: &str, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    let mut child =
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{program} {args:?}");
    output.stdout
}

fn open(bytes: &[u8]) -> zst::Result<zst::Zst> {
    zst::open(Arc::new(MemoryDevice::from_image(bytes)))
}

/// Something to compress.
fn disk(len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(3);
    (0..len).map(|at| if at / 50_000 % 4 == 0 { rng.u8(..) } else { (at / 700) as u8 }).collect()
}

fn compare(bytes: &[u8], file: &[u8]) {
    let opened = open(file).unwrap();
    let geometry = opened.geometry();
    assert_eq!((geometry.size, geometry.read_only), (bytes.len() as u64, true));
    assert!(opened.read_at(0, bytes.len()).unwrap()[..] == *bytes);
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..50 {
        let at = rng.usize(0..bytes.len());
        let len = rng.usize(0..(bytes.len() - at).min(300_000));
        assert!(opened.read_at(at as u64, len).unwrap()[..] == bytes[at..at + len], "{at} {len}");
    }
    assert!(opened.write_at(0, vec![0]).is_err() && opened.flush().is_ok());
}

#[test]
fn many_frames_with_and_without_their_lengths() {
    let bytes = disk(1 << 20);
    let frames = |args: &[&str]| -> Vec<u8> {
        bytes.chunks(150_000).flat_map(|piece| filter("zstd", args, piece)).collect()
    };
    // From standard input the length is not known, unless it is given.
    compare(&bytes, &frames(&["-q", "-c", "--no-check"]));
    compare(&bytes, &frames(&["-q", "-c", "--check", "-19"]));
    let known: Vec<u8> = bytes
        .chunks(150_000)
        .flat_map(|piece| {
            let size = format!("--stream-size={}", piece.len());
            filter("zstd", &["-q", "-c", &size], piece)
        })
        .collect();
    compare(&bytes, &known);
    assert_eq!(recognise(&MemoryDevice::from_image(&known)), Some(Kind::Zstd));
}

#[test]
fn what_pzstd_makes() {
    let bytes = disk(3 << 20);
    let file = filter("pzstd", &["-q", "-c", "-p", "4", "-1"], &bytes);
    assert_eq!(recognise(&MemoryDevice::from_image(&file)), Some(Kind::Zstd));
    compare(&bytes, &file);
}

/// Frames, and the table of the seekable format.
fn seekable(bytes: &[u8], checksums: bool) -> Vec<u8> {
    let (mut file, mut entries, mut count) = (Vec::new(), Vec::new(), 0_u32);
    for piece in bytes.chunks(100_000) {
        let frame = filter("zstd", &["-q", "-c"], piece);
        entries.extend((frame.len() as u32).to_le_bytes());
        entries.extend((piece.len() as u32).to_le_bytes());
        if checksums {
            entries.extend([1, 2, 3, 4]);
        }
        file.extend(frame);
        count += 1;
    }
    file.extend(0x184d_2a5e_u32.to_le_bytes());
    file.extend((entries.len() as u32 + 9).to_le_bytes());
    file.extend(entries);
    file.extend(count.to_le_bytes());
    file.push(if checksums { 0x80 } else { 0 });
    file.extend(0x8f92_eab1_u32.to_le_bytes());
    file
}

#[test]
fn the_seekable_format_has_a_table() {
    let bytes = disk(550_000);
    for checksums in [false, true] {
        compare(&bytes, &seekable(&bytes, checksums));
    }
    // A table that says something else than the frames.
    let mut file = seekable(&bytes, false);
    let at = file.len() - 9 - 6 * 8 + 4;
    file[at] ^= 1;
    let error = open(&file).unwrap_err().to_string();
    assert!(error.contains("damaged at offset 0: it gives"), "{error}");
    let mut file = seekable(&bytes, false);
    let at = file.len() - 9;
    file[at..at + 4].fill(0xff);
    let error = open(&file).unwrap_err().to_string();
    assert!(error.contains("the table of frames has 4294967295"), "{error}");
}

#[test]
fn one_large_frame_is_refused_with_advice() {
    let zeros = vec![0; 65 << 20];
    for size in [None, Some("--stream-size=68157440")] {
        let args = ["-q", "-c", "-1"];
        let file = filter("zstd", &[&args[..], size.as_slice()].concat(), &zeros);
        let error = open(&file).unwrap_err();
        assert!(matches!(error, Error::LargeFrame { offset: 0, .. }), "{error}");
        assert!(error.to_string().contains("zstd -d"), "{error}");
    }
}

#[test]
fn damage_is_an_error_with_its_place() {
    let bytes = disk(200_000);
    let mut file = filter("zstd", &["-q", "-c"], &bytes);
    let second = file.len();
    file.extend(filter("zstd", &["-q", "-c"], &bytes));
    let error = open(&file[..file.len() - 10]).unwrap_err().to_string();
    assert!(error.contains("ends too early"), "{error}");
    let mut other = file.clone();
    other[second] ^= 1;
    let error = open(&other).unwrap_err().to_string();
    assert!(error.contains(&format!("offset {second}: no frame begins here")), "{error}");
    for seed in 0..if deep() { 30_000 } else { 200 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut other = file.clone();
        for _ in 0..3 {
            let at = if rng.bool() { rng.usize(0..40) } else { rng.usize(0..other.len()) };
            other[at] = rng.u8(..);
        }
        if let Ok(opened) = open(&other) {
            let len = opened.geometry().size.min(400_000) as usize;
            let _ = opened.read_at(0, len);
        }
    }
}
