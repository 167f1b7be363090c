//! Random operations with a budget so small that data is evicted all the time.

use std::sync::Weak;

use bytes::Bytes;
use proptest::prelude::*;

use super::model::Rig;
use super::{pattern, read_all};
use crate::file::{BufferedMode, CacheError, MAX_FOLIO, MIN_FOLIO, WriteSource};
use crate::mapper::MapError;
use crate::writeback::{Flushable, Flushed, WritebackMode};

const MOST: u64 = 3 << 20;

#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize, u64),
    DirectWrite(u64, usize, u64),
    Read(u64, usize),
    DirectRead(u64, usize),
    Truncate(u64),
    Punch(u64, u64),
    WriteBack(u64, u64, bool),
    Invalidate,
    FailNextWrite,
    /// Changes a mode, as a remount does.
    Switch(BufferedMode, usize),
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_000_u64, 0..MOST, (0..MOST / 4096).prop_map(|block| block * 4096)]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![1..5000_usize, 1..300_000_usize, (1..40_usize).prop_map(|blocks| blocks * 4096)]
}

fn mode() -> impl Strategy<Value = BufferedMode> {
    prop_oneof![Just(BufferedMode::Extents), Just(BufferedMode::PerBlock)]
}

fn folio() -> impl Strategy<Value = usize> {
    prop_oneof![Just(MIN_FOLIO), Just(64 << 10), Just(MAX_FOLIO)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (offset(), len(), any::<u64>()).prop_map(|(at, len, seed)| Op::Write(at, len, seed)),
        1 => (offset(), len(), any::<u64>()).prop_map(|(at, len, seed)| Op::DirectWrite(at, len,
            seed)),
        4 => (offset(), len()).prop_map(|(at, len)| Op::Read(at, len)),
        1 => (offset(), len()).prop_map(|(at, len)| Op::DirectRead(at, len)),
        2 => offset().prop_map(Op::Truncate),
        1 => (offset(), len()).prop_map(|(at, len)| Op::Punch(at, at + len as u64)),
        3 => (offset(), len(), any::<bool>()).prop_map(|(at, len, sync)| Op::WriteBack(at,
            at + len as u64, sync)),
        1 => Just(Op::Invalidate),
        1 => Just(Op::FailNextWrite),
        1 => (mode(), folio()).prop_map(|(mode, folio)| Op::Switch(mode, folio)),
    ]
}

/// An owner that was dropped.
struct Gone;

impl Flushable for Gone {
    fn flush(&self, _: WritebackMode) -> Result<Flushed, CacheError> {
        Ok(Flushed::Written)
    }
}

/// The rig, and the expected contents of its file.
struct Pair {
    rig: Rig,
    bytes: Vec<u8>,
    block_size: u64,
}

