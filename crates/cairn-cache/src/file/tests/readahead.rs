//! Readahead: its windows, its streams, and that a reader waits only for the blocks it needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Rank, RwLock};
use cairn_base::runtime::{DaemonHandle, Event};
use cairn_block::memory::MemoryDevice;
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Completion, Geometry, Request};

use super::model::{DEVICE, Rig};
use super::pattern;
use crate::file::{BufferedMode, CacheError};
use crate::writeback::{Flushable, Flushed, WritebackMode};

const SIZE: u64 = 16 << 20;
const BUDGET: u64 = 64 << 20;

/// A file of random bytes on the device, of which nothing is cached.
struct Subject {
    rig: Rig,
    data: RwLock<()>,
    bytes: Vec<u8>,
}

impl Flushable for Subject {
    fn flush(&self, _: WritebackMode) -> Result<Flushed, CacheError> {
        Ok(Flushed::Written)
    }

    fn read_ahead(&self, blocks: std::ops::Range<u64>) {
        if let Some(_data) = self.data.try_read() {
            self.rig.file.read_ahead(&self.rig.mapper, SIZE, blocks);
        }
    }
}

impl Subject {
    fn new(device: Arc<dyn BlockDevice>, mode: BufferedMode) -> (Arc<Self>, DaemonHandle) {
        let rig = Rig::over(device, 4096, BUDGET, 1 << 20, 1);
        rig.pages.set_mode(mode);
        let at = rig.mapper.preallocate(0..SIZE >> 12, true);
        let bytes = pattern(usize::try_from(SIZE).expect("small"), 3);
        rig.device.write_at(at << 12, bytes.clone()).expect("memory takes writes");
        let subject = Arc::new(Self { rig, data: RwLock::new(Rank::InodeData, ()), bytes });
        let owner: Weak<dyn Flushable> = Arc::downgrade(&(subject.clone() as Arc<dyn Flushable>));
        subject.rig.file.set_owner(owner);
        let daemon = subject.rig.pages.start_readahead().unwrap();
        (subject, daemon)
    }

    #[track_caller]
    fn read(&self, at: u64, len: usize) {
        let _data = self.data.read();
        let mut buf = vec![0; len];
        assert_eq!(
            self.rig.file.read(&self.rig.mapper, SIZE, at, &mut buf).expect("readable"),
            len
        );
        let from = usize::try_from(at).expect("small");
        assert!(buf == self.bytes[from..from + len], "{len} bytes at {at}");
    }
}

#[test]
fn interleaved_sequential_readers_are_read_ahead_and_nothing_twice() {
    for mode in [BufferedMode::Extents, BufferedMode::PerBlock] {
        for piece in [4 << 10, 64 << 10, 1 << 20] {
            let (subject, daemon) = Subject::new(Arc::new(MemoryDevice::new(DEVICE)), mode);
            let third = SIZE / 4;
            for at in (0..third).step_by(piece) {
                for stream in 0..4 {
                    subject.read(stream * third + at, piece);
                }
            }
            daemon.stop();
            let counters = subject.rig.pages.counters();
            let (ahead, all) = (counters.readahead_bytes.get(), counters.device_read_bytes.get());
            assert!(ahead > 0, "{mode:?}, {piece}: nothing was read ahead");
            assert!(
                (SIZE..=SIZE + (2 << 20)).contains(&all),
                "{mode:?}, {piece}: {all} bytes were read of {SIZE}"
            );
            if mode == BufferedMode::Extents {
                let (asked, pieces) = (counters.map_lookups.get(), SIZE / (128 << 10));
                assert!(
                    asked <= pieces,
                    "{piece}: {asked} lookups of one extent, read in {pieces} pieces at most"
                );
            }
        }
    }
}

#[test]
fn random_reads_read_what_they_ask() {
    let (subject, daemon) =
        Subject::new(Arc::new(MemoryDevice::new(DEVICE)), BufferedMode::Extents);
    let mut random = fastrand::Rng::with_seed(5);
    let mut asked = 0;
    for _ in 0..100 {
        // Odd blocks only: no read continues another.
        let block = random.u64(1..SIZE >> 13) * 2 + 1;
        subject.read((block % (SIZE >> 12)) << 12, 4096);
        asked += 4096;
    }
    daemon.stop();
    let counters = subject.rig.pages.counters();
    assert!(counters.device_read_bytes.get() <= asked);
    assert_eq!(counters.readahead_bytes.get(), 0);
}

