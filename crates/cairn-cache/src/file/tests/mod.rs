//! Compares the file cache with a vector of bytes. A model mapper uses a device full of arbitrary
//! bytes.

mod contention;
mod daemon;
mod dontcache;
mod model;
mod oracle;
mod readahead;

use std::sync::Weak;

use cairn_base::FileBlock;
use cairn_block::BlockDeviceExt;
use cairn_block::wrap::{Lasting, Operation};

use self::model::Rig;
use super::{BufferedMode, CacheError};
use crate::mapper::MapError;
use crate::writeback::WritebackMode::{Background, Sync};
use crate::writeback::{Flushable, Flushed};

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(1..)).collect()
}

fn read_all(rig: &Rig, size: u64) -> Vec<u8> {
    let mut buf = vec![0x55; usize::try_from(size).expect("small")];
    let n = rig.file.read(&rig.mapper, size, 0, &mut buf).expect("readable");
    assert_eq!(n, buf.len());
    buf
}

#[test]
fn a_large_write_is_one_mapping_and_large_folios() {
    let rig = Rig::new(4096, 256 << 20, 1 << 20, 1);
    let data = pattern(8 << 20, 1);
    assert_eq!(rig.file.write(&rig.mapper, 0, 0, &data).expect("room"), data.len());
    let counters = rig.pages.counters();
    assert_eq!((counters.map_calls(), counters.device_read_bytes.get()), (1, 0));
    assert_eq!(counters.folios_by_order[9].get(), 4);
    assert_eq!(rig.file.dirty_bytes(), 8 << 20);
    rig.file.write_back(&rig.mapper, 0..u64::MAX, 8 << 20, Sync).expect("writable");
    assert_eq!(
        (rig.file.has_dirty(), rig.mapper.file_end(), rig.mapper.delayed()),
        (false, 8 << 20, 0)
    );
    rig.file.invalidate(0..u64::MAX);
    assert_eq!(counters.folios_by_order[9].get(), 0);
    assert!(read_all(&rig, 8 << 20) == data);
}

#[test]
fn small_appends_and_rewrites_of_dirty_blocks_ask_for_nothing() {
    let rig = Rig::new(4096, 64 << 20, 1000, 11);
    let data = pattern(64 << 10, 11);
    for (at, piece) in (0..).step_by(1024).zip(data.chunks(1024)) {
        assert_eq!(rig.file.write(&rig.mapper, at, at, piece).expect("room"), 1024);
    }
    let counters = rig.pages.counters();
    assert_eq!(counters.map_calls(), 16);
    rig.file.write(&rig.mapper, 64 << 10, 0, &data).expect("room");
    assert_eq!(counters.map_calls(), 16);
    rig.file.write_back(&rig.mapper, 0..u64::MAX, 64 << 10, Sync).expect("reserved");
    let before = counters.map_reserves.get();
    rig.file.write(&rig.mapper, 64 << 10, 100, &data[100..200]).expect("room");
    assert_eq!(counters.map_reserves.get(), before + 1);
    rig.file.invalidate(0..u64::MAX);
    assert!(read_all(&rig, 64 << 10) == data);
}

/// The baseline uses a folio for each page and a mapping for each block. The device still gets
/// neighbours as one request.
#[test]
fn per_block_mode_asks_for_each_block_and_keeps_pages() {
    for (block_size, blocks) in [(4096, 256), (1024, 1024)] {
        let rig = Rig::new(block_size, 256 << 20, 1 << 20, 7);
        rig.pages.set_mode(BufferedMode::PerBlock);
        let data = pattern(1 << 20, 7);
        assert_eq!(rig.file.write(&rig.mapper, 0, 0, &data).expect("room"), data.len());
        let counters = rig.pages.counters();
        assert_eq!((counters.map_reserves.get(), counters.folios_by_order[0].get()), (blocks, 256));
        rig.file.write_back(&rig.mapper, 0..u64::MAX, 1 << 20, Sync).expect("writable");
        assert_eq!((counters.map_places.get(), rig.mapper.delayed()), (blocks, 0));
        assert!(counters.writeback_batches.get() < blocks, "neighbours go together");
        rig.file.invalidate(0..u64::MAX);
        let before = counters.map_lookups.get();
        assert!(read_all(&rig, 1 << 20) == data);
        assert!(counters.map_lookups.get() - before >= blocks);
    }
}

