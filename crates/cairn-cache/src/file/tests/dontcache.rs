//! Data that another cache holds, too: it is taken without a copy, written early, and dropped.

use bytes::Bytes;

use super::model::Rig;
use super::{pattern, read_all};
use crate::file::order::charged;
use crate::file::{BufferedMode, WriteSource};
use crate::writeback::WritebackMode::Background;

const MIB: usize = 1 << 20;

#[test]
fn whole_blocks_that_are_given_are_not_copied() {
    let rig = Rig::new(4096, 256 << 20, 1 << 20, 21);
    let given = Bytes::from(pattern(MIB, 21));
    assert_eq!(rig.file.write_source(&rig.mapper, 0, 0, (&given).into()).expect("room"), MIB);
    let lent = rig.file.read_shared(&rig.mapper, MIB as u64, 0, MIB).expect("cached");
    assert_eq!(lent.iter().map(Bytes::len).sum::<usize>(), MIB);
    assert_eq!(lent[0].as_ptr(), given.as_ptr());
    drop(lent);
    // A later write changes a copy.
    rig.file.write(&rig.mapper, MIB as u64, 5000, b"changed").expect("room");
    let mut expected = given.to_vec();
    expected[5000..5007].copy_from_slice(b"changed");
    assert!(read_all(&rig, MIB as u64) == expected);
    assert!(given[..] == pattern(MIB, 21)[..]);
}

/// Data at any offset: the parts of blocks at the ends are copied, and so is what has a folio.
#[test]
fn given_data_at_any_place_is_what_a_reader_finds() {
    for (block_size, at, len) in
        [(4096, 100, MIB), (4096, 12 << 10, MIB + 77), (1024, 3 << 10, MIB)]
    {
        for cached in [false, true] {
            let rig = Rig::new(block_size, 256 << 20, 1 << 20, 22);
            let mut expected = vec![0; at + len];
            let mut size = 0;
            if cached {
                size = rig.file.write(&rig.mapper, 0, 0, &[7; 9000]).expect("room") as u64;
                expected[..9000].fill(7);
            }
            let given = Bytes::from(pattern(len, 23));
            let mut done = 0;
            while done < len {
                let data = given.slice(done..);
                let pos = (at + done) as u64;
                done +=
                    rig.file.write_source(&rig.mapper, size, pos, (&data).into()).expect("room");
                size = (at + done) as u64;
            }
            expected[at..].copy_from_slice(&given);
            assert!(read_all(&rig, size) == expected, "{block_size} {at}+{len}, cached {cached}");
        }
    }
}

#[test]
fn the_baseline_of_blocks_copies_what_is_given() {
    let rig = Rig::new(4096, 256 << 20, 1 << 20, 24);
    rig.pages.set_mode(BufferedMode::PerBlock);
    let given = Bytes::from(pattern(MIB, 24));
    rig.file.write_source(&rig.mapper, 0, 0, (&given).into()).expect("room");
    assert!(given.is_unique(), "the cache holds nothing of it");
    assert_eq!(rig.pages.counters().folios_by_order[0].get(), 256);
}

/// A stream of 24 MiB uses 8 MiB of the budget and gives each buffer back.
#[test]
fn a_stream_that_is_not_to_be_cached_leaves_nothing_behind() {
    let rig = Rig::new(4096, 256 << 20, 1 << 20, 25);
    let mut given = Vec::new();
    for piece in 0..24 {
        let at = (piece * MIB) as u64;
        let data = Bytes::from(pattern(MIB, piece as u64));
        let source = WriteSource::from(&data).dontcache(true);
        rig.file.write_source(&rig.mapper, at, at, source).expect("room");
        given.push(data);
        let size = at + MIB as u64;
        match rig.file.write_behind() {
            Some(blocks) => {
                assert_eq!(piece % 8, 7, "it is due at 8 MiB");
                let bytes = blocks.start * 4096..blocks.end * 4096;
                rig.file.write_back(&rig.mapper, bytes, size, Background).expect("writable");
                assert!(given.drain(..).all(|data| data.is_unique()), "a buffer is still in use");
            }
            None => assert!(rig.file.dirty_bytes() < 8 << 20),
        }
    }
    assert!(!rig.file.has_dirty() && given.is_empty());
    assert_eq!(rig.pages.budget().peak(), 8 * charged(1 << 20));
    let all: Vec<u8> = (0..24).flat_map(|piece| pattern(MIB, piece)).collect();
    assert!(read_all(&rig, 24 << 20) == all);
}

