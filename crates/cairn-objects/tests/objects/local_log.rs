//! The local log: what was flushed is there with it, wherever the process or the machine dies, and
//! without it the disk is as it was at one moment. A log that another writer has overtaken is
//! refused, and both ways out work.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cairn_base::runtime::{Event, Runtime};
use cairn_block::ErrorKind;
use cairn_objects::pool::Copy;
use cairn_objects::store::{DirectoryStore, Moment, Trouble};
use cairn_objects::volume::{LogOptions, LogPlace, MemoryMedium, Refused};

use super::crash::{History, SMALL, made, run, simulated};
use super::*;

/// Small, so that it is full now and then.
pub(super) const LOG: u64 = 64 << 10;

pub(super) fn with_log(options: Options, medium: &Arc<MemoryMedium>) -> Options {
    let place = LogPlace::Medium(medium.clone());
    Options { log: Some(LogOptions { place, size: LOG, refused: Refused::Fail }), ..options }
}

pub(super) fn if_refused(options: Options, refused: Refused) -> Options {
    let log = options.log.map(|log| LogOptions { refused, ..log });
    Options { log, ..options }
}

fn reopened(medium: &MemoryMedium) -> Arc<MemoryMedium> {
    Arc::new(MemoryMedium::with(medium.bytes()))
}

/// From this event on, store and log do nothing more: a request before it is done or after, a
/// write of the log (half of it is done), a cut, a sync.
pub(super) fn both_die(store: &Trouble, medium: &MemoryMedium, at: u64) -> Arc<AtomicU64> {
    let events = Arc::new(AtomicU64::new(0));
    let (one, other) = (events.clone(), events.clone());
    store.set(move |_, _, _, _| one.fetch_add(1, Relaxed) >= at);
    medium.set(move |_| other.fetch_add(1, Relaxed) >= at);
    events
}

#[test]
fn nothing_flushed_is_lost_wherever_a_writer_with_a_log_dies() {
    let made = made();
    let (mut cuts, mut replays) = (0, 0);
    for seed in 1..=if cairn_testkit::deep() { 8 } else { 2 } {
        for at in 0.. {
            let memory = Arc::new(made.fork());
            let store = Arc::new(Trouble::new(memory.clone()));
            let medium = Arc::new(MemoryMedium::default());
            let events = both_die(&store, &medium, at);
            let mut history = History::new();
            let options = simulated(seed);
            let runtime = options.runtime.clone();
            history.pause = Box::new(move |number| {
                if number % 9 == 0 {
                    // The daemon sends to the store what is logged.
                    let time = Duration::from_millis(1);
                    runtime.wait_until_timeout(&Event::new(), time, &mut || false);
                }
            });
            let opened = ObjectVolume::open_in(store.clone(), "main", &with_log(options, &medium));
            if let Ok(device) = opened {
                let _ = run(&device, seed, &mut history);
                device.abandon();
            }
            if events.load(Relaxed) <= at {
                break;
            }
            let context = format!("seed {seed}, event {at}");
            let open = |memory: MemoryStore, options: &Options| {
                ObjectVolume::open_in(Arc::new(memory), "main", options)
                    .unwrap_or_else(|error| panic!("{context}: {error}"))
            };
            // The machine is lost, and another one opens what the store has.
            let device = open(memory.fork(), &simulated(seed));
            let flushed = std::mem::replace(&mut history.flushed, 0);
            assert!(history.has(&device), "{context}: without the log");
            history.flushed = flushed;
            replays += u64::from(!history.has(&device));
            device.abandon();
            // The machine's power is cut.
            let mut random = Random(at);
            let torn = MemoryMedium::with(medium.cut(|_| random.below(2) == 0));
            let cut = with_log(simulated(seed), &Arc::new(torn));
            let device = open(memory.fork(), &cut);
            assert!(history.has(&device), "{context}: after a power cut");
            device.abandon();
            // The process is killed, and so is the next one, while it opens the volume, and the
            // one after that.
            let medium = reopened(&medium);
            for later in [at % 25, at % 9] {
                let store = Arc::new(Trouble::new(memory.clone()));
                both_die(&store, &medium, later);
                let killed = with_log(simulated(seed), &medium);
                if let Ok(device) = ObjectVolume::open_in(store, "main", &killed) {
                    device.abandon();
                }
            }
            let medium = reopened(&medium);
            let reader = Options { read_only: true, ..with_log(simulated(seed), &medium) };
            let device = open(memory.fork(), &reader);
            assert!(history.has(&device), "{context}: for reading");
            drop(device);
            let device = open(memory.fork(), &with_log(simulated(seed), &medium));
            assert!(history.has(&device), "{context}");
            device.close().unwrap();
            assert_eq!(medium.bytes(), [0; 0], "{context}");
            cuts += 1;
        }
    }
    println!("{cuts} cuts, {replays} with what only the log had");
    assert!(cuts > 150 && replays > 5, "{cuts}, {replays}");
}

