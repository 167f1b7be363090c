//! Large files through the kernel's cache. The kernel keeps their pages, so the daemon takes the
//! data out of the requests without a copy, writes it early, and keeps no second copy.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::fixture::Volume;

const MIB: usize = 1 << 20;
/// Size of each file.
const SIZE: usize = 48 * MIB;
/// What may stay of the files' 96 MiB when they are written: nothing but folios of the last bytes.
const KEPT: u64 = 1 << 20;

fn contents(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Writes a file in pieces of a MiB, and parts of it again.
fn write(path: &Path, seed: u64) -> Vec<u8> {
    let mut bytes = contents(seed);
    let mut file = File::create(path).unwrap();
    for piece in bytes.chunks(MIB) {
        file.write_all(piece).unwrap();
    }
    file.sync_all().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..20 {
        let at = random.usize(..SIZE - 2 * MIB);
        let part = &mut bytes[at..][..random.usize(1..2 * MIB)];
        random.fill(part);
        file.write_all_at(part, at as u64).unwrap();
    }
    file.sync_all().unwrap();
    bytes
}

/// Reads a file that the kernel has dropped from its cache.
fn read_cold(path: &Path) -> Vec<u8> {
    let mut file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut found = Vec::new();
    file.read_to_end(&mut found).unwrap();
    found
}

/// Two streams at the same time, then both read back, before and after another mount.
fn streams(mut volume: Volume) {
    let paths = [volume.path("a"), volume.path("b")];
    let written: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let writers = [(&paths[0], 1), (&paths[1], 2)]
            .map(|(path, seed)| scope.spawn(move || write(path, seed)));
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let check = || {
        for (path, bytes) in paths.iter().zip(&written) {
            assert!(read_cold(path) == *bytes, "{}: other bytes", path.display());
        }
    };
    // What stays, not the peak: a slow disk holds more pieces at once. What is read later says
    // nothing: a busy machine reads ahead what its reader has passed.
    let stats = volume.stats();
    let bytes = |name: &str| stats["cache"]["budget"][name].as_u64().unwrap();
    let kept = bytes("file_data_bytes") - bytes("free_bytes");
    assert!(kept < KEPT, "{kept} bytes of file data: {stats}");
    check();
    volume.unmount();
    volume.mount("");
    check();
    volume.unmount();
}

#[test]
fn streams_leave_no_second_copy_in_the_daemon() {
    let mut volume = Volume::make(256 << 20, &[]);
    volume.mount("");
    streams(volume);
}

#[test]
fn streams_leave_no_second_copy_in_the_daemon_of_f2fs() {
    streams(Volume::f2fs(256 << 20, ""));
}

/// Blocks of 1 KiB that alternate with holes: an answer of 1 MiB is made of more pieces than a
/// system call takes.
#[test]
fn an_answer_of_many_pieces_arrives() {
    const BLOCK: usize = 1024;
    let mut volume = Volume::make(64 << 20, &["-b", "1024"]);
    volume.mount("nowriteback_cache");
    let mut bytes = vec![0; 4 * MIB];
    let file = File::create(volume.path("f")).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (number, block) in bytes.chunks_mut(BLOCK).enumerate().step_by(2) {
        block.fill(number as u8 | 1);
        file.write_all_at(block, (number * BLOCK) as u64).unwrap();
    }
    drop(file);
    volume.unmount();
    volume.mount("");
    // Whoever waits for an answer cannot be killed.
    let (done, waits) = std::sync::mpsc::channel();
    let path = volume.path("f");
    std::thread::spawn(move || done.send(read_cold(&path)));
    let found = waits.recv_timeout(std::time::Duration::from_secs(20));
    if found.is_err() {
        volume.kill();
    }
    assert!(found.expect("the answer") == bytes);
    volume.unmount();
}
