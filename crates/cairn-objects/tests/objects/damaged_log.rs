//! Damaged logs: what a power cut leaves is read, and what something else has damaged or cut short
//! is refused. What is before the damage can be had.

use cairn_block::ErrorKind;
use cairn_objects::store::Trouble;
use cairn_objects::volume::{MemoryMedium, Refused};

use super::crash::simulated;
use super::local_log::{LOG, both_die, five_flushes, flushes, if_refused, with_log};
use super::*;

/// Where a record begins.
const fn record(number: usize) -> usize {
    // Every one has five blocks: frame, header and index, and three sectors of data.
    512 + (number - 1) * 2048
}

fn opened(memory: &MemoryStore, log: Vec<u8>, refused: Refused) -> DeviceResult<ObjectVolume> {
    let medium = Arc::new(MemoryMedium::with(log));
    let options = if_refused(with_log(simulated(1), &medium), refused);
    ObjectVolume::open_in(Arc::new(memory.fork()), "main", &options)
}

/// Opens the volume with a damaged log: that is refused, and what is before the damage is written
/// into the volume if the caller says so. Returns why, and how many flushes that were.
fn damaged(memory: &MemoryStore, log: &[u8]) -> (String, u64) {
    let error = opened(memory, log.to_vec(), Refused::Fail).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("?export-log=FILE") && text.contains("?discard-log"), "{text}");
    assert_eq!(error.kind, ErrorKind::Io, "{text}");
    (text, flushes(&opened(memory, log.to_vec(), Refused::Discard).unwrap()))
}

#[test]
fn a_torn_end_ends_a_log_and_damage_within_is_refused() {
    let (memory, medium) = five_flushes();
    let whole = medium.bytes();
    assert_eq!(flushes(&opened(&memory, whole.clone(), Refused::Fail).unwrap()), 5);
    assert_eq!(whole.len() as u64, LOG);
    for at in (512..record(6)).step_by(128) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        // What is behind the data is not looked at.
        let matters = (at - 512) % 2048 < 1680;
        let before = (at as u64 - 512) / 2048;
        if !matters {
            let device = opened(&memory, changed, Refused::Fail).unwrap();
            assert_eq!(flushes(&device), 5, "byte {at}");
            continue;
        }
        let (text, left) = damaged(&memory, &changed);
        assert!(text.contains(&format!("record {} is not whole", before + 1)), "{text}");
        assert_eq!(left, before, "byte {at}");
        if at >= record(5) {
            // The power was cut while the last one was written: it has no mark behind it.
            changed[LOG as usize - 8192..][..512].fill(0);
            let device = opened(&memory, changed, Refused::Fail).unwrap();
            assert_eq!(flushes(&device), 4, "byte {at}");
        }
    }
    for byte in [40, 2] {
        let mut changed = whole.clone();
        changed[byte] ^= 1;
        let (text, left) = damaged(&memory, &changed);
        assert!(text.contains("first block is not what was written"), "{text}");
        assert_eq!(left, 0);
    }
    let error = opened(&memory, vec![1; 4096], Refused::Discard).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.to_string().contains("move it away"), "{error}");
}

/// What an interrupted copy leaves: a shorter file, or zeros from some byte on.
#[test]
fn a_log_that_was_cut_short_is_refused() {
    let (memory, medium) = five_flushes();
    let whole = medium.bytes();
    let ends = (1..7).map(record).chain([50, 100, 511, 700, 9999, LOG as usize - 1]);
    for end in ends {
        let left = (end as u64).saturating_sub(512) / 2048;
        for zeros in [false, true] {
            let mut copy = whole[..end].to_vec();
            copy.resize(if zeros { whole.len() } else { end }, 0);
            if zeros && end == whole.len() - 1 {
                // Nothing is there.
                assert_eq!(flushes(&opened(&memory, copy, Refused::Fail).unwrap()), 5);
                continue;
            }
            let (text, found) = damaged(&memory, &copy);
            let why = match zeros {
                _ if end < 88 => "first block",
                true => "the marks at its end are missing",
                false => "bytes, and had",
            };
            assert!(text.contains(why), "{end}, {zeros}: {text}");
            assert_eq!(found, left.min(5), "{end}, {zeros}");
        }
    }
    // Zeros in the midst of it.
    for number in 1..=5 {
        let mut holed = whole.clone();
        holed[record(number)..record(6)].fill(0);
        assert_eq!(damaged(&memory, &holed).1, number as u64 - 1);
    }
    // One of the marks may be torn.
    for mark in [LOG as usize - 4096, LOG as usize - 8192] {
        let mut torn = whole.clone();
        torn[mark..mark + 200].fill(0xa5);
        assert_eq!(flushes(&opened(&memory, torn, Refused::Fail).unwrap()), 5);
    }
}

/// A log of the version without marks: its records end where one is not whole.
#[test]
fn a_log_of_the_first_version_is_read() {
    let (memory, medium) = five_flushes();
    let mut old = medium.bytes();
    old.truncate(record(6));
    old[8..12].copy_from_slice(&1_u32.to_le_bytes());
    old[12..16].fill(0);
    old[80..88].fill(0);
    let sum = !cairn_base::checksum::crc32c(!0, &old[..80]);
    old[12..16].copy_from_slice(&sum.to_le_bytes());
    for cut in 1..=6 {
        let device = opened(&memory, old[..record(cut)].to_vec(), Refused::Fail).unwrap();
        assert_eq!(flushes(&device), cut as u64 - 1);
    }
    let mut holed = old.clone();
    holed[record(2)..record(3)].fill(0);
    let (text, left) = damaged(&memory, &holed);
    assert!(text.contains("record 2 is not whole, and 3 is there"), "{text}");
    assert_eq!(left, 1);
    // It is one of this version from then on, wherever the next process is killed.
    let medium = Arc::new(MemoryMedium::with(old.clone()));
    let store = Arc::new(memory.fork());
    let device = ObjectVolume::open_in(store.clone(), "main", &with_log(simulated(1), &medium));
    assert_eq!(flushes(&device.unwrap()), 5);
    for at in 0..12 {
        let medium = Arc::new(MemoryMedium::with(old.clone()));
        let store = Arc::new(Trouble::new(memory.clone()));
        both_die(&store, &medium, at);
        let killed = with_log(simulated(1), &medium);
        if let Ok(device) = ObjectVolume::open_in(store, "main", &killed) {
            device.abandon();
        }
        let device = opened(&memory, medium.bytes(), Refused::Fail).unwrap();
        assert_eq!(flushes(&device), 5, "killed at {at}");
    }
}
