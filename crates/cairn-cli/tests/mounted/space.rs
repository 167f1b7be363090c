//! Full volumes, and space that must become free again.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::time::{Duration, Instant};

use cairn_testkit::modes::MODES;

use crate::fixture::Volume;

/// Waits until the counts are these: the kernel drops its references to removed inodes later.
#[track_caller]
pub fn wait_for_free(volume: &Volume, expected: (u64, u64)) {
    let started = Instant::now();
    while volume.free() != expected {
        let found = volume.free();
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "free blocks and inodes: {found:?}, and {expected:?} before everything was made and \
             removed"
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

/// Everything that fsync acknowledged before the volume was full is there afterwards, byte for
/// byte.
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
    // Without an fsync after each write: writes until one fails. Then the file's fsync must report
    // lost data.
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
        let differs =
            pattern(n, 100_000).iter().zip(&read).position(|(expected, found)| expected != found);
        assert!(
            read.len() == 100_000 && differs.is_none(),
            "f{n}: {} bytes, wrong from {differs:?}",
            read.len()
        );
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

/// The kernel passes such a write unchanged: it is short, and the next one gets the error.
fn short_write(volume: &mut Volume) {
    const WHOLE: usize = 1 << 20;
    let mut filler = File::create(volume.path("filler")).unwrap();
    for piece in [64 << 10, 4 << 10] {
        let refused = (0..10_000)
            .find_map(|_| filler.write_all(&vec![7; piece]).err())
            .expect("the volume has an end");
        assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    }
    let size = filler.metadata().unwrap().len();
    filler.set_len(size - 300_000).unwrap();
    filler.sync_all().unwrap();
    // Freed space can be allocated after the next commit or checkpoint.
    File::open(volume.root()).unwrap().sync_all().unwrap();
    let bytes = pattern(9, WHOLE);
    let mut file = File::create(volume.path("short")).unwrap();
    let written = file.write(&bytes).unwrap();
    assert!(written > 100_000 && written < WHOLE, "{written} bytes of {WHOLE}");
    let mut last = file.write(&bytes[written..]);
    // A partly used block may be filled.
    if let Ok(more) = last {
        assert!(more < 4096, "{more} bytes after {written}");
        last = file.write(&bytes[written + more..]);
    }
    assert_eq!(last.unwrap_err().kind(), ErrorKind::StorageFull);
    file.sync_all().unwrap();
    let len = file.metadata().unwrap().len() as usize;
    drop((file, filler));
    volume.remount();
    assert!(
        len >= written && fs::read(volume.path("short")).unwrap() == bytes[..len],
        "{len} bytes, {written} told"
    );
    volume.unmount();
}

/// Volumes on which the kernel collects writes, with the least number of bytes that must fit.
fn collecting() -> [(Volume, u64); 4] {
    [
        // One volume is near full from the start, the other is not.
        (Volume::mounted(48 << 20, ""), 30 << 20),
        (Volume::mounted(300 << 20, ""), 250 << 20),
        (Volume::f2fs(100 << 20, ""), 30 << 20),
        (Volume::f2fs(400 << 20, ""), 200 << 20),
    ]
}

fn room(volume: &Volume, figure: &str) -> serde_json::Value {
    volume.stats()["fuse"]["room"][figure].clone()
}

/// The kernel's cache would take any number of writes and lose them later: a write without room
/// fails, and the data of successful writes is there, without an fsync.
#[test]
fn a_write_to_a_full_volume_fails_without_an_fsync() {
    for (mut volume, least) in collecting() {
        let files =
            ["large", "small", "smallest"].map(|name| File::create(volume.path(name)).unwrap());
        for (mut file, piece) in files.iter().zip([1 << 20, 4096, 100]) {
            let bytes = pattern(piece as u64, piece);
            let refused = (0..100_000)
                .find_map(|_| file.write_all(&bytes).err())
                .expect("the volume has an end");
            assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
        }
        assert_eq!(room(&volume, "near_full"), true);
        let written = fs::metadata(volume.path("large")).unwrap().len();
        assert!(written > least, "{written} bytes fit, {least} at the least");
        // A write that is larger than the free space, one after the end of the file, and an
        // overwrite.
        let large = File::options().read(true).write(true).open(volume.path("large")).unwrap();
        let refused = large.write_at(&pattern(1, 8 << 20), written).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
        large.write_all_at(&pattern(2, 50_000), 10_000).unwrap();
        // Reading past the end asks the kernel the same question as writing.
        assert_eq!(large.read_at(&mut [0; 100], written).unwrap(), 0);
        let sizes = ["large", "small", "smallest"].map(|name| fs::read(volume.path(name)).unwrap());
        drop((large, files));
        volume.remount();
        for (name, before) in ["large", "small", "smallest"].iter().zip(&sizes) {
            let after = fs::read(volume.path(name)).unwrap();
            assert!(
                after == *before,
                "{name}: {} bytes of {} are left, or differ",
                after.len(),
                before.len()
            );
        }
        assert!(sizes[0][10_000..60_000] == pattern(2, 50_000), "written over");
        // Freed room can be used at once.
        fs::remove_file(volume.path("large")).unwrap();
        fs::write(volume.path("again"), pattern(3, 5 << 20)).unwrap();
        assert!(fs::read(volume.path("again")).unwrap() == pattern(3, 5 << 20));
        volume.unmount();
    }
}

/// Several threads write at once: room that one writer was granted is not granted to another.
#[test]
fn writers_at_the_same_time_are_told_of_the_same_room() {
    const PIECE: usize = 70_000;
    for (mut volume, _) in collecting() {
        let written: Vec<usize> = std::thread::scope(|scope| {
            let volume = &volume;
            let write = |n: u64| {
                let mut file = File::create(volume.path(&format!("f{n}"))).unwrap();
                let bytes = pattern(n, PIECE);
                (0..100_000).take_while(|_| file.write_all(&bytes).is_ok()).count()
            };
            let writers: Vec<_> = (0..4).map(|n| scope.spawn(move || write(n))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        volume.remount();
        for (n, pieces) in written.into_iter().enumerate() {
            let bytes = fs::read(volume.path(&format!("f{n}"))).unwrap();
            assert!(
                bytes.len() >= pieces * PIECE,
                "f{n}: {} bytes, told of {pieces} pieces",
                bytes.len()
            );
            let expected = pattern(n as u64, PIECE);
            let wrong = bytes.chunks_exact(PIECE).take(pieces).position(|piece| piece != expected);
            assert_eq!(wrong, None, "f{n} differs");
        }
        volume.unmount();
    }
}

/// `cp -a` of a tree that does not fit, and `echo`: each reports its failed writes.
#[test]
fn copying_too_large_a_tree_is_reported() {
    for (mut volume, _) in collecting() {
        let tree = volume.outside("tree");
        fs::create_dir(&tree).unwrap();
        for n in 0..120_u64 {
            fs::write(tree.join(format!("f{n}")), pattern(n, 4_000_000 + n as usize * 1013))
                .unwrap();
        }
        let copied =
            Command::new("cp").arg("-a").arg(&tree).arg(volume.path("copy")).output().unwrap();
        let said = String::from_utf8_lossy(&copied.stderr);
        assert!(
            !copied.status.success() && said.contains("No space left"),
            "{}: {said}",
            copied.status
        );
        let echo = "for n in $(seq 1 2000); do echo \"line $n\" >> \"$0\" || exit 1; done";
        let filled =
            Command::new("sh").args(["-c", echo]).arg(volume.path("lines")).output().unwrap();
        let said_of = |name: &str| said.contains(&format!("/{name}'"));
        volume.remount();
        for n in 0..120_u64 {
            let name = format!("f{n}");
            if !said_of(&name) {
                let bytes = fs::read(volume.path(&format!("copy/{name}"))).unwrap();
                assert!(
                    bytes == pattern(n, 4_000_000 + n as usize * 1013),
                    "{name} was copied in silence"
                );
            }
        }
        let lines = fs::read_to_string(volume.path("lines")).unwrap_or_default();
        let complete = lines.lines().zip(1..).all(|(line, n)| line == format!("line {n}"));
        assert!(
            complete && (lines.lines().count() == 2000) == filled.status.success(),
            "{} bytes",
            lines.len()
        );
        volume.unmount();
    }
}

/// Far from full the kernel sends no further requests.
#[test]
fn a_volume_with_room_is_not_asked() {
    for mut volume in [Volume::mounted(512 << 20, ""), Volume::f2fs(512 << 20, "")] {
        let requests =
            |volume: &Volume| volume.stats()["fuse"]["requests"]["getattr"].as_u64().unwrap_or(0);
        let before = requests(&volume);
        let mut file = File::create(volume.path("file")).unwrap();
        for n in 0..1000 {
            file.write_all(&pattern(n, 10_000)).unwrap();
        }
        drop(file);
        let asked = requests(&volume) - before;
        assert!(asked <= 3, "{asked} questions for 1000 writes");
        assert_eq!((room(&volume, "near_full"), room(&volume, "asked")), (false.into(), 0.into()));
        volume.unmount();
    }
}

/// `chattr +i`, `+a` also restrict descriptors that were open before. Their earlier writes are
/// kept.
#[test]
fn a_protected_file_is_not_written_through_a_descriptor_from_before() {
    for mut volume in [Volume::mounted(512 << 20, ""), Volume::f2fs(512 << 20, "")] {
        let path = volume.path("file");
        let mut file = File::create(&path).unwrap();
        let mut appending = File::options().append(true).open(&path).unwrap();
        let chattr = |flags: &str| {
            let status = Command::new("chattr").arg(flags).arg(&path).status().unwrap();
            assert!(status.success(), "chattr {flags}");
        };
        file.write_all(b"before").unwrap();
        chattr("+i");
        for file in [&mut file, &mut appending] {
            assert_eq!(file.write(b"lost").unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        assert_eq!(fs::read(&path).unwrap(), b"before");
        chattr("-i");
        file.write_all(b" between").unwrap();
        chattr("+a");
        assert_eq!(file.write_at(b"lost", 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
        appending.write_all(b" after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before between after");
        chattr("-a");
        drop((file, appending));
        volume.remount();
        assert_eq!(fs::read(&path).unwrap(), b"before between after");
        volume.unmount();
    }
}

/// A volume without free inodes gives the same error. A freed inode can be allocated again.
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
    // The kernel drops its reference to the removed inode after unlink has returned, so the next
    // creation may be too early.
    for n in 0..made {
        fs::remove_file(volume.path(&format!("f{n}"))).unwrap();
        File::create(volume.path(&format!("again{n}"))).unwrap();
    }
    volume.unmount();
}

/// A file without a name exists until it is closed. Then its space is free.
#[test]
fn unlinked_files_live_until_they_are_closed() {
    let mut volume = Volume::mounted(128 << 20, "");
    let before = volume.free();
    let mut files: Vec<File> = (0..8_u64)
        .map(|n| {
            let path = volume.path(&format!("f{n}"));
            let mut file =
                File::options().read(true).write(true).create_new(true).open(&path).unwrap();
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
        assert!(
            read == [&pattern(n as u64, 3_000_000)[..], b"still here"].concat(),
            "file {n} differs"
        );
    }
    assert!(volume.free().0 < before.0 - 5000, "{:?} of {before:?} blocks are free", volume.free());
    drop(files);
    wait_for_free(&volume, before);
    volume.unmount();
}

/// The kernel never drops its reference to a removed directory by itself. The space must become
/// free without it.
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

/// Freed blocks are discarded on the host only with `discard`, also after a remount.
#[test]
fn blocks_that_become_free_are_discarded_if_that_is_asked_for() {
    let on_host = |volume: &Volume| fs::metadata(volume.image()).unwrap().blocks() * 512;
    let mut volume = Volume::mounted(256 << 20, "");
    let remove_one = |volume: &Volume| {
        let (before, free) = (on_host(volume), volume.free());
        write_and_sync(&volume.path("file"), &pattern(1, 20 << 20)).unwrap();
        let with = on_host(volume);
        assert!(
            with > before + (15 << 20) || with > 20 << 20,
            "{before} and {with} bytes on the host"
        );
        fs::remove_file(volume.path("file")).unwrap();
        wait_for_free(volume, free);
        File::open(volume.root()).unwrap().sync_all().unwrap();
        (with, on_host(volume))
    };
    let (with, without) = remove_one(&volume);
    assert!(without + (1 << 20) > with, "nobody asked: {with} and {without} bytes on the host");
    let remount = |volume: &Volume, option: &str| {
        let status = Command::new(crate::fixture::CAIRN)
            .args(["remount", "-o", option])
            .arg(volume.root())
            .status();
        assert!(status.unwrap().success(), "{option}");
    };
    remount(&volume, "discard");
    let (with, without) = remove_one(&volume);
    assert!(without + (15 << 20) < with, "{with} and {without} bytes on the host");
    remount(&volume, "nodiscard");
    let (with, without) = remove_one(&volume);
    assert!(without + (1 << 20) > with, "no more: {with} and {without} bytes on the host");
    volume.unmount();
    volume.mount("discard");
    let (with, without) = remove_one(&volume);
    assert!(without + (15 << 20) < with, "{with} and {without} bytes on the host");
    volume.unmount();
}