#[test]
fn runs_that_become_neighbours_on_the_device_go_out_together() {
    let rig = Rig::new(4096, 64 << 20, 1 << 20, 12);
    let (data, size) = (pattern(4096, 12), 600 * 8 * 4096);
    let places = || (0..600).map(|run| run * 8 * 4096);
    for at in places() {
        rig.file.write(&rig.mapper, size, at, &data).expect("room");
    }
    rig.file.write_back(&rig.mapper, 0..u64::MAX, size, Sync).expect("reserved");
    let counters = rig.pages.counters();
    assert_eq!((counters.map_places.get(), rig.mapper.delayed()), (600, 0));
    // The model leaves a gap behind about every second run.
    let batches = counters.writeback_batches.get();
    assert!((200..400).contains(&batches), "{batches} batches");
    rig.file.invalidate(0..u64::MAX);
    let read = read_all(&rig, size);
    assert!(places().all(|at| read[at as usize..][..4096] == data[..]));
    assert_eq!(read.iter().filter(|byte| **byte == 0).count(), 600 * 7 * 4096);
}

#[test]
fn the_largest_folio_follows_the_options_while_mounted() {
    let rig = Rig::new(4096, 256 << 20, 1 << 20, 8);
    let folios = |order: usize| rig.pages.counters().folios_by_order[order].get();
    rig.pages.set_max_folio(64 << 10);
    rig.file.write(&rig.mapper, 0, 0, &pattern(2 << 20, 8)).expect("room");
    assert_eq!((folios(4), folios(9)), (32, 0));
    rig.pages.set_max_folio(super::MAX_FOLIO);
    rig.file.write(&rig.mapper, 2 << 20, 2 << 20, &pattern(2 << 20, 9)).expect("room");
    assert_eq!((folios(4), folios(9)), (32, 1));
    rig.pages.set_max_folio(super::MIN_FOLIO);
    rig.file.write(&rig.mapper, 4 << 20, 4 << 20, &pattern(64 << 10, 10)).expect("room");
    assert_eq!(folios(0), 16);
}

#[test]
fn only_edge_blocks_that_hold_data_are_read() {
    let rig = Rig::new(4096, 64 << 20, 1 << 20, 2);
    let at = rig.mapper.preallocate(0..4, true);
    rig.mapper.preallocate(4..8, false);
    rig.device.write_at(at << 12, vec![7; 4 << 12]).expect("memory takes writes");
    let read = || rig.pages.counters().device_read_bytes.get();
    rig.file.write(&rig.mapper, 8 << 12, 100, &[1; 8000]).expect("room");
    assert_eq!(read(), 2 << 12);
    rig.file.write(&rig.mapper, 8 << 12, (4 << 12) + 5, &[2; 10]).expect("room");
    rig.file.write(&rig.mapper, 8 << 12, 2 << 12, &[3; 8192]).expect("room");
    assert_eq!(read(), 2 << 12);
    let mut expected = vec![0; 8 << 12];
    expected[..2 << 12].fill(7);
    expected[100..8100].fill(1);
    expected[2 << 12..4 << 12].fill(3);
    expected[(4 << 12) + 5..(4 << 12) + 15].fill(2);
    assert!(read_all(&rig, 8 << 12) == expected);
}

#[test]
fn want_of_space_gives_a_short_write_and_loses_nothing() {
    let rig = Rig::new(1024, 16 << 20, 10, 3);
    let data = pattern(20 << 10, 3);
    assert_eq!(rig.file.write(&rig.mapper, 0, 0, &data).expect("some room"), 10 << 10);
    let refused = rig.file.write(&rig.mapper, 10 << 10, 10 << 10, &data[10 << 10..]);
    assert!(matches!(refused, Err(CacheError::Map(MapError::NoSpace))));
    rig.file.write_back(&rig.mapper, 0..u64::MAX, 10 << 10, Sync).expect("reserved");
    rig.file.drop_all(&rig.mapper);
    assert!(read_all(&rig, 10 << 10) == data[..10 << 10]);
}

#[test]
fn a_failed_edge_read_releases_the_reservation() {
    let rig = Rig::new(4096, 16 << 20, 100, 4);
    rig.mapper.preallocate(2..3, true);
    rig.device.fail_next(Operation::Read, Lasting::Once);
    assert_eq!(
        rig.file.write(&rig.mapper, 3 << 12, 0, &[1; 10_000]).expect("the hole can be written"),
        8192
    );
    rig.device.fail_next(Operation::Read, Lasting::Once);
    assert!(matches!(
        rig.file.write(&rig.mapper, 3 << 12, 8192, &[1; 10]),
        Err(CacheError::Read(_))
    ));
    assert_eq!(rig.mapper.delayed(), 2);
    rig.file.drop_all(&rig.mapper);
    assert_eq!((rig.mapper.delayed(), rig.file.dirty_bytes(), rig.pages.dirty_bytes()), (0, 0, 0));
}

