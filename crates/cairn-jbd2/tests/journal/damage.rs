//! Damaged, hostile and extreme logs. Recovery returns an error or a prefix of the transactions; it
//! does not panic, hang, or write outside of the volume.

use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_base::{Pba, Tid};
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt, Bytes};
use cairn_jbd2::{
    Correction, Error, correct_superblock, mark_empty, read_superblock, recover, remains,
    replay_in_memory, salvage_in_memory, write_corrected,
};

use crate::fixture::{self, BLOCK, HOME, LOG_BLOCKS, area, features, format, read_home, stamp};

const INCOMPAT: u32 = features::REVOKE | features::BITS_64 | features::CSUM_V3;

/// Offset of a journal block on the device.
fn place(device: &Arc<dyn BlockDevice>, block: u32) -> u64 {
    let area = area(device.clone());
    let (start, pba, _) =
        area.extents.iter().rev().find(|(start, _, _)| start.get() <= u64::from(block)).unwrap();
    (pba.get() + u64::from(block) - start.get()) * u64::from(BLOCK)
}

/// A log of three transactions. Each has four blocks: a descriptor block, block 0, a block of its
/// own, and a commit block.
fn three_transactions(incompat: u32) -> MemoryDevice {
    three_transactions_with(incompat, 0)
}

fn three_transactions_with(incompat: u32, compat: u32) -> MemoryDevice {
    let memory = Arc::new(format(incompat, compat, 1));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let (buffers, journal) = fixture::open(&device, Simulated::new(0)).expect("an empty log");
    for number in 1..=3 {
        let handle = journal.start(2).expect("memory does not fail");
        for block in [0, number] {
            let buffer = buffers.get(Pba(HOME + block)).expect("memory does not fail");
            handle.get_write_access(&buffer).expect("no error").copy_from_slice(&stamp(number));
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit_and_wait(tid).expect("memory does not fail");
    }
    memory.fork()
}

fn flip(device: &Arc<dyn BlockDevice>, block: u32, byte: u64) {
    let offset = place(device, block) + byte;
    let old = device.read_at(offset, 1).unwrap()[0];
    device.write_at(offset, vec![old ^ 0x40]).unwrap();
}

#[test]
fn damage_in_a_committed_transaction_is_reported() {
    // A transaction has four blocks: descriptor, two metadata blocks, commit.
    for (block, byte) in [(5, 20), (6, 500), (7, 1000)] {
        let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(INCOMPAT));
        flip(&device, block, byte);
        let before = read_home(&*device, 0);
        let found = recover(&area(device.clone()), &device);
        assert!(matches!(found, Err(Error::Checksum { .. })), "journal block {block}: {found:?}");
        assert_eq!(read_home(&*device, 0), before, "something was replayed from a damaged log");
        assert!(matches!(replay_in_memory(&area(device.clone())), Err(Error::Checksum { .. })));
    }
}

#[test]
fn a_log_without_its_last_commit_block_ends_before_it() {
    let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(INCOMPAT));
    device.write_at(place(&device, 12), vec![0; BLOCK as usize]).unwrap();
    let done = recover(&area(device.clone()), &device).expect("two transactions are good");
    assert_eq!(
        (done.transactions, done.next),
        (2, Tid(4)),
        "the number of the torn transaction must not be used again"
    );
    assert_eq!(read_home(&*device, 0), stamp(2));
    assert_eq!(read_home(&*device, 3), vec![0; BLOCK as usize]);
}

/// Linux refuses such a log. The transactions before the damage can be read.
#[test]
fn a_commit_block_with_a_bad_checksum_is_damage_and_not_the_end() {
    let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(INCOMPAT));
    let area = area(device.clone());
    flip(&device, 12, 50);
    let found = recover(&area, &device);
    assert!(
        matches!(found, Err(Error::Checksum { block: 12, what: "commit block", .. })),
        "{found:?}"
    );
    assert_eq!(
        read_home(&*device, 0),
        vec![0; BLOCK as usize],
        "something was replayed from a damaged log"
    );
    let seen = salvage_in_memory(&area).expect("two transactions are good");
    assert!(seen[&Pba(HOME)][..] == stamp(2)[..] && !seen.contains_key(&Pba(HOME + 3)));
    let superblock = read_superblock(&area).expect("a good superblock");
    assert_ne!(superblock.start, 0, "the log is still there for a repair");
}

fn noise(device: &Arc<dyn BlockDevice>, block: u32) {
    let mut random = fastrand::Rng::with_seed(block.into());
    let bytes: Vec<u8> = (0..BLOCK).map(|_| random.u8(..)).collect();
    device.write_at(place(device, block), bytes).unwrap();
}

/// A block that became noise looks like the end of the log. But something was committed behind it.
#[test]
fn noise_before_a_later_commit_block_is_damage_and_not_the_end() {
    for incompat in [INCOMPAT, features::REVOKE, features::REVOKE | features::CSUM_V2] {
        for block in [1, 4, 5, 8, 9] {
            let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(incompat));
            noise(&device, block);
            let found = recover(&area(device.clone()), &device);
            assert!(matches!(found, Err(Error::Corrupt { block: at, .. }) if at == block));
            assert_eq!(read_home(&*device, 0), vec![0; BLOCK as usize], "something was replayed");
            assert!(replay_in_memory(&area(device.clone())).is_err(), "journal block {block}");
        }
    }
}

