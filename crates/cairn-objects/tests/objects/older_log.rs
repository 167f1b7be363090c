//! Older copies of a log: what the store knows of the newer one refuses them. And logs that nobody
//! can tell to be those of the last writer.

use std::sync::Mutex;

use cairn_base::runtime::{Event, Runtime};
use cairn_block::ErrorKind;
use cairn_objects::store::{Moment, Trouble};
use cairn_objects::volume::{MemoryMedium, Refused};

use super::crash::{History, made, run, simulated};
use super::local_log::{flushes, if_refused, in_file, with_log};
use super::*;

pub(super) fn write(device: &ObjectVolume, number: u64) {
    device.write_at(number * 8 * SECTOR, data(number, number * 8, 3)).unwrap();
    device.flush().unwrap();
}

/// Lets the daemon send to the store what is logged.
fn send(runtime: &Arc<dyn Runtime>) {
    runtime.wait_until_timeout(&Event::new(), Duration::from_millis(1), &mut || false);
}

/// The processes that have written have ended.
pub(super) fn all_have_ended(store: &MemoryStore) {
    change_manifest(store, &format!("-{}-", std::process::id()), "-1-1");
}

pub(super) fn polite(options: Options) -> Options {
    Options { take_over: TakeOver::Never, exclusive: true, ..options }
}

fn with_bytes(bytes: &[u8]) -> Options {
    polite(with_log(simulated(7), &Arc::new(MemoryMedium::with(bytes.to_vec()))))
}

/// An older log is refused, by a reader too; without it, the newest is asked for.
#[track_caller]
fn is_refused(memory: &Arc<MemoryStore>, older: &[u8], newest: &[u8], why: &str) {
    let log = with_bytes(older);
    for options in [Options { read_only: true, ..log.clone() }, log.clone(), log] {
        let error = ObjectVolume::open_in(memory.clone(), "main", &options).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Io, "{error}");
        let said = error.to_string();
        assert!(said.contains("is an older copy: ") && said.contains(why), "{said}");
        assert!(said.contains("?discard-log"), "{said}");
        let none = polite(simulated(7));
        let error = ObjectVolume::open_in(memory.clone(), "main", &none).err().unwrap();
        assert_eq!(error.kind, ErrorKind::InUse, "{error}");
    }
    let other = Arc::new(memory.fork());
    let device = ObjectVolume::open_in(other, "main", &with_bytes(newest)).unwrap();
    assert_eq!(flushes(&device), 5);
    device.abandon();
}

/// What the store has is had without the older log. The log is one of the volume from then on.
#[track_caller]
fn is_given_up(memory: &MemoryStore, older: &[u8], left: u64) {
    for dies in [false, true] {
        let memory = Arc::new(memory.fork());
        let medium = Arc::new(MemoryMedium::with(older.to_vec()));
        let options = if_refused(polite(with_log(simulated(7), &medium)), Refused::Discard);
        let reader = Options { read_only: true, ..options.clone() };
        let device = ObjectVolume::open_in(memory.clone(), "main", &reader).unwrap();
        assert_eq!(flushes(&device), left);
        drop(device);
        let device = ObjectVolume::open_in(memory.clone(), "main", &options).unwrap();
        assert_eq!(flushes(&device), left);
        if dies {
            device.abandon();
            all_have_ended(&memory);
        } else {
            device.close().unwrap();
        }
        let again = ObjectVolume::open_in(memory, "main", &with_bytes(&medium.bytes())).unwrap();
        assert_eq!(flushes(&again), left);
    }
}

