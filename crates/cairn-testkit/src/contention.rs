//! Many threads work on the same names and files of a small volume and fill it. Lock ranks are
//! checked in test builds; a watchdog ends a deadlock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::Ino;
use cairn_vfs::{
    AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, RenameMode, SetAttributes,
};

use crate::oracle::Subject;
use crate::transfer;

/// Ends the process if no thread makes progress for a minute.
pub struct Watchdog {
    /// Raised after each completed piece of work.
    pub progress: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Begins to watch `progress`.
    #[must_use]
    pub fn start(what: &'static str) -> Self {
        let (progress, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, over) = (progress.clone(), done.clone());
        let thread = std::thread::spawn(move || {
            let (mut last, mut idle) = (0, Duration::ZERO);
            while !over.load(Ordering::Acquire) {
                let pause = Duration::from_millis(100);
                std::thread::sleep(pause);
                let now = seen.load(Ordering::Relaxed);
                idle = if now == last { idle + pause } else { Duration::ZERO };
                last = now;
                if idle > Duration::from_secs(60) {
                    eprintln!("{what}: no call has returned for a minute: a deadlock");
                    std::process::abort();
                }
            }
        });
        Self { progress, done, thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
        drop(self.thread.take().map(std::thread::JoinHandle::join));
    }
}

/// Errors that threads may get because of each other's work.
fn expected<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            // ENOENT, EEXIST, ENOTDIR, EISDIR, EINVAL, ENOSPC, ENOTEMPTY, ESTALE.
            assert!(
                [2, 17, 20, 21, 22, 28, 39, 116].contains(&error.errno()),
                "errno {}: {error}",
                error.errno()
            );
            None
        }
    }
}

/// One thread's work on shared names and on a file of its own.
struct Worker {
    fs: Arc<dyn FileSystem>,
    rng: fastrand::Rng,
    own: Ino,
    contents: Vec<u8>,
    dirs: Vec<Ino>,
}

impl Worker {
    fn new(fs: &Arc<dyn FileSystem>, number: u64, dirs: &[Ino]) -> Self {
        let name = format!("own {number}");
        let made =
            fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
        fs.allocate(made.ino, AllocateMode::Extend, 0, 65_536).unwrap();
        let rng = fastrand::Rng::with_seed(number);
        Self { fs: fs.clone(), rng, own: made.ino, contents: vec![0; 65_536], dirs: dirs.to_vec() }
    }

    fn place(&mut self) -> (Ino, Vec<u8>) {
        let number = self.rng.u32(0..12);
        (self.dirs[self.rng.usize(0..self.dirs.len())], format!("shared {number}").into_bytes())
    }

    fn step(&mut self) {
        let ((dir, name), (other, new_name)) = (self.place(), self.place());
        let fs = self.fs.clone();
        match self.rng.u32(0..100) {
            0..20 => {
                let new =
                    if self.rng.u8(0..8) == 0 { NewInode::Directory } else { NewInode::Regular };
                if let Some(made) = expected(fs.create(dir, &name, new, 0o644, &Caller::ROOT)) {
                    fs.forget(made.ino, 1);
                }
            }
            20..30 => drop(expected(fs.unlink(dir, &name))),
            30..33 => drop(expected(fs.rmdir(dir, &name))),
            33..43 => {
                let mode = [RenameMode::Replace, RenameMode::Exchange, RenameMode::NoReplace]
                    [self.rng.usize(0..3)];
                expected(fs.rename(dir, &name, other, &new_name, mode));
            }
            43..48 => {
                let mut names = BTreeSet::new();
                expected(fs.readdir(dir, 0, &mut |entry| {
                    names.insert(entry.name);
                    true
                }));
                assert!(names.len() >= 2, "`.` and `..` are always there");
            }
            48..75 => self.shared_file(dir, &name, (other, &new_name)),
            75..98 => self.own_file(),
            98 => drop(expected(fs.sync())),
            _ => drop(expected(fs.fsync(self.own, 0, false))),
        }
    }

