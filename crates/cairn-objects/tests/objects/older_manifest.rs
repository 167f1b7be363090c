//! An old manifest that somebody has put back, from a backup or an older version of the object; and
//! a local log that is another copy's of the pool.

use cairn_block::ErrorKind;
use cairn_objects::pool::Copy;
use cairn_objects::store::{Condition, Trouble};
use cairn_objects::volume::{MemoryMedium, Refused};

use super::crash::{dies, made, simulated};
use super::local_log::{flushes, if_refused, with_log};
use super::older_log::{all_have_ended, polite, write};
use super::pool::pool;
use super::*;

fn put_back(store: &MemoryStore, manifest: &Bytes) {
    let tag = store.get("volumes/main").unwrap().tag;
    store.put("volumes/main", std::slice::from_ref(manifest), Condition::IfMatch(&tag)).unwrap();
}

fn names(store: &MemoryStore) -> Vec<String> {
    store.list("", None).unwrap().into_iter().map(|one| one.name).collect()
}

/// A volume that was opened twice after its manifest was kept. Each opening has made two
/// flushes; the last is killed.
fn opened_again() -> (Arc<MemoryStore>, Bytes) {
    let memory = made();
    let device = ObjectVolume::open_in(memory.clone(), "main", &polite(simulated(1))).unwrap();
    write(&device, 1);
    device.close().unwrap();
    let old = memory.get("volumes/main").unwrap().bytes;
    for opening in 1..=2 {
        let options = polite(simulated(opening));
        let device = ObjectVolume::open_in(memory.clone(), "main", &options).unwrap();
        write(&device, opening * 2);
        write(&device, opening * 2 + 1);
        if opening < 2 {
            device.close().unwrap();
        } else {
            device.abandon();
        }
    }
    all_have_ended(&memory);
    (memory, old)
}

#[test]
fn an_old_manifest_is_refused_and_what_it_lacks_is_taken_in_when_asked_for() {
    let (memory, old) = opened_again();
    put_back(&memory, &old);
    let before = names(&memory);
    let pool = pool(memory.clone());
    let reader = Options { read_only: true, ..polite(simulated(7)) };
    let errors = [
        ObjectVolume::open_in(memory.clone(), "main", &reader).err().unwrap().to_string(),
        ObjectVolume::open_in(memory.clone(), "main", &polite(simulated(7)))
            .err()
            .unwrap()
            .to_string(),
        pool.copy("main", "snap", Copy::Snapshot).unwrap_err().to_string(),
        pool.gc().unwrap_err().to_string(),
    ];
    for said in errors {
        assert!(said.contains("the volume main is an older copy"), "{said}");
        assert!(said.contains("?take-over"), "{said}");
    }
    assert_eq!(names(&memory), before);
    assert_eq!(memory.get("volumes/main").unwrap().bytes, old, "nothing was changed");

    let taken = Options { take_over: TakeOver::Unseen, ..polite(simulated(8)) };
    let device = ObjectVolume::open_in(memory.clone(), "main", &taken).unwrap();
    assert_eq!(flushes(&device), 5);
    write(&device, 8);
    device.close().unwrap();
    pool.gc().unwrap();
    let device = ObjectVolume::open_in(memory, "main", &polite(simulated(9))).unwrap();
    assert_eq!(flushes(&device), 5);
    assert!(*device.read_at(8 * 8 * SECTOR, 3 * 512).unwrap() == *data(8, 64, 3));
}

