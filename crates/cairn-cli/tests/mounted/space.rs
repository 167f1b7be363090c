//! Full volumes, and space that must come back.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use cairn_testkit::modes::MODES;

use crate::fixture::Volume;

/// The kernel gives its references on removed inodes back in its own time; soon the counts must be these.
#[track_caller]
pub fn wait_for_free(volume: &Volume, expected: (u64, u64)) {
    let started = Instant::now();
    while volume.free() != expected {
        let found = volume.free();
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "free blocks and inodes: {found:?}, and {expected:?} before everything was made and removed"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn write_and_sync(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// What fsync acknowledged before the volume was full is there afterwards, byte for byte.
#[test]
fn a_full_volume_says_so_and_loses_nothing_acknowledged() {
    let mut volume = Volume::mounted(48 << 20, "");
    let before = volume.free();
    fs::create_dir(volume.path("full")).unwrap();
    let mut acknowledged = Vec::new();
    let error = loop {
        let n = acknowledged.len() as u64;
        assert!(n < 1000, "1000 times 100 kB were acknowledged on a volume of 48 MB");
        match write_and_sync(&volume.path(&format!("full/f{n}")), &pattern(n, 100_000)) {
            Ok(()) => acknowledged.push(n),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!(acknowledged.len() > 300, "full after {} files", acknowledged.len());
    // Without fsync after each: written until refused, then the file's own fsync must tell if something was lost.
    let mut file = File::create(volume.path("full/big")).unwrap();
    let refused = (0..2000).find_map(|n| file.write_all(&pattern(n, 50_000)).err());
    let told = file.sync_all().err();
    let error = refused.or(told).expect("100 MB fit on a volume of 48 MB");
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    drop(file);
    volume.unmount();
    volume.mount("");
    for n in acknowledged {
        let read = fs::read(volume.path(&format!("full/f{n}"))).unwrap();
        let differs = pattern(n, 100_000).iter().zip(&read).position(|(expected, found)| expected != found);
        assert!(read.len() == 100_000 && differs.is_none(), "f{n}: {} bytes, wrong from {differs:?}", read.len());
    }
    fs::remove_dir_all(volume.path("full")).unwrap();
    wait_for_free(&volume, before);
    write_and_sync(&volume.path("again"), &pattern(1, 1_000_000)).unwrap();
    volume.unmount();
}

#[test]
fn a_write_that_fits_in_part_says_how_much() {
    short_write(&mut Volume::mounted(48 << 20, "nowriteback_cache"));
}

#[test]
fn a_write_that_fits_in_part_says_how_much_on_f2fs() {
    short_write(&mut Volume::f2fs(64 << 20, "nowriteback_cache"));
    for mode in &MODES {
        let options = ["nowriteback_cache", mode.options].join(",");
        let mut volume = Volume::worn_with(16, mode, options.trim_end_matches(','));
        short_write(&mut volume);
        volume.assert_reused();
    }
}

/// The kernel passes such a write on as it is: it gets what there was room for, the next gets the error.
fn short_write(volume: &mut Volume) {
    const WHOLE: usize = 1 << 20;
    let mut filler = File::create(volume.path("filler")).unwrap();
    for piece in [64 << 10, 4 << 10] {
        let refused = (0..10_000).find_map(|_| filler.write_all(&vec![7; piece]).err()).expect("the volume has an end");
        assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    }
    let size = filler.metadata().unwrap().len();
    filler.set_len(size - 300_000).unwrap();
    filler.sync_all().unwrap();
    // What was freed can be had after the next commit or checkpoint.
    File::open(volume.root()).unwrap().sync_all().unwrap();
    let bytes = pattern(9, WHOLE);
    let mut file = File::create(volume.path("short")).unwrap();
    let written = file.write(&bytes).unwrap();
    assert!(written > 100_000 && written < WHOLE, "{written} bytes of {WHOLE}");
    let mut last = file.write(&bytes[written..]);
    // The block that is begun may be filled.
    if let Ok(more) = last {
        assert!(more < 4096, "{more} bytes after {written}");
        last = file.write(&bytes[written + more..]);
    }
    assert_eq!(last.unwrap_err().kind(), ErrorKind::StorageFull);
    file.sync_all().unwrap();
    let len = file.metadata().unwrap().len() as usize;
    drop((file, filler));
    volume.remount();
    assert!(len >= written && fs::read(volume.path("short")).unwrap() == bytes[..len], "{len} bytes, {written} told");
    volume.unmount();
}

/// Running out of inodes is the same error; one that is removed can be had again.
#[test]
fn no_inode_is_left() {
    let mut volume = Volume::make(16 << 20, &["-N", "64"]);
    volume.mount("");
    let mut made = 0;
    let error = loop {
        match File::create(volume.path(&format!("f{made}"))) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 1000);
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert_eq!(volume.free().1, 0);
    // The kernel tells that it has forgotten the removed one only after it has answered: the next file must not come too soon.
    for n in 0..made {
        fs::remove_file(volume.path(&format!("f{n}"))).unwrap();
        File::create(volume.path(&format!("again{n}"))).unwrap();
    }
    volume.unmount();
}

/// A file without a name lives until it is closed; then its space is there again.
#[test]
fn unlinked_files_live_until_they_are_closed() {
    let mut volume = Volume::mounted(128 << 20, "");
    let before = volume.free();
    let mut files: Vec<File> = (0..8_u64)
        .map(|n| {
            let path = volume.path(&format!("f{n}"));
            let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            file.write_all(&pattern(n, 3_000_000)).unwrap();
            if n % 2 == 0 {
                file.sync_all().unwrap();
            }
            fs::remove_file(&path).unwrap();
            file
        })
        .collect();
    for (n, file) in files.iter_mut().enumerate() {
        file.write_all(b"still here").unwrap();
        file.sync_all().unwrap();
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == [&pattern(n as u64, 3_000_000)[..], b"still here"].concat(), "file {n} differs");
    }
    assert!(volume.free().0 < before.0 - 5000, "{:?} of {before:?} blocks are free", volume.free());
    drop(files);
    wait_for_free(&volume, before);
    volume.unmount();
}

/// The kernel never forgets a removed directory by itself: its space must come back without that.
#[test]
fn removed_directories_give_their_space_back() {
    let mut volume = Volume::mounted(128 << 20, "");
    let before = volume.free();
    for round in 0..3 {
        let top = volume.path("top");
        fs::create_dir(&top).unwrap();
        for outer in 0..40 {
            fs::create_dir(top.join(format!("{outer}"))).unwrap();
            for inner in 0..25 {
                fs::create_dir(top.join(format!("{outer}/{inner}"))).unwrap();
                fs::write(top.join(format!("{outer}/{inner}/file")), format!("{round}")).unwrap();
            }
        }
        fs::remove_dir_all(&top).unwrap();
        wait_for_free(&volume, before);
    }
    volume.unmount();
}