/// A volume whose log has five flushes that the store lacks. Flush `n` wrote `n` to sector `n * 8`.
pub(super) fn five_flushes() -> (Arc<MemoryStore>, Arc<MemoryMedium>) {
    let (memory, medium) = (made(), Arc::new(MemoryMedium::default()));
    let store = Arc::new(Trouble::new(memory.clone()));
    let device =
        ObjectVolume::open_in(store.clone(), "main", &with_log(simulated(1), &medium)).unwrap();
    store.set(|_, moment, kind, _| kind == "PUT" && moment == Moment::Before);
    for number in 1..=5 {
        device.write_at(number * 8 * SECTOR, data(number, number * 8, 3)).unwrap();
        device.flush().unwrap();
    }
    device.abandon();
    (memory, reopened(&medium))
}

/// How many of the five flushes a disk has, in order.
pub(super) fn flushes(device: &dyn BlockDevice) -> u64 {
    let is_there = |number: &u64| {
        let found = device.read_at(number * 8 * SECTOR, 3 * 512).unwrap();
        let there = *found == *data(*number, number * 8, 3);
        assert!(there || found.iter().all(|byte| *byte == 0), "flush {number} is there in part");
        there
    };
    let count = (1..=5).take_while(is_there).count() as u64;
    assert!(!(count + 2..=5).any(|number| is_there(&number)), "a flush is missing");
    count
}

#[test]
fn a_log_that_another_writer_has_overtaken_is_refused_and_both_ways_out_work() {
    let (memory, medium) = five_flushes();
    let before = medium.bytes();
    let second = ObjectVolume::open_in(memory.clone(), "main", &simulated(2)).unwrap();
    second.write_at(100 * SECTOR, data(9, 100, 1)).unwrap();
    second.flush().unwrap();
    second.abandon();
    let late = with_log(simulated(3), &medium);
    for options in [late.clone(), Options { read_only: true, ..late.clone() }] {
        let error = ObjectVolume::open_in(memory.clone(), "main", &options).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("another writer has changed the volume main since"), "{text}");
        assert!(text.contains("?export-log=FILE") && text.contains("?discard-log"), "{text}");
    }
    assert_eq!(medium.bytes(), before);

    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("blocks.img");
    let export = if_refused(late.clone(), Refused::Export(file.clone()));
    let device = ObjectVolume::open_in(memory.clone(), "main", &export).unwrap();
    assert_eq!(flushes(&device), 0);
    assert!(*device.read_at(100 * SECTOR, 512).unwrap() == *data(9, 100, 1));
    device.close().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes.len() as u64, SMALL);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "as of the log");
    let exported = ObjectVolume::open_in(memory.clone(), "main", &simulated(4)).unwrap();
    exported.write_at(0, bytes).unwrap();
    assert_eq!(flushes(&exported), 5);
    exported.abandon();

    let discard = if_refused(with_log(simulated(3), &reopened(&medium)), Refused::Discard);
    let (other, old) = five_flushes();
    ObjectVolume::open_in(other.clone(), "main", &simulated(2)).unwrap().close().unwrap();
    let discard = with_log(discard, &old);
    assert!(ObjectVolume::open_in(other.clone(), "main", &discard).is_err());
    let discard = if_refused(discard, Refused::Discard);
    let device = ObjectVolume::open_in(other.clone(), "main", &discard).unwrap();
    assert_eq!(flushes(&device), 0);
    device.close().unwrap();

    // A file that is there is not written over.
    let (third, old) = five_flushes();
    let export = if_refused(with_log(simulated(3), &old), Refused::Export(file));
    let error = ObjectVolume::open_in(other, "main", &export).err().unwrap();
    assert!(error.to_string().contains("name a new file"), "{error}");
    // It was a log of another volume, and is still one of its own.
    let device = ObjectVolume::open_in(third, "main", &with_log(simulated(3), &old)).unwrap();
    assert_eq!(flushes(&device), 5);
}

