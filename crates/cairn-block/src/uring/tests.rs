use std::fs::File;

use super::*;

fn entry() -> Entry {
    Entry::new(3, 8192).unwrap()
}

/// A `/dev/fuse` that is not mounted refuses every command; the entry comes back.
#[test]
fn an_entry_comes_back_from_a_connection_that_is_not_there() {
    if let Err(error) = probe() {
        println!("no io_uring here ({error}): nothing is tested");
        return;
    }
    let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
        println!("no /dev/fuse here: nothing is tested");
        return;
    };
    let mut ring = Ring::new(device.into()).unwrap();
    for _ in 0..3 * QUEUED {
        ring.register(entry()).unwrap();
    }
    let mut refused = 0;
    while ring.in_kernel() > 0 {
        ring.wait(|arrival| match arrival {
            Arrival::Refused(entry, _) => {
                assert_eq!(entry.queue(), 3);
                refused += 1;
            }
            Arrival::Request(_) => panic!("nobody has sent a request"),
        })
        .unwrap();
    }
    assert_eq!(refused, 3 * QUEUED);
}

#[test]
fn another_thread_ends_the_wait() {
    let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
        println!("no /dev/fuse here: nothing is tested");
        return;
    };
    let Ok(mut ring) = Ring::new(device.into()) else {
        println!("no io_uring here: nothing is tested");
        return;
    };
    for _ in 0..3 {
        let waker = ring.waker();
        let other = std::thread::spawn(move || waker.wake());
        ring.wait(|_| panic!("nothing was registered")).unwrap();
        other.join().unwrap();
    }
}

/// With another device, the kernel could be made to write to any address.
#[test]
fn other_files_are_refused() {
    let refused = Ring::new(File::open("/dev/null").unwrap().into()).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn an_answer_has_to_fit() {
    let mut entry = entry();
    assert!(entry.answer(&[1; 16], [[2; 4000].as_slice(), &[3; 4192]]));
    assert!(!entry.answer(&[1; 16], [[2; 4000].as_slice(), &[3; 4193]]));
    assert!(!entry.answer(&[1; IN_OUT + 1], []));
    entry.received();
    assert_eq!((entry.payload().len(), entry.payload()[8191]), (8192, 3));
    let area = || Area::new(8192).unwrap();
    let (taken, len, _) = entry.exchange(area(), area()).unwrap();
    assert_eq!((&taken[..1], &taken[8191..], len), (&[2][..], &[3][..], 8192));
    assert!(entry.payload().is_empty());
}