/// Commit blocks that are older than the volume, or too far ahead for the blocks between, are those
/// of another journal that was in the same place.
#[test]
fn commit_blocks_of_another_journal_prove_nothing() {
    let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(INCOMPAT));
    noise(&device, 9);
    let later = cairn_jbd2::JournalArea { since: u64::MAX, ..area(device.clone()) };
    assert_eq!(recover(&later, &device).expect("the log ends there").transactions, 2);
    let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(features::REVOKE));
    noise(&device, 9);
    device.write_at(place(&device, 12) + 8, vec![0, 0, 1, 0]).unwrap();
    let done = recover(&area(device.clone()), &device).expect("256 is not the number of the third");
    assert_eq!(done.transactions, 2);
}

/// With asynchronous commits a commit block may be on the medium before its transaction is. Then
/// only a later one tells. Without them its CRC-32 must be right.
#[test]
fn the_last_transaction_may_be_torn_only_with_asynchronous_commits() {
    const ASYNC: u32 = 0x4;
    for (incompat, block, transactions) in
        [(0, 6, None), (ASYNC, 6, None), (0, 10, None), (ASYNC, 10, Some(2))]
    {
        let log = three_transactions_with(features::REVOKE | incompat, 1);
        let device: Arc<dyn BlockDevice> = Arc::new(log);
        flip(&device, block, 500);
        let found = recover(&area(device.clone()), &device).map(|done| done.transactions);
        assert_eq!(found.as_ref().ok(), transactions.as_ref(), "{incompat}, {block}: {found:?}");
    }
}

/// One wrong bit of any block is corrected, and then the log is replayed in whole.
#[test]
fn one_wrong_bit_of_any_block_is_corrected() {
    for block in 1..=12 {
        let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(INCOMPAT));
        let area = area(device.clone());
        flip(&device, block, 40);
        let left = remains(&area).expect("memory does not fail");
        assert!(left.is_whole() && left.corrected.keys().eq([&block]), "{block}: {left:?}");
        assert_eq!(&left.images[&Pba(HOME)][..], stamp(3), "journal block {block}");
        write_corrected(&area, &left).expect("memory does not fail");
        let done = recover(&area, &device).expect("all is right again");
        assert_eq!((done.transactions, read_home(&*device, 0)), (3, stamp(3)));
    }
    for byte in [0, 7, 13, 20, 26, 31, 41, 80, 253] {
        let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(INCOMPAT));
        let area = area(device.clone());
        assert_eq!(correct_superblock(&area).expect("memory does not fail"), None, "it is right");
        flip(&device, 0, byte);
        assert!(recover(&area, &device).is_err(), "byte {byte}");
        let done = correct_superblock(&area).expect("memory does not fail");
        assert_eq!(done, Some(Correction::Bit), "byte {byte}");
        assert_eq!(recover(&area, &device).expect("all is right again").transactions, 3);
    }
}

/// Fields that are alike in every journal in a file: the checksum proves them, or, without one, the
/// file of the journal. A tail that is not known is left alone.
#[test]
fn fields_of_the_superblock_are_corrected_if_something_proves_them() {
    for (incompat, at, noise, is_proved) in [
        (INCOMPAT, 8, [9, 9, 9, 9], true),
        (INCOMPAT, 20, [9, 9, 9, 9], true),
        (INCOMPAT, 24, [9, 9, 9, 9], false),
        (features::REVOKE, 20, [0, 0, 0, 7], true),
        (features::REVOKE, 20, [9, 9, 9, 9], true),
        (features::REVOKE, 12, [9, 9, 9, 9], true),
        (features::REVOKE, 28, [9, 9, 9, 9], false),
    ] {
        let log = three_transactions_with(incompat, 1);
        let device: Arc<dyn BlockDevice> = Arc::new(log);
        let area = area(device.clone());
        let place = area.extents[0].1.get() * u64::from(area.block_size) + at;
        device.write_at(place, noise.to_vec()).expect("memory does not fail");
        assert!(recover(&area, &device).is_err(), "{incompat}, {at}");
        let done = correct_superblock(&area).expect("memory does not fail");
        assert_eq!(done, is_proved.then_some(Correction::Fields), "{incompat}, {at}");
        let transactions = recover(&area, &device).map(|done| done.transactions);
        assert_eq!(transactions.ok(), is_proved.then_some(3), "{incompat}, {at}");
    }
}