/// The opening that takes the later objects in dies at each request, before the store has done it
/// or after, and so does the next one.
#[test]
fn nothing_is_lost_wherever_a_take_over_of_an_old_manifest_dies() {
    let (found, old) = opened_again();
    put_back(&found, &old);
    let taken = |seed| Options { take_over: TakeOver::Unseen, ..polite(simulated(seed)) };
    let opened = |store: &Arc<MemoryStore>, options: &Options| {
        ObjectVolume::open_in(store.clone(), "main", options)
    };
    let mut cuts = 0;
    for at in 0.. {
        let mut died = false;
        for after in [false, true] {
            let context = format!("request {at}, after it was done: {after}");
            let memory = Arc::new(found.fork());
            let dying = |at| {
                let store = Arc::new(Trouble::new(memory.clone()));
                dies(&store, at, after);
                store
            };
            let mut flushed = false;
            if let Ok(device) = ObjectVolume::open_in(dying(at), "main", &taken(8)) {
                device.write_at(8 * 8 * SECTOR, data(8, 64, 3)).unwrap();
                flushed = device.flush().is_ok();
                died |= device.checkpoint().is_err();
                device.abandon();
            } else {
                died = true;
            }
            all_have_ended(&memory);
            if let Ok(device) = ObjectVolume::open_in(dying(at % 14), "main", &taken(9)) {
                device.abandon();
            }
            all_have_ended(&memory);
            let has_all = |device: &ObjectVolume| {
                assert_eq!(flushes(device), 5, "{context}");
                let last = device.read_at(8 * 8 * SECTOR, 3 * 512).unwrap();
                assert!(!flushed || *last == *data(8, 64, 3), "{context}");
            };
            // Who does not ask for it has the old manifest still, or everything.
            match opened(&Arc::new(memory.fork()), &polite(simulated(10))) {
                Ok(device) => has_all(&device),
                Err(error) => assert!(error.to_string().contains("older copy"), "{context}"),
            }
            let pool = pool(memory.clone());
            // It removes nothing that is needed, whether it runs or is refused.
            let _ = pool.gc();
            let device = opened(&memory, &taken(11)).unwrap();
            has_all(&device);
            device.close().unwrap();
            pool.gc().unwrap();
            has_all(&opened(&memory, &polite(simulated(12))).unwrap());
            cuts += 1;
        }
        if !died {
            break;
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 20, "{cuts}");
}

/// Where a gc has removed what the newest manifest did not need, the old one cannot be continued.
#[test]
fn an_old_manifest_after_a_gc_is_refused_in_any_case() {
    let (memory, old) = opened_again();
    let device = ObjectVolume::open_in(memory.clone(), "main", &polite(simulated(4))).unwrap();
    // Of everything before, nothing is alive.
    device.write_at(0, data(9, 0, 200)).unwrap();
    device.flush().unwrap();
    device.close().unwrap();
    assert!(pool(memory.clone()).gc().unwrap().objects > 0);
    let newest = memory.get("volumes/main").unwrap().bytes;
    put_back(&memory, &old);
    let taken = Options { take_over: TakeOver::Unseen, ..polite(simulated(8)) };
    let error = ObjectVolume::open_in(memory.clone(), "main", &taken).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("is missing"), "{error}");
    put_back(&memory, &newest);
    ObjectVolume::open_in(memory, "main", &polite(simulated(9))).unwrap();
}

/// Two copies of a pool, each with a writer that was killed in the same epoch.
#[test]
fn the_log_of_another_copy_of_the_pool_is_refused() {
    let (first, medium) = (made(), Arc::new(MemoryMedium::default()));
    let second = Arc::new(first.fork());
    let device = ObjectVolume::open_in(first.clone(), "main", &with_log(simulated(1), &medium));
    let device = device.unwrap();
    write(&device, 1);
    device.checkpoint().unwrap();
    (2..=4).for_each(|number| write(&device, number));
    device.abandon();
    let device = ObjectVolume::open_in(second.clone(), "main", &polite(simulated(2))).unwrap();
    (1..=5).for_each(|number| write(&device, number));
    device.abandon();
    [&first, &second].into_iter().for_each(|store| all_have_ended(store));
    let bytes = medium.bytes();
    let with = || polite(with_log(simulated(7), &Arc::new(MemoryMedium::with(bytes.clone()))));
    for _ in 0..2 {
        let error = ObjectVolume::open_in(second.clone(), "main", &with()).err().unwrap();
        assert!(error.to_string().contains("another copy of the pool"), "{error}");
    }
    let options = if_refused(with(), Refused::Discard);
    let device = ObjectVolume::open_in(second, "main", &options).unwrap();
    assert_eq!(flushes(&device), 5);
    device.close().unwrap();
    assert_eq!(flushes(&ObjectVolume::open_in(first, "main", &with()).unwrap()), 4);
}
