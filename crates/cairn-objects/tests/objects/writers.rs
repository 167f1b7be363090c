//! Two writers at once: nothing flushed is lost, and none that was fenced believes in a flush.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use cairn_block::ErrorKind;
use cairn_objects::store::{Moment, Trouble};

use super::*;

/// While one writer's request is on its way, another opens the volume, writes and flushes.
#[test]
fn a_writer_that_is_taken_over_loses_nothing_that_it_flushed() {
    let made = Arc::new(MemoryStore::new());
    volume(&made).close().unwrap();
    let mut tried = 0;
    for at in 0.. {
        for moment in [Moment::Before, Moment::After] {
            let memory = Arc::new(made.fork());
            let store = Arc::new(Trouble::new(memory.clone()));
            let first = open(store.clone()).unwrap();
            let second = Arc::new(Mutex::new(None));
            let (slot, below) = (second.clone(), memory.clone());
            store.set(move |number, now, _, _| {
                if (number, now) == (at, moment) {
                    let second = open(below.clone()).unwrap();
                    second.write_at(SIZE / 2, data(2, SECTORS / 2, 8)).unwrap();
                    second.flush().unwrap();
                    *slot.lock().unwrap() = Some(second);
                }
                false
            });
            // What the first writer was told is durable, and what it had written before that.
            let mut flushed = Oracle::default();
            let mut oracle = Oracle::default();
            let mut refused = None;
            for number in 1..12 {
                oracle.write_or_fail(&first, number, number * 7);
                let outcome = if number == 6 { first.checkpoint() } else { first.flush() };
                match outcome {
                    Ok(()) => {
                        assert!(refused.is_none(), "a flush of a fenced writer returned");
                        flushed = oracle.clone();
                    }
                    Err(error) => refused = refused.or(Some(error)),
                }
            }
            let context = format!("request {at}, {moment:?}");
            let Some(second) = second.lock().unwrap().take() else {
                assert!(tried > 20, "{tried} only");
                return;
            };
            let refused = refused.unwrap_or_else(|| {
                // The answer of its last flush was right. The next one is not.
                first.write_at(100 * SECTOR, data(99, 100, 1)).unwrap();
                first.flush().expect_err(&context)
            });
            first.abandon();
            assert_eq!(refused.kind, ErrorKind::InUse, "{context}: {refused}");
            assert!(refused.to_string().contains("taken over"), "{refused}");
            let check = |device: &ObjectVolume, who: &str| {
                let context = format!("{context}: {who}");
                check_both(device, &oracle, &flushed, &context);
            };
            check(&second, "the second");
            second.write_at(SIZE / 2 + 4096, data(3, 9, 1)).unwrap();
            second.flush().unwrap();
            second.abandon();
            check(&open(memory).unwrap(), "the third");
            tried += 1;
        }
    }
}

/// A volume has what the first writer flushed, of its other writes all or nothing, and what the
/// second wrote.
fn check_both(device: &ObjectVolume, written: &Oracle, flushed: &Oracle, context: &str) {
    let half = device.read_at(0, 90 * 512).unwrap();
    for (found, sector) in half.chunks(512).zip(0..) {
        let is = |state: &Oracle| state.0.get(&sector).is_some_and(|n| *found == fill(*n, sector));
        let zeros = *found == [0; 512] && !flushed.0.contains_key(&sector);
        assert!(is(flushed) || is(written) || zeros, "{context}: wrong sector {sector}");
    }
    let own = device.read_at(SIZE / 2, 4096).unwrap();
    assert!(*own == *data(2, SECTORS / 2, 8), "{context}");
}

impl Oracle {
    /// Sectors that this writer alone writes, once each.
    fn write_or_fail(&mut self, device: &ObjectVolume, number: u64, start: u64) {
        let _ = self.try_write(device, number, (start, 7), Durability::default());
    }
}