#[test]
fn an_older_copy_of_a_log_is_refused() {
    for by_checkpoint in [false, true] {
        let (memory, medium) = (made(), Arc::new(MemoryMedium::default()));
        let options = with_log(simulated(1), &medium);
        let device = ObjectVolume::open_in(memory.clone(), "main", &options).unwrap();
        let empty = medium.bytes();
        write(&device, 1);
        write(&device, 2);
        let older = medium.bytes();
        write(&device, 3);
        match by_checkpoint {
            true => device.checkpoint().unwrap(),
            false => send(&options.runtime),
        }
        // Nothing in the store says that there were more.
        let unknown = medium.bytes();
        write(&device, 4);
        write(&device, 5);
        device.abandon();
        all_have_ended(&memory);
        let newest = medium.bytes();
        is_refused(&memory, &older, &newest, "it ends before record 3, and 3 was durable");
        is_refused(&memory, &empty, &newest, "it ends before record 1, and 3 was durable");
        is_given_up(&memory, &older, 3);
        // One that takes the volume over has a new log.
        let new = with_log(simulated(7), &Arc::new(MemoryMedium::default()));
        let device = ObjectVolume::open_in(Arc::new(memory.fork()), "main", &new).unwrap();
        assert_eq!(flushes(&device), 3);
        device.abandon();
        let device = ObjectVolume::open_in(memory, "main", &with_bytes(&unknown)).unwrap();
        assert_eq!(flushes(&device), 3);
    }
}

/// A copy from the moment when an opening had announced itself, and had not begun its own log.
#[test]
fn a_copy_from_an_earlier_opening_is_refused() {
    let (memory, medium) = (made(), Arc::new(MemoryMedium::default()));
    let store = Arc::new(Trouble::new(memory.clone()));
    let first = with_log(simulated(1), &medium);
    let device = ObjectVolume::open_in(store.clone(), "main", &first).unwrap();
    write(&device, 1);
    write(&device, 2);
    device.abandon();
    let copies = Arc::new(Mutex::new(Vec::new()));
    let (kept, log) = (copies.clone(), medium.clone());
    store.set(move |_, moment, kind, name| {
        if (moment, kind, name) == (Moment::After, "PUT", "volumes/main") {
            kept.lock().unwrap().push(log.bytes());
        }
        false
    });
    let second = with_log(simulated(2), &medium);
    let device = ObjectVolume::open_in(store, "main", &second).unwrap();
    write(&device, 3);
    write(&device, 4);
    send(&second.runtime);
    write(&device, 5);
    device.abandon();
    all_have_ended(&memory);
    let older = copies.lock().unwrap().first().unwrap().clone();
    is_refused(&memory, &older, &medium.bytes(), "a later opening has used the log since");
    is_given_up(&memory, &older, 4);
}

/// Whatever copy takes the log's place: it is refused, or the disk is as it was at one moment.
#[test]
fn a_copy_of_any_moment_is_refused_or_gives_a_state_that_the_disk_had() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 1..=3 {
        let memory = Arc::new(made().fork());
        let medium = Arc::new(MemoryMedium::default());
        let options = with_log(simulated(seed), &medium);
        let device = ObjectVolume::open_in(memory.clone(), "main", &options).unwrap();
        let copies = Arc::new(Mutex::new(vec![medium.bytes()]));
        let (kept, log, runtime) = (copies.clone(), medium.clone(), options.runtime);
        let mut history = History::new();
        history.pause = Box::new(move |number| {
            kept.lock().unwrap().push(log.bytes());
            if number % 5 == 0 {
                send(&runtime);
            }
        });
        run(&device, seed, &mut history).unwrap();
        device.abandon();
        all_have_ended(&memory);
        history.flushed = 0;
        let mut copies = std::mem::take(&mut *copies.lock().unwrap());
        copies.dedup();
        for (number, copy) in copies.iter().enumerate() {
            let other = Arc::new(memory.fork());
            match ObjectVolume::open_in(other, "main", &with_bytes(copy)) {
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("is an older copy"), "{error}");
                }
                Ok(device) => {
                    taken += 1;
                    assert!(history.has(&device), "seed {seed}, copy {number}");
                    device.abandon();
                }
            }
        }
    }
    assert!(refused > 10 && taken > 2, "{refused} refused, {taken} taken");
}

