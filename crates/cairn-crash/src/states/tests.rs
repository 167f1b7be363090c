use std::collections::HashSet;

use super::*;

const BLOCK: usize = 4096;

fn block(device: &dyn BlockDevice, number: u64) -> u8 {
    let bytes = device.read_at(number * BLOCK as u64, BLOCK).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {number} is torn");
    bytes[0]
}

fn write(device: &dyn BlockDevice, number: u64, blocks: usize, value: u8) {
    device.write_at(number * BLOCK as u64, vec![value; blocks * BLOCK]).unwrap();
}

/// Block 0 = 1, flush, blocks 1..5 = 2, flush, block 0 = 3 (never flushed).
fn recorded() -> CrashLog {
    let recording = Recording::start(MemoryDevice::new(64 * BLOCK as u64));
    let device = recording.device();
    write(&*device, 0, 1, 1);
    device.flush().unwrap();
    write(&*device, 1, 4, 2);
    device.flush().unwrap();
    write(&*device, 0, 1, 3);
    recording.finish()
}

#[test]
fn the_extremes_at_every_barrier() {
    let crash = recorded();
    assert_eq!(crash.flushes(), 2);
    let seen: Vec<_> = crash
        .barrier_cuts()
        .into_iter()
        .map(|cut| {
            let device = crash.device(cut);
            (block(&device, 0), block(&device, 1))
        })
        .collect();
    // Before everything; around the first flush; around the second; the end. Lost, then kept.
    let expected = [
        (0, 0),
        (0, 0),
        (0, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 2),
        (1, 2),
        (1, 2),
        (1, 2),
        (3, 2),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn random_cuts_tear_only_between_blocks_and_keep_what_was_flushed() {
    let crash = recorded();
    let second = crash.barriers()[3];
    let mut states = HashSet::new();
    for cut in crash.random_cuts(400, 7) {
        let device = crash.device(cut);
        let state: Vec<u8> = (0..6).map(|number| block(&device, number)).collect();
        assert_eq!(state[5], 0);
        if cut.moment > second {
            assert_ne!(state[0], 0, "{cut}");
        }
        states.insert(state);
    }
    assert!(states.len() > 8, "only {} states: {states:?}", states.len());
}

#[test]
fn all_subsets_where_there_are_few_blocks() {
    let crash = recorded();
    let states: HashSet<Vec<u8>> = crash
        .subset_cuts(4)
        .into_iter()
        .map(|cut| {
            let device = crash.device(cut);
            (1..5).map(|number| block(&device, number)).collect()
        })
        .collect();
    // The four blocks before the second flush; the extremes are barrier cuts.
    assert_eq!(states.len(), 14);
    assert!(crash.subset_cuts(3).is_empty(), "four blocks are too many");
}

#[test]
fn one_cut_is_one_state() {
    let crash = recorded();
    for cut in crash.random_cuts(20, 3) {
        let (a, b) = (crash.device(cut), crash.device(cut));
        let size = usize::try_from(a.geometry().size).unwrap();
        assert_eq!(a.read_at(0, size).unwrap()[..], b.read_at(0, size).unwrap()[..], "{cut}");
    }
}

#[test]
fn forced_writes_are_durable_without_a_flush() {
    let recording = Recording::start(MemoryDevice::new(64 * BLOCK as u64));
    let device = recording.device();
    write(&*device, 1, 1, 5);
    let durability = cairn_block::Durability { preflush: false, fua: true };
    device.write_durable(0, vec![9; BLOCK], durability).unwrap();
    let crash = recording.finish();
    let end = Cut { moment: crash.log().end, volatile: Volatile::Lost };
    let device = crash.device(end);
    assert_eq!((block(&device, 0), block(&device, 1)), (9, 0));
}

#[test]
fn images_round_trip_through_files() {
    let crash = recorded();
    let cut = Cut { moment: crash.log().end, volatile: Volatile::Kept };
    let file = tempfile::NamedTempFile::new().unwrap();
    crash.write_image(cut, file.path()).unwrap();
    let device = read_image(file.path()).unwrap();
    assert_eq!((block(&device, 0), block(&device, 4), block(&device, 5)), (3, 2, 0));
}

#[test]
fn promises_hold_from_the_fsync_to_the_next_change() {
    let mut promises = Promises::new();
    promises.changing("a", 0);
    promises.kept("a", Some(1), 10);
    promises.kept("b", Some(5), 12);
    promises.changing("a", 20);
    promises.kept("a", None, 30);
    assert!(promises.at(9).is_empty());
    assert_eq!(promises.at(10).get(&"a"), Some(&&Some(1)));
    assert_eq!(promises.at(15).len(), 2);
    assert_eq!(promises.at(25).keys().collect::<Vec<_>>(), [&&"b"]);
    assert_eq!(promises.at(31).get(&"a"), Some(&&None));
    assert_eq!(promises.count(), 3);
}
