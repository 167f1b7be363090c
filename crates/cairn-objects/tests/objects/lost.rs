//! Objects that the store has lost or damaged: what was flushed is never taken back without a word.

use cairn_block::ErrorKind;
use cairn_objects::pool::{Copy, Pool};
use cairn_objects::store::{Condition, Moment, Trouble};

use super::*;

fn pool(store: &Arc<MemoryStore>) -> Pool {
    Pool::new(store.clone(), Threads::new(), Duration::ZERO)
}

fn names(store: &MemoryStore, prefix: &str) -> Vec<String> {
    store.list(prefix, None).unwrap().into_iter().map(|one| one.name).collect()
}

/// Ways to lose an object.
const LOSSES: usize = 7;

fn lose(store: &MemoryStore, name: &str, how: usize) {
    match how {
        0 => store.delete(name).unwrap(),
        1 => store.damage(name, |bytes| bytes[20] ^= 1),
        _ => {
            let left = [0, 20, 48, 63, 100][how - 2];
            store.damage(name, |bytes| bytes.truncate(left));
        }
    }
}

/// Whoever opens, copies or verifies the volume is told which object is lost, and nothing changes.
#[track_caller]
fn is_missed(store: &Arc<MemoryStore>, name: &str, context: &str) {
    let before = names(store, "");
    let pool = pool(store);
    let manifest = || store.get("volumes/main").unwrap().bytes;
    for error in [
        open(store.clone()).err(),
        ObjectVolume::open_in(store.clone(), "main", &read_only()).err(),
        pool.copy("main", "copy", Copy::Snapshot).err(),
        pool.verify("main").err(),
    ] {
        let error = error.unwrap_or_else(|| panic!("{context}: {name} is lost without a word"));
        assert_eq!(error.kind, ErrorKind::Io, "{context}: {error}");
        let said = error.to_string();
        assert!(said.contains(name) && !said.contains('\n'), "{context}: {said}");
    }
    assert_eq!(names(store, ""), before, "{context}");
    let claimed = String::from_utf8(manifest().to_vec()).unwrap();
    assert!(claimed.contains("\"writer\":null"), "{context}: {claimed}");
    let logs = claimed.matches("\"to\":null").count();
    drop(open(store.clone()));
    let claimed = String::from_utf8(manifest().to_vec()).unwrap();
    assert_eq!(claimed.matches("\"to\":null").count(), logs, "{context}: it grows");
}

/// A volume whose writer was killed, and what it had flushed; the objects of its log.
fn killed(work: impl Fn(&ObjectVolume, &mut Oracle)) -> (Arc<MemoryStore>, Oracle, Vec<String>) {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    let mut oracle = Oracle::default();
    oracle.write(&device, 1, 0, 8);
    device.checkpoint().unwrap();
    let before = names(&store, "log/").len();
    work(&device, &mut oracle);
    device.abandon();
    let log = names(&store, "log/").split_off(before);
    (store, oracle, log)
}

/// What a volume does.
type Work<'w> = dyn Fn(&ObjectVolume, &mut Oracle) + 'w;

