use cairn_base::checksum::crc32c;
use cairn_base::{FileBlock, Ino, Pba};

use super::blocks::Reader;
use super::record::HEADER;
use super::*;

const BLOCK: usize = 1024;
const TID: u32 = 7;

fn record(tag: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).unwrap();
    [&tag.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn unlink(ino: u32, name: &str) -> Vec<u8> {
    record(5, &[words(&[2, ino]), name.as_bytes().to_vec()].concat())
}

/// A block with these records and a TAIL.
fn closed(records: &[Vec<u8>], tid: u32) -> Vec<u8> {
    let mut block = records.concat();
    let left = BLOCK - block.len() - HEADER;
    block.extend_from_slice(&8_u16.to_le_bytes());
    block.extend_from_slice(&u16::try_from(left).unwrap().to_le_bytes());
    block.extend_from_slice(&tid.to_le_bytes());
    let sum = crc32c(0, &block);
    block.extend_from_slice(&sum.to_le_bytes());
    block.resize(BLOCK, 0);
    block
}

fn read(blocks: &[Vec<u8>]) -> Vec<FastCommit> {
    let mut reader = Reader::new(Tid(TID));
    for (number, block) in (0..).zip(blocks) {
        if !reader.block(number, block).unwrap() {
            break;
        }
    }
    reader.complete
}

fn head(tid: u32) -> Vec<u8> {
    record(9, &words(&[0, tid]))
}

#[test]
fn all_operations_are_read_in_order() {
    let extent = [
        words(&[12, 3]),
        0x8005_u16.to_le_bytes().to_vec(),
        1_u16.to_le_bytes().to_vec(),
        words(&[9]),
    ]
    .concat();
    let raw = vec![0x5a; 160];
    let name = |name: &str| [words(&[2, 12]), name.as_bytes().to_vec()].concat();
    let records = [
        head(TID),
        record(6, &[words(&[12]), raw.clone()].concat()),
        record(1, &extent),
        record(2, &words(&[12, 8, 4])),
        record(3, &name("made")),
        record(4, &name("more")),
        unlink(12, "gone"),
    ];
    let found = read(&[closed(&records, TID)]);
    let named = |text: &str| Name { parent: Ino(2), ino: Ino(12), name: text.into() };
    let operations = vec![
        Operation::Inode { ino: Ino(12), raw },
        Operation::AddRange {
            ino: Ino(12),
            start: FileBlock(3),
            pba: Pba(1 << 32 | 9),
            len: 5,
            unwritten: true,
        },
        Operation::DeleteRange { ino: Ino(12), start: FileBlock(8), len: 4 },
        Operation::Create(named("made")),
        Operation::Link(named("more")),
        Operation::Unlink(named("gone")),
    ];
    assert_eq!(found, [FastCommit { operations }]);
}

#[test]
fn only_the_expected_transaction_counts() {
    let first = closed(&[head(TID), unlink(12, "a")], TID);
    let second = closed(&[unlink(13, "b")], TID);
    let stale = closed(&[unlink(14, "c")], TID - 1);
    assert_eq!(read(&[first.clone(), second.clone(), stale.clone(), second.clone()]).len(), 2);
    assert!(read(&[stale]).is_empty());
    assert!(read(&[closed(&[head(TID - 1)], TID - 1), first]).is_empty());
}

#[test]
fn a_fast_commit_over_two_blocks_counts_when_both_are_whole() {
    let mut first = [head(TID), unlink(12, "a")].concat();
    let pad = BLOCK - first.len() - HEADER;
    first.extend(record(7, &vec![0; pad]));
    let mut second =
        [unlink(13, "b"), 8_u16.to_le_bytes().to_vec(), 1000_u16.to_le_bytes().to_vec()].concat();
    second.extend(TID.to_le_bytes());
    let sum = crc32c(crc32c(0, &first), &second);
    second.extend(sum.to_le_bytes());
    second.resize(BLOCK, 0);
    let found = read(&[first.clone(), second.clone()]);
    assert_eq!(found.iter().map(|commit| commit.operations.len()).collect::<Vec<_>>(), [2]);
    assert!(read(&[first.clone()]).is_empty());
    first[20] ^= 1;
    assert!(read(&[first, second]).is_empty());
}

#[test]
fn any_flipped_bit_ends_the_area_there() {
    let first = closed(&[head(TID), unlink(12, "a")], TID);
    let second = closed(&[unlink(13, "b")], TID);
    let covered = HEADER + 8 + 1 + HEADER + 8;
    for bit in 0..covered * 8 {
        let mut torn = second.clone();
        torn[bit / 8] ^= 1 << (bit % 8);
        // The checksum covers the length of the TAIL as well.
        let found = read(&[first.clone(), torn]);
        assert_eq!(found.len(), 1, "bit {bit}");
    }
}

#[test]
fn unknown_features_are_an_error() {
    let block = closed(&[record(9, &words(&[1, TID]))], TID);
    assert!(matches!(
        Reader::new(Tid(TID)).block(9, &block),
        Err(Error::Corrupt { block: 9, value: 1, .. })
    ));
}

#[test]
fn garbage_is_never_a_fast_commit() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2000 {
        let block = (0..BLOCK).map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // Many small numbers are valid tags.
            u8::try_from(seed % 12).unwrap()
        });
        assert!(read(&[block.collect()]).is_empty());
    }
}
