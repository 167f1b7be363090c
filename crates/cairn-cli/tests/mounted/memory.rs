//! A daemon whose address space is limited (`ulimit -v`): what it has no memory for fails, one
//! request at a time. A daemon with a small cache: what it keeps in memory stays within it.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume};

/// Processes that copy at the same time, and what each copies.
const COPIERS: u64 = 6;
const FILES: u64 = 30;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

fn contents(copier: u64, file: u64) -> Vec<u8> {
    // Small ones and large ones.
    let len = if file.is_multiple_of(5) { 3 << 20 } else { 20_000 + file as usize * 1000 };
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(copier << 32 | file).fill(&mut bytes);
    bytes
}

/// Counts what was refused. The kernel says EIO of pages that it could not write.
struct Refused(AtomicU64);

impl Refused {
    fn allow<T>(&self, what: &Path, result: std::io::Result<T>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(error)
                if error.kind() == ErrorKind::OutOfMemory || error.raw_os_error() == Some(5) =>
            {
                self.0.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(error) => panic!("{}: {error}", what.display()),
        }
    }
}

fn copy(refused: &Refused, path: &Path, bytes: &[u8]) -> Option<()> {
    let mut file = refused.allow(path, File::create(path))?;
    refused.allow(path, file.write_all(bytes))?;
    refused.allow(path, file.sync_all())
}

/// Reads what was acknowledged, past the kernel's pages and through them; what can be read is
/// right.
fn read(refused: &Refused, path: &Path, bytes: &[u8]) {
    let Some(file) = refused.allow(path, File::open(path)) else { return };
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let mut found = Vec::new();
    if refused.allow(path, (&file).read_to_end(&mut found)).is_some() {
        assert!(found == bytes, "{}: other bytes", path.display());
    }
    let mut part = vec![0; 4096];
    if let Some(count) = refused.allow(path, file.read_at(&mut part, 8192)) {
        assert!(part[..count] == bytes[8192..8192 + count], "{}: other bytes", path.display());
    }
}

fn work(root: &Path, copier: u64, refused: &Refused) -> Vec<(PathBuf, u64)> {
    let mut acknowledged = Vec::new();
    let directory = root.join(format!("d{copier}"));
    if refused.allow(&directory, fs::create_dir(&directory)).is_none() {
        return acknowledged;
    }
    for number in 0..FILES {
        let (path, bytes) = (directory.join(format!("f{number}")), contents(copier, number));
        if copy(refused, &path, &bytes).is_some() {
            acknowledged.push((path, number));
        }
    }
    for (path, number) in &acknowledged {
        read(refused, path, &contents(copier, *number));
    }
    if let Some(entries) = refused.allow(&directory, fs::read_dir(&directory)) {
        for entry in entries {
            refused.allow(&directory, entry.and_then(|entry| entry.metadata()));
        }
    }
    acknowledged
}

/// Real work within a limit. Returns how much was acknowledged, and refused.
fn work_within(volume: &mut Volume, limit: u64) -> (usize, u64) {
    // Rings need more address space than there is.
    volume.mount_within(limit, "transport=dev");
    let (root, refused) = (volume.root(), Refused(AtomicU64::new(0)));
    let acknowledged: Vec<Vec<(PathBuf, u64)>> = std::thread::scope(|scope| {
        let start = |copier| {
            scope.spawn({
                let (root, refused) = (&root, &refused);
                move || work(root, copier, refused)
            })
        };
        let copiers: Vec<_> = (0..COPIERS).map(start).collect();
        copiers.into_iter().map(|copier| copier.join().unwrap()).collect()
    });
    let log = volume.log();
    assert!(!log.contains("panicked") && !log.contains("stopped"), "{limit} KiB: {log}");
    // It still takes changes. A second after the work, buffers that nobody uses are freed.
    let last = volume.path("last");
    let end = Instant::now() + Duration::from_secs(5);
    let again = std::iter::from_fn(|| (Instant::now() < end).then(|| sleep(PAUSE)))
        .any(|()| copy(&refused, &last, b"one more").is_some());
    assert!(again, "{limit} KiB: it takes nothing any more: {}", volume.log());
    volume.unmount_talking();

    volume.mount("");
    for (copier, files) in acknowledged.iter().enumerate() {
        for (path, number) in files {
            assert!(
                fs::read(path).unwrap() == contents(copier as u64, *number),
                "{limit} KiB: {}",
                path.display()
            );
            fs::remove_file(path).unwrap();
        }
        let _ = fs::remove_dir_all(volume.path(&format!("d{copier}")));
    }
    assert_eq!(fs::read(volume.path("last")).unwrap(), b"one more");
    volume.unmount();
    (acknowledged.iter().map(Vec::len).sum(), refused.0.into_inner())
}

#[test]
fn a_daemon_with_little_address_space_refuses_requests_and_lives_on() {
    let mut volume = Volume::make(512 << 20, &[]);
    for limit in [200_000, 400_000] {
        let (done, refused) = work_within(&mut volume, limit);
        println!("ext4, {limit} KiB: {done} files, {refused} refused");
        assert!(done > 0, "{limit} KiB: nothing could be done");
    }
}

#[test]
fn f2fs_with_little_address_space_refuses_requests_and_lives_on() {
    let mut volume = Volume::f2fs(512 << 20, "");
    volume.unmount();
    // The program itself is mapped there, and grows with what it can do.
    let program = fs::metadata(CAIRN).unwrap().len() >> 10;
    for limit in [program + 115_000, 400_000] {
        let (done, refused) = work_within(&mut volume, limit);
        println!("f2fs, {limit} KiB: {done} files, {refused} refused");
        assert!(done > 0, "{limit} KiB: nothing could be done");
    }
}