#[test]
fn a_failed_write_back_is_reported_once_and_tried_again() {
    let rig = Rig::new(4096, 16 << 20, 1000, 5);
    let data = pattern(300_000, 5);
    rig.file.write(&rig.mapper, 0, 0, &data).expect("room");
    rig.file.errors().open(1);
    rig.device.fail_next(Operation::Write, Lasting::Once);
    assert!(rig.file.write_back(&rig.mapper, 0..u64::MAX, 300_000, Background).is_err());
    assert!(
        rig.file.errors().check_and_advance(1).is_some()
            && rig.file.errors().check_and_advance(1).is_none()
    );
    assert!(rig.file.has_dirty() && rig.mapper.delayed() > 0);
    rig.file.write_back(&rig.mapper, 0..u64::MAX, 300_000, Sync).expect("the device works again");
    assert_eq!((rig.file.has_dirty(), rig.mapper.delayed()), (false, 0));
    rig.file.invalidate(0..u64::MAX);
    assert!(read_all(&rig, 300_000) == data);
}

#[test]
fn what_lies_behind_the_end_never_shows() {
    let rig = Rig::new(4096, 16 << 20, 1000, 6);
    rig.mapper.preallocate(0..1, true);
    // The device is full of 0xAA: bytes behind the end of the 100-byte file are not zero.
    assert!(read_all(&rig, 100) == [0xAA; 100]);
    rig.file.truncate(&rig.mapper, 100, 3000).expect("grows");
    let mut expected = vec![0xAA; 100];
    expected.resize(3000, 0);
    assert!(read_all(&rig, 3000) == expected);
    assert!(rig.file.is_dirty(FileBlock(0)));
    rig.file.truncate(&rig.mapper, 3000, 50).expect("shrinks");
    rig.file.write(&rig.mapper, 50, 9000, &[1]).expect("room");
    rig.file.write_back(&rig.mapper, 0..u64::MAX, 9001, Sync).expect("writable");
    rig.file.invalidate(0..u64::MAX);
    let mut expected = vec![0xAA; 50];
    expected.resize(9000, 0);
    expected.push(1);
    assert!(read_all(&rig, 9001) == expected);
}

/// An owner whose methods do nothing.
struct IdleOwner;

impl Flushable for IdleOwner {
    fn flush(&self, _: crate::writeback::WritebackMode) -> Result<Flushed, CacheError> {
        Ok(Flushed::Busy)
    }
}

#[test]
fn a_sequential_writer_gets_as_much_again_reserved() {
    let rig = Rig::new(4096, 256 << 20, 3000, 12);
    rig.file.set_owner(Weak::<IdleOwner>::new());
    let asked = || rig.pages.counters().map_calls();
    for at in 0..1024_u64 {
        rig.file.write(&rig.mapper, at << 12, at << 12, &[5; 4096]).expect("room");
    }
    // 1, 1 + 1, 1 + 3, 1 + 7 ...
    assert_eq!((asked(), rig.mapper.delayed()), (11, 2047));
    // A write elsewhere releases the rest.
    rig.file.write(&rig.mapper, 4 << 20, 2000 << 12, &[5; 4096]).expect("room");
    assert_eq!((asked(), rig.mapper.delayed()), (12, 1025));
    for at in 2001..2010_u64 {
        rig.file.write(&rig.mapper, at << 12, at << 12, &[5; 4096]).expect("room");
    }
    assert!(rig.mapper.delayed() > 1034);
    rig.file.truncate(&rig.mapper, 2010 << 12, 2009 << 12).expect("shrinks");
    assert_eq!(rig.mapper.delayed(), 1033);
    rig.file.drop_all(&rig.mapper);
    assert_eq!(rig.mapper.delayed(), 0);
}

#[test]
fn nothing_is_reserved_ahead_while_space_is_short() {
    let rig = Rig::new(4096, 256 << 20, 3000, 13);
    rig.file.set_owner(Weak::<IdleOwner>::new());
    assert!(!rig.pages.space_is_short());
    for at in 0..20_u64 {
        rig.file.write(&rig.mapper, at << 12, at << 12, &[5; 4096]).expect("room");
        assert_eq!(rig.mapper.delayed() as u64, at + 1);
    }
}