#[test]
fn a_volume_whose_log_is_not_at_hand_is_refused() {
    let (memory, medium) = five_flushes();
    // The process has ended.
    change_manifest(&memory, &format!("-{}-", std::process::id()), "-1-1");
    let polite =
        |options: Options| Options { take_over: TakeOver::Never, exclusive: true, ..options };
    let none = || polite(simulated(1));
    let empty = polite(with_log(simulated(1), &Arc::new(MemoryMedium::default())));
    let reader = Options { read_only: true, ..none() };
    for options in [none(), empty, reader] {
        let error = ObjectVolume::open_in(memory.clone(), "main", &options).err().unwrap();
        assert_eq!(error.kind, ErrorKind::InUse);
        let text = error.to_string();
        let (said, way) = match options.log {
            None => ("local log in memory may have flushed writes", "?take-over"),
            Some(_) => ("log in memory has nothing of the volume main", "&discard-log"),
        };
        assert!(text.contains(said) && text.contains("?log="), "{text}");
        assert!(text.contains(way), "{text}");
    }
    // A copy would lack the same, and nobody would know.
    let error = pool::pool(memory.clone()).copy("main", "copy", Copy::Snapshot).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InUse);
    assert!(error.to_string().contains("?log="), "{error}");
    // A log that is lost is given up by name.
    let lost = polite(with_log(simulated(1), &Arc::new(MemoryMedium::default())));
    for options in [Options { read_only: true, ..lost.clone() }, lost] {
        let lost = if_refused(options, Refused::Discard);
        let other = Arc::new(memory.fork());
        let device = ObjectVolume::open_in(other, "main", &lost).unwrap();
        assert_eq!(flushes(&device), 0);
        device.abandon();
    }
    let other = Arc::new(memory.fork());
    let device = ObjectVolume::open_in(other, "main", &simulated(1)).unwrap();
    assert_eq!(flushes(&device), 0);
    device.abandon();
    let device =
        ObjectVolume::open_in(memory, "main", &polite(with_log(simulated(1), &medium))).unwrap();
    assert_eq!(flushes(&device), 5);
}

#[test]
fn a_full_disk_makes_flushes_synchronous() {
    let (memory, medium) = (made(), Arc::new(MemoryMedium::default()));
    let options = with_log(simulated(1), &medium);
    let device = ObjectVolume::open_in(memory.clone(), "main", &options).unwrap();
    medium.limit(2048);
    let mut oracle = Oracle::default();
    for number in 1..=4 {
        oracle.write(&device, number, number * 10, 8);
        device.flush().unwrap();
        let other = Arc::new(memory.fork());
        let reader = Options { read_only: true, ..simulated(1) };
        let reader = ObjectVolume::open_in(other, "main", &reader).unwrap();
        assert_eq!(oracle.differs(&reader), None, "flush {number}");
    }
    let report = device.report();
    assert_eq!(report.u64("log_fallbacks"), Some(4));
    assert!(report.text("log_error").unwrap().contains("no storage space"), "{report:?}");
    assert_eq!(report.get("log_in_use"), Some(&true.into()));
    // There is room again. A log of limited size is used over and over.
    medium.limit(usize::MAX);
    for number in 5..=60 {
        oracle.write(&device, number, number * 10, 8);
        device.flush().unwrap();
    }
    assert!(device.report().u64("logged_flushes").unwrap() > 40);
    assert!(medium.bytes().len() as u64 <= LOG);
    device.abandon();
    let device = ObjectVolume::open_in(memory, "main", &options).unwrap();
    assert_eq!(oracle.differs(&device), None);
}

