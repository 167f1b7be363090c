//! The damaged images of e2fsprogs' tests.
//!
//! They are not part of this repository. `scripts/e2fsprogs-images` fetches them;
//! `CAIRN_E2FSPROGS_TESTS` may name another directory that holds e2fsprogs' `tests`.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::judge::command;
use cairn_vfs::FileSystem;

use crate::support::try_open;
use crate::visitor::Visitor;

/// The tests have no larger image.
const LARGEST: usize = 1 << 30;
/// Memory that a pass over all images may have taken at its peak, above what an image itself takes.
const MEMORY: u64 = 128 << 20;
/// The collection has at least this many images.
const EXPECTED: usize = 200;

/// The directory of the images.
pub fn directory() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/e2fsprogs-tests");
    let directory = std::env::var_os("CAIRN_E2FSPROGS_TESTS").map_or(fetched, PathBuf::from);
    assert!(
        directory.is_dir(),
        "{} is missing: run scripts/e2fsprogs-images, or let CAIRN_E2FSPROGS_TESTS name e2fsprogs' \
         directory `tests`",
        directory.display()
    );
    directory
}

/// Files that hold an image, plain or compressed, below `directory`.
fn images(directory: &Path) -> Vec<PathBuf> {
    let list = |directory: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let is_image = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let part = path.extension().unwrap_or_default().to_string_lossy();
        name.starts_with("image") && matches!(&*part, "" | "gz" | "bz2") && !name.contains(".tar")
    };
    let tests = list(directory).into_iter().filter(|path| path.is_dir());
    let mut found: Vec<_> = tests.flat_map(|test| list(&test)).filter(is_image).collect();
    found.sort();
    found
}

/// The contents of an image, decompressed.
pub fn contents(image: &Path) -> Vec<u8> {
    let mut unpack: Command = match image.extension().and_then(|part| part.to_str()) {
        Some("gz") => command("gzip"),
        Some("bz2") => command("bzip2"),
        _ => return std::fs::read(image).unwrap(),
    };
    let output = unpack.arg("-dc").arg(image).output().expect("the unpacker starts");
    assert!(output.status.success(), "{} cannot be unpacked", image.display());
    assert!(
        output.stdout.len() <= LARGEST,
        "{} holds {} bytes",
        image.display(),
        output.stdout.len()
    );
    output.stdout
}

/// The peak and the current memory of this process.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let field = |name: &str| {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel tells it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    };
    (field("VmHWM:"), field("VmRSS:"))
}

/// The result of one image.
#[derive(Default)]
struct Outcome {
    refused: Option<String>,
    errors: usize,
}

fn use_it(device: MemoryDevice, options: &str, writes: bool) -> Outcome {
    let fs = match try_open(Arc::new(device), options) {
        Ok(fs) => fs,
        Err(error) => return Outcome { refused: Some(error.to_string()), errors: 0 },
    };
    let mut visitor = Visitor::new(&fs);
    visitor.walk();
    if writes {
        visitor.change();
        visitor.walk();
    }
    let closed = fs.unmount();
    visitor.call(closed);
    Outcome { refused: None, errors: visitor.errors }
}

#[test]
#[ignore = "needs images that are not in the repository: scripts/e2fsprogs-images fetches them"]
fn broken_images_are_survived() {
    let images = images(&directory());
    assert!(images.len() >= EXPECTED, "only {} images in {}", images.len(), directory().display());
    let (mut opened, mut refused, mut errors, mut peak) = (0, 0, 0, 0);
    let mut panics = Vec::new();
    for image in &images {
        let named = image.display();
        // The last printed name is that of the image in a hang.
        print!("{named}:");
        let contents = contents(image);
        let size = contents.len() as u64;
        let device = MemoryDevice::from_image(&contents);
        drop(contents);
        let (_, before) = memory();
        for (options, writes) in [("ro,cache=1M", false), ("cache=1M", true)] {
            let copy = device.fork();
            let survived =
                std::panic::catch_unwind(AssertUnwindSafe(|| use_it(copy, options, writes)));
            let Ok(outcome) = survived else {
                panics.push(format!("{named} with `{options}`"));
                continue;
            };
            match outcome.refused {
                Some(why) => {
                    assert!(!why.is_empty());
                    refused += 1;
                    print!(" [{options}] refused: {why};");
                }
                None => {
                    (opened, errors) = (opened + 1, errors + outcome.errors);
                    print!(" [{options}] {} errors;", outcome.errors);
                }
            }
        }
        let (most, _) = memory();
        println!();
        // The peak never falls, so it counts only if this image raised it.
        if most > peak {
            peak = most;
            assert!(
                most <= before + 3 * size + MEMORY,
                "{named} ({size} bytes) took {before} to {most} bytes of memory"
            );
        }
    }
    println!(
        "{} images: {opened} opened, {refused} refused, {errors} errors; peak {peak} bytes",
        images.len()
    );
    assert!(panics.is_empty(), "these make it panic: {panics:#?}");
    assert!(opened > images.len() / 2 && refused > 0 && errors > images.len());
}
