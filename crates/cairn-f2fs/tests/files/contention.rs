//! Threads write, truncate and fsync the same few files on a volume that is nearly full.
//! Checkpoints and cleaning run at any time.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use cairn_testkit::contention::short_lived_files;
use cairn_testkit::modes::MODES;
use cairn_testkit::{deep, transfer};
use cairn_vfs::{AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, SetAttributes};

use crate::support::{judge, open, volume};
use crate::worn::Worn;

const THREADS: u64 = 4;
const WORDS: u64 = 512;

/// Every word of a block contains file and block number, so a block of another file is detected.
fn block(file: u64, index: u64) -> Vec<u8> {
    (0..WORDS).flat_map(|_| (file << 32 | index | 1 << 63).to_le_bytes()).collect()
}

/// Checks that blocks of a file, copied or lent, have its own words or zeros.
fn read(fs: &cairn_f2fs::F2fs, (file, ino): (u64, cairn_base::Ino), index: u64, lent: bool) {
    let mut buf = vec![0; 4096];
    if lent {
        // While a block is lent, other threads change it and cleaning moves it.
        let mut take = |pieces: &[&[u8]]| buf = pieces.concat();
        fs.read_shared(ino, index * 4096, 16 * 4096, IoFlags::empty(), &mut take).unwrap();
    } else {
        let read = fs.read(ino, index * 4096, &mut buf, IoFlags::empty()).unwrap();
        buf.truncate(read);
    }
    for (index, found) in (index..).zip(buf.chunks(4096)) {
        let own = block(file, index);
        let right = found.chunks(8).zip(own.chunks(8)).all(|(is, own)| is == own || is == [0; 8]);
        assert!(right, "block {index} of file {file} holds {:x?}", &found[..8]);
    }
}

fn work(fs: &cairn_f2fs::F2fs, files: &[cairn_base::Ino], seed: u64, steps: u32) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..steps {
        let file = rng.usize(0..files.len());
        let (ino, index) = (files[file], rng.u64(0..3000));
        let outcome = match rng.u32(0..100) {
            0..60 => {
                let flags = transfer::flags(&mut rng, 4);
                transfer::write(fs, ino, index * 4096, &block(file as u64, index), flags).map(drop)
            }
            60..85 => {
                read(fs, (file as u64, ino), index, rng.bool());
                Ok(())
            }
            85..90 => fs.fsync(ino, 0, rng.bool()),
            90..94 => fs
                .setattr(
                    ino,
                    &SetAttributes { size: Some(index * 4096), ..SetAttributes::default() },
                )
                .map(drop),
            94..98 => fs.allocate(ino, AllocateMode::PunchHole, index * 4096, 64 * 4096),
            98 => fs.allocate(ino, AllocateMode::KeepSize, index * 4096, 16 * 4096),
            _ => fs.sync(),
        };
        assert!(matches!(outcome, Ok(()) | Err(Error::NoSpace)), "{outcome:?}");
    }
}

fn contend(worn: &Worn, seed: u64) {
    let device = worn.make();
    let fs = worn.open(&device);
    let make = |number: u32| {
        let name = format!("file-{number}");
        fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
    };
    let files: Vec<_> = (0..3).map(make).collect();
    let steps = if deep() { 60_000 } else { 3000 };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fs, files) = (&fs, &files);
            scope.spawn(move || work(fs, files, seed * 100 + thread, steps));
        }
    });
    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
    worn.check();
}

#[test]
fn threads_share_files_on_a_nearly_full_volume() {
    for (seed, mode) in (1..).zip(&MODES) {
        contend(&Worn::new(mode, 64 << 20), seed);
    }
}

/// Names are created and removed while other threads look them up. A look-up returns the inode or
/// ENOENT.
#[test]
fn a_name_that_goes_away_is_no_damage() {
    let device = volume(64 << 20, &[]);
    let fs = open(device.clone(), "");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (fs, over) = (&fs, &over);
        for _ in 0..3 {
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    match fs.lookup(fs.root(), b"name") {
                        Ok(found) => fs.forget(found.ino, 1),
                        Err(error) => assert!(matches!(error, Error::NotFound), "{error}"),
                    }
                }
            });
        }
        let _over = Over(over);
        for _ in 0..if deep() { 200_000 } else { 10_000 } {
            let made =
                fs.create(fs.root(), b"name", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
            fs.forget(made.ino, 1);
            fs.unlink(fs.root(), b"name").unwrap();
        }
    });
    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
}

/// The readers also end if the writer fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A nid was freed while a node or an inode in memory still had it. The next inode with this nid
/// was refused or lost.
#[test]
fn numbers_of_short_lived_files_go_round() {
    let device = volume(64 << 20, &[]);
    let fs = open(device.clone(), "");
    short_lived_files(&*fs);
    fs.unmount().unwrap();
    judge(&device);
}