/// The last use decides: what is read again, or written by somebody else, stays.
#[test]
fn a_folio_that_others_use_stays() {
    let rig = Rig::new(4096, 256 << 20, 1 << 20, 27);
    let data = pattern(4096, 27);
    let folios = || rig.pages.counters().folios_by_order[0].get();
    let write_back =
        || rig.file.write_back(&rig.mapper, 0..8192, 8192, Background).expect("writable");
    let dontcache = || WriteSource::from(&data[..]).dontcache(true);
    rig.file.write_source(&rig.mapper, 0, 0, dontcache()).expect("room");
    rig.file.write(&rig.mapper, 4096, 4096, &data).expect("room");
    write_back();
    assert_eq!(folios(), 1);
    rig.file.write_source(&rig.mapper, 8192, 0, dontcache()).expect("room");
    assert!(read_all(&rig, 8192) == data.repeat(2));
    write_back();
    assert_eq!(folios(), 2);
}

/// The kernel sends a page from its start to the end of the file: what the block has beyond is not
/// read, although the block is on the device and no longer cached.
#[test]
fn an_append_that_rewrites_its_block_reads_nothing() {
    let rig = Rig::new(4096, 256 << 20, 1 << 20, 28);
    let data = pattern(4096, 28);
    for size in [100, 300, 4000, 4096] {
        let source = WriteSource::from(&data[..size]).dontcache(true);
        let old_size = if size == 100 { 0 } else { 100 };
        rig.file.write_source(&rig.mapper, old_size, 0, source).expect("room");
        rig.file.write_back(&rig.mapper, 0..4096, size as u64, Background).expect("writable");
        assert!(rig.pages.counters().folios_by_order[0].get() == 0);
    }
    assert_eq!(rig.pages.counters().device_read_bytes.get(), 0);
    assert!(read_all(&rig, 4096) == data);
}

/// A hostile offset is no overflow, and what is dirty stays.
#[test]
fn any_range_can_be_invalidated() {
    let rig = Rig::new(4096, 256 << 20, 1 << 20, 29);
    let data = pattern(3 * 4096, 29);
    rig.file.write(&rig.mapper, 0, 0, &data).expect("room");
    rig.file.invalidate_bytes(u64::MAX - 5, MIB);
    rig.file.invalidate_bytes(0, usize::MAX);
    assert_eq!(rig.file.dirty_bytes(), 3 * 4096);
    rig.file.write_back(&rig.mapper, 0..u64::MAX, 3 * 4096, Background).expect("writable");
    rig.file.invalidate_bytes(4096, 4096);
    assert!(read_all(&rig, 3 * 4096) == data);
    assert_eq!(rig.pages.counters().device_read_bytes.get(), 4096, "only what was dropped");
}

/// A cache of 1 MiB: files do not wait until 8 MiB are dirty.
#[test]
fn a_small_budget_writes_earlier() {
    let rig = Rig::new(4096, 1 << 20, 1 << 20, 26);
    rig.file.write(&rig.mapper, 0, 0, &pattern(60 << 10, 26)).expect("room");
    assert!(rig.file.write_behind().is_none());
    rig.file.write(&rig.mapper, 60 << 10, 60 << 10, &pattern(4 << 10, 26)).expect("room");
    assert_eq!(rig.file.write_behind(), Some(0..16));
}