#[test]
fn a_lost_object_of_an_open_log_is_missed() {
    let fsyncs = |device: &ObjectVolume, oracle: &mut Oracle| {
        for number in 2..8 {
            oracle.write(device, number, number * 10, 8);
            device.flush().unwrap();
        }
    };
    // Many objects on their way at once, and a flush that finds nothing open.
    let stream = |device: &ObjectVolume, oracle: &mut Oracle| {
        for at in 0..16 {
            oracle.write(device, 20 + at, at * 128, 128);
        }
        device.flush().unwrap();
    };
    let mixed = |device: &ObjectVolume, oracle: &mut Oracle| {
        stream(device, oracle);
        oracle.write(device, 50, 3000, 8);
        device.flush().unwrap();
        stream(device, oracle);
    };
    let all: [(&str, &Work<'_>); 3] = [("fsyncs", &fsyncs), ("stream", &stream), ("mixed", &mixed)];
    for (what, work) in all {
        let (made, oracle, log) = killed(work);
        assert!(log.len() >= 6, "{log:?}");
        // Nothing behind the last one says that it was there.
        for name in &log[..log.len() - 1] {
            for how in 0..LOSSES {
                let store = Arc::new(made.fork());
                lose(&store, name, how);
                // It may have no more bytes than are left.
                if store.get(name).is_ok_and(|left| left.bytes == made.get(name).unwrap().bytes) {
                    continue;
                }
                let context = format!("{what}, loss {how}");
                is_missed(&store, name, &context);
                // When it is back, so is everything.
                store.delete(name).unwrap();
                let kept = made.get(name).unwrap().bytes;
                store.put(name, &[kept], Condition::IfAbsent).unwrap();
                assert_eq!(oracle.differs(&open(store).unwrap()), None, "{context}");
            }
        }
        // The last one is missed if something is left of it.
        for how in 1..LOSSES {
            let store = Arc::new(made.fork());
            let last = log.last().unwrap();
            lose(&store, last, how);
            if store.get(last).unwrap().bytes != made.get(last).unwrap().bytes {
                is_missed(&store, last, &format!("{what}, the last, loss {how}"));
            }
        }
        let store = Arc::new(made.fork());
        lose(&store, &log[2], 0);
        lose(&store, &log[3], 0);
        is_missed(&store, &log[2], "two");
    }
}

/// Objects that were on their way together: one that never came is no lost one.
#[test]
fn what_was_on_its_way_when_the_writer_died_is_not_missed() {
    let (mut overtaken, mut cuts) = (0, 0);
    for dead in 1..14_u64 {
        let memory = Arc::new(MemoryStore::new());
        let store = Arc::new(Trouble::new(memory.clone()));
        create_in(store.clone(), "main", SIZE, &small(), &options()).unwrap();
        let device = open(store.clone()).unwrap();
        let mut flushed = Oracle::default();
        flushed.write(&device, 1, 0, 8);
        device.flush().unwrap();
        let mut oracle = flushed.clone();
        let lost = names(&memory, "log/")[0].replace("-0000000000000000", &format!("-{dead:016x}"));
        let never = lost.clone();
        store.set(move |_, moment, _, name| moment == Moment::Before && name == never);
        for at in 0..16 {
            let sectors = (at * 128, 128);
            if oracle.try_write(&device, 20 + at, sectors, Durability::default()).is_err() {
                break;
            }
        }
        device.flush().unwrap_err();
        device.abandon();
        let later = names(&memory, "log/").iter().filter(|name| **name > lost).count();
        overtaken += usize::from(later > 0);
        for read_only in [true, false] {
            let options = Options { read_only, ..options() };
            let device = ObjectVolume::open_in(memory.clone(), "main", &options).unwrap();
            // All writes before the missing object, and none behind it.
            let whole = (dead - 1) * 128;
            for sector in 8..16 * 128 {
                let found = device.read_at(sector * SECTOR, 512).unwrap();
                let zeros = found.iter().all(|byte| *byte == 0);
                assert_eq!(zeros, sector >= whole, "{dead}: sector {sector}");
            }
            cuts += 1;
        }
        // What came behind it is garbage.
        let device = open(memory.clone()).unwrap();
        device.checkpoint().unwrap();
        let is_garbage = |name: &String| *name > lost && name.contains("/00000001-");
        // A thread of the dead writer may come late.
        let is_clean = (0..1000).any(|_| {
            std::thread::yield_now();
            pool(&memory).gc().unwrap();
            !names(&memory, "log/").iter().any(is_garbage)
        });
        assert!(is_clean, "{:?}", names(&memory, "log/"));
    }
    println!("{cuts} cuts, {overtaken} with later objects");
    assert!(overtaken > 0, "no object was overtaken");
}

/// An opening has ended the log with a fence, and died before its checkpoint.
#[test]
fn a_fence_misses_the_object_before_it() {
    let (made, oracle, log) = killed(|device, oracle| {
        for number in 2..5 {
            oracle.write(device, number, number * 10, 8);
            device.flush().unwrap();
        }
    });
    let store = Arc::new(Trouble::new(made.clone()));
    // It dies when its fence is there.
    store.set(|_, moment, kind, name| {
        kind == "PUT" && name.starts_with("map/") && moment == Moment::Before
    });
    assert!(open(store).is_err());
    for name in &log {
        for how in 0..LOSSES {
            let store = Arc::new(made.fork());
            lose(&store, name, how);
            let error = open(store.clone()).err().unwrap_or_else(|| panic!("{name}, loss {how}"));
            assert!(error.to_string().contains(name), "{how}: {error}");
        }
    }
    assert_eq!(oracle.differs(&open(made).unwrap()), None);
}

/// Without a map object nobody knows what the volume needs.
#[test]
fn a_lost_map_object_is_named() {
    let made = Arc::new(MemoryStore::new());
    let device = volume(&made);
    Oracle::default().write(&device, 1, 0, 8);
    device.close().unwrap();
    let map = names(&made, "map/").pop().unwrap();
    for how in 0..LOSSES {
        let store = Arc::new(made.fork());
        match how {
            6 => store.damage(&map, |bytes| *bytes.last_mut().unwrap() ^= 1),
            _ => lose(&store, &map, how),
        }
        let objects = names(&store, "");
        let pool = pool(&store);
        is_missed(&store, &map, &format!("loss {how}"));
        let error = pool.gc().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io, "{error}");
        let said = error.to_string();
        assert!(said.contains(&map) && !said.contains("try again"), "{said}");
        assert!(how > 0 || said.contains("give the volume main up by force"), "{said}");
        assert!(said.contains("the volume main"), "{said}");
        assert_eq!(names(&store, ""), objects, "nothing is removed");
    }
}

/// A volume that cannot be read does not hide the others, and may need any object.
#[test]
fn a_damaged_manifest_concerns_its_volume() {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    let mut oracle = Oracle::default();
    oracle.write(&device, 1, 0, 8);
    device.close().unwrap();
    let pool = pool(&store);
    for name in ["bad", "other"] {
        pool.copy("main", name, Copy::Clone).unwrap();
    }
    // Only the damaged one needs the first objects now.
    for name in ["main", "other"] {
        let device = ObjectVolume::open_in(store.clone(), name, &options()).unwrap();
        device.write_at(0, data(9, 0, 8)).unwrap();
        device.close().unwrap();
    }
    let whole = store.get("volumes/bad").unwrap().bytes;
    store.damage("volumes/bad", |bytes| bytes.truncate(40));
    let (listed, unreadable) = pool.volumes().unwrap();
    let shown: Vec<_> = listed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(shown, ["main", "other"]);
    assert_eq!(unreadable[0].name, "bad");
    assert!(unreadable[0].error.to_string().contains("no line with a checksum"));
    assert_eq!(pool.verify("main").unwrap(), (1, Vec::new()));
    let before = names(&store, "");
    let said = pool.gc().unwrap_err().to_string();
    assert!(said.contains("volumes/bad") && said.contains("give the volume bad up"), "{said}");
    assert_eq!(names(&store, ""), before, "nothing is removed");
    store.damage("volumes/bad", |bytes| *bytes = whole.to_vec());
    pool.gc().unwrap();
    let reader = ObjectVolume::open_in(store.clone(), "bad", &read_only()).unwrap();
    assert_eq!(oracle.differs(&reader), None);
    drop(reader);
    store.damage("volumes/bad", |bytes| bytes.clear());
    pool.remove("bad", true).unwrap();
    assert!(pool.gc().unwrap().objects > 0);
}

/// A volume that was removed is told from one whose manifest is gone, which needs its objects.
#[test]
fn a_lost_manifest_is_named_until_it_is_given_up() {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    let mut oracle = Oracle::default();
    oracle.write(&device, 1, 0, 8);
    device.close().unwrap();
    let pool = pool(&store);
    pool.copy("main", "copy", Copy::Clone).unwrap();
    pool.copy("main", "kept", Copy::Snapshot).unwrap();
    let clone = ObjectVolume::open_in(store.clone(), "copy", &options()).unwrap();
    clone.write_at(0, data(9, 0, 8)).unwrap();
    clone.close().unwrap();
    pool.remove("kept", false).unwrap();
    pool.gc().unwrap();
    let manifest = store.get("volumes/main").unwrap().bytes;
    store.delete("volumes/main").unwrap();
    let before = names(&store, "");
    let (listed, unreadable) = pool.volumes().unwrap();
    assert_eq!((listed.len(), unreadable[0].name.as_str()), (1, "main"));
    for error in [
        pool.gc().unwrap_err(),
        pool.remove("main", false).unwrap_err(),
        pool.copy("copy", "main", Copy::Clone).unwrap_err(),
        create_in(store.clone(), "main", 1 << 20, &CreateOptions::default(), &options())
            .unwrap_err(),
    ] {
        let said = error.to_string();
        assert!(said.contains("the manifest of the volume main is lost"), "{said}");
        assert_eq!(names(&store, ""), before, "{said}");
    }
    let parts = [manifest];
    store.put("volumes/main", &parts, Condition::IfAbsent).unwrap();
    pool.gc().unwrap();
    assert_eq!(oracle.differs(&open(store.clone()).unwrap()), None);
    store.delete("volumes/main").unwrap();
    pool.remove("main", true).unwrap();
    assert!(pool.gc().unwrap().objects > 0);
    assert_eq!(pool.volumes().unwrap().1.len(), 0);
    pool.remove("copy", false).unwrap();
    pool.gc().unwrap();
    assert_eq!(names(&store, ""), [""; 0], "nothing stays of volumes that are gone");
}

/// A volume of an older Cairn has no mark: without its manifest it was removed.
#[test]
fn a_volume_without_a_mark_is_removed_as_before() {
    let store = Arc::new(MemoryStore::new());
    volume(&store).close().unwrap();
    store.delete("made/main").unwrap();
    let pool = pool(&store);
    pool.gc().unwrap();
    pool.copy("main", "copy", Copy::Clone).unwrap();
    pool.remove("main", false).unwrap();
    pool.gc().unwrap();
    assert_eq!(pool.volumes().unwrap().0.len(), 1);
}

/// A volume gets the contents of another, wherever that dies: it has the old ones or the new.
#[test]
fn a_replaced_volume_has_its_old_contents_or_the_new() {
    let made = Arc::new(MemoryStore::new());
    let device = volume(&made);
    let mut old = Oracle::default();
    old.write(&device, 1, 0, 300);
    device.close().unwrap();
    create_in(made.clone(), "new", SIZE, &small(), &options()).unwrap();
    let device = ObjectVolume::open_in(made.clone(), "new", &options()).unwrap();
    let mut new = Oracle::default();
    new.write(&device, 2, 100, 300);
    device.close().unwrap();
    for at in 0.. {
        for moment in [Moment::Before, Moment::After] {
            let memory = Arc::new(made.fork());
            let store = Arc::new(Trouble::new(memory.clone()));
            let below = memory.clone();
            store.set(move |number, now, _, _| {
                if (number, now) == (at, moment) {
                    pool(&below).gc().unwrap();
                }
                number > at || (number, now) == (at, moment)
            });
            let replaced = Pool::new(store, Threads::new(), Duration::ZERO).replace("new", "main");
            if replaced.is_ok() {
                pool(&memory).remove("new", false).unwrap();
            }
            pool(&memory).gc().unwrap();
            let reader = ObjectVolume::open_in(memory.clone(), "main", &read_only()).unwrap();
            let (is_old, is_new) = (old.differs(&reader).is_none(), new.differs(&reader).is_none());
            assert!(is_new || (is_old && replaced.is_err()), "request {at}, {moment:?}");
            if replaced.is_ok() {
                assert!(at > 3, "{at}");
                open(memory).unwrap().close().unwrap();
                let held = open(made.clone()).unwrap();
                let polite = pool(&made).replace("new", "main").unwrap_err();
                assert_eq!(polite.kind, ErrorKind::InUse);
                drop(held);
                return;
            }
        }
    }
}

/// A disk gets smaller and larger, and has what is within both.
#[test]
fn a_disk_changes_its_size() {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    let mut oracle = Oracle::default();
    oracle.write(&device, 1, 0, SECTORS);
    device.close().unwrap();
    pool(&store).copy("main", "before", Copy::Snapshot).unwrap();
    let whole = oracle.clone();
    for size in [SIZE / 2 + 512, SIZE / 4, SIZE, SIZE * 3] {
        open(store.clone()).unwrap().resize(size).unwrap();
        oracle.0.retain(|sector, _| *sector < size / SECTOR);
        let device = open(store.clone()).unwrap();
        assert_eq!(device.geometry().size, size);
        assert_eq!(oracle.differs(&device), None, "{size}");
        oracle.write(&device, size, 7, 9);
        device.flush().unwrap();
        device.abandon();
        assert_eq!(oracle.differs(&open(store.clone()).unwrap()), None, "{size}");
    }
    let odd = open(store.clone()).unwrap().resize(1000).unwrap_err();
    assert_eq!(odd.kind, ErrorKind::OutOfRange);
    let before = ObjectVolume::open_in(store.clone(), "before", &read_only()).unwrap();
    assert_eq!(whole.differs(&before), None);
    assert_eq!(oracle.differs(&open(store).unwrap()), None);
}

/// Who reads learns whether an object is lost, or a writer has removed it, or it was cut short.
#[test]
fn a_read_tells_a_lost_object_from_a_removed_one() {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    device.write_at(0, data(1, 0, 64)).unwrap();
    device.close().unwrap();
    let reader = || ObjectVolume::open_in(store.clone(), "main", &read_only()).unwrap();
    let said = |reader: &ObjectVolume| {
        let error = reader.read_at(0, 4096).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io, "{error}");
        error.to_string()
    };
    let (before, cut) = (reader(), reader());
    for name in names(&store, "log/") {
        store.damage(&name, |bytes| bytes.truncate(600));
    }
    let of_cut = said(&cut);
    assert!(of_cut.contains("bytes") && of_cut.contains("verify the pool"), "{of_cut}");
    for name in names(&store, "log/") {
        store.delete(&name).unwrap();
    }
    let of_lost = said(&reader());
    assert!(
        of_lost.contains("it is lost: restore it from a copy")
            && !of_lost.contains("open it again"),
        "{of_lost}"
    );
    // The next writer knows nothing of the loss, and changes the manifest.
    open(store.clone()).unwrap().close().unwrap();
    let of_removed = said(&before);
    assert!(
        of_removed.contains("a writer has changed the volume main since it was opened")
            && of_removed.contains("open it again"),
        "{of_removed}"
    );
}
