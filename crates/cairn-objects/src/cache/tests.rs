use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::time::Duration;

use cairn_base::runtime::threads::Threads;

use super::*;
use crate::store::{Condition, Counted, MemoryStore, Store};

const LENGTH: u64 = 20 * CHUNK + 1000;

fn id(sequence: u64) -> ObjectId {
    ObjectId { log: 7, epoch: 1, sequence }
}

fn contents() -> Bytes {
    (0..LENGTH).map(|at| (at / 100 % 251) as u8).collect::<Vec<_>>().into()
}

fn fixture(budget: u64, directory: Option<Directory>) -> (Cache, Arc<Counted>) {
    let store = Arc::new(Counted::new(Arc::new(MemoryStore::new())));
    for sequence in 0..4 {
        store.put(&id(sequence).to_string(), &[contents()], Condition::IfAbsent).unwrap();
    }
    let requests = Requests::new(store.clone(), Threads::new(), Duration::ZERO);
    (Cache::new(requests, budget, directory), store)
}

fn check(cache: &Cache, sequence: u64, offset: u64, len: usize) {
    let mut buf = vec![0; len];
    cache.read(id(sequence), LENGTH, offset, &mut buf).unwrap();
    assert!(buf == contents()[offset as usize..][..len], "{len} bytes at {offset}");
}

#[test]
fn what_was_read_is_not_read_again() {
    let (cache, store) = fixture(100 << 20, None);
    let gets = || store.counters().gets.get();
    check(&cache, 0, 1000, 4096);
    check(&cache, 0, 5000, 4096);
    assert_eq!((gets(), store.counters().get_bytes.get()), (1, CHUNK));
    // The next misses read 2, 4, 8 chunks, and what is left.
    for chunk in 0..20 {
        check(&cache, 0, chunk * CHUNK + 7, 100);
    }
    assert!(gets() <= 6, "{}", gets());
    check(&cache, 0, LENGTH - 10, 10);
    // A long read of another object is one request for each 4 MiB.
    let before = gets();
    check(&cache, 1, 5, LENGTH as usize - 5);
    assert_eq!(gets() - before, 2);
    let mut beyond = [0; 20];
    assert!(cache.read(id(1), LENGTH + 10, LENGTH - 10, &mut beyond).is_err());
    assert!(cache.read(id(9), LENGTH, 0, &mut beyond).is_err());
}

#[test]
fn a_stream_continues_in_the_next_object() {
    let (cache, store) = fixture(100 << 20, None);
    let gets = || store.counters().gets.get();
    for sequence in 0..2 {
        let before = gets();
        for chunk in 0..=20 {
            check(&cache, sequence, chunk * CHUNK, 100);
        }
        assert_eq!(gets() - before, [5, 2][sequence as usize]);
    }
    // It ends where the next read ends before an end.
    let bytes = store.counters().get_bytes.get();
    check(&cache, 2, 2 * CHUNK, 100);
    check(&cache, 3, 5 * CHUNK, 100);
    assert_eq!(store.counters().get_bytes.get() - bytes, 17 * CHUNK);
}

#[test]
fn memory_has_a_bound() {
    let (cache, _) = fixture(3 * CHUNK, None);
    for round in 0..3 {
        for sequence in 0..4 {
            check(&cache, sequence, round * CHUNK, LENGTH as usize / 2);
            assert!(cache.state.lock().bytes <= 3 * CHUNK);
        }
    }
    let state = cache.state.lock();
    assert_eq!(state.uses.len(), state.chunks.len());
}