/// A reader comes while an opening has not yet ended the old log. Between the reader's requests,
/// the old writer flushes once more, the opening goes on, and the new writer flushes: the reader
/// sees all writes up to one of them.
#[test]
fn a_reader_that_is_overtaken_sees_one_moment() {
    for at in 0.. {
        let memory = Arc::new(MemoryStore::new());
        let first = volume(&memory);
        let write = |device: &ObjectVolume, number: u64| {
            device.write_at(number * SECTOR, data(number, number, 1)).unwrap();
            device.flush().unwrap();
        };
        write(&first, 0);
        write(&first, 1);
        let (stopped, stops) = channel();
        let (go, goes) = channel();
        let (done, is_done) = channel();
        let slow = Arc::new(Trouble::new(memory.clone()));
        let waits = Mutex::new(Some((stopped, goes)));
        slow.set(move |_, moment, kind, name| {
            let fence = (moment, kind) == (Moment::Before, "PUT") && name.starts_with("log/");
            if fence && let Some((stopped, goes)) = waits.lock().unwrap().take() {
                stopped.send(()).unwrap();
                goes.recv().unwrap();
            }
            false
        });
        let second = std::thread::spawn(move || {
            let device = open(slow).unwrap();
            write(&device, 3);
            device.abandon();
            let _ = done.send(());
        });
        stops.recv().unwrap();
        let store = Arc::new(Trouble::new(memory.clone()));
        let held = Mutex::new(Some((first, go.clone(), is_done)));
        store.set(move |number, moment, _, _| {
            if (number, moment) == (at, Moment::Before) {
                let (first, go, is_done) = held.lock().unwrap().take().unwrap();
                write(&first, 2);
                first.abandon();
                go.send(()).unwrap();
                is_done.recv().unwrap();
            }
            false
        });
        let reader = ObjectVolume::open_in(store.clone(), "main", &read_only()).unwrap();
        let bytes = reader.read_at(0, 4 * 512).unwrap();
        let found = bytes.chunks(512).zip(0..).map(|(found, at)| *found == fill(at, at));
        let found: Vec<bool> = found.collect();
        assert!(found.is_sorted_by(|one, next| one >= next), "request {at}: {found:?}");
        assert!(found[1], "request {at}: {found:?}");
        let met = store.requests() > at;
        // Where it was not met, the second goes on now.
        let _ = go.send(());
        second.join().unwrap();
        if !met {
            assert!(at > 4, "{at}");
            return;
        }
    }
}

/// Four writers take the volume from each other in threads. Each writes to its own place, and
/// counts up with each flush that returned.
#[test]
fn writers_in_threads_take_over_from_each_other() {
    let store = Arc::new(MemoryStore::new());
    volume(&store).close().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4_u64 {
            let store = store.clone();
            scope.spawn(move || {
                let mut count = 0_u64;
                for _ in 0..12 {
                    let device = open(store.clone());
                    let device = match device {
                        Ok(device) => device,
                        Err(error) if error.kind == ErrorKind::InUse => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let found = device.read_at(writer * 4096, 512).unwrap();
                    let found = u64::from_le_bytes(*found.first_chunk().unwrap());
                    assert!(found >= count, "writer {writer}: {found} after {count}");
                    count = found;
                    for _ in 0..8 {
                        let mut sector = vec![0; 512];
                        sector[..8].copy_from_slice(&(count + 1).to_le_bytes());
                        let outcome = device.write_at(writer * 4096, sector);
                        match outcome.and_then(|()| device.flush()) {
                            Ok(()) => count += 1,
                            Err(error) => {
                                assert_eq!(error.kind, ErrorKind::InUse, "{error}");
                                break;
                            }
                        }
                    }
                    device.abandon();
                }
            });
        }
    });
    open(store).unwrap();
}