#[test]
fn a_mount_that_cannot_have_its_reserve_says_what_to_do() {
    let volume = Volume::make(32 << 20, &[]);
    let mut command = Command::new("prlimit");
    command.arg(format!("--as={}", 50_000 << 10)).args([CAIRN, "mount", "-f"]);
    let output = command.arg(volume.image()).arg(volume.root()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("raise `ulimit -v`"), "{said}");
}

/// Between what is plainly too little and what is enough there is no limit at which the allocator
/// leaves the volume nothing. With the least limit the daemon still serves.
#[test]
fn every_limit_above_the_least_allows_a_mount() {
    let volume = Volume::make(32 << 20, &[]);
    let mut least = None;
    for limit in (60..120).step_by(4).chain((120..=240).step_by(20)).chain([1050, 1100, 1200]) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={}", limit * 1_000_000)).args([CAIRN, "mount"]);
        let mounted = command.arg(volume.image()).arg(volume.root()).output().unwrap();
        let said = String::from_utf8_lossy(&mounted.stderr).into_owned();
        if mounted.status.code() == Some(1) && least.is_none() {
            assert!(said.contains("raise `ulimit -v`"), "{limit} MB: {said}");
            continue;
        }
        assert_eq!((mounted.status.code(), &*said), (Some(0), ""), "{limit} MB");
        least.get_or_insert(limit);
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                scope.spawn(|| fs::write(volume.path(name), contents(0, 1)).unwrap());
            }
        });
        let ended = Command::new(CAIRN).arg("umount").arg(volume.root()).output().unwrap();
        assert_eq!(
            ended.status.code(),
            Some(0),
            "{limit} MB: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
    assert!(least.is_some_and(|least| least <= 120), "{least:?}");
    judge::assert_clean(&volume.image());
}

/// The kernel keeps references to 6,000 inodes, which would take 23 MB. A quarter of the cache
/// holds 500. Those with data that is not written yet stay, too; the others are loaded again when
/// they are used. Inodes that exist nowhere else stay: open files without a name.
#[test]
fn inodes_that_the_kernel_refers_to_leave_memory() {
    let f2fs = || {
        let mut volume = Volume::f2fs(128 << 20, "");
        volume.unmount();
        volume
    };
    for mut volume in [Volume::make(128 << 20, &[]), f2fs()] {
        volume.mount("cache=8M");
        let root = volume.root();
        let path = |number: u64| root.join(format!("d{}/f{number}", number % 6));
        let contents = |number: u64| number.to_le_bytes().repeat(40);
        let nameless = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(volume.path("nameless"))
            .unwrap();
        nameless.write_all_at(b"before", 0).unwrap();
        fs::remove_file(volume.path("nameless")).unwrap();
        (0..6).for_each(|number| fs::create_dir(volume.path(&format!("d{number}"))).unwrap());
        for number in 0..6000 {
            fs::write(path(number), contents(number)).unwrap();
            if number % 500 == 499 {
                // Inodes with changed data stay in memory.
                let directory = File::open(volume.root()).unwrap();
                rustix::fs::syncfs(&directory).unwrap();
                File::open(path(number)).unwrap().sync_all().unwrap();
            }
        }
        let open = File::open(path(1)).unwrap();
        fs::rename(path(1), volume.path("renamed")).unwrap();
        for number in (0..6000).filter(|number| *number != 1) {
            assert_eq!(fs::metadata(path(number)).unwrap().len(), 320);
            assert_eq!(fs::read(path(number)).unwrap(), contents(number));
        }
        let budget = crate::fixture::stats(&volume.root())["cache"]["budget"].clone();
        let bytes = |name: &str| budget[name].as_u64().unwrap();
        assert!(bytes("inode_bytes") > 1 << 20 && bytes("inode_bytes") < 4 << 20, "{budget}");
        assert!(bytes("used_bytes") <= 8 << 20, "{budget}");
        nameless.write_all_at(b" and after", 6).unwrap();
        let mut found = [0; 16];
        nameless.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"before and after");
        assert!(open.sync_all().is_ok() && open.metadata().unwrap().len() == 320);
        drop((nameless, open));
        volume.remount();
        assert_eq!(fs::read(volume.path("renamed")).unwrap(), contents(1));
        assert_eq!(fs::read(path(5999)).unwrap(), contents(5999));
        volume.end();
        volume.judge();
    }
}

/// Many callers need many threads, each with a buffer for the largest request. Seconds later the
/// threads have ended and the memory is free.
#[test]
fn threads_that_are_not_needed_end() {
    let mut volume = Volume::make(256 << 20, &[]);
    volume.mount("transport=dev");
    let threads = || crate::fixture::stats(&volume.root())["fuse"]["threads"].as_u64().unwrap();
    std::thread::scope(|scope| {
        for copier in 0..12 {
            let root = volume.root();
            scope.spawn(move || {
                for number in 0..4 {
                    let mut file = File::create(root.join(format!("{copier} {number}"))).unwrap();
                    file.write_all(&contents(copier, 5)).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    let busy = threads();
    let end = Instant::now() + Duration::from_secs(30);
    while threads() > 2 {
        assert!(Instant::now() < end, "{} of {busy} threads are left", threads());
        sleep(Duration::from_millis(200));
    }
    assert!(busy > 2, "{busy} threads served 12 callers");
    // The others are called again.
    fs::write(volume.path("later"), contents(0, 5)).unwrap();
    volume.end();
    volume.judge();
}
