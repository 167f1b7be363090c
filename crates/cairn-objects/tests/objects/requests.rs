//! How many requests the store gets.

use super::*;
use cairn_objects::store::Trouble;

#[test]
fn a_flush_is_one_put() {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    let puts = || device.requests().log_puts.get();
    let mut oracle = Oracle::default();
    let before = (puts(), device.requests().requests());
    for round in 0..10 {
        for write in 0..5 {
            oracle.write(&device, 1 + round, round * 100 + write * 10, 8);
        }
        oracle.clear(&device, 4000 + round, 1);
        device.flush().unwrap();
        device.flush().unwrap();
    }
    assert_eq!(puts() - before.0, 10);
    // A commit block: everything before it and itself, in one object.
    oracle.write(&device, 50, 700, 8);
    let durable = Durability { preflush: true, fua: true };
    oracle.try_write(&device, 51, (800, 8), durable).unwrap();
    assert_eq!(puts() - before.0, 11);
    assert_eq!(device.requests().requests() - before.1, 11, "and nothing else");
    assert_eq!(oracle.differs(&device), None);
    device.abandon();
    assert_eq!(oracle.differs(&open(store).unwrap()), None);
}

#[test]
fn flushes_that_come_together_share_an_object() {
    let memory = Arc::new(MemoryStore::new());
    drop(volume(&memory));
    let store = Arc::new(Trouble::new(memory));
    let device = open(store.clone()).unwrap();
    let before = device.requests().log_puts.get();
    // The first object waits until the other 31 have written.
    let written = Arc::new(std::sync::Barrier::new(32));
    let gate = written.clone();
    store.set(move |number, moment, _, _| {
        if number == 0 && moment == cairn_objects::store::Moment::Before {
            gate.wait();
        }
        false
    });
    std::thread::scope(|scope| {
        let device = &device;
        scope.spawn(move || {
            device.write_at(0, data(1, 0, 8)).unwrap();
            device.flush().unwrap();
        });
        while store.requests() == 0 {
            std::thread::yield_now();
        }
        for thread in 1..32_u64 {
            let written = written.clone();
            scope.spawn(move || {
                device.write_at(thread * 4096, data(1, thread * 8, 8)).unwrap();
                written.wait();
                device.flush().unwrap();
            });
        }
    });
    let puts = device.requests().log_puts.get() - before;
    assert!((2..=3).contains(&puts), "{puts} objects for 32 flushes");
}

#[test]
fn a_stream_is_written_in_whole_objects() {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    let before = device.requests().log_puts.get();
    let mut oracle = Oracle::default();
    for at in 0..SECTORS / 64 {
        oracle.write(&device, 1, at * 64, 64);
    }
    device.flush().unwrap();
    // The flush may have made one that vouches for the last ones.
    let objects = SIZE / small().object_size;
    let puts = device.requests().log_puts.get() - before;
    assert!((objects..=objects + 1).contains(&puts), "{puts}");
    assert_eq!(oracle.differs(&device), None);
    assert_eq!(device.report().u64("extents"), Some(objects));
    device.close().unwrap();
    // Closed, an opening reads a manifest and a map object, and lists the end of one log and what
    // is behind it.
    let device = open(store).unwrap();
    let counters = device.requests();
    assert!(counters.gets.get() <= 2 && counters.lists.get() == 2, "{counters:?}");
    // Cold, the whole disk is one request for each object.
    let gets = counters.gets.get();
    assert_eq!(oracle.differs(&device), None);
    assert_eq!(counters.gets.get() - gets, objects);
}

#[test]
fn an_opening_reads_few_objects_because_checkpoints_follow_the_log() {
    let store = Arc::new(MemoryStore::new());
    let device = volume(&store);
    let mut oracle = Oracle::default();
    for number in 1..=200 {
        oracle.write(&device, number, number * 20, 3);
        device.flush().unwrap();
    }
    // The daemon has been told of the 192nd. Its checkpoints may come later than that.
    while device.report().u64("checkpoints") < Some(1) {
        std::thread::yield_now();
    }
    device.checkpoint().unwrap();
    oracle.write(&device, 300, 0, 3);
    device.flush().unwrap();
    device.abandon();
    let device = open(store).unwrap();
    assert!(device.requests().gets.get() <= 4, "{:?}", device.requests());
    assert_eq!(oracle.differs(&device), None);
}