/// The store has everything when a volume was closed: no copy has more.
#[test]
fn a_copy_from_before_a_clean_end_is_in_nobodys_way() {
    let (memory, medium) = (made(), Arc::new(MemoryMedium::default()));
    let options = with_log(simulated(1), &medium);
    let device = ObjectVolume::open_in(memory.clone(), "main", &options).unwrap();
    (1..=3).for_each(|number| write(&device, number));
    let older = medium.bytes();
    send(&options.runtime);
    (4..=5).for_each(|number| write(&device, number));
    device.close().unwrap();
    let device = ObjectVolume::open_in(memory, "main", &with_bytes(&older)).unwrap();
    assert_eq!(flushes(&device), 5);
}

/// A reader exports nothing.
#[test]
fn an_opening_for_reading_makes_no_file() {
    let (memory, medium) = super::local_log::five_flushes();
    let mut damaged = medium.bytes();
    damaged[600] ^= 1;
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("blocks.img");
    let export = if_refused(with_bytes(&damaged), Refused::Export(file.clone()));
    let export = Options { take_over: TakeOver::Always, ..export };
    let reader = Options { read_only: true, ..export.clone() };
    let error = ObjectVolume::open_in(memory.clone(), "main", &reader).err().unwrap();
    assert!(error.to_string().contains("nothing is exported"), "{error}");
    assert!(!file.exists());
    ObjectVolume::open_in(memory, "main", &export).unwrap().close().unwrap();
    assert!(file.exists());
}

/// A log that was moved, and whose first block is damaged, does not say whose it is.
#[test]
fn a_moved_log_that_is_damaged_is_given_up_by_its_old_name() {
    let place = tempfile::tempdir().unwrap();
    let [file, moved] = ["log", "moved"].map(|name| place.path().join(name));
    let memory = made();
    let device = ObjectVolume::open_in(memory.clone(), "main", &in_file(&file)).unwrap();
    write(&device, 1);
    device.abandon();
    all_have_ended(&memory);
    let mut bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&moved, &bytes).unwrap();
    let way = format!("?log={}&discard-log", file.display());
    for refused in [Refused::Fail, Refused::Discard] {
        let options = if_refused(polite(in_file(&moved)), refused);
        let error = ObjectVolume::open_in(memory.clone(), "main", &options).err().unwrap();
        assert!(error.to_string().contains(&way), "{error}");
    }
    assert_eq!(std::fs::read(&moved).unwrap(), bytes);
    let options = if_refused(polite(in_file(&file)), Refused::Discard);
    ObjectVolume::open_in(memory, "main", &options).unwrap().close().unwrap();
}

/// After a power cut, the machine that has started again has the log that its writer had locked.
#[test]
fn a_log_tells_that_its_writer_has_ended_with_an_earlier_boot() {
    let memory = made();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("log");
    let device = ObjectVolume::open_in(memory.clone(), "main", &in_file(&file)).unwrap();
    (1..=3).for_each(|number| write(&device, number));
    device.abandon();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    change_manifest(&memory, boot.trim(), "00000000-0000-0000-0000-000000000000");
    let elsewhere = Arc::new(memory.fork());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    change_manifest(&elsewhere, &format!("\"{}\"", host.trim()), "\"another\"");
    let other = std::fs::read(&file).unwrap();
    for (store, options) in [
        // The log of a machine of another name may be a copy.
        (&elsewhere, in_file(&file)),
        (&memory, with_log(simulated(7), &Arc::new(MemoryMedium::with(other)))),
        (&memory, simulated(7)),
    ] {
        let error = ObjectVolume::open_in(store.clone(), "main", &polite(options)).err().unwrap();
        assert_eq!(error.kind, ErrorKind::InUse, "{error}");
        let way = format!("?log={}&take-over", file.display());
        assert!(error.to_string().contains(&way), "{error}");
    }
    let device = ObjectVolume::open_in(memory, "main", &polite(in_file(&file))).unwrap();
    assert_eq!(flushes(&device), 3);
}
