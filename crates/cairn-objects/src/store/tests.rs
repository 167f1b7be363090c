use super::*;

fn parts(text: &str) -> Vec<Bytes> {
    let (head, tail) = text.split_at(text.len() / 2);
    vec![Bytes::copy_from_slice(head.as_bytes()), Bytes::copy_from_slice(tail.as_bytes())]
}

fn kind<T: fmt::Debug>(answer: Result<T>) -> ErrorKind {
    answer.unwrap_err().kind
}

/// Who may only read a directory holds no writer up: the lock's file is not for them.
#[test]
fn the_lock_is_for_those_who_may_write() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("pool");
    std::fs::create_dir(&root).unwrap();
    let store = DirectoryStore::new(root.clone());
    let mut tag = store.put("a", &parts("one"), Condition::IfAbsent).unwrap();
    for (folder, lock) in [(0o755, 0o600), (0o775, 0o660), (0o777, 0o666), (0o700, 0o600)] {
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(folder)).unwrap();
        tag = store.put("a", &parts("more"), Condition::IfMatch(&tag)).unwrap();
        let mode = std::fs::metadata(root.join(".lock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, lock, "{folder:o}");
    }
}

/// What docs/object-volumes.md asks of every store.
fn behaves(store: &dyn Store) {
    let absent = Condition::IfAbsent;
    assert_eq!(kind(store.get("a/b")), ErrorKind::Missing);
    assert_eq!(kind(store.get_range("a/b", 0..1)), ErrorKind::Missing);
    assert_eq!(store.list("", None).unwrap(), []);
    store.delete("a/b").unwrap();

    let first = store.put("a/b", &parts("first"), absent).unwrap();
    assert_eq!(kind(store.put("a/b", &parts("other"), absent)), ErrorKind::Conflict);
    let object = store.get("a/b").unwrap();
    assert_eq!((&object.bytes[..], &object.tag), (&b"first"[..], &first));
    assert_eq!(&store.get_range("a/b", 1..3).unwrap()[..], b"ir");
    assert_eq!(&store.get_range("a/b", 3..300).unwrap()[..], b"st");
    assert_eq!(kind(store.get_range("a/b", 5..6)), ErrorKind::Failed);

    // Equal bytes are another version nevertheless: many in the same instant.
    let mut tags = vec![first];
    for _ in 0..20 {
        let last = tags.last().unwrap();
        tags.push(store.put("a/b", &parts("again"), Condition::IfMatch(last)).unwrap());
    }
    for (at, tag) in tags.iter().enumerate() {
        assert!(!tags[..at].contains(tag), "{tag:?} twice");
    }
    let old = Condition::IfMatch(&tags[19]);
    assert_eq!(kind(store.put("a/b", &parts("late"), old)), ErrorKind::Conflict);
    assert_eq!(kind(store.put("a/c", &parts("late"), old)), ErrorKind::Conflict);
    assert_eq!(&store.get("a/b").unwrap().bytes[..], b"again");

    for name in ["a/d-1", "a/d-3", "a/d-2", "a/e/f", "b"] {
        store.put(name, &parts("12"), absent).unwrap();
    }
    let names = |prefix: &str, after: Option<&str>| -> Vec<String> {
        let listed = store.list(prefix, after).unwrap();
        listed.into_iter().map(|listed| listed.name).collect()
    };
    assert_eq!(names("", None), ["a/b", "a/d-1", "a/d-2", "a/d-3", "a/e/f", "b"]);
    assert_eq!(names("a/d-", Some("a/d-1")), ["a/d-2", "a/d-3"]);
    assert_eq!(store.list("b", None).unwrap(), [Listed { name: "b".into(), size: 2 }]);
    store.delete("a/d-2").unwrap();
    assert_eq!(names("a/d-", None), ["a/d-1", "a/d-3"]);
    store.put("a/d-2", &parts("34"), absent).unwrap();
}

#[test]
fn memory_is_a_store() {
    behaves(&MemoryStore::new());
}

