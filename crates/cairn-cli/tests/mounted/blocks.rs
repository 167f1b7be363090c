//! The number of blocks of files that are open: programs take a file without blocks for a hole.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use cairn_testkit::judge;

use crate::fixture::{Volume, transports};

const SIZE: u64 = 128 << 20;
const LEN: usize = 100_000;

/// Blocks of 512 bytes that so much data takes in the blocks of its volume.
fn taken(path: &Path, len: u64) -> u64 {
    let block = rustix::fs::statvfs(path).unwrap().f_frsize;
    len.div_ceil(block) * block / 512
}

fn sectors(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks()
}

/// What `tar -S` stores of a file, byte by byte.
fn archived(path: &Path) -> Vec<u8> {
    let script = "tar -cSf - -C \"$(dirname \"$0\")\" \"$(basename \"$0\")\" | tar -xOf -";
    judge::run("sh", ["-c", script, path.to_str().unwrap()]).into_bytes()
}

/// Until the kernel has asked again, which takes a second or two.
#[track_caller]
fn await_sectors(path: &Path, wanted: u64) {
    let began = Instant::now();
    while sectors(path) != wanted {
        assert!(began.elapsed() < Duration::from_secs(20), "{}: {}", path.display(), sectors(path));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn files_that_are_open_are_not_taken_for_holes() {
    for transport in transports() {
        for options in ["", "no_open"] {
            let options = format!("{transport},{options}");
            let options = options.trim_end_matches(',');
            for mut volume in [Volume::mounted(SIZE, options), Volume::f2fs(SIZE, options)] {
                open_files(&volume, options.contains("no_open"));
                volume.unmount();
            }
        }
    }
}

fn open_files(volume: &Volume, knows_no_open: bool) {
    let data = [b'x'; LEN];
    let (new, old) = (volume.path("new"), volume.path("old"));
    File::create(&old).unwrap();
    // Without an open, Cairn does not learn that a file is closed.
    await_sectors(&old, u64::from(knows_no_open));
    for (path, file) in [
        (&new, File::create(&new).unwrap()),
        (&old, OpenOptions::new().write(true).open(&old).unwrap()),
    ] {
        file.write_all_at(&data, 0).unwrap();
        assert!(sectors(path) > 0, "{}: data, but no blocks", path.display());
        assert!(archived(path) == data, "{}: another archive", path.display());
        file.sync_all().unwrap();
        let once = taken(path, LEN as u64);
        await_sectors(path, once);
        file.write_all_at(&data, 1 << 20).unwrap();
        file.sync_all().unwrap();
        await_sectors(path, 2 * once);
        file.set_len(0).unwrap();
        file.write_all_at(&data, 0).unwrap();
        assert!(archived(path) == data, "{}: after it was emptied", path.display());
    }
    await_sectors(&new, taken(&new, LEN as u64));
}

/// Space that was allocated behind the end is given back by a truncation to the same size.
#[test]
fn a_truncation_to_the_same_size_frees_what_is_behind_it() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        for (name, len) in [("empty", 0), ("short", 100)] {
            let path = volume.path(name);
            let file = File::create(&path).unwrap();
            file.write_all_at(&vec![1; len], 0).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 1 << 20)
                .unwrap();
            assert!(file.metadata().unwrap().blocks() >= 2048);
            file.set_len(len as u64).unwrap();
            drop(file);
            await_sectors(&path, taken(&path, len as u64));
            assert_eq!(fs::read(&path).unwrap(), vec![1; len]);
        }
        volume.unmount();
    }
}

/// Pages that a mapping changed before the file became immutable are written.
#[test]
fn mapped_data_is_kept_when_a_file_becomes_immutable() {
    const SCRIPT: &str = r#"
import fcntl, mmap, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(fd, bytes(10000)); os.fsync(fd)
memory = mmap.mmap(fd, 10000)
memory[100:5000] = b"m" * 4900
fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0x10))
memory.flush(); os.fsync(fd)
fcntl.ioctl(fd, 0x40086602, struct.pack("l", 0))
"#;
    for options in ["", "nowriteback_cache", "build"] {
        for mut volume in [Volume::mounted(SIZE, options), Volume::f2fs(SIZE, options)] {
            let path = volume.path("file");
            judge::run("python3", ["-c", SCRIPT, path.to_str().unwrap()]);
            volume.unmount();
            volume.mount("");
            let kept = fs::read(&path).unwrap();
            assert!(kept[100..5000].iter().all(|byte| *byte == b'm'), "{options}");
            volume.unmount();
        }
    }
}