    /// Data operations on a file that other threads also use.
    fn shared_file(&mut self, dir: Ino, name: &[u8], (other, new_name): (Ino, &[u8])) {
        let fs = &self.fs;
        let Some(found) = expected(fs.lookup(dir, name)) else { return };
        let offset = self.rng.u64(0..100_000);
        let mut buf = vec![self.rng.u8(..); self.rng.usize(1..20_000)];
        let flags = transfer::flags(&mut self.rng, 4);
        match self.rng.u32(0..12) {
            0..4 => drop(expected(transfer::write(&**fs, found.ino, offset, &buf, flags))),
            4..7 => drop(expected(transfer::read(&**fs, found.ino, offset, &mut buf, flags))),
            7 => {
                let set = SetAttributes { size: Some(offset), ..SetAttributes::default() };
                expected(fs.setattr(found.ino, &set));
            }
            8 => drop(expected(fs.fsync(found.ino, 0, true))),
            9 => drop(expected(fs.allocate(found.ino, AllocateMode::PunchHole, offset, 30_000))),
            10 => {
                if let Ok(linked) = fs.link(found.ino, other, new_name) {
                    fs.forget(linked.ino, 1);
                }
            }
            _ => drop(expected(fs.copy_range(
                found.ino,
                offset,
                found.ino,
                offset + 200_000,
                10_000,
            ))),
        }
        fs.forget(found.ino, 1);
    }

    /// Only this thread writes this file, so its contents are known.
    fn own_file(&mut self) {
        let start = self.rng.usize(0..60_000);
        let end = start + self.rng.usize(1..5000);
        if self.rng.bool() {
            let fill = self.rng.u8(..);
            // Space is preallocated, but a full volume may still refuse the metadata.
            let written = expected(self.fs.write(
                self.own,
                start as u64,
                &vec![fill; end - start],
                IoFlags::empty(),
            ));
            self.contents[start..start + written.unwrap_or(0)].fill(fill);
        } else {
            self.check();
        }
    }

    fn check(&self) {
        let mut buf = vec![0; self.contents.len() + 1];
        assert_eq!(
            self.fs.read(self.own, 0, &mut buf, IoFlags::empty()).unwrap(),
            self.contents.len()
        );
        assert!(
            buf[..self.contents.len()] == self.contents[..],
            "somebody else's bytes in {}",
            self.own
        );
    }
}

/// Six threads do `steps` operations each; then each file that only one thread wrote is compared,
/// before and after a remount, and the volume is judged.
///
/// # Panics
/// A thread got an unexpected error, bytes differ, or the volume is not clean.
pub fn share(subject: &dyn Subject, steps: u32) {
    let device = subject.make();
    let fs = subject.open(&device);
    let dirs: Vec<Ino> = std::iter::once(fs.root())
        .chain((0..2).map(|number| {
            let name = format!("dir {number}");
            fs.create(fs.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)
                .unwrap()
                .ino
        }))
        .collect();
    let watchdog = Watchdog::start("contention");
    let workers: Vec<Worker> = (0..6).map(|number| Worker::new(&fs, number, &dirs)).collect();
    let workers: Vec<Worker> = std::thread::scope(|scope| {
        let run = |mut worker: Worker| {
            let progress = &watchdog.progress;
            scope.spawn(move || {
                for _ in 0..steps {
                    worker.step();
                    progress.fetch_add(1, Ordering::Relaxed);
                }
                worker
            })
        };
        let threads: Vec<_> = workers.into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
    });
    workers.iter().for_each(Worker::check);
    fs.unmount().unwrap();
    subject.judge(&device);
    let fs = subject.open(&device);
    for (number, worker) in workers.into_iter().enumerate() {
        let found = fs.lookup(fs.root(), format!("own {number}").as_bytes()).unwrap();
        Worker { fs: fs.clone(), own: found.ino, ..worker }.check();
    }
    fs.unmount().unwrap();
}

/// Threads create and delete files before anything of them is on the disk. Their inode numbers may
/// be allocated again at once, also to other threads. Each file is found by its number, with its
/// own contents, until it is deleted.
///
/// # Panics
/// A file is not found, or has other contents.
pub fn short_lived_files(fs: &dyn FileSystem) {
    const THREADS: u64 = 8;
    let rounds: u64 = if crate::deep() { 200_000 } else { 20_000 };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let name = format!("directory {thread}");
                let made = fs.create(
                    fs.root(),
                    name.as_bytes(),
                    NewInode::Directory,
                    0o755,
                    &Caller::ROOT,
                );
                let directory = made.unwrap().ino;
                for round in 0..rounds {
                    let file = fs
                        .create(directory, b"file", NewInode::Regular, 0o644, &Caller::ROOT)
                        .unwrap();
                    let own = (round * THREADS + thread).to_le_bytes();
                    fs.write(file.ino, 0, &own, IoFlags::empty()).unwrap();
                    fs.unlink(directory, b"file").unwrap();
                    let mut read = [0; 8];
                    assert_eq!(fs.read(file.ino, 0, &mut read, IoFlags::empty()).unwrap(), 8);
                    assert_eq!(read, own, "inode {}", file.ino);
                    fs.forget(file.ino, 1);
                }
            });
        }
    });
}