pub(super) fn in_file(file: &std::path::Path) -> Options {
    let place = LogPlace::File(file.to_owned());
    let log = Some(LogOptions { place, size: 8 << 20, refused: Refused::Fail });
    Options { log, ..options() }
}

/// Nothing is made where the opening is refused, or only reads.
#[test]
fn a_log_is_made_by_an_opening_that_may_write() {
    let place = tempfile::tempdir().unwrap();
    let (memory, file) = (made(), place.path().join("log"));
    let reader = Options { read_only: true, ..in_file(&file) };
    assert!(ObjectVolume::open_in(memory.clone(), "main", &reader).is_ok());
    assert!(ObjectVolume::open_in(memory.clone(), "none", &in_file(&file)).is_err());
    let polite = Options { take_over: TakeOver::Never, ..in_file(&file) };
    let writer = open(memory.clone()).unwrap();
    let error = ObjectVolume::open_in(memory.clone(), "main", &polite).err().unwrap();
    assert_eq!(error.kind, ErrorKind::InUse, "{error}");
    drop(writer);
    assert!(!file.exists());
    let device = ObjectVolume::open_in(memory, "main", &in_file(&file)).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 8 << 20);
    device.close().unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 0);
}

/// What would be only in a file without a name goes to the store.
#[test]
fn a_log_that_somebody_has_removed_is_out_of_use() {
    let place = tempfile::tempdir().unwrap();
    let (memory, file) = (made(), place.path().join("log"));
    let device = ObjectVolume::open_in(memory.clone(), "main", &in_file(&file)).unwrap();
    let mut oracle = Oracle::default();
    oracle.write(&device, 1, 0, 8);
    device.flush().unwrap();
    assert_eq!(device.report().get("log_in_use"), Some(&true.into()));
    std::fs::remove_file(&file).unwrap();
    for number in 2..=4 {
        oracle.write(&device, number, number * 10, 8);
        device.flush().unwrap();
        let other = Arc::new(memory.fork());
        let reader = ObjectVolume::open_in(other, "main", &read_only()).unwrap();
        assert_eq!(oracle.differs(&reader), None, "flush {number}");
    }
    let report = device.report();
    assert_eq!(report.get("log_in_use"), Some(&false.into()));
    assert!(report.text("log_error").unwrap().contains("has removed the file"), "{report:?}");
    device.abandon();
}