#[test]
fn a_volume_that_is_open_is_refused_with_one_line_and_unchanged() {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    device.write_at(0, data(1, 0, 8)).unwrap();
    device.flush().unwrap();
    let polite = Options { take_over: TakeOver::Never, ..options() };
    let before = store.get("volumes/main").unwrap().bytes;
    let refused = ObjectVolume::open_in(store.clone(), "main", &polite).err().unwrap();
    assert_eq!(refused.kind, ErrorKind::InUse);
    assert!(
        refused.to_string().contains(&format!("(process {})", std::process::id())),
        "{refused}"
    );
    // It runs, and everybody can see that.
    for read_only in [false, true] {
        let over = Options { take_over: TakeOver::Unseen, exclusive: true, read_only, ..options() };
        let refused = ObjectVolume::open_in(store.clone(), "main", &over).err().unwrap();
        assert_eq!(refused.kind, ErrorKind::InUse, "{refused}");
        assert!(refused.to_string().contains("and runs: unmount it"), "{refused}");
    }
    assert_eq!(store.get("volumes/main").unwrap().bytes, before);
    // Reading is not refused, and sees what is flushed.
    let reader = ObjectVolume::open_in(store.clone(), "main", &read_only()).unwrap();
    assert!(*reader.read_at(0, 4096).unwrap() == *data(1, 0, 8));
    drop(device);
    ObjectVolume::open_in(store.clone(), "main", &polite).unwrap().close().unwrap();

    // The manifest of a process that has ended: as another boot has left it, and as this one has.
    let change = |from: &str, to: &str| change_manifest(&store, from, to);
    let device = ObjectVolume::open_in(store.clone(), "main", &polite).unwrap();
    device.abandon();
    let pid = std::process::id();
    change(&format!("-{pid}-"), "-1-1");
    ObjectVolume::open_in(store.clone(), "main", &polite).unwrap().abandon();
    change("\"process\":\"", "\"process\":\"elsewhere");
    assert!(ObjectVolume::open_in(store.clone(), "main", &polite).is_err());
    let over = Options { take_over: TakeOver::Unseen, ..polite.clone() };
    ObjectVolume::open_in(store.clone(), "main", &over).unwrap().abandon();

    for (from, to, said) in [
        ("\"cairn_object_volume\":1", "\"cairn_object_volume\":2", "use a newer Cairn"),
        ("\"read_only\":false", "\"read_only\":true", "open it for reading, or clone it"),
        ("\"incomplete\":false", "\"incomplete\":true", "not finished: remove it"),
    ] {
        change(from, to);
        let refused = open(store.clone()).err().unwrap().to_string();
        assert!(refused.contains(said) && !refused.contains('\n'), "{refused}");
        change(to, from);
    }
    let absent = ObjectVolume::open_in(store.clone(), "none", &options()).err().unwrap();
    assert_eq!(absent.kind, ErrorKind::NotFound);
    let again = create_in(store.clone(), "main", SIZE, &small(), &options()).unwrap_err();
    assert_eq!(again.kind, ErrorKind::Exists);
    // An opening that fails does not leave the volume claimed.
    device_with_a_damaged_log(&store, &polite);
    store.damage("volumes/main", |bytes| bytes[5] ^= 1);
    let damaged = open(store).err().unwrap();
    assert!(damaged.to_string().contains("has the checksum"), "{damaged}");
}

fn device_with_a_damaged_log(store: &Arc<MemoryStore>, polite: &Options) {
    let device = open(store.clone()).unwrap();
    device.write_at(0, data(1, 0, 8)).unwrap();
    device.flush().unwrap();
    device.abandon();
    let last = store.list("log/", None).unwrap().pop().unwrap().name;
    store.damage(&last, |bytes| bytes[50] ^= 1);
    for options in [&options(), polite] {
        let damaged = ObjectVolume::open_in(store.clone(), "main", options).err().unwrap();
        assert_eq!(damaged.kind, ErrorKind::Io, "{damaged}");
        assert!(damaged.to_string().contains(&last), "{damaged}");
    }
    store.damage(&last, |bytes| bytes[50] ^= 1);
    ObjectVolume::open_in(store.clone(), "main", polite).unwrap().close().unwrap();
}