#[test]
fn a_directory_keeps_chunks_until_it_is_full_and_damage_is_not_there() {
    let place = tempfile::tempdir().unwrap();
    let directory = |budget| Some(Directory::new(place.path(), budget).unwrap());
    let (cache, store) = fixture(0, directory(8 * (CHUNK + 68)));
    check(&cache, 0, 0, LENGTH as usize);
    let files = || std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(files(), 8, "seven whole chunks and the short one");
    let before = store.counters().gets.get();
    check(&cache, 0, 15 * CHUNK, CHUNK as usize);
    assert_eq!(store.counters().gets.get(), before);

    let (cache, store) = fixture(0, directory(8 * (CHUNK + 68)));
    check(&cache, 0, 15 * CHUNK, CHUNK as usize);
    let (gets, bytes) = (store.counters().gets.get(), store.counters().get_bytes.get());
    assert_eq!((gets, bytes), (1, HEADER as u64), "they outlive the process");
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    check(&cache, 0, 15 * CHUNK, CHUNK as usize);
    assert_eq!(store.counters().gets.get(), 2);
}

#[test]
fn a_directory_has_nothing_of_an_object_of_the_same_name_in_another_pool() {
    let place = tempfile::tempdir().unwrap();
    let read = |first: u8, offset: usize| {
        let mut object = contents().to_vec();
        object[..HEADER].fill(first);
        object[HEADER..].iter_mut().for_each(|byte| *byte ^= first);
        let store = Arc::new(MemoryStore::new());
        let stored = Bytes::from(object.clone());
        store.put(&id(0).to_string(), &[stored], Condition::IfAbsent).unwrap();
        let directory = Directory::new(place.path(), 100 << 20).unwrap();
        let requests = Requests::new(store, Threads::new(), Duration::ZERO);
        let cache = Cache::new(requests, 0, Some(directory));
        let mut buf = vec![0; 4096];
        cache.read(id(0), LENGTH, offset as u64, &mut buf).unwrap();
        assert!(buf == object[offset..][..4096], "pool {first}, byte {offset}");
    };
    // Its first chunk tells by itself; of another one the store is asked.
    for offset in [0, 5 * CHUNK as usize] {
        for pool in [1, 2, 1, 1] {
            read(pool, offset);
        }
    }
}

/// Root makes what belongs to others.
#[test]
fn nobody_else_reads_or_fills_a_directory() {
    let place = tempfile::tempdir().unwrap();
    assert!(rustix::process::geteuid().is_root(), "root makes files of others");
    let at = place.path().join("cache");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let open = |path: &Path| Directory::new(path, 100 << 20);
    let (cache, store) = fixture(0, Some(open(&at).unwrap()));
    check(&cache, 0, 0, 100);
    let chunk = fs::read_dir(&at).unwrap().next().unwrap().unwrap().path();
    assert_eq!((mode(&at), mode(&chunk)), (0o700, 0o600));

    // A chunk of somebody else is not there, and one that all may read is closed to them.
    chown(&chunk, Some(1000), None).unwrap();
    let before = store.counters().gets.get();
    check(&cache, 0, 0, 100);
    assert_eq!(store.counters().gets.get(), before + 1);
    fs::set_permissions(&chunk, Permissions::from_mode(0o644)).unwrap();
    drop(open(&at).unwrap());
    assert_eq!(mode(&chunk), 0o600);

    let shared = place.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    let link = shared.join("link");
    symlink(&at, &link).unwrap();
    assert!(open(&link).is_ok(), "a link of one's own");
    lchown(&link, Some(1000), None).unwrap();
    chown(&at, Some(1000), None).unwrap();
    fs::write(shared.join("file"), "").unwrap();
    for (path, said) in [
        (link, "a symbolic link of another user"),
        (shared.join("link/below"), "a symbolic link of another user"),
        (at, "it belongs to the user 1000"),
        (shared.join("file"), "it is no directory"),
    ] {
        let error = open(&path).err().unwrap().to_string();
        assert!(error.contains(said), "{}: {error}", path.display());
    }
}

#[test]
fn readers_of_one_chunk_make_one_request() {
    let (cache, store) = fixture(100 << 20, None);
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let cache = &cache;
            scope.spawn(move || check(cache, 0, reader * 100, 4096));
        }
    });
    assert_eq!(store.counters().gets.get(), 1);
}