/// A device whose reads of the second half wait until the test opens a gate.
struct Gate {
    inner: MemoryDevice,
    open: AtomicBool,
    opened: Event,
}

impl BlockDevice for Gate {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let late = |request: &Request| {
            matches!(request, Request::Read { offset, .. }
            if *offset >= SIZE / 2)
        };
        if batch.requests.iter().any(late) {
            loop {
                let seen = self.opened.generation();
                if self.open.load(Ordering::SeqCst) {
                    break;
                }
                self.opened.wait_past(seen, Some(Duration::from_secs(1)));
            }
        }
        self.inner.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.inner.flush()
    }
}

#[test]
fn a_reader_waits_for_no_more_than_it_asked() {
    let gate = Arc::new(Gate {
        inner: MemoryDevice::new(DEVICE),
        open: AtomicBool::new(false),
        opened: Event::new(),
    });
    let (subject, daemon) = Subject::new(gate.clone(), BufferedMode::Extents);
    let reader = {
        let subject = subject.clone();
        // A small read reads up to 1M along; only the daemon reads beyond that.
        std::thread::spawn(move || {
            for at in (0..SIZE / 2 - (1 << 20) - (64 << 10)).step_by(64 << 10) {
                subject.read(at, 64 << 10);
            }
        })
    };
    // A reader that waited at the gate would wait for ever.
    reader.join().expect("the reader needs nothing behind the gate");
    assert!(!gate.open.load(Ordering::SeqCst));
    gate.open.store(true, Ordering::SeqCst);
    gate.opened.notify();
    subject.read(SIZE / 2, 1 << 20);
    daemon.stop();
}

/// The daemon skips a window that a reader is reading, without a mapping for each of its blocks.
#[test]
fn what_others_are_reading_is_asked_for_once() {
    let (subject, daemon) =
        Subject::new(Arc::new(MemoryDevice::new(DEVICE)), BufferedMode::Extents);
    daemon.stop();
    let (file, counters) = (&subject.rig.file, subject.rig.pages.counters());
    let reading = file.state.begin_reading(0..256).expect("there is no other reader");
    file.read_ahead(&subject.rig.mapper, SIZE, 0..512);
    assert_eq!((counters.map_lookups.get(), counters.device_read_bytes.get()), (1, 1 << 20));
    drop(reading);
    file.read_ahead(&subject.rig.mapper, SIZE, 0..512);
    assert_eq!((counters.map_lookups.get(), counters.device_read_bytes.get()), (2, 2 << 20));
    subject.read(0, 2 << 20);
    assert_eq!(counters.map_lookups.get(), 2);
}

/// `read_shared` returns the data in large pieces, which do not change when the file is written.
#[test]
fn what_is_lent_is_read_once_and_never_changes() {
    let (subject, daemon) =
        Subject::new(Arc::new(MemoryDevice::new(DEVICE)), BufferedMode::Extents);
    let (file, mapper, counters) =
        (&subject.rig.file, &subject.rig.mapper, subject.rig.pages.counters());
    let mut all = Vec::new();
    for at in (0..SIZE).step_by(1 << 20) {
        let _data = subject.data.read();
        let pieces = file.read_shared(mapper, SIZE, at, 1 << 20).expect("readable");
        assert_eq!(pieces.iter().map(bytes::Bytes::len).sum::<usize>(), 1 << 20);
        all.extend(pieces);
    }
    daemon.stop();
    assert!(all.len() < 64, "{} pieces of 16 MiB", all.len());
    assert!(
        counters.device_read_bytes.get() <= SIZE + (2 << 20) && counters.map_lookups.get() <= 40
    );
    file.write(mapper, SIZE, 0, &vec![0xEE; 8 << 20]).expect("room");
    assert!(all.concat() == subject.bytes);
    drop(all);
    let end = file.read_shared(mapper, SIZE, SIZE - 5, 1 << 20).expect("readable").concat();
    assert!(end == subject.bytes[subject.bytes.len() - 5..]);
    assert!(file.read_shared(mapper, SIZE, SIZE, 10).expect("readable").is_empty());
    // A hole, and data in memory only.
    let after = SIZE + (1 << 20);
    file.write(mapper, SIZE, after, &[7; 100]).expect("room");
    let tail = file.read_shared(mapper, after + 100, SIZE - 1, 2 << 20).expect("readable").concat();
    let mut expected = vec![0; (1 << 20) + 101];
    expected[0] = *subject.bytes.last().expect("not empty");
    expected[(1 << 20) + 1..].fill(7);
    assert!(tail == expected);
}