/// What is behind the cut, or under other bytes, would be lost: it goes to the store.
#[test]
fn a_log_that_somebody_cuts_or_writes_over_is_out_of_use() {
    for (what, said) in [
        ("cut", "has cut the file short"),
        ("copied", "else has written"),
        ("begun", "else has written"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let (memory, file) = (made(), place.path().join("log"));
        let device = ObjectVolume::open_in(memory.clone(), "main", &in_file(&file)).unwrap();
        let mut oracle = Oracle::default();
        oracle.write(&device, 1, 0, 8);
        device.flush().unwrap();
        let copy = std::fs::read(&file).unwrap();
        oracle.write(&device, 2, 100, 8);
        device.flush().unwrap();
        match what {
            "cut" => drop(std::fs::File::create(&file).unwrap()),
            "begun" => {
                let opened = std::fs::File::options().write(true).open(&file);
                opened.unwrap().write_all_at(&[0; 512], 0).unwrap();
            }
            _ => std::fs::write(&file, &copy).unwrap(),
        }
        for number in 3..=5 {
            oracle.write(&device, number, number * 10, 8);
            device.flush().unwrap();
            let other = Arc::new(memory.fork());
            let reader = ObjectVolume::open_in(other, "main", &read_only()).unwrap();
            assert_eq!(oracle.differs(&reader), None, "{what}: flush {number}");
        }
        let report = device.report();
        assert_eq!(report.get("log_in_use"), Some(&false.into()), "{what}");
        assert!(report.text("log_error").unwrap().contains(said), "{what}: {report:?}");
        device.abandon();
    }
}

#[test]
fn a_writer_that_is_taken_over_is_told_what_its_log_has() {
    let (memory, medium) = (made(), Arc::new(MemoryMedium::default()));
    let options = with_log(simulated(1), &medium);
    let device = ObjectVolume::open_in(memory.clone(), "main", &options).unwrap();
    ObjectVolume::open_in(memory, "main", &simulated(2)).unwrap().close().unwrap();
    let said = device.checkpoint().unwrap_err().to_string();
    assert!(said.contains("another writer has taken over"), "{said}");
    assert!(said.contains("?log=in memory&export-log=NEW"), "{said}");
}

/// What lies among the objects would be taken for some.
#[test]
fn neither_a_log_nor_a_cache_lies_in_the_pool() {
    let place = tempfile::tempdir().unwrap();
    let pool = place.path().join("pool");
    let store = Arc::new(DirectoryStore::new(pool.clone()));
    create_in(store.clone(), "main", SIZE, &small(), &options()).unwrap();
    std::os::unix::fs::symlink(&pool, place.path().join("link")).unwrap();
    let inside = place.path().join("link/volumes/zz");
    let log = |refused| {
        let place = LogPlace::File(place.path().join("log"));
        Some(LogOptions { place, size: 8 << 20, refused })
    };
    for refused in [
        in_file(&inside),
        Options { log: log(Refused::Export(pool.join("new"))), ..options() },
        Options { cache_directory: Some((inside.clone(), 1 << 20)), ..options() },
    ] {
        let error = ObjectVolume::open_in(store.clone(), "main", &refused).err().unwrap();
        assert!(error.to_string().contains("lies in the pool"), "{error}");
    }
    let beside = Options { log: log(Refused::Fail), ..options() };
    let cache_directory = Some((place.path().join("pool-cache"), 1 << 20));
    let beside = Options { cache_directory, ..beside };
    ObjectVolume::open_in(store, "main", &beside).unwrap().close().unwrap();
}

/// With 20 ms for each PUT, flushes do not wait for it, and many share one.
#[test]
fn flushes_do_not_wait_for_the_store() {
    let place = tempfile::tempdir().unwrap();
    let memory = made();
    let store = Arc::new(Trouble::new(memory.clone()));
    let file = place.path().join("log");
    let device = ObjectVolume::open_in(store.clone(), "main", &in_file(&file)).unwrap();
    let puts = Arc::new(AtomicU64::new(0));
    let counted = puts.clone();
    store.set(move |_, moment, kind, _| {
        if (moment, kind) == (Moment::Before, "PUT") {
            std::thread::sleep(Duration::from_millis(20));
            counted.fetch_add(1, Relaxed);
        }
        false
    });
    // Nobody else may write to the file.
    let error = ObjectVolume::open_in(store.clone(), "main", &in_file(&file)).err().unwrap();
    assert_eq!(error.kind, ErrorKind::InUse, "{error}");
    let mut oracle = Oracle::default();
    for number in 1..=50 {
        oracle.write(&device, number, number * 10, 8);
        device.flush().unwrap();
    }
    let during = puts.load(Relaxed);
    assert!(during < 25, "{during} PUTs for 50 flushes");
    // All of it comes to the store by itself.
    let enough = (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        let other = Arc::new(memory.fork());
        let reader = ObjectVolume::open_in(other, "main", &read_only()).unwrap();
        oracle.differs(&reader).is_none()
    });
    assert!(enough, "it never came to the store");
    device.close().unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 0);
}