impl Pair {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn wrote(&mut self, at: u64, data: &[u8]) {
        let at = usize::try_from(at).expect("small");
        if self.bytes.len() < at + data.len() {
            self.bytes.resize(at + data.len(), 0);
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    /// The last write of a stream that is not to be cached.
    fn write_behind(&self) {
        let (file, mapper) = (&self.rig.file, &self.rig.mapper);
        let Some(blocks) = file.write_behind() else { return };
        let bytes = blocks.start * self.block_size..blocks.end * self.block_size;
        // FailNextWrite injects a failure, which must lose no data.
        let _ = file.write_back(mapper, bytes, self.size(), WritebackMode::Background);
        file.invalidate(blocks);
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let given = Bytes::copy_from_slice(data);
        let mut done = 0;
        while done < data.len() {
            let pos = at + done as u64;
            let (file, mapper) = (&self.rig.file, &self.rig.mapper);
            let written = if data.len().is_multiple_of(2) {
                file.write(mapper, self.size(), pos, &data[done..])
            } else {
                let piece = given.slice(done..);
                let piece = WriteSource::from(&piece).dontcache(data.len().is_multiple_of(3));
                file.write_source(mapper, self.size(), pos, piece)
            };
            match written {
                Ok(n) => {
                    self.wrote(pos, &data[done..done + n]);
                    done += n;
                }
                Err(CacheError::Map(MapError::NoSpace)) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn check_read(&self, at: u64, len: usize, direct: bool) {
        let (file, mapper) = (&self.rig.file, &self.rig.mapper);
        if !direct && len.is_multiple_of(2) {
            let lent = file
                .read_shared(mapper, self.size(), at, len)
                .expect("only write-back may fail")
                .concat();
            let end = self.bytes.len().min(usize::try_from(at).expect("small") + len);
            let expected =
                self.bytes.get(usize::try_from(at).expect("small")..end).unwrap_or_default();
            assert!(lent == expected, "{len} bytes lent at {at}");
        }
        let mut buf = vec![0x55; len];
        let n = if direct {
            file.direct_read(mapper, self.size(), at, &mut buf)
        } else {
            file.read(mapper, self.size(), at, &mut buf)
        };
        let Ok(n) = n else {
            assert!(direct, "only write-back may fail");
            return;
        };
        let expected = self.bytes.get(usize::try_from(at).expect("small")..).unwrap_or_default();
        let expected = &expected[..expected.len().min(len)];
        assert!(buf[..n] == *expected, "read of {len} bytes at {at}");
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Write(at, len, seed) => {
                self.write(at, &pattern(len, seed));
                if seed.is_multiple_of(4) {
                    self.write_behind();
                }
            }
            Op::DirectWrite(at, len, seed) => self.direct_write(at, len, seed),
            Op::Read(at, len) => self.check_read(at, len, false),
            Op::DirectRead(at, len) => {
                self.check_read(at / 4096 * 4096, len.next_multiple_of(4096), true)
            }
            Op::Truncate(size) => self.truncate(size),
            Op::Punch(from, to) => self.punch(from, to.min(self.size())),
            Op::WriteBack(from, to, sync) => {
                let mode = if sync { WritebackMode::Sync } else { WritebackMode::Background };
                // FailNextWrite injects a failure, which must lose no data.
                let _ = self.rig.file.write_back(&self.rig.mapper, from..to, self.size(), mode);
            }
            Op::Invalidate => self.rig.file.invalidate(0..u64::MAX),
            Op::Switch(mode, folio) => self.switch(mode, folio),
            Op::FailNextWrite => {
                self.rig.device.fail_next(super::Operation::Write, super::Lasting::Once)
            }
        }
    }

    fn switch(&self, mode: BufferedMode, folio: usize) {
        self.rig.pages.set_mode(mode);
        self.rig.pages.set_max_folio(folio);
    }

    fn direct_write(&mut self, at: u64, len: usize, seed: u64) {
        self.rig.device.clear();
        let data = Bytes::from(pattern(len, seed));
        if let Ok(n) = self.rig.file.direct_write(&self.rig.mapper, self.size(), at, &data) {
            self.wrote(at, &data[..n]);
        }
    }

    fn truncate(&mut self, size: u64) {
        self.rig.file.truncate(&self.rig.mapper, self.size(), size).expect("reads do not fail");
        self.rig.mapper.unmap(size.div_ceil(self.block_size)..u64::MAX);
        self.bytes.resize(usize::try_from(size).expect("small"), 0);
    }

    fn punch(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let Ok(()) = self.rig.file.zero(&self.rig.mapper, from..to, self.size()) else { return };
        let end =
            if to == self.size() { to.div_ceil(self.block_size) } else { to / self.block_size };
        let blocks = from.div_ceil(self.block_size)..end;
        if blocks.start < blocks.end {
            self.rig.file.discard(&self.rig.mapper, blocks.clone());
            self.rig.mapper.unmap(blocks);
        }
        self.bytes[usize::try_from(from).expect("small")..usize::try_from(to).expect("small")]
            .fill(0);
    }

    fn finish(mut self) {
        self.rig.device.clear();
        assert!(read_all(&self.rig, self.size()) == self.bytes, "before the last write-back");
        self.rig
            .file
            .write_back(&self.rig.mapper, 0..u64::MAX, self.size(), WritebackMode::Sync)
            .expect("writable");
        assert_eq!(
            (self.rig.file.dirty_bytes(), self.rig.pages.dirty_bytes(), self.rig.mapper.delayed()),
            (0, 0, 0)
        );
        self.rig.file =
            crate::file::FileCache::new(&self.rig.pages, self.rig.pages.options().block_size);
        assert!(read_all(&self.rig, self.size()) == self.bytes, "from the device");
        self.rig.file.drop_all(&self.rig.mapper);
        for order in &self.rig.pages.counters().folios_by_order {
            assert_eq!(order.get(), 0);
        }
    }
}

fn run(ops: &[Op], block_size: u32, free: u64, seed: u64, (mode, folio): (BufferedMode, usize)) {
    let rig = Rig::new(block_size, 1 << 20, free, seed);
    // No other file releases reservations here, but space is reserved ahead.
    rig.file.set_owner(Weak::<Gone>::new());
    let mut pair = Pair { rig, bytes: Vec::new(), block_size: block_size.into() };
    // Preallocated blocks, as after fallocate with KEEP_SIZE.
    pair.rig.mapper.preallocate(3..9, false);
    pair.rig.mapper.preallocate(200..300, false);
    pair.switch(mode, folio);
    for op in ops {
        pair.apply(op);
    }
    pair.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_vector(
        ops in proptest::collection::vec(op(), 1..60),
        block_shift in 10_u32..13,
        scarce in any::<bool>(),
        seed in any::<u64>(),
        grain in (mode(), folio()),
    ) {
        run(&ops, 1 << block_shift, if scarce { 400 } else { 1 << 20 }, seed, grain);
    }
}