#[test]
fn a_directory_is_a_store() {
    let place = tempfile::tempdir().unwrap();
    behaves(&DirectoryStore::new(place.path().join("made/by/the/first")));
}

#[test]
fn of_many_who_create_a_name_one_gets_it() {
    let place = tempfile::tempdir().unwrap();
    let stores: [&dyn Store; 2] =
        [&MemoryStore::new(), &DirectoryStore::new(place.path().to_owned())];
    for store in stores {
        for round in 0..20 {
            let name = format!("log/{round}");
            let won: usize = std::thread::scope(|scope| {
                let run = |who: usize| {
                    let bytes = [Bytes::from(vec![who as u8; 100])];
                    usize::from(store.put(&name, &bytes, Condition::IfAbsent).is_ok())
                };
                let name = &name;
                let threads: Vec<_> =
                    (0..4).map(|who| scope.spawn(move || (name, run(who)).1)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            let bytes = store.get(&name).unwrap().bytes;
            assert!(won == 1 && bytes.iter().all(|byte| *byte == bytes[0]), "{won} of {name}");
            // And of many who replace it.
            let tag = store.get(&name).unwrap().tag;
            let won: usize = std::thread::scope(|scope| {
                let run = || {
                    let bytes = [Bytes::from_static(b"replaced")];
                    usize::from(store.put(&name, &bytes, Condition::IfMatch(&tag)).is_ok())
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(won, 1, "{name}");
        }
    }
}

#[test]
fn unfinished_files_are_no_objects() {
    let place = tempfile::tempdir().unwrap();
    let store = DirectoryStore::new(place.path().to_owned());
    store.put("log/1", &parts("12"), Condition::IfAbsent).unwrap();
    std::fs::write(place.path().join("log/.new-17-0"), b"half").unwrap();
    assert_eq!(store.list("", None).unwrap().len(), 1);
    assert_eq!(store.list("log/", None).unwrap().len(), 1);
}

#[test]
fn what_killed_processes_have_not_finished_is_swept() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let store = DirectoryStore::new(place.path().to_owned());
    assert_eq!(store.sweep().unwrap().files, 0);
    store.put("log/1", &parts("12"), Condition::IfAbsent).unwrap();
    let tag = store.get("log/1").unwrap().tag;
    store.put("log/1", &parts("34"), Condition::IfMatch(&tag)).unwrap();
    std::fs::create_dir(at("probe")).unwrap();
    for name in ["log/.new-17-0", "log/.new-17-1", "probe/old", "probe/new"] {
        std::fs::write(at(name), b"half").unwrap();
    }
    let file = |name: &str| std::fs::File::options().write(true).open(at(name)).unwrap();
    let hours = std::time::Duration::from_secs(2 * 3600);
    file("probe/old").set_modified(std::time::SystemTime::now() - hours).unwrap();
    // Its writer lives.
    let held = file("log/.new-17-1");
    held.lock().unwrap();
    assert_eq!(store.sweep().unwrap().files, 2);
    assert!(!at("log/.new-17-0").exists() && at("log/.new-17-1").exists());
    assert!(!at("probe/old").exists() && at("probe/new").exists());
    drop(held);
    assert_eq!(store.sweep().unwrap().files, 1);
    assert_eq!(&store.get("log/1").unwrap().bytes[..], b"34");
    assert_eq!(std::fs::read_dir(at("log")).unwrap().count(), 1);
}

/// While others sweep, no PUT fails.
#[test]
fn a_sweep_takes_no_file_of_a_process_that_lives() {
    let place = tempfile::tempdir().unwrap();
    let store = DirectoryStore::new(place.path().to_owned());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..300 {
                let name = format!("log/{number}");
                store.put(&name, &parts("12"), Condition::IfAbsent).unwrap();
            }
        });
        while !writer.is_finished() {
            store.sweep().unwrap();
        }
    });
    assert_eq!(store.list("", None).unwrap().len(), 300);
}
