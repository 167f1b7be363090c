//! The write-back daemon on a virtual clock: it writes by age and by amount, the longest dirty
//! files first, and no clean data.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::{DaemonHandle, Event, Runtime};
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, ErrorKind};

use super::model::{DEVICE, ModelMapper, Rig};
use super::pattern;
use crate::file::{CacheError, FileCache, PageCache};
use crate::writeback::{Expired, Flushable, Flushed, WritebackMode};

const BUDGET: u64 = 10 << 20;

/// A file that is appended to.
struct File {
    cache: FileCache,
    mapper: ModelMapper,
}

impl Flushable for File {
    fn flush(&self, mode: WritebackMode) -> Result<Flushed, CacheError> {
        let clean = !self.cache.has_dirty();
        self.cache.write_back(&self.mapper, 0..u64::MAX, DEVICE, mode)?;
        Ok(if clean { Flushed::Clean } else { Flushed::Written })
    }
}

/// Counts what would be commits.
#[derive(Default)]
struct Commits(AtomicU64);

impl Expired for Commits {
    fn written(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

struct World {
    runtime: Arc<Simulated>,
    rig: Rig,
    block: u32,
}

impl World {
    fn new() -> Self {
        Self::over(Arc::new(MemoryDevice::new(DEVICE)), 4096)
    }

    fn over(device: Arc<dyn BlockDevice>, block: u32) -> Self {
        let runtime = Simulated::new(1);
        let rig = Rig::under(runtime.clone(), device, block, BUDGET, 1 << 20, 1);
        Self { runtime, rig, block }
    }

    fn daemon(&self) -> DaemonHandle {
        self.rig.pages.start_writeback().unwrap()
    }

    fn commits(&self) -> Arc<Commits> {
        let commits = Arc::new(Commits::default());
        let expired: Weak<dyn Expired> = Arc::downgrade(&(commits.clone() as Arc<dyn Expired>));
        self.rig.pages.set_expired(expired);
        commits
    }

    fn file(&self, seed: u64) -> Arc<File> {
        let block = self.block;
        let mapper = ModelMapper::new(block, 1 << 20, seed);
        let file = Arc::new(File { cache: FileCache::new(&self.rig.pages, block), mapper });
        let owner: Weak<dyn Flushable> = Arc::downgrade(&(file.clone() as Arc<dyn Flushable>));
        file.cache.set_owner(owner);
        file
    }

    fn sleep(&self, seconds: u64) {
        let met = self.runtime.wait_until_timeout(
            &Event::new(),
            Duration::from_secs(seconds),
            &mut || false,
        );
        assert!(!met);
    }

    fn written(&self) -> u64 {
        self.rig.pages.counters().device_written_bytes.get()
    }
}

impl File {
    fn write(&self, at: u64, len: usize) {
        assert_eq!(self.cache.write(&self.mapper, at, at, &pattern(len, at)).expect("room"), len);
    }
}

#[test]
fn what_is_dirty_for_too_long_is_written_the_oldest_first() {
    let world = World::new();
    let daemon = world.daemon();
    let (old, young) = (world.file(1), world.file(2));
    old.write(0, 100_000);
    world.sleep(20);
    young.write(0, 100_000);
    // A second write does not make a dirty file younger.
    old.write(100_000, 1000);
    world.sleep(9);
    assert!(old.cache.has_dirty() && young.cache.has_dirty() && world.written() == 0);
    world.sleep(2);
    assert!(!old.cache.has_dirty() && young.cache.has_dirty());
    world.sleep(20);
    assert!(!young.cache.has_dirty());
    daemon.stop();
}

/// While it is written, its owner asks for the dirty files.
struct Watched {
    cache: FileCache,
    mapper: ModelMapper,
    pages: Weak<PageCache>,
    listed: AtomicU64,
}

impl Flushable for Watched {
    fn flush(&self, mode: WritebackMode) -> Result<Flushed, CacheError> {
        let listed = self.pages.upgrade().unwrap().dirty_files().len();
        self.listed.store(listed as u64, Relaxed);
        self.cache.write_back(&self.mapper, 0..u64::MAX, DEVICE, mode)?;
        Ok(Flushed::Written)
    }
}

/// sync writes the listed files only, so it must see those that the daemon is writing.
#[test]
fn the_dirty_files_include_the_one_that_is_being_written() {
    let world = World::new();
    let pages = &world.rig.pages;
    let file = Arc::new(Watched {
        cache: FileCache::new(pages, world.block),
        mapper: ModelMapper::new(world.block, 1 << 20, 1),
        pages: Arc::downgrade(pages),
        listed: AtomicU64::new(0),
    });
    let owner: Weak<dyn Flushable> = Arc::downgrade(&(file.clone() as Arc<dyn Flushable>));
    file.cache.set_owner(owner);
    file.cache.write(&file.mapper, 0, 0, &pattern(10_000, 0)).unwrap();
    let clean = world.file(2);
    clean.write(0, 10_000);
    clean.flush(WritebackMode::Sync).unwrap();
    assert_eq!(pages.dirty_files().len(), 1);
    let daemon = world.daemon();
    world.sleep(31);
    assert_eq!(file.listed.load(Relaxed), 1);
    assert!(pages.dirty_files().is_empty());
    daemon.stop();
}

#[test]
fn too_much_dirty_data_is_written_at_once() {
    let world = World::new();
    let daemon = world.daemon();
    let file = world.file(1);
    file.write(0, 1 << 20);
    world.sleep(1);
    assert_eq!(world.written(), 0, "a tenth is not too much");
    file.write(1 << 20, 1 << 20);
    world.sleep(1);
    assert_eq!((world.written(), world.rig.pages.dirty_bytes()), (2 << 20, 0));
    daemon.stop();
}

/// One file more than the limit allows woke the daemon for one file, and each of these cost a
/// commit with its flush.
#[test]
fn many_small_files_are_written_many_at_a_time_and_share_commits() {
    let world = World::new();
    let (daemon, commits) = (world.daemon(), world.commits());
    let mut files = Vec::new();
    while !world.rig.pages.is_over_background() {
        let file = world.file(files.len() as u64);
        file.write(0, 100_000);
        files.push(file);
    }
    world.sleep(1);
    let dirty = files.iter().filter(|file| file.cache.has_dirty()).count();
    assert!(dirty <= files.len() * 3 / 4 && dirty > files.len() / 2, "{dirty} are dirty");
    assert_eq!(commits.0.load(Relaxed), 0, "their metadata is not old");
    for _ in 0..60 {
        for _ in 0..6 {
            let file = world.file(files.len() as u64);
            file.write(0, 100_000);
            files.push(file);
        }
        world.sleep(1);
    }
    let made = commits.0.load(Relaxed);
    assert!((1..=3).contains(&made), "{made} commits in 61 s, two times the age");
    drop(daemon);
}

/// What was written because too much was dirty is made durable after the time that it might have
/// been dirty, though nothing is dirty any more.
#[test]
fn what_was_written_early_is_committed_in_time() {
    let world = World::new();
    let (daemon, commits) = (world.daemon(), world.commits());
    let file = world.file(1);
    (0..2).for_each(|at| file.write(at << 20, 1 << 20));
    world.sleep(1);
    assert_eq!((world.rig.pages.dirty_bytes(), commits.0.load(Relaxed)), (0, 0));
    world.sleep(28);
    assert_eq!(commits.0.load(Relaxed), 0);
    world.sleep(2);
    assert_eq!(commits.0.load(Relaxed), 1);
    world.sleep(90);
    assert_eq!(commits.0.load(Relaxed), 1);
    drop(daemon);
}

/// Files stay in the queue after an fsync. They are not dirty: they do not make the daemon write,
/// and it commits nothing for them.
#[test]
fn fsynced_files_are_not_counted_as_dirty() {
    let world = World::new();
    let (daemon, commits) = (world.daemon(), world.commits());
    let files: Vec<_> = (0..1000).map(|seed| world.file(seed)).collect();
    for file in &files {
        file.write(0, 4096);
        file.flush(WritebackMode::Sync).expect("the device takes everything");
    }
    assert_eq!(world.rig.pages.kept_by_dirty(), 0);
    world.sleep(60);
    assert_eq!(commits.0.load(Relaxed), 0);
    drop(daemon);
}

#[test]
fn writers_help_when_more_is_dirty_than_may_be() {
    let world = World::new();
    let file = world.file(1);
    file.write(0, 1 << 20);
    world.rig.pages.balance().expect("the device takes everything");
    assert_eq!((world.rig.pages.counters().throttles.get(), world.written()), (0, 0));
    for at in 1..5_u64 {
        file.write(at << 20, 1 << 20);
    }
    assert!(world.rig.pages.is_over_limit());
    world.rig.pages.balance().expect("the device takes everything");
    assert!(!world.rig.pages.is_over_limit());
    assert_eq!((world.rig.pages.counters().throttles.get(), world.written()), (1, 5 << 20));
}

/// Each file keeps a page in memory for one dirty block of 1 KiB. The pages count, not the blocks.
#[test]
fn many_small_files_reach_the_limit() {
    let world = World::over(Arc::new(MemoryDevice::new(DEVICE)), 1024);
    let mut files = Vec::new();
    while !world.rig.pages.is_over_limit() {
        let file = world.file(files.len() as u64);
        file.write(0, 1024);
        files.push(file);
    }
    let kept = files.len() as u64 * 4096;
    assert!(kept <= BUDGET / 2, "{} files", files.len());
    world.rig.pages.balance().expect("the device takes everything");
    assert!(!world.rig.pages.is_over_limit() && world.written() > 0);
}

/// No caller fsyncs, and the device fails every write. Memory stays bounded because writers get the
/// error. Accepted data is kept, and written when the device works again.
#[test]
fn writers_hear_of_a_device_that_takes_nothing() {
    let fault = Arc::new(Fault::new(Arc::new(MemoryDevice::new(DEVICE))));
    let world = World::over(fault.clone(), 4096);
    let file = world.file(1);
    fault.fail_next(Operation::Write, Lasting::Forever);
    let told = (0..64_u64).find_map(|at| {
        let told = world.rig.pages.balance().err();
        if told.is_none() {
            file.write(at << 20, 1 << 20);
        }
        told.map(|error| (at, error))
    });
    let (written, told) = told.expect("a writer is told");
    assert!(
        matches!(&told, CacheError::Write(error) if error.to_string().contains("injected fault")),
        "{told}"
    );
    assert!(
        world.rig.pages.dirty_bytes() == written << 20 && written << 20 < BUDGET,
        "{written} MiB are dirty"
    );
    fault.clear();
    world.rig.pages.balance().expect("the device works again");
    assert!(!world.rig.pages.is_over_limit());
    file.cache
        .write_back(&file.mapper, 0..u64::MAX, DEVICE, WritebackMode::Sync)
        .expect("the device works again");
    assert_eq!(world.written(), written << 20);
}

/// A device without room, such as an image on a full disk: after the failure, the first writer of
/// any file gets the error. When there is room again, everything is written and no writer fails.
#[test]
fn the_first_writer_gets_the_error_of_a_device_without_room() {
    let fault = Arc::new(Fault::new(Arc::new(MemoryDevice::new(DEVICE))));
    let world = World::over(fault.clone(), 4096);
    let (file, other) = (world.file(1), world.file(2));
    let sync =
        |file: &File| file.cache.write_back(&file.mapper, 0..u64::MAX, DEVICE, WritebackMode::Sync);
    file.write(0, 100_000);
    fault.fill();
    assert!(!world.rig.pages.lacks_room());
    world.rig.pages.balance().expect("no write has failed");
    let told = sync(&file).expect_err("no room");
    assert!(
        matches!(&told, CacheError::Write(error) if error.kind == ErrorKind::NoSpace),
        "{told}"
    );
    assert!(world.rig.pages.lacks_room());
    for _ in 0..3 {
        world.rig.pages.balance().expect_err("still no room");
    }
    fault.clear();
    world.rig.pages.balance().expect("there is room again");
    assert!(!world.rig.pages.lacks_room() && world.rig.pages.dirty_bytes() == 0);
    assert_eq!(world.written(), 100_000_u64.next_multiple_of(4096));
    // The daemon finds out by itself, and does not flood the device before.
    let daemon = world.daemon();
    file.write(100_000, 1000);
    fault.fill();
    sync(&file).expect_err("no room");
    let before = fault.count(Operation::Write);
    world.sleep(10);
    let tries = fault.count(Operation::Write) - before;
    assert!((5..50).contains(&tries) && world.rig.pages.lacks_room(), "{tries} tries");
    fault.clear();
    world.sleep(1);
    assert!(!world.rig.pages.lacks_room());
    daemon.stop();
    // Dropped data does not keep other files from being written.
    other.write(0, 100_000);
    fault.fill();
    sync(&other).expect_err("no room");
    other.cache.discard(&other.mapper, 0..u64::MAX);
    assert!(!world.rig.pages.lacks_room());
    world.rig.pages.balance().expect("nothing waits");
}

/// On a log-structured volume each attempt takes new blocks. While the device has no room, an
/// attempt is made with one.
#[test]
fn attempts_over_a_device_without_room_take_one_block() {
    let fault = Arc::new(Fault::new(Arc::new(MemoryDevice::new(DEVICE))));
    let world = World::over(fault.clone(), 4096);
    let file = world.file(1);
    (0..4).for_each(|at| file.write(at << 20, 1 << 20));
    fault.fill();
    file.flush(WritebackMode::Sync).expect_err("no room");
    let before = file.mapper.taken();
    for _ in 0..3 {
        world.rig.pages.balance().expect_err("still no room");
    }
    // The model passes over a block now and then.
    assert!((3..=6).contains(&(file.mapper.taken() - before)));
    fault.clear();
    world.rig.pages.balance().expect("there is room again");
    assert_eq!((world.written(), world.rig.pages.dirty_bytes()), (4 << 20, 0));
}

#[test]
fn only_the_dirty_part_of_a_folio_is_written_and_neighbours_go_together() {
    let world = World::new();
    let file = world.file(1);
    let all = 0..u64::MAX;
    file.write(0, 1 << 20);
    file.cache
        .write_back(&file.mapper, all.clone(), 1 << 20, WritebackMode::Sync)
        .expect("writable");
    let counters = world.rig.pages.counters();
    let (bytes, places) = (world.written(), counters.map_places.get());
    let change = |at: u64, len: usize| {
        assert_eq!(
            file.cache.write(&file.mapper, 1 << 20, at, &pattern(len, at)).expect("room"),
            len
        );
    };
    change(8192, 10);
    change(12_288, 4096);
    change(500_000, 100);
    file.cache.write_back(&file.mapper, all, 1 << 20, WritebackMode::Sync).expect("writable");
    // Blocks 2 and 3 are one run unless the model placed them apart; block 122 is another.
    assert_eq!(world.written() - bytes, 3 << 12);
    assert!((2..=3).contains(&(counters.map_places.get() - places)));
}