/// What is intact before and behind a lost block is found; what a lost revoke block may have
/// revoked is doubtful.
#[test]
fn remains_are_what_is_intact_before_and_behind_the_damage() {
    let home = |block: u64| Pba(HOME + block);
    // Lost block; contents of block 0; copies; blocks that are lost, unknown, doubtful.
    type Row = (u32, u64, &'static [u64], &'static [u64], &'static [u32], &'static [u64]);
    let rows: [Row; 6] = [
        (5, 3, &[0, 1, 3], &[], &[5, 6, 7], &[1]),
        (6, 3, &[0, 1, 2, 3], &[], &[], &[]),
        (7, 3, &[0, 1, 3], &[2], &[], &[]),
        (8, 3, &[0, 1, 2, 3], &[], &[], &[]),
        (10, 2, &[0, 1, 2, 3], &[0], &[], &[]),
        (9, 2, &[0, 1, 2], &[], &[9, 10, 11], &[0, 1, 2]),
    ];
    for (block, newest, copies, lost, unknown, doubtful) in rows {
        let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(INCOMPAT));
        let area = area(device.clone());
        noise(&device, block);
        let left = remains(&area).expect("memory does not fail");
        assert_eq!(&left.images[&home(0)][..], stamp(newest), "journal block {block}");
        let mut found: Vec<Pba> = left.images.keys().copied().collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(copies.iter().map(|block| home(*block))), "{block}");
        assert!(left.lost.into_iter().eq(lost.iter().map(|block| home(*block))), "{block}");
        assert_eq!(left.unknown, unknown, "{block}");
        assert!(left.doubtful.into_iter().eq(doubtful.iter().map(|block| home(*block))), "{block}");
        mark_empty(&area, left.next).expect("memory does not fail");
        assert_eq!(recover(&area, &device).expect("it is empty").transactions, 0);
    }
}

#[test]
fn a_commit_block_of_one_sector_is_whole() {
    let device: Arc<dyn BlockDevice> = Arc::new(three_transactions(INCOMPAT));
    let rest = place(&device, 12) + 512;
    device.write_at(rest, vec![0xee; 512]).unwrap();
    let done = recover(&area(device.clone()), &device).expect("three transactions are good");
    assert_eq!(done.transactions, 3);
}

#[test]
fn a_home_beyond_the_volume_is_refused() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(three_transactions(features::REVOKE | features::BITS_64));
    // `t_blocknr_high` of the first tag.
    device.write_at(place(&device, 1) + 12 + 8, vec![0xff; 4]).unwrap();
    let found = recover(&area(device.clone()), &device);
    assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
    assert_eq!(read_home(&*device, 0), vec![0; BLOCK as usize], "something was replayed");
}

#[test]
fn random_damage_gives_an_error_or_blocks_of_the_volume() {
    let mut random = fastrand::Rng::with_seed(11);
    for incompat in [
        INCOMPAT,
        features::REVOKE | features::BITS_64,
        features::REVOKE,
        features::REVOKE | features::CSUM_V2,
    ] {
        let original = three_transactions(incompat);
        for _ in 0..400 {
            let device: Arc<dyn BlockDevice> = Arc::new(original.fork());
            for _ in 0..random.u32(1..4) {
                let block = random.u32(0..14);
                let at = place(&device, block) + random.u64(0..if block == 0 { 256 } else { 80 });
                device.write_at(at, vec![random.u8(..)]).unwrap();
            }
            let size = device.geometry().size;
            if let Ok(done) = recover(&area(device.clone()), &device) {
                assert!(done.blocks <= u64::from(LOG_BLOCKS));
            }
            assert_eq!(device.geometry().size, size);
        }
    }
}

#[test]
fn a_log_that_is_full_of_good_descriptors_ends() {
    let device: Arc<dyn BlockDevice> = Arc::new(format(features::REVOKE, 0, 1));
    device
        .write_at(place(&device, 0), Bytes::from(fixture::superblock(features::REVOKE, 0, 1, 5)))
        .unwrap();
    let mut revoke = vec![0_u8; BLOCK as usize];
    for (at, value) in [(0, 0xc03b_3998_u32), (4, 5), (8, 1), (12, BLOCK)] {
        revoke[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    for block in 1..LOG_BLOCKS {
        device.write_at(place(&device, block), revoke.clone()).unwrap();
    }
    let done = recover(&area(device.clone()), &device).expect("a log without a commit is empty");
    assert_eq!((done.transactions, done.blocks), (0, 0));
}

#[test]
fn thousands_of_revokes_in_one_operation_never_overrun_the_log() {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let (buffers, journal) = fixture::open(&device, Simulated::new(0)).expect("an empty log");
    let mut refused = 0;
    for round in 0..20_u64 {
        let handle = journal.start(120).expect("half a transaction");
        let buffer = buffers.get(Pba(HOME)).expect("memory does not fail");
        handle.get_write_access(&buffer).expect("there are credits").copy_from_slice(&stamp(round));
        // The records alone would fill the log several times.
        for record in 0..200_000_u64 {
            match handle.forget(Pba(HOME + 1 + (round << 32) + record)) {
                Ok(()) => {}
                Err(Error::TooLarge { .. }) => {
                    refused += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit_and_wait(tid).expect("what was admitted fits");
    }
    assert_eq!(refused, 20);
    assert!(journal.stats().revokes.get() > 20 * 10_000);
    let crashed: Arc<dyn BlockDevice> = Arc::new(memory.fork());
    let done = recover(&area(crashed.clone()), &crashed).expect("a good log");
    assert!(done.revokes > 10_000);
    assert_eq!(read_home(&*crashed, 0), stamp(19));
}
